//! How the sizes of requests are learned from what providers count.

use serde::{Deserialize, Serialize};

/// How factors are learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountingSettings {
    /// Counts of a model that are remembered. Default 32: about an hour of work, so that a change
    /// of language or of the provider's tokenizer is followed within it.
    pub remembered_counts: usize,
    /// Counts from which on a model's own factor is used for limits. Default 3: one or two may be
    /// of one odd text.
    pub trusted_counts: usize,
    /// The quantile of the factors that limits are computed with, from 0 to 1. Default 0.9: the worst of ten
    /// costs one more recovery, the worst ever seen would cost a part of every window.
    pub limit_quantile: f64,
    /// The factor for limits of a model that is not known yet. Default 1.2, as the safety margin of
    /// the budget: the estimate is off by up to a fifth on mixed text.
    pub unknown_factor: f64,
    /// The least factor that is believed. Default 0.25: no tokenizer is four times as good as the
    /// estimate, so a lower count means that the provider cut the prompt.
    pub min_factor: f64,
    /// The largest factor that is learned. Default 4: beyond it, what was counted was not the text.
    pub max_factor: f64,
    /// Estimated tokens below which nothing is learned from a request. Default 500: in smaller ones
    /// the provider's own wrapping weighs more than the text.
    pub min_request_tokens: u64,
}

impl Default for AccountingSettings {
    fn default() -> Self {
        AccountingSettings {
            remembered_counts: 32,
            trusted_counts: 3,
            limit_quantile: 0.9,
            unknown_factor: 1.2,
            min_factor: 0.25,
            max_factor: 4.0,
            min_request_tokens: 500,
        }
    }
}
