//! What a model counts for estimated tokens: a constant part, a factor for text, and one for images and files.

/// A request by which two rates are compared, in estimated tokens.
const TYPICAL_TOKENS: u64 = 30_000;

/// Provider tokens for estimated tokens.
///
/// ```text
///  counted  =  hidden  +  text x factor  +  images and files x factor
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenRates {
    /// What a provider counts in each request beyond its content, in provider tokens: cached content, the tools of a server that the
    /// provider connects to, the system prompt of a proxy.
    pub(super) hidden_tokens: u64,
    pub(super) text: f64,
    pub(super) attachments: f64,
}

impl TokenRates {
    /// The provider tokens of a size without a constant part.
    pub(super) fn scale(&self, text_tokens: u64, attachment_tokens: u64) -> u64 {
        scaled(text_tokens, self.text).saturating_add(scaled(attachment_tokens, self.attachments))
    }

    /// The estimated tokens that fit into provider tokens, if images and files have this share of them.
    pub(super) fn fitting_tokens(&self, provider_tokens: u64, attachment_share: f64) -> u64 {
        let free_tokens = provider_tokens.saturating_sub(self.hidden_tokens);
        let share = attachment_share.clamp(0.0, 1.0);
        let factor = self.text * (1.0 - share) + self.attachments * share;
        let mut fitting = (free_tokens as f64 / factor) as u64;
        // Rounding may exceed the limit by a little.
        while fitting > 0 && self.scale_mixed(fitting, share) > free_tokens {
            fitting -= (fitting >> 50).max(1);
        }
        fitting
    }

    /// The provider tokens of a size of which images and files have this share, without a constant part.
    fn scale_mixed(&self, estimated_tokens: u64, attachment_share: f64) -> u64 {
        let attachment_tokens = share_of(estimated_tokens, attachment_share);
        self.scale(estimated_tokens - attachment_tokens, attachment_tokens)
    }

    /// Whether the sizes that both predict differ by less than this share.
    pub(super) fn is_close_to(&self, other: &TokenRates, share: f64) -> bool {
        let size = |rates: &TokenRates, text, attachments| {
            rates.hidden_tokens.saturating_add(rates.scale(text, attachments)) as f64
        };
        [(TYPICAL_TOKENS, 0), (0, TYPICAL_TOKENS)].into_iter().all(|(text, attachments)| {
            (size(self, text, attachments) / size(other, text, attachments) - 1.0).abs() < share
        })
    }
}

/// The share of estimated tokens, at most all of them.
pub(super) fn share_of(estimated_tokens: u64, share: f64) -> u64 {
    ((estimated_tokens as f64 * share) as u64).min(estimated_tokens)
}

/// Rounds up; casting a float saturates.
fn scaled(estimated_tokens: u64, factor: f64) -> u64 {
    (estimated_tokens as f64 * factor).ceil() as u64
}
