//! Decides whether texts are an edit of others: cut, joined, split, or written in another form.
//!
//! Only letters and digits are compared, because clients add white space, quotes and brackets, and write line breaks as
//! `\n` where they put one message into another.

/// Characters of a text that must be found for it to be there: clients cut old results.
const FOUND_CHARS: usize = 120;

/// Characters that must be equal if not all are.
pub(super) const SHARED_CHARS: usize = 48;

/// Characters that a client adds for each text that it writes in another form.
const WRAPPER_CHARS: usize = 64;

/// How texts are an edit of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Derivation {
    /// All of the text, maybe in other messages.
    Whole,
    /// Most of the new text is the beginning and the end of the old one.
    Cut,
    /// The new text is the beginning of each old one, with other text around it.
    Rewritten,
}

/// How the new texts are an edit of the known ones; `None` if they are not.
pub(super) fn derivation(known: &[String], now: &[String]) -> Option<Derivation> {
    let known: Vec<String> =
        known.iter().map(|text| characters(text)).filter(|text| !text.is_empty()).collect();
    let now: String = now.iter().map(|text| characters(text)).collect();
    if known.is_empty() || now.is_empty() {
        return None;
    }
    let joined: String = known.concat();
    if joined == now {
        return Some(Derivation::Whole);
    }
    if is_cut(&joined, &now) {
        return Some(Derivation::Cut);
    }
    is_rewritten(&known, &now).then_some(Derivation::Rewritten)
}

/// Whether a text is a part of another one.
pub(super) fn is_part(known: &str, now: &str) -> bool {
    let now = characters(now);
    !now.is_empty() && characters(known).contains(&now)
}

/// Whether two texts begin and end alike, in at least half of the shorter one.
pub(super) fn are_mostly_equal(one: &str, other: &str) -> bool {
    let shorter = one.len().min(other.len());
    shorter > 0 && equal_bytes(one, other) >= shorter.div_ceil(2)
}

/// Whether a text was made shorter: at most a fifth of it is new.
fn is_cut(known: &str, now: &str) -> bool {
    let equal = equal_bytes(known, now);
    now.len() < known.len()
        && equal >= SHARED_CHARS
        && (now.len() - equal).saturating_mul(5) <= now.len()
}

/// Whether a text has the beginnings of the others in order, and not much else.
fn is_rewritten(known: &[String], now: &str) -> bool {
    let (mut rest, mut found) = (now, 0_usize);
    for text in known {
        let end = text.char_indices().nth(FOUND_CHARS).map_or(text.len(), |(at, _)| at);
        let Some(at) = text.get(..end).and_then(|beginning| rest.find(beginning)) else {
            return false;
        };
        let behind = rest.get(at..).unwrap_or_default();
        let equal = common_prefix(behind, text);
        found += equal;
        rest = behind.get(equal..).unwrap_or_default();
    }
    let added = now.len().saturating_sub(found);
    found >= SHARED_CHARS
        && added <= found.saturating_add(WRAPPER_CHARS.saturating_mul(known.len()))
}

/// The bytes that are equal at the beginning and at the end, at most as many as the shorter text has.
fn equal_bytes(one: &str, other: &str) -> usize {
    let begin = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let end = one.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
    (begin + end).min(one.len()).min(other.len())
}

/// The bytes of the characters with which both begin.
fn common_prefix(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    same.map(|(character, _)| character.len_utf8()).sum()
}

/// The letters and digits of a text.
fn characters(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\\' {
            // An escaped line break is dropped as a whole.
            characters.next_if(|next| matches!(next, 'n' | 'r' | 't'));
        } else if character.is_alphanumeric() {
            kept.push(character);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(known: &[&str], now: &[&str]) -> Option<Derivation> {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        derivation(&owned(known), &owned(now))
    }

    fn long(seed: usize) -> String {
        (0..80).map(|at| format!("word{} ", at * 7 + seed)).collect()
    }

    #[test]
    fn edits_of_texts_are_recognized() {
        let (one, other) = (long(1), long(2));
        let cut = format!("{}... [240 characters removed]", &one[..200]);
        let both_ends = format!("{} [...] {}", &one[..150], &one[one.len() - 150..]);
        assert_eq!(of(&[&one], &[&cut]), Some(Derivation::Cut));
        assert_eq!(of(&[&one], &[&both_ends]), Some(Derivation::Cut));
        assert_eq!(of(&[&one, &other], &[&format!("{one}\n\n{other}")]), Some(Derivation::Whole));
        assert_eq!(of(&[&format!("{one}{other}")], &[&one, &other]), Some(Derivation::Whole));
        let flat = format!("[Called read]\n[Result of read: {}]", one.replace(' ', "\\n"));
        assert_eq!(of(&[&one], &[&flat]), Some(Derivation::Rewritten));
        let short = format!("[Called read] [Result: {} (cut)]", &one[..400]);
        assert_eq!(of(&[&one], &[&short]), Some(Derivation::Rewritten));
    }

    #[test]
    fn other_texts_are_not_edits() {
        let (one, other) = (long(1), long(2));
        assert_eq!(of(&[&one], &[&other]), None);
        assert_eq!(of(&[&one], &["[omitted]"]), None);
        assert_eq!(of(&["ok"], &["ok, I look at the file next"]), None);
        let begun = "I begin with the configuration, to see what there is. ";
        assert_eq!(of(&[&format!("{begun}{one}")], &[&format!("{begun}{}", &other[..60])]), None);
        assert_eq!(of(&[&one], &[&format!("{one}{other}{other}")]), None);
        assert_eq!(of(&[&one], &[]), None);
    }
}
