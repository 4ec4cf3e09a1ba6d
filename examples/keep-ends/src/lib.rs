//! Keeps the first entries of a conversation and as many of the newest as fit, in whole frames.

#![forbid(unsafe_code)]
#![deny(warnings)]

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::*;

/// Entries kept at the start. Default 4: the task and the first answer to it.
const HEAD_ENTRIES: u64 = 4;

struct KeepEnds {
    head_entries: u64,
}

impl ContextEngine for KeepEnds {
    const INFO: Info =
        Info::new("keep-ends", "Keep both ends", env!("CARGO_PKG_VERSION")).owning_compaction();

    /// The only setting is `head`, a number of entries.
    fn create(_host: Host, config: Value) -> Result<Self> {
        let settings = config.as_object().ok_or_else(|| invalid("", "config must be a table"))?;
        let mut head_entries = HEAD_ENTRIES;
        for (key, value) in settings {
            match (key.as_str(), value.as_u64()) {
                ("head", Some(entries)) => head_entries = entries,
                ("head", None) => return Err(invalid("head", "must be a number of entries")),
                (other, _) => return Err(invalid(other, "unknown setting; the only one is head")),
            }
        }
        Ok(KeepEnds { head_entries })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let len = transcript.len() as u64;
        if transcript.total_tokens() <= request.budget {
            return Ok(Plan::keep_all(transcript.len()));
        }
        // Rounded down to a safe cut, so that calls stay with their results.
        let head = transcript.cut_at_or_before(self.head_entries.min(len));
        let head = if transcript.tokens(0..head) <= request.budget { head } else { 0 };
        let rest = request.budget.saturating_sub(transcript.tokens(0..head));
        // The newest frame is kept even if it does not fit; the host then trims the request.
        let newest = transcript.last().map_or(0, |entry| entry.frame());
        let tail = transcript.tail_within(rest).min(newest).max(head);

        let mut plan = Plan::default();
        plan.keep(0..head);
        if head < tail {
            plan.leave_out(head..tail).note("keep-ends", format!("{} in the middle", tail - head));
        }
        plan.keep(tail..len);
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

fn invalid(key: &str, message: &str) -> EngineError {
    EngineError::config(key, message)
}

export_engine!(KeepEnds);

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::{border::EngineFactory, testing};

    #[test]
    fn keeps_the_contract() {
        let factory = EngineFactory::linked::<super::KeepEnds>();
        let report = testing::contract(factory, &testing::ContractOptions::default());
        assert!(report.passed(), "{report}");
    }
}
