//! Shortens the arguments of old calls: a file that a model wrote can be read again.

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Entry, Flags};
use ctxhost_engine_kit::calls::shorten_arguments;
use ctxhost_text::truncate::{TextLimit, truncate};

use super::LAYER;
use crate::results::Replacement;
use crate::settings::CHARS_PER_TOKEN;

/// A call with its argument texts cut to `limit_chars`; `None` if none is longer. Ids, names and
/// structure are unchanged.
pub(crate) fn shorten_old_arguments(entry: &Entry<'_>, limit_chars: u64) -> Option<Replacement> {
    let before = entry.tokens() * CHARS_PER_TOKEN;
    // Pinned entries are never changed.
    if before <= limit_chars || entry.has(Flags::PINNED) {
        return None;
    }
    let limit = TextLimit::with_max_chars(limit_chars).keeping(limit_chars);
    let notice = |left_out| format!(" [{left_out} more characters of an old call]");
    let (raw, _) = shorten_arguments(entry, 0, |text| truncate(text, limit, notice))?;
    let mut replacement = Replacement::from_raw(raw, LAYER, "");
    let now = replacement.chars();
    replacement.detail =
        format!("arguments: {} → {} chars", group_thousands(before), group_thousands(now));
    (now < before).then_some(replacement)
}
