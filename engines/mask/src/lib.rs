//! Being built.
use ctxhost_engine_api::*;
#[derive(Debug)]
pub struct Mask;
impl ContextEngine for Mask {
    const INFO: Info = Info::new("mask", "Mask", "0.1.0");
    fn create(_: Host, _: serde_json::Value) -> Result<Self> { Ok(Mask) }
    async fn assemble(&self, t: Transcript, _: AssembleRequest) -> Result<Plan> { Ok(Plan::keep_all(t.len())) }
    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> { Ok(Compaction::Delegate) }
}
