//! What the user of a message wrote, without quotations, pasted text and code.

use std::ops::Range;

/// Marks around a pasted text.
const PASTE_MARKS: [&str; 2] = ["\"\"\"", "'''"];
/// Marks around code.
const FENCES: [&str; 2] = ["```", "~~~"];

/// The parts of a message that are the user's own, each of one line: none of a line quoted with `>`,
/// of a fenced block, or of a text between `"""`.
pub fn own_parts(text: &str) -> impl Iterator<Item = &str> {
    own_ranges(text).into_iter().filter_map(|range| text.get(range))
}

/// The ranges of a message that are the user's own.
pub fn own_ranges(text: &str) -> Vec<Range<usize>> {
    let mut own = Vec::new();
    let mut block = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let following = text.get(end..).unwrap_or_default();
        read_line(line.trim_end_matches(['\n', '\r']), start, following, &mut block, &mut own);
        start = end;
    }
    own
}

/// The user's own parts of a message, one under the other.
pub fn own_text(text: &str) -> String {
    own_parts(text).collect::<Vec<_>>().join("\n")
}

/// Adds the own parts of a line, which begins at `at`. `block` is the mark that ends the block around it.
fn read_line(
    line: &str,
    at: usize,
    following: &str,
    block: &mut Option<&'static str>,
    own: &mut Vec<Range<usize>>,
) {
    let start = line.trim_start();
    let fence = FENCES.into_iter().find(|fence| start.starts_with(fence));
    match *block {
        // Nothing but its own mark ends a block.
        Some(open) if FENCES.contains(&open) => {
            if fence == Some(open) {
                *block = None;
            }
            return;
        }
        Some(_) => {}
        None if fence.is_some() => {
            *block = fence;
            return;
        }
        None if is_quoted(start) => return,
        None => {}
    }
    let mut from = 0;
    loop {
        let rest = line.get(from..).unwrap_or_default();
        let mark = match *block {
            Some(open) => rest.find(open).map(|found| (found, open)),
            None => next_paste_mark(rest, following, from == 0),
        };
        let Some((found, mark)) = mark else { break };
        if block.is_none() {
            own.push(at + from..at + from + found);
            *block = Some(mark);
        } else {
            *block = None;
        }
        from += found + mark.len();
    }
    if block.is_none() {
        own.push(at + from..at + line.len());
    }
}

/// The next mark that opens a pasted text: at the start of a line, or one that is closed later.
// A mark inside of a sentence that nothing closes must not hide all that follows.
fn next_paste_mark(
    rest: &str,
    following: &str,
    is_line_start: bool,
) -> Option<(usize, &'static str)> {
    let marks = PASTE_MARKS.into_iter().filter_map(|mark| {
        let at = rest.find(mark)?;
        let after = rest.get(at + mark.len()..)?;
        let is_first = is_line_start && rest.get(..at)?.trim().is_empty();
        (is_first || after.contains(mark) || following.contains(mark)).then_some((at, mark))
    });
    marks.min_by_key(|(at, _)| *at)
}

/// Whether a line is quoted, also as an item of a list.
fn is_quoted(line: &str) -> bool {
    let item = ["- ", "* ", "• "].iter().find_map(|mark| line.strip_prefix(mark));
    item.unwrap_or(line).trim_start().starts_with('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> Vec<&str> {
        own_parts(text).filter(|part| !part.trim().is_empty()).collect()
    }

    #[test]
    fn quotations_pastes_and_code_are_not_own() {
        for text in [
            "mine\n> theirs\n  > theirs\n- > theirs\nalso mine",
            "mine\n```\ntheirs\n\"\"\"\n```\nalso mine",
            "mine\n~~~\n```\ntheirs\n~~~\nalso mine",
            "mine\n\"\"\"\ntheirs\n```\n> theirs\n\"\"\"\nalso mine",
            "mine\n'''theirs\r\ntheirs'''\r\nalso mine",
        ] {
            assert_eq!(own(text), ["mine", "also mine"], "{text}");
        }
        assert_eq!(own("read \"\"\"theirs\ntheirs\"\"\" and go on"), ["read ", " and go on"]);
        assert_eq!(own_text("a\n> b\nc"), "a\nc");
    }

    #[test]
    fn a_mark_without_an_end_hides_what_follows_at_the_start_of_a_line_only() {
        assert_eq!(own("mine\n\"\"\"\ntheirs"), ["mine"]);
        assert_eq!(
            own("docs begin with \"\"\" here\nmine"),
            ["docs begin with \"\"\" here", "mine"]
        );
        assert_eq!(own("a -> b\n-> c"), ["a -> b", "-> c"]);
    }
}
