//! Short ids that only the word before them shows to be one: `deploy id is d-8813`, `build 4711`.

use std::sync::LazyLock;

use regex::Regex;

use super::{Identifier, IdentifierKind};

/// A word for something that has an id, words of a sentence between, and the id.
// Without `\b`: where a text is not ASCII, an automaton cannot decide it, and the search takes ten times as long.
const LABELLED: &str = concat!(
    r"(?i)(?:^|\W)(?:ids?|build|deploy(?:ment)?|release|ticket|issue|order|case|job|run|task|request|instance|hosts?|hostname|server|machine|node|pod|container|cluster|volume|bucket|reference|number|",
    r"nummer|auftrag|bestellung|rechner|vorgang|numéro|commande|machine|número|pedido|servidor|numero|ordine|bestelnummer|zamówienie|serwer|номер|заказ|сервер|заявка|сборка|sipariş|sunucu|nomor|pesanan)",
    r#"(?:\s+(?:id|ids|number|no\.?|nr\.?|name|named|called|is|was|as|now|ist|lautet|est|es|é|è|to))*\s*[:=#]?\s*[`"'*(]*"#,
    r"(?<id>[\p{L}\d][\p{L}\d_.-]{1,38}[\p{L}\d])",
);
/// Digits of an id that is only a number.
const LEAST_DIGITS: usize = 3;

static LABELLED_IDS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(LABELLED).ok());

/// Calls `found` with such ids of a text without secrets, in their order.
pub(super) fn for_each_labelled_id<'t>(text: &'t str, mut found: impl FnMut(Identifier<'t>)) {
    for captures in LABELLED_IDS.iter().flat_map(|pattern| pattern.captures_iter(text)) {
        let id = captures.name("id").filter(|id| is_id(id.as_str()));
        if let Some(id) = id {
            found(Identifier {
                text: id.as_str(),
                kind: IdentifierKind::Reference,
                start: id.start(),
            });
        }
    }
}

/// Whether a word has both letters and digits with a mark between, or is a number of some digits.
fn is_id(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let is_number = digits == word.chars().count();
    let has_mark = word.contains(['-', '_', '.']) && word.contains(char::is_alphabetic);
    digits > 0
        && if is_number { digits >= LEAST_DIGITS } else { has_mark || digits >= LEAST_DIGITS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_by_the_word_before_it() {
        for (text, ids) in [
            ("The deploy id is d-8813.", &["d-8813"][..]),
            ("Build 4711 passed on host runner-7.", &["4711", "runner-7"]),
            ("The order number is 88-12a; job `j_77`.", &["88-12a", "j_77"]),
            ("Die Nummer ist 4482.", &["4482"]),
            ("It took 20 runs, run 3 failed, the issue was old.", &[]),
        ] {
            let mut found = Vec::new();
            for_each_labelled_id(text, |id| found.push(id.text));
            assert_eq!(found, ids, "{text}");
        }
    }
}
