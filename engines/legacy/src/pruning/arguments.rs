//! Arguments of old calls: the file a model once wrote is in the file now, not only in its call.

use ctxhost_engine_api::{Entry, Flags};
use ctxhost_engine_kit::calls::with_short_arguments;
use ctxhost_engine_kit::text::{Limit, grouped, truncate};

use super::LAYER;
use crate::results::{Form, Shown};
use crate::settings::CHARS_PER_TOKEN;

/// A call with every text of its arguments cut to `limit_chars`; `None` where none is longer. Ids,
/// names and the shape of the arguments stay.
pub(crate) fn shortened(entry: &Entry<'_>, limit_chars: u64) -> Option<Shown> {
    let before = entry.tokens() * CHARS_PER_TOKEN;
    if before <= limit_chars || entry.has(Flags::PINNED) {
        return None;
    }
    let limit = Limit { min_keep_chars: limit_chars, ..Limit::chars(limit_chars) };
    let notice = |left_out| format!(" [{left_out} more characters of an old call]");
    let (raw, _) = with_short_arguments(entry, 0, |text| truncate(text, limit, notice))?;
    let mut shown = Shown { form: Form::Raw(raw), layer: LAYER, detail: String::new() };
    let now = shown.chars();
    shown.detail = format!("arguments: {} -> {} chars", grouped(before), grouped(now));
    (now < before).then_some(shown)
}
