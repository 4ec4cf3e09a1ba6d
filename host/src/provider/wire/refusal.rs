//! What a refusal means, by the phrases of all providers.

use std::sync::LazyLock;

use crate::provider::failure::{Classified, Classifier, Reason, Refusal};

/// The phrases that ctxhost knows. A test of theirs sees to it that each is a pattern.
static KNOWN: LazyLock<Option<Classifier>> = LazyLock::new(|| Classifier::with_extra(&[]).ok());

/// What a refusal of this provider means.
pub(super) fn meaning(provider: &str, refusal: &Refusal) -> Classified {
    let unknown =
        Classified { reason: Reason::Unclassified, observed_tokens: None, limit_tokens: None };
    KNOWN.as_ref().map_or(unknown, |known| known.classify_of(provider, refusal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::failure::refusal_of;

    #[test]
    fn the_words_count_and_not_the_status_alone() {
        let check = |body: &str, reason, observed_tokens, limit_tokens| {
            let found = meaning("anthropic", &refusal_of(Some(400), body));
            assert_eq!(found, Classified { reason, observed_tokens, limit_tokens }, "{body}");
        };
        let too_long = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
        check(too_long, Reason::ContextOverflow, Some(210_000), Some(200_000));
        let output = r#"{"error":{"message":"max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for this model"}}"#;
        check(output, Reason::OutputLimit, None, Some(8_192));
        check(r#"{"error":"no idea"}"#, Reason::Format, None, None);
    }
}
