//! Shapes requests through the host, and records what the model sees.

use std::collections::{BTreeSet, HashMap};

use ctxhost_agent::OfflineOptions;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::Config;
use ctxhost_context::{Budget, EMERGENCY_TRIM, Prompt, Target};
use ctxhost_engine::OnEngineError;
use ctxhost_engine_api::{Flags, Plan, PlanItem, Transcript};
use ctxhost_invariants::InvariantVerifier;
use ctxhost_retention::texts_of;

use crate::BenchSubject;
use crate::report::RunTotals;

/// Least window that engines are given: some reject a smaller model, whatever the budget.
const LEAST_WINDOW_TOKENS: u64 = 32_000;

/// A failing engine ends the run, so that no figure comes from the fallback engine.
pub(crate) fn run_options(
    config: &Config,
    subject: &BenchSubject,
    budget_tokens: u64,
) -> OfflineOptions {
    let target = Target {
        window_tokens: budget_tokens.max(LEAST_WINDOW_TOKENS),
        budget: Some(Budget { tokens: budget_tokens, ..Budget::default() }),
        ..Target::default()
    };
    let mut options =
        OfflineOptions::new(config, EngineRegistry::load(config).legacy(config), target);
    options.engines.on_error = OnEngineError::Fail;
    options.engines.must_open = true;
    options.engines.embedder = subject.embedder();
    options
}

/// What the model sees in one request.
#[derive(Debug, Default)]
pub(crate) struct SeenContext {
    /// Texts of entries that are sent whole or in part, by id.
    pub(crate) by_entry: HashMap<String, String>,
    /// Entries that are sent whole, as they came.
    pub(crate) whole: std::collections::HashSet<String>,
    /// Texts that the engine added, now or with a compaction.
    pub(crate) own: String,
    /// All texts, each after its role.
    pub(crate) all: String,
    /// A hash of each item with its tokens, in order.
    items: Vec<(u64, u64)>,
    /// Size of the request.
    pub(crate) tokens: u64,
}

impl SeenContext {
    pub(crate) fn new(items: &[PlanItem<'_>]) -> SeenContext {
        let mut seen = SeenContext::default();
        for item in items {
            let text = texts_of(item).join("\n");
            // The role takes part: the same text as another message breaks a prompt cache.
            let hash = hash_of(&text) ^ u64::from(item.role().code());
            seen.items.push((hash, item.tokens()));
            seen.tokens += item.tokens();
            for part in [item.role().name(), ":\n", &text, "\n\n"] {
                seen.all.push_str(part);
            }
            match item.entry() {
                // A summary is an entry once its compaction is applied.
                Some(entry) if !entry.has(Flags::SYNTHETIC) => {
                    // A compaction may have shortened it.
                    if matches!(item, PlanItem::Kept(_)) && !entry.has(Flags::REPLACED) {
                        seen.whole.insert(entry.id().to_owned());
                    }
                    seen.by_entry.insert(entry.id().to_owned(), text);
                }
                _ => {
                    seen.own.push_str(&text);
                    seen.own.push('\n');
                }
            }
        }
        seen
    }

    /// The entries of a transcript that a baseline chose.
    pub(crate) fn of_entries(view: &Transcript, chosen: &BTreeSet<usize>) -> SeenContext {
        let mut plan = Plan::default();
        for at in chosen {
            plan.keep(*at as u64..*at as u64 + 1);
        }
        SeenContext::new(&plan.project(view))
    }
}

fn hash_of(text: &str) -> u64 {
    // DefaultHasher::new has fixed keys, so digests are comparable between runs of one build.
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// What cached prompt tokens cost, as shares of the price of uncached ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachePrices {
    /// Reading a token from the cache. Default 0.1.
    pub read: f64,
    /// Writing a token to the cache. Default 1.25.
    pub write: f64,
}

impl Default for CachePrices {
    fn default() -> Self {
        // Anthropic's list prices for five minutes; those of other providers are between them and 1.
        CachePrices { read: 0.1, write: 1.25 }
    }
}

/// Metrics that every kind of run has.
#[derive(Default)]
pub(crate) struct RunMeter {
    verifier: InvariantVerifier,
    prices: CachePrices,
    requests: u64,
    /// Requests over their budget, or against another invariant.
    overruns: u64,
    violations: u64,
    emergency_trims: u64,
    room_shares: f64,
    sent_tokens: u64,
    billed_tokens: f64,
    prefix_shares: Vec<f64>,
    previous: Vec<(u64, u64)>,
    times_us: Vec<u64>,
    /// A hash of each request.
    digests: Vec<u64>,
    repeated: u64,
    differing: u64,
}

impl RunMeter {
    pub(crate) fn new(prices: CachePrices) -> RunMeter {
        RunMeter { prices, ..RunMeter::default() }
    }

    /// Counts the request of an engine. `history_tokens` is the size of the history without compactions.
    pub(crate) fn request(
        &mut self,
        prompt: &Prompt,
        history_tokens: u64,
        budget_tokens: u64,
    ) -> SeenContext {
        let items = prompt.items();
        let seen = SeenContext::new(&items);
        let message_tokens = budget_tokens.saturating_sub(prompt.system_addition_tokens());
        self.violations += self.verifier.verify(&prompt.view, &items, message_tokens).len() as u64;
        self.emergency_trims += u64::from(prompt.engine == EMERGENCY_TRIM);
        self.times_us.push(u64::try_from(prompt.took.as_micros()).unwrap_or(u64::MAX));
        self.observe(&seen, history_tokens, budget_tokens);
        seen
    }

