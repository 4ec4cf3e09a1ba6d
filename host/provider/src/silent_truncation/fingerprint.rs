//! Prompt counts that are exactly what a cut leaves of a window.
//!
//! Older Ollama servers fill the window. Newer ones (0.32 to 0.34) keep the first `num_keep` tokens
//! and half of the rest, to leave room for an answer: 2050 or 2051 of 4096, 16387 of 32768. Other
//! prompts hardly ever have these sizes.

use super::SentPrompt;

/// Tokens kept from the start: `num_keep` is 4, plus one for models with a start token.
const KEPT_TOKENS: [u64; 2] = [4, 5];

/// The smallest default window of a server.
const SMALLEST_WINDOW_TOKENS: u64 = 2_048;

/// The largest window that is tried if the server's own is unknown.
const LARGEST_WINDOW_TOKENS: u64 = 1_048_576;

/// The window of which a cut leaves this count, if the prompt was large enough to be cut.
pub(super) fn window_of(sent: &SentPrompt, counted: u64) -> Option<u64> {
    configured_window(sent, counted).or_else(|| server_window(sent, counted))
}

/// The window in the request.
fn configured_window(sent: &SentPrompt, counted: u64) -> Option<u64> {
    let window = Some(sent.window_tokens).filter(|window| *window >= SMALLEST_WINDOW_TOKENS)?;
    // Whatever was cut exceeded the window. An estimate may be too low, but not by half.
    let large = sent.prompt_tokens.saturating_sub(sent.image_tokens) > window / 4 * 3;
    (large && is_cut_size(window, counted)).then_some(window)
}

/// A window smaller than the one in the request: the server's default, or the model's maximum.
fn server_window(sent: &SentPrompt, counted: u64) -> Option<u64> {
    windows_below(sent)
        .find(|window| is_cut_size(*window, counted) && sent.floor_tokens() > *window)
}

/// The window of which a cut leaves this count, whatever the size of the prompt.
pub(super) fn window_of_count(sent: &SentPrompt, counted: u64) -> Option<u64> {
    let configured = Some(sent.window_tokens).filter(|window| *window >= SMALLEST_WINDOW_TOKENS);
    configured.into_iter().chain(windows_below(sent)).find(|window| is_cut_size(*window, counted))
}

/// Possible default windows of a server below the one in the request.
fn windows_below(sent: &SentPrompt) -> impl Iterator<Item = u64> + use<> {
    let end = match sent.window_tokens {
        0 => LARGEST_WINDOW_TOKENS + 1,
        configured => configured.min(LARGEST_WINDOW_TOKENS),
    };
    std::iter::successors(Some(SMALLEST_WINDOW_TOKENS), |window| Some(window * 2))
        .take_while(move |window| *window < end)
}

fn is_cut_size(window: u64, counted: u64) -> bool {
    // Ollama drops half of the tokens after the kept ones, rounded down.
    let half = |kept: u64| window - (window - kept) / 2;
    counted == window
        || counted + 1 == window
        || KEPT_TOKENS.iter().any(|kept| half(*kept) == counted)
}
