//! Shortens old requests of the user that take most of the budget: a pasted log with a task would leave no room for anything else
//! in every later prompt.

use ctxhost_engine_api::{Plan, PlanNote, Transcript};

use super::emergency_trim::shorten_entry;
use super::{InvariantSettings, PinnedEntries};

/// The name of this step in notes of a plan.
const LAYER: &str = "long request";

/// The least that is left of a request, in tokens: head and end still say what is asked.
const LEAST_TOKENS: u64 = 200;

/// The plan that keeps everything, with head and end of each pinned request above
/// [`verbatim_max_share`](InvariantSettings::verbatim_max_share), in half of that share. `None` if there is none, or all of it fits.
///
/// The newest message of the user is what the model has to answer, so it is not one of them.
pub fn shorten_long_requests(
    pinned: &PinnedEntries,
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Option<Plan> {
    let limit_tokens = settings.verbatim_max_share.of_tokens(budget_tokens);
    if view.total_tokens() <= budget_tokens {
        return None;
    }
    let requests = pinned.older_requests(view).filter(|entry| entry.tokens() > limit_tokens);
    let (mut plan, mut kept_to) = (Plan::default(), 0);
    for entry in requests {
        if let Some(op) = shorten_entry(&entry, (limit_tokens / 2).max(LEAST_TOKENS)) {
            let detail = op.note.map(|note| note.detail).unwrap_or_default();
            plan.keep(kept_to..entry.seq());
            plan.ops
                .push(ctxhost_engine_api::Op { note: Some(PlanNote::new(LAYER, detail)), ..op });
            kept_to = entry.seq() + 1;
        }
    }
    plan.keep(kept_to..view.len() as u64);
    (kept_to > 0).then_some(plan)
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
    use ctxhost_engine_api::transcript::tokens::estimate;
    use ctxhost_engine_api::{Flags, PlanItem, Role};

    use super::*;
    use crate::enforce;

    fn entry(id: &str, text: &str) -> NewEntry {
        NewEntry {
            id: id.into(),
            parent_id: String::new(),
            timestamp_ms: 0,
            role: Role::User,
            kind: ctxhost_engine_api::EntryKind::Message,
            flags: Flags::default().with(Flags::PINNED),
            tokens: estimate(text),
            text: text.into(),
            raw: serde_json::json!({ "role": "user", "content": text }).to_string(),
            calls: Vec::new(),
            answers: None,
        }
    }

    fn shortened(budget_tokens: u64, is_answered: bool) -> Option<Vec<String>> {
        let mut log = TranscriptLog::new(1);
        log.append(entry("a", &format!("Mend this: {}Thank you.", "log line ".repeat(4_000))));
        if is_answered {
            log.append(NewEntry {
                flags: Flags::default(),
                ..entry("b", &"All of it. ".repeat(400))
            });
        }
        let view = log.snapshot();
        let settings = InvariantSettings::default();
        let pinned = PinnedEntries::from_transcript(&view);
        let plan = shorten_long_requests(&pinned, &view, budget_tokens, &settings)?;
        // The invariants accept it as it is.
        let enforced = enforce(&view, plan.clone(), budget_tokens, &settings).unwrap();
        assert_eq!(enforced.plan.ops.len(), plan.ops.len());
        assert_eq!(enforced.repairs, []);
        let items = enforced.items(&view);
        assert!(items[0].tokens() <= budget_tokens / 4, "{} tokens", items[0].tokens());
        Some(items.iter().map(PlanItem::text).map(std::borrow::Cow::into_owned).collect())
    }

    #[test]
    fn head_and_end_of_a_long_request_stay() {
        let texts = shortened(10_000, true).unwrap();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("Mend this: log line"), "{}", texts[0]);
        assert!(texts[0].contains("chars left out") && texts[0].ends_with("Thank you."));
    }

    #[test]
    fn what_fits_and_what_is_asked_now_stay_whole() {
        assert_eq!(shortened(20_000, true), None, "everything fits");
        assert_eq!(shortened(8_000, false), None, "it is the newest message");
    }
}
