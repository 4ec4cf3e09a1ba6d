//! `[accounting]`: learning token factors from providers' counts.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[accounting]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AccountingSettings {
        /// Recent token counts from which a model's factor is learned; about an hour of work, so
        /// the factor follows a change of language.
        pub remembered_counts: usize = 32, Whole(1), "counts";
        /// Counts needed before a model's learned factor sets limits; fewer may come from unusual
        /// text.
        pub trusted_counts: usize = 3, Whole(1), "counts";
        /// Quantile of the learned factors that limits use; a higher one wastes window, a lower one causes
        /// more overflow retries.
        pub limit_quantile: f64 = 0.9, Number(0.5, 1.0), "share";
        /// Factor for limits of a model without enough counts; estimates are off by up to a fifth.
        pub unknown_factor: f64 = 1.2, Number(1.0, 4.0);
        /// Smaller factors are ignored: the provider has truncated the prompt.
        pub min_factor: f64 = 0.25, Number(0.05, 1.0);
        /// Larger factors count as this one: the provider has counted something else than the text.
        pub max_factor: f64 = 4.0, Number(1.0, 16.0);
        /// Smallest request to learn from; below it the provider's own wrapping outweighs the text.
        pub min_request_tokens: u64 = 500, Whole(1), "estimated tokens";
    }
}
