//! The factor of one model: provider tokens for one estimated token, as counted lately.

use std::collections::VecDeque;

use ctxhost_config::AccountingSettings;

/// The factors of the newest counts, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenFactor {
    recent: VecDeque<f64>,
}

impl TokenFactor {
    /// Takes one in, cut to what is believed.
    pub(super) fn record(&mut self, factor: f64, settings: &AccountingSettings) {
        self.recent.push_back(factor.max(settings.min_factor).min(settings.max_factor));
        while self.recent.len() > settings.remembered_counts.max(1) {
            self.recent.pop_front();
        }
    }

    /// The one that limits are computed with. Of too few counts the worst, and no less than that of
    /// an unknown model.
    pub(super) fn upper_bound(&self, settings: &AccountingSettings) -> f64 {
        let unknown = settings.unknown_factor.max(settings.min_factor).min(settings.max_factor);
        if self.recent.len() < settings.trusted_counts.max(1) {
            return self.recent.iter().fold(unknown, |most, factor| most.max(*factor));
        }
        self.quantile(settings.limit_quantile).unwrap_or(unknown).max(self.median())
    }

    /// The usual one; 1 as long as nothing was counted.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5).unwrap_or(1.0)
    }

    /// The least of those seen that this share of them does not exceed.
    fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
    }
}
