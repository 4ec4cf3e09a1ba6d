//! Refuses answers of an engine with JSON that is nested too deep to be written into frames and records.

use ctxhost_engine_api::border::{EngineReply, check_value_levels};
use ctxhost_engine_api::{Compaction, EngineError, Result};
use serde_json::Value;

/// Replaces a reply with JSON beyond the limit by an error that names the value. A sandbox does so before it writes the frame, which
/// the host could not read; the host does so for engines in its own process.
pub(super) fn refuse_deep_reply(reply: &mut Result<EngineReply>) {
    if let Ok(answer) = reply
        && let Err(error) = check_reply(answer)
    {
        *reply = Err(error);
    }
    if let Err(error) = reply {
        clear_deep_detail(error);
    }
}

/// Removes the detail of an error if it is nested too deep. The message stays.
fn clear_deep_detail(error: &mut EngineError) {
    if check_value_levels("", &error.detail).is_err() {
        error.detail = Value::Null;
    }
}

fn check_reply(reply: &EngineReply) -> Result<()> {
    match reply {
        EngineReply::Assemble(plan) | EngineReply::Compact(Compaction::Plan(plan)) => {
            check_value_levels("`details` of the plan", &plan.extras.details)
        }
        EngineReply::Status(status) => {
            check_value_levels("`details` of the status", &status.details)
        }
        EngineReply::Tools(tools) => tools.iter().try_for_each(|tool| {
            check_value_levels("`input_schema` of a tool", &tool.input_schema)
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::border::MAX_JSON_LEVELS;
    use ctxhost_engine_api::{ErrorKind, Plan};

    use super::*;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(Value::Array(Vec::new()), |inner, _| Value::Array(vec![inner]))
    }

    fn planned(levels: usize) -> Result<EngineReply> {
        let mut plan = Plan::keep_all(1);
        plan.extras.details = nested(levels);
        let mut reply = Ok(EngineReply::Compact(Compaction::Plan(plan)));
        refuse_deep_reply(&mut reply);
        reply
    }

    #[test]
    fn details_beyond_the_limit_are_refused_by_name() {
        assert!(planned(MAX_JSON_LEVELS).is_ok());
        for levels in [MAX_JSON_LEVELS + 1, 121, 126] {
            let error = planned(levels).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Protocol);
            assert!(error.message.contains("`details` of the plan"), "{}", error.message);
            assert!(error.message.contains("64 levels"), "{}", error.message);
        }
    }

    #[test]
    fn an_error_keeps_its_message_without_a_deep_detail() {
        let mut reply = Err(EngineError { detail: nested(126), ..EngineError::failed("no room") });
        refuse_deep_reply(&mut reply);
        let error = reply.err().unwrap();
        assert_eq!((&*error.message, error.detail), ("no room", Value::Null));
    }
}
