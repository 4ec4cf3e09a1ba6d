//! Recorded refusals and their classification.

mod bodies;
mod corpus;
mod numbers;
mod overflow_in_usage;
mod phrases;
mod plausibility;

use std::sync::LazyLock;

use super::{Classification, Classifier, FailureReason, ProviderError, ProviderRefusal};

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

#[test]
fn a_log_line_has_the_providers_text_only_where_content_is_permitted() {
    let message = "Incorrect key sk-SECRET; PRIVATE prompt".to_owned();
    let error = ProviderError::new(FailureReason::ContextOverflow, "openai", "m", message);
    assert_eq!(error.log_text(true), "openai/m: Incorrect key sk-SECRET; PRIVATE prompt");
    assert_eq!(error.log_text(false), "openai/m: the request is larger than the window");
    let error = ProviderError { status: Some(400), ..error };
    assert_eq!(
        error.log_text(false),
        "openai/m: status 400, the request is larger than the window"
    );
}
