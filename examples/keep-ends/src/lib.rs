//! Keeps the beginning of a conversation and as much of its end as fits, in whole frames.

#![forbid(unsafe_code)]
#![deny(warnings)]

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::*;

/// How many entries stay at the beginning. Default 4: the task and the first answer to it.
const HEAD_ENTRIES: u64 = 4;

struct KeepEnds {
    head_entries: u64,
}

impl ContextEngine for KeepEnds {
    const INFO: Info =
        Info::new("keep-ends", "Keep both ends", env!("CARGO_PKG_VERSION")).owning_compaction();

    /// The one setting is `head`, a number of entries.
    fn create(_host: Host, config: Value) -> Result<Self> {
        let settings = config.as_object().ok_or_else(|| wrong("", "the config is no table"))?;
        let mut head_entries = HEAD_ENTRIES;
        for (key, value) in settings {
            match (key.as_str(), value.as_u64()) {
                ("head", Some(entries)) => head_entries = entries,
                ("head", None) => return Err(wrong("head", "head is no number of entries")),
                (other, _) => return Err(wrong(other, "the only setting is head")),
            }
        }
        Ok(KeepEnds { head_entries })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let len = transcript.len() as u64;
        if transcript.total_tokens() <= request.budget {
            return Ok(Plan::keep_all(transcript.len()));
        }
        // Rounded down to a cut: what belongs together is kept or left out together.
        let head = transcript.cut_at_or_before(self.head_entries.min(len));
        let head = if transcript.tokens(0..head) <= request.budget { head } else { 0 };
        let rest = request.budget.saturating_sub(transcript.tokens(0..head));
        // The newest frame stays even where it does not fit; the host then makes room.
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

fn wrong(key: &str, message: &str) -> EngineError {
    EngineError::config(key, message)
}

export_engine!(KeepEnds);

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::{border::EngineDoor, testing};

    #[test]
    fn keeps_the_contract() {
        let door = EngineDoor::linked::<super::KeepEnds>();
        let report = testing::contract(door, &testing::ContractOptions::default());
        assert!(report.passed(), "{report}");
    }
}
