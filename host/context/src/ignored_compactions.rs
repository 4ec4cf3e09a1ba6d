//! Which compactions of a session do not count for a model's window.

use ctxhost_session::{Record, RecordKind, Session};
use serde_json::Value;

use ctxhost_engine_api::Trigger;

/// A compaction does not count for a window that is at least this many times the one it was made for: it keeps so little
/// that the history before it is worth more than the engine's work. Between two windows of nearly one size the prompt, and
/// with it the provider's cache, stays as it is.
const MIN_RATIO: u64 = 2;

/// The key of the host's details of a compaction record for the window it was made for, without what system prompt and
/// tools took of it.
pub(crate) const WINDOW_KEY: &str = "windowTokens";

/// The newest compactions of a branch that do not count for a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IgnoredCompactions {
    /// Their ids, newest first.
    pub(crate) ids: Vec<String>,
    /// Whether the branch has no others, so that its whole history is live.
    pub(crate) is_all: bool,
}

impl IgnoredCompactions {
    /// Those of a session's branch; `None` as window for a prompt that has a fixed budget.
    pub(crate) fn find(session: &Session, window_tokens: Option<u64>) -> IgnoredCompactions {
        let is_ignored = |record: &Record| {
            window_tokens.is_some_and(|window| window / MIN_RATIO >= recorded_window(record))
        };
        // Checked first: the whole branch may not be loaded.
        if !session.newest_compaction().is_some_and(is_ignored) {
            return IgnoredCompactions::default();
        }
        let newest_first = session.branch().into_iter().rev();
        let compactions: Vec<&Record> =
            newest_first.filter(|record| *record.kind() == RecordKind::Compaction).collect();
        let ids: Vec<String> = compactions
            .iter()
            .take_while(|record| is_ignored(record))
            .map(|record| record.id().to_owned())
            .collect();
        let is_all = ids.len() == compactions.len();
        IgnoredCompactions { ids, is_all }
    }
}

