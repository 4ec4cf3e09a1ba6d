//! How the sizes of requests are learned from what providers count.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// How factors are learned.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AccountingSettings {
        /// Of a model from which its factor is learned; about an hour of work, so that another
        /// language is followed.
        pub remembered_counts: usize = 32, Whole(1), "counts";
        /// From which on a model's own factor sets limits; one or two may be of one odd text.
        pub trusted_counts: usize = 3, Whole(1), "counts";
        /// Of the learned factors for limits; the worst of ten costs one more recovery, the worst
        /// ever seen a part of every window.
        pub limit_quantile: f64 = 0.9, Number(0.5, 1.0), "share";
        /// For limits of a model that is not known yet; estimates are off by up to a fifth.
        pub unknown_factor: f64 = 1.2, Number(1.0, 4.0);
        /// Below it a count is not believed: the provider has cut the prompt.
        pub min_factor: f64 = 0.25, Number(0.05, 1.0);
        /// Beyond it, what was counted was not the text.
        pub max_factor: f64 = 4.0, Number(1.0, 16.0);
        /// In smaller requests the provider's own wrapping weighs more than the text, so nothing is
        /// learned.
        pub min_request_tokens: u64 = 500, Whole(1), "estimated tokens";
    }
}
