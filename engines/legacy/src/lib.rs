//! Being built.
use ctxhost_engine_api::*;
#[derive(Debug)]
pub struct Legacy;
impl ContextEngine for Legacy {
    const INFO: Info = Info::new("legacy", "Legacy", "0.1.0");
    fn create(_: Host, _: serde_json::Value) -> Result<Self> { Ok(Legacy) }
    async fn assemble(&self, t: Transcript, _: AssembleRequest) -> Result<Plan> { Ok(Plan::keep_all(t.len())) }
    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> { Ok(Compaction::Delegate) }
}