/// The window that a compaction was made for; the largest number if it does not say so, or if the user asked for it.
fn recorded_window(record: &Record) -> u64 {
    let Some(compaction) = record.compaction() else { return u64::MAX };
    let is_asked_for = compaction.trigger == Trigger::Manual.name();
    let window_tokens = compaction.host_details.get(WINDOW_KEY).and_then(Value::as_u64);
    window_tokens.filter(|_| !is_asked_for).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ctxhost_config::Config;
    use ctxhost_engine::{
        ActiveEngine, EngineEnvironment, EngineSpec, EngineTimeouts, HostClock, OnEngineError,
    };
    use ctxhost_session::{RecordBody, SessionHeader};
    use serde_json::json;

    use super::*;
    use crate::{CompactionVerdict, Context, ContextSettings, Prompt, Target};

    /// A context with so many questions and answers of some 1,000 tokens.
    fn context(turns: usize) -> Context {
        let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
        let legacy = EngineSpec::bundled("legacy", json!({}));
        let engine =
            ActiveEngine::open(&[], &legacy, OnEngineError::Fallback, &environment).unwrap();
        let settings = ContextSettings::from_config(&Config::default());
        let session = Session::in_memory(SessionHeader::new(None, "/", 1));
        let mut context = Context::new(session, Arc::new(engine), Arc::new(settings));
        say(&mut context, turns);
        context
    }

    fn say(context: &mut Context, turns: usize) {
        for number in 0..turns {
            for role in ["user", "assistant"] {
                let text = format!("{role} {number} {}", "word ".repeat(400));
                let raw = json!({"role": role, "content": [{"type": "text", "text": text}]});
                context.append([RecordBody::message(&raw.to_string()).unwrap()]).unwrap();
            }
        }
        let raw = json!({"role": "user", "content": [{"type": "text", "text": "and now?"}]});
        context.append([RecordBody::message(&raw.to_string()).unwrap()]).unwrap();
    }

    #[tokio::test]
    async fn what_one_request_leaves_no_room_for_comes_back() {
        let window_tokens = 200_000;
        let whole_window = Target { window_tokens, ..Target::default() };
        for target in [
            Target { overhead_tokens: 140_000, ..whole_window.clone() },
            Target {
                max_tokens: Some(9_000),
                requested_tokens: Some(9_000),
                ..whole_window.clone()
            },
        ] {
            let mut context = context(60);
            let whole = context.view().len();
            assert_eq!(compactions(&context.prepare(&target).await.unwrap()), 1, "{target:?}");
            let compacted = context.view().len();
            let prompt = context.prepare(&whole_window).await.unwrap();
            assert_eq!((prompt.items().len(), compactions(&prompt)), (whole, 0), "{target:?}");
            // The same request again continues where it was.
            context.prepare(&target).await.unwrap();
            assert_eq!(context.view().len(), compacted, "{target:?}");
        }
        // After a refusal the whole history would be refused again.
        let mut context = context(60);
        let refused =
            Target { max_tokens: Some(9_000), trigger: Trigger::Overflow, ..whole_window.clone() };
        context.prepare(&refused).await.unwrap();
        let compacted = context.view().len();
        context.prepare(&whole_window).await.unwrap();
        assert_eq!(context.view().len(), compacted);
    }

    async fn prepare(context: &mut Context, window_tokens: u64) -> Prompt {
        context.prepare(&Target { window_tokens, ..Target::default() }).await.unwrap()
    }

    fn compactions(prompt: &Prompt) -> usize {
        let is_applied = |verdict: &CompactionVerdict| *verdict == CompactionVerdict::Applied;
        prompt.compactions.iter().filter(|outcome| is_applied(&outcome.verdict)).count()
    }

    #[tokio::test]
    async fn a_larger_model_gets_what_a_small_one_had_no_room_for() {
        let mut context = context(60);
        let whole = context.view().len();
        assert_eq!(compactions(&prepare(&mut context, 32_000).await), 1);
        let compacted = context.view().len();
        assert!(compacted < whole);

        let prompt = prepare(&mut context, 200_000).await;
        assert_eq!((prompt.items().len(), compactions(&prompt)), (whole, 0));
        assert!(context.session().is_whole());
        // The small model continues where it was.
        let prompt = prepare(&mut context, 32_000).await;
        assert_eq!((context.view().len(), compactions(&prompt)), (compacted, 0));
        // A window of nearly the same size changes nothing, and neither does a restart.
        prepare(&mut context, 50_000).await;
        assert_eq!(context.view().len(), compacted);
        let session = context.session().session().to_bytes();
        let session = Session::parse("again", &session).unwrap();
        let mut again = Context::new(session, context.engine().clone(), context.settings.clone());
        assert_eq!(prepare(&mut again, 200_000).await.items().len(), whole);
    }

    #[tokio::test]
    async fn a_larger_model_compacts_the_whole_history() {
        let mut context = context(60);
        prepare(&mut context, 32_000).await;
        say(&mut context, 160);
        let prompt = prepare(&mut context, 100_000).await;
        assert_eq!(compactions(&prompt), 1);
        assert!(prompt.checked.tokens > 20_000, "{}", prompt.checked.tokens);
        let newest = context.session().session().newest_compaction().unwrap();
        assert!(newest.line().contains("ignoredCompactions"), "it was made without the first one");
        let live = context.view().len();
        // From now on it counts, for the small model as well.
        assert_eq!(prepare(&mut context, 100_000).await.items().len(), live);
        assert_eq!(compactions(&prepare(&mut context, 32_000).await), 1);
        assert!(context.view().len() < live);
        assert_eq!(prepare(&mut context, 100_000).await.items().len(), live);
    }

    #[tokio::test]
    async fn a_compaction_that_the_user_has_asked_for_counts_for_every_model() {
        let mut context = context(60);
        let target =
            Target { window_tokens: 32_000, trigger: Trigger::Manual, ..Target::default() };
        context.compact(&target, None).await.unwrap();
        let compacted = context.view().len();
        assert_eq!(prepare(&mut context, 200_000).await.view.len(), compacted);
    }
}
