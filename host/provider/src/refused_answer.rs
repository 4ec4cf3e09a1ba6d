//! Stop reasons by which providers refuse to answer.

/// Anthropic's; OpenAI's; Gemini's.
const REFUSALS: [&str; 10] = [
    "refusal",
    "content_filter",
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
];

/// Whether a stop reason, or the code of a failed request, means that the provider's rules forbid the answer. The same
/// request would be refused again.
pub fn is_refused_answer(stop_reason: &str) -> bool {
    REFUSALS.contains(&stop_reason)
}
