//! Counts that a cut leaves, to the token.
//!
//! Older servers fill the window. Newer ones (seen from 0.32 to 0.34) keep the first `num_keep`
//! tokens and half of the rest, so that there is room for an answer: 2050 or 2051 of 4096, 16387 of
//! 32768. Hardly any other prompt has such a size by chance.

use super::SentPrompt;

/// What servers keep of the beginning: `num_keep` is 4, and one more for models with a first token.
const KEPT_TOKENS: [u64; 2] = [4, 5];

/// The smallest window that a server has by itself.
const SMALLEST_WINDOW_TOKENS: u64 = 2_048;

/// The largest window that is looked for where the server's own is not known.
const LARGEST_WINDOW_TOKENS: u64 = 1_048_576;

/// The window of which this count is what a cut leaves, where the prompt was large enough to be cut.
pub(super) fn window_of(sent: &SentPrompt, counted: u64) -> Option<u64> {
    configured_window(sent, counted).or_else(|| server_window(sent, counted))
}

/// The window that the server was told of.
fn configured_window(sent: &SentPrompt, counted: u64) -> Option<u64> {
    let window = Some(sent.window_tokens).filter(|window| *window >= SMALLEST_WINDOW_TOKENS)?;
    // Whatever is cut was larger than the window. An estimate may miss that, but not by half.
    let large = sent.prompt_tokens.saturating_sub(sent.image_tokens) > window / 4 * 3;
    (large && is_cut_size(window, counted)).then_some(window)
}

/// A smaller window than the server was told of: it has its own, or the model has no more.
///
/// That the server does not do as it is told needs better evidence: what was sent for certain does
/// not fit in that window.
fn server_window(sent: &SentPrompt, counted: u64) -> Option<u64> {
    windows_below(sent)
        .find(|window| is_cut_size(*window, counted) && sent.floor_tokens() > *window)
}

/// The window of which this count is what a cut leaves, however large the prompt was.
pub(super) fn window_of_count(sent: &SentPrompt, counted: u64) -> Option<u64> {
    let told = Some(sent.window_tokens).filter(|window| *window >= SMALLEST_WINDOW_TOKENS);
    told.into_iter().chain(windows_below(sent)).find(|window| is_cut_size(*window, counted))
}

/// The windows that a server may have by itself, below the one that it was told of.
fn windows_below(sent: &SentPrompt) -> impl Iterator<Item = u64> + use<> {
    let end = match sent.window_tokens {
        0 => LARGEST_WINDOW_TOKENS + 1,
        told => told.min(LARGEST_WINDOW_TOKENS),
    };
    std::iter::successors(Some(SMALLEST_WINDOW_TOKENS), |window| Some(window * 2))
        .take_while(move |window| *window < end)
}

fn is_cut_size(window: u64, counted: u64) -> bool {
    let half = |kept: u64| window - (window - kept) / 2;
    counted == window
        || counted + 1 == window
        || KEPT_TOKENS.iter().any(|kept| half(*kept) == counted)
}
