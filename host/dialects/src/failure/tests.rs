//! Recorded refusals and their classification.

mod bodies;
mod corpus;
mod numbers;
mod overflow_in_usage;
mod phrases;

use std::sync::LazyLock;

use super::{Classification, Classifier, FailureReason, ProviderRefusal};

/// Building it costs more than matching with it.
pub(super) static CLASSIFIER: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::with_extra_phrases(&[]).unwrap());

pub(super) fn classified(status: Option<u16>, code: &str, message: &str) -> Classification {
    let refusal = ProviderRefusal { status, code: code.to_owned(), message: message.to_owned() };
    CLASSIFIER.classify(&refusal)
}

pub(super) fn check(status: Option<u16>, message: &str, reason: FailureReason) {
    assert_eq!(classified(status, "", message).reason, reason, "{status:?} {message}");
}
