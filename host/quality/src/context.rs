//! Shapes requests through the host, and records what the model sees.

use std::collections::HashMap;

use ctxhost_agent::OfflineOptions;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::Config;
use ctxhost_context::{Budget, EMERGENCY_TRIM, Prompt, Target};
use ctxhost_engine::OnEngineError;
use ctxhost_engine_api::PlanItem;
use ctxhost_invariants::InvariantVerifier;
use ctxhost_retention::texts_of;

use crate::report::RunTotals;

/// Least window that engines are given: some reject a smaller model, whatever the budget.
const LEAST_WINDOW_TOKENS: u64 = 32_000;

/// A failing engine ends the run, so that no figure comes from the fallback engine.
pub(crate) fn run_options(config: &Config, budget_tokens: u64) -> OfflineOptions {
    let target = Target {
        window_tokens: budget_tokens.max(LEAST_WINDOW_TOKENS),
        budget: Some(Budget { tokens: budget_tokens, ..Budget::default() }),
        ..Target::default()
    };
    let mut options =
        OfflineOptions::new(config, EngineRegistry::load(config).legacy(config), target);
    options.engines.on_error = OnEngineError::Fail;
    options.engines.must_open = true;
    options
}

/// What the model sees in one request.
#[derive(Debug, Default)]
pub(crate) struct SeenContext {
    /// Texts of entries that are sent whole or in part, by id.
    pub(crate) by_entry: HashMap<String, String>,
    /// Entries that are sent whole.
    pub(crate) whole: std::collections::HashSet<String>,
    /// Texts that the engine added.
    pub(crate) own: String,
    /// All texts.
    pub(crate) all: String,
    /// A hash of each item with its tokens, in order.
    pub(crate) items: Vec<(u64, u64)>,
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
            seen.all.push_str(&text);
            seen.all.push('\n');
            match item.entry() {
                Some(entry) => {
                    if matches!(item, PlanItem::Kept(_)) {
                        seen.whole.insert(entry.id().to_owned());
                    }
                    seen.by_entry.insert(entry.id().to_owned(), text);
                }
                None => {
                    seen.own.push_str(&text);
                    seen.own.push('\n');
                }
            }
        }
        seen
    }
}

fn hash_of(text: &str) -> u64 {
    // DefaultHasher::new has fixed keys, so digests are comparable between runs of one build.
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Metrics that every kind of run has.
#[derive(Default)]
pub(crate) struct RunMeter {
    auditor: InvariantVerifier,
    requests: u64,
    /// Requests over their budget, or against another invariant.
    overruns: u64,
    violations: u64,
    emergency_trims: u64,
    room_shares: f64,
    prefix_shares: Vec<f64>,
    previous: Vec<(u64, u64)>,
    times_us: Vec<u64>,
    digest: u64,
}

impl RunMeter {
    pub(crate) fn request(&mut self, prompt: &Prompt, budget_tokens: u64) -> SeenContext {
        let items = prompt.items();
        let seen = SeenContext::new(&items);
        self.requests += 1;
        self.overruns += u64::from(seen.tokens > budget_tokens);
        self.violations += self.auditor.verify(&prompt.view, &items, budget_tokens).len() as u64;
        self.emergency_trims += u64::from(prompt.engine == EMERGENCY_TRIM);
        // A history smaller than the budget can only use its own size.
        let most_tokens = budget_tokens.min(prompt.view.total_tokens()).max(1);
        self.room_shares += (seen.tokens as f64 / most_tokens as f64).min(1.0);
        self.compare(&seen);
        self.times_us.push(u64::try_from(prompt.took.as_micros()).unwrap_or(u64::MAX));
        // Rotated, so that the order of requests matters.
        self.digest = self.digest.rotate_left(5) ^ hash_of(&seen.all);
        seen
    }

    /// Records how much of the previous request is a prefix of this one.
    fn compare(&mut self, seen: &SeenContext) {
        let total: u64 = self.previous.iter().map(|(_, tokens)| tokens).sum();
        if total > 0 {
            let pairs = self.previous.iter().zip(&seen.items);
            // Only an unbroken prefix is cached by providers.
            let same: u64 = pairs.take_while(|(a, b)| a == b).map(|((_, tokens), _)| tokens).sum();
            self.prefix_shares.push(same as f64 / total as f64);
        }
        self.previous.clone_from(&seen.items);
    }

    /// Starts another session.
    pub(crate) fn next_session(&mut self) {
        self.previous.clear();
        self.auditor = InvariantVerifier::default();
    }

    pub(crate) fn totals(mut self) -> RunTotals {
        self.times_us.sort_unstable();
        let at = |share: f64| {
            let last = self.times_us.len().saturating_sub(1);
            self.times_us.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
        };
        let prefixes = self.prefix_shares.len() as f64;
        let prefix = self.prefix_shares.iter().sum::<f64>() / prefixes.max(1.0);
        RunTotals {
            requests: self.requests,
            overruns: self.overruns,
            violations: self.violations,
            emergency_trims: self.emergency_trims,
            room_percent: percent(self.room_shares, self.requests as f64),
            stable_prefix_percent: (prefixes > 0.0).then(|| percent(prefix, 1.0)),
            p50_us: at(0.5),
            p99_us: at(0.99),
            digest: format!("{:016x}", self.digest),
        }
    }
}

/// A percentage with one decimal.
pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole <= 0.0 { 0.0 } else { (part / whole * 1_000.0).round() / 10.0 }
}
