//! Measures the stable prefix: how much of a request starts the next one unchanged, as provider caches require.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Flags, PlanItem};

/// Compares each request with the previous one.
#[derive(Default)]
pub(super) struct PrefixMeter {
    previous: Vec<(u64, u64)>,
    shares: Vec<f64>,
}

impl PrefixMeter {
    /// Records the next request; `addition` is what an engine puts before its system prompt.
    pub(super) fn request(&mut self, addition: Option<&str>, items: &[PlanItem<'_>]) {
        let head = addition.map(|text| (hash_of(&text), tokens::estimate(text)));
        let items = items.iter().map(|item| (identity(item), item.tokens()));
        let current: Vec<_> = head.into_iter().chain(items).collect();
        let total: u64 = self.previous.iter().map(|(_, tokens)| tokens).sum();
        if total > 0 {
            let pairs = self.previous.iter().zip(&current);
            let same: u64 = pairs.take_while(|(a, b)| a == b).map(|((_, tokens), _)| tokens).sum();
            self.shares.push(same as f64 / total as f64);
        }
        self.previous = current;
    }

    /// The mean share, in percent; 100 without comparisons.
    pub(super) fn percent(&self) -> f64 {
        if self.shares.is_empty() {
            return 100.0;
        }
        let mean = self.shares.iter().sum::<f64>() / self.shares.len() as f64;
        (mean * 1000.0).round() / 10.0
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A hash that is equal for items with the same bytes.
pub(super) fn identity(item: &PlanItem<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A kept and a replaced item may be of the same entry.
    std::mem::discriminant(item).hash(&mut hasher);
    match item {
        // Only a compaction changes the bytes of an entry under the same id.
        PlanItem::Kept(entry) if entry.has(Flags::REPLACED) => {
            (entry.id(), entry.raw()).hash(&mut hasher);
        }
        PlanItem::Kept(entry) => entry.id().hash(&mut hasher),
        PlanItem::ReplacedText { entry, text } => (entry.id(), text).hash(&mut hasher),
        PlanItem::ReplacedRaw { entry, raw } => (entry.id(), raw).hash(&mut hasher),
        PlanItem::Inserted { role, text } => (role.code(), text).hash(&mut hasher),
        PlanItem::MissingResult { call_id, .. } => call_id.hash(&mut hasher),
        _ => item.text().hash(&mut hasher),
    }
    hasher.finish()
}