    /// Counts a request, of an engine or a baseline.
    pub(crate) fn observe(&mut self, seen: &SeenContext, history_tokens: u64, budget_tokens: u64) {
        self.requests += 1;
        self.overruns += u64::from(seen.tokens > budget_tokens);
        self.sent_tokens += seen.tokens;
        // A history smaller than the budget can only use its own size.
        let most_tokens = budget_tokens.min(history_tokens).max(1);
        self.room_shares += (seen.tokens as f64 / most_tokens as f64).min(1.0);
        self.compare(seen);
        self.digests.push(hash_of(&seen.all));
    }

    /// Records how much of the previous request is a prefix of this one.
    fn compare(&mut self, seen: &SeenContext) {
        let total: u64 = self.previous.iter().map(|(_, tokens)| tokens).sum();
        let pairs = self.previous.iter().zip(&seen.items);
        // Only an unbroken prefix is cached by providers.
        let same: u64 = pairs.take_while(|(a, b)| a == b).map(|((_, tokens), _)| tokens).sum();
        if total > 0 {
            self.prefix_shares.push(same as f64 / total as f64);
        }
        let new = seen.tokens.saturating_sub(same) as f64;
        self.billed_tokens += same as f64 * self.prices.read + new * self.prices.write;
        self.previous.clone_from(&seen.items);
    }

    /// Starts another session.
    pub(crate) fn next_session(&mut self) {
        self.previous.clear();
        self.verifier = InvariantVerifier::default();
    }

    /// Compares requests from `first` on with those of a second run over the same input.
    pub(crate) fn compare_repeated(&mut self, first: usize, again: &RunMeter) {
        for (at, digest) in again.digests.iter().enumerate() {
            self.repeated += 1;
            self.differing += u64::from(self.digests.get(first + at) != Some(digest));
        }
    }

    /// `history_tokens` is the size of the largest history, without compactions.
    pub(crate) fn totals(mut self, history_tokens: u64) -> RunTotals {
        self.times_us.sort_unstable();
        let at = |share: f64| {
            let last = self.times_us.len().saturating_sub(1);
            self.times_us.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
        };
        let prefixes = self.prefix_shares.len() as f64;
        let prefix = self.prefix_shares.iter().sum::<f64>() / prefixes.max(1.0);
        // Rotated, so that the order of requests matters.
        let digest = self.digests.iter().fold(0_u64, |all, one| all.rotate_left(5) ^ one);
        RunTotals {
            requests: self.requests,
            overruns: self.overruns,
            violations: self.violations,
            emergency_trims: self.emergency_trims,
            room_percent: percent(self.room_shares, self.requests as f64),
            history_tokens,
            sent_tokens: self.sent_tokens,
            billed_tokens: self.billed_tokens.round() as u64,
            stable_prefix_percent: (prefixes > 0.0).then(|| percent(prefix, 1.0)),
            repeated: self.repeated,
            differing: self.differing,
            p50_us: at(0.5),
            p99_us: at(0.99),
            digest: format!("{digest:016x}"),
        }
    }
}

/// A percentage with one decimal.
pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole <= 0.0 { 0.0 } else { (part / whole * 1_000.0).round() / 10.0 }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
    use ctxhost_engine_api::{EntryKind, Role};
    use serde_json::json;

    use super::*;

    fn seen(items: &[(u64, u64)]) -> SeenContext {
        let tokens = items.iter().map(|(_, tokens)| tokens).sum();
        SeenContext { items: items.to_vec(), tokens, ..SeenContext::default() }
    }

    #[test]
    fn a_cached_prefix_is_billed_at_the_read_price() {
        let mut meter = RunMeter::new(CachePrices::default());
        meter.observe(&seen(&[(1, 100), (2, 100)]), 200, 400);
        meter.observe(&seen(&[(1, 100), (3, 100)]), 300, 150);
        let totals = meter.totals(300);
        // Both items are written first; then one is read and the other written.
        assert_eq!((totals.sent_tokens, totals.billed_tokens), (400, 250 + 10 + 125));
        assert_eq!(totals.stable_prefix_percent, Some(50.0));
        assert_eq!((totals.overruns, totals.room_percent, totals.history_tokens), (1, 100.0, 300));
    }

    #[test]
    fn a_summary_is_a_text_of_the_engine_and_a_shortened_entry_is_not_whole() {
        let user = |id: &str, flags: Flags| NewEntry {
            id: id.into(),
            parent_id: String::new(),
            timestamp_ms: 0,
            role: Role::User,
            kind: EntryKind::Message,
            flags,
            tokens: 3,
            text: format!("text of {id}"),
            raw: json!({ "role": "user", "content": format!("text of {id}") }).to_string(),
            calls: Vec::new(),
            answers: None,
        };
        let mut log = TranscriptLog::new(0);
        log.append(user("a", Flags::default().with(Flags::SYNTHETIC)));
        log.append(user("b", Flags::default().with(Flags::REPLACED)));
        log.append(user("c", Flags::default()));
        let view = log.snapshot();
        let seen = SeenContext::new(&Plan::keep_all(view.len()).project(&view));
        assert_eq!(seen.own, "text of a\n");
        assert_eq!(seen.whole, std::collections::HashSet::from(["c".to_owned()]));
        assert_eq!(seen.by_entry.get("b").map(String::as_str), Some("text of b"));
    }

    #[test]
    fn a_request_that_differs_in_a_second_run_is_counted() {
        let run = |texts: &[&str]| {
            let mut meter = RunMeter::default();
            for text in texts {
                let seen = SeenContext { all: (*text).to_owned(), ..SeenContext::default() };
                meter.observe(&seen, 1, 1);
            }
            meter
        };
        let mut first = run(&["a", "b", "c"]);
        first.compare_repeated(1, &run(&["b", "x"]));
        let totals = first.totals(0);
        assert_eq!((totals.repeated, totals.differing), (2, 1));
    }
}
