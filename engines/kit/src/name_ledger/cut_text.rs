//! Texts that an engine cut, without the halves of words at the cuts and the ids in the notices.

use std::borrow::Cow;
use std::sync::LazyLock;

use ctxhost_engine_api::{Entry, EntryKind, Flags, Role};
use regex::Regex;

/// Where a notice says the original is.
const ORIGINAL_PATTERN: &str =
    r"the original is entry \S*(?: of the session)?(?: and file \S+ beside it)?";
/// A gap with the words beside it.
const GAP_PATTERN: &str = r"\S*\s*(?:⚠ )?\[the middle (?:of this output was|is) left out\]\s*\S*";
/// The gap of a trimmed result.
const TRIMMED_PATTERN: &str = r"\S*\n\.\.\.\n\S*";
/// The mark of that.
const TRIMMED: &str = "[trimmed: the first ";
/// A notice behind a cut, with the word before it.
const END_PATTERN: &str =
    r"\S*\s*\[(?:truncated: output exceeded context limit|\d[\d,]* characters left out)\]";
/// A word that was clipped.
const CLIPPED_PATTERN: &str = r"\S*…(\s|$)";

static ORIGINAL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ORIGINAL_PATTERN).ok());
static GAP: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(GAP_PATTERN).ok());
static TRIMMED_GAP: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TRIMMED_PATTERN).ok());
static END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(END_PATTERN).ok());
static CLIPPED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CLIPPED_PATTERN).ok());

/// The text of an entry as far as its names are whole. What a user or a model wrote is not changed.
pub(crate) fn whole_names<'t>(entry: &Entry<'t>) -> Cow<'t, str> {
    match entry.role() {
        _ if entry.kind() == EntryKind::CompactionSummary => without_clipped(entry.text()),
        Role::Tool => without_cuts(entry.text()),
        _ => Cow::Borrowed(entry.text()),
    }
}

/// A text in the arguments of a call, likewise.
pub(crate) fn whole_argument_names<'t>(entry: &Entry<'_>, text: &'t str) -> Cow<'t, str> {
    if entry.has(Flags::REPLACED) { without_clipped(text) } else { Cow::Borrowed(text) }
}

/// A text of an engine, whose lines may be clipped, without cut names.
pub(crate) fn without_clipped(text: &str) -> Cow<'_, str> {
    let text = without_cuts(text);
    if text.contains('…') { replace(&CLIPPED, text, "$1") } else { text }
}

/// A text without notices and the words beside a cut.
fn without_cuts(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    if text.contains("the original is entry ") {
        text = replace(&ORIGINAL, text, "");
    }
    if text.contains(TRIMMED) {
        text = replace(&TRIMMED_GAP, text, "\n");
    }
    if text.contains(" left out]") {
        let whole = replace(&GAP, text.clone(), "\n");
        // What is behind a gap ends as the original does.
        if whole.len() < text.len() {
            return whole;
        }
    }
    let has_notice = text.contains("[truncated: ") || text.contains(" characters left out]");
    if has_notice { replace(&END, text, "\n") } else { text }
}

fn replace<'t>(pattern: &LazyLock<Option<Regex>>, text: Cow<'t, str>, by: &str) -> Cow<'t, str> {
    let Some(pattern) = pattern.as_ref().filter(|pattern| pattern.is_match(&text)) else {
        return text;
    };
    Cow::Owned(pattern.replace_all(&text, by).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_compile() {
        assert!([&ORIGINAL, &GAP, &TRIMMED_GAP, &END, &CLIPPED].iter().all(|p| p.is_some()));
    }

    #[test]
    fn words_beside_a_cut_and_ids_of_notices_are_left_out() {
        for (text, whole) in [
            (
                "a.rs src/notify/merge_aud\n[truncated: output exceeded context limit] 90 of 100 characters left out; the original is entry 41b813e5 of the session and file 9f86d081 beside it",
                "a.rs \n 90 of 100 characters left out; ",
            ),
            (
                "[compacted: tool output removed to free context] 400 characters; the original is entry 41b813e5 of the session",
                "[compacted: tool output removed to free context] 400 characters; ",
            ),
            (
                "see src/a_b\n\n⚠ [the middle of this output was left out]\n\nc_d.rs end_of_it\n[1,200 characters left out]",
                "see \n end_of_it\n[1,200 characters left out]",
            ),
            ("one two_thr\n[1,200 characters left out]", "one \n"),
            (
                "x src/a\n...\nb.rs y\n\n[trimmed: the first 9 and the last 9 of 99 characters are shown; the original is entry 41b813e5 of the session]",
                "x \n y\n\n[trimmed: the first 9 and the last 9 of 99 characters are shown; ]",
            ),
            ("- bash: cat src/webhook/save_auth.p…\n- src/…/a.rs", "- bash: cat \n- src/…/a.rs"),
            ("- Tool: the original is entry 41b8…", "- Tool: "),
            ("src/a.rs and src/b.rs", "src/a.rs and src/b.rs"),
        ] {
            assert_eq!(without_clipped(text), whole);
        }
    }
}
