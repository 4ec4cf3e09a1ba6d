//! The token factor of a model: provider tokens per estimated token, from recent counts.

use std::collections::VecDeque;

use ctxhost_config::AccountingSettings;

/// Recent factors, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenFactor {
    recent: VecDeque<f64>,
}

impl TokenFactor {
    /// Records a factor, clamped to the plausible range.
    pub(super) fn record(&mut self, factor: f64, settings: &AccountingSettings) {
        // Bounded: one implausible count of a provider must not starve or overflow the next requests.
        self.recent.push_back(factor.max(settings.min_factor).min(settings.max_factor));
        // Old counts are dropped: a session changes its language and content.
        while self.recent.len() > settings.remembered_counts.max(1) {
            self.recent.pop_front();
        }
    }

    /// The recent factors, oldest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = f64> {
        self.recent.iter().copied()
    }

    /// Whether there are enough counts for limits.
    pub(super) fn is_trusted(&self, settings: &AccountingSettings) -> bool {
        self.recent.len() >= settings.trusted_counts.max(1)
    }

    /// The factor for limits: a quantile, or the worst of too few counts, at least that of an unknown model.
    pub(super) fn upper_bound(&self, settings: &AccountingSettings) -> f64 {
        let unknown = settings.unknown_factor.max(settings.min_factor).min(settings.max_factor);
        // A quantile of few counts would be their maximum anyway.
        if !self.is_trusted(settings) {
            return self.recent.iter().fold(unknown, |worst, factor| worst.max(*factor));
        }
        self.quantile(settings.limit_quantile).unwrap_or(unknown).max(self.median())
    }

    /// The typical factor; 1 without counts.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5).unwrap_or(1.0)
    }

    /// The quantile of a share, by nearest rank.
    fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        // The smallest factor that this share of the counts does not exceed: no interpolation between two counts.
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
    }
}
