//! Byte positions of values inside a JSON body, and replacements at those positions.

use std::ops::Range;

/// The bytes of `part` in `whole`, of which it is a slice.
pub(crate) fn span_of(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize).min(whole.len());
    start..start + part.len()
}

/// The bytes from the first of `items` to the last.
pub(crate) fn list_span(whole: &str, items: &[&str]) -> Range<usize> {
    match (items.first(), items.last()) {
        (Some(first), Some(last)) => span_of(whole, first).start..span_of(whole, last).end,
        _ => 0..0,
    }
}

/// `json` with other text at some spans. Every other byte stays, for the provider's prompt cache.
pub(crate) fn replace_spans(
    json: &str,
    mut changes: Vec<(Range<usize>, String)>,
) -> Option<String> {
    changes.sort_by_key(|(span, _)| span.start);
    let (mut replaced, mut copied_to) = (String::with_capacity(json.len()), 0);
    for (span, text) in changes {
        replaced.push_str(json.get(copied_to..span.start)?);
        replaced.push_str(&text);
        copied_to = span.end;
    }
    replaced.push_str(json.get(copied_to..)?);
    Some(replaced)
}
