//! Full stops that do not end a sentence.

/// Abbreviations with their last full stop, in the languages in which agents are asked most. What a
/// full stop and a word in lower case show needs no entry.
const ABBREVIATIONS: [&str; 53] = [
    "e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "dr.", "no.", "mr.", "mrs.", "ms.", "prof.",
    "st.", "jr.", "sr.", "nr.", "z.b.", "d.h.", "bzw.", "ca.", "fr.", "hr.", "mme.", "sra.",
    "srta.", "dott.", "núm.", "tel.", "p.ej.", "p.ex.", "u.a.", "o.ä.", "v.a.", "abk.", "fa.",
    "str.", "vgl.", "ggf.", "evtl.", "inkl.", "exkl.", "bspw.", "zzgl.", "bzgl.", "insb.",
    "insbes.", "sog.", "lt.", "т.е.", "т.к.", "ул.", "стр.", "руб.",
];
/// Abbreviations before a number, which end a sentence before anything else.
const BEFORE_NUMBER: [&str; 16] = [
    "p.", "pp.", "fig.", "vol.", "sec.", "ch.", "art.", "abs.", "kap.", "bd.", "max.", "min.",
    "pág.", "pos.", "ver.", "rev.",
];
/// Words before one character that names one of several: it may end a sentence, as in "plan B."
const LABELLED: [&str; 20] = [
    "plan", "option", "variant", "variante", "version", "group", "gruppe", "team", "type", "typ",
    "class", "klasse", "column", "spalte", "drive", "vitamin", "case", "appendix", "anhang",
    "grade",
];
/// Characters of a capitalised word that a full stop and lower case behind it show to be cut: "Abt."
const MOST_CUT_CHARS: usize = 4;

/// Whether the full stop at the end of `before` ends no sentence. `before` begins with the line, and
/// `behind` is the rest of it.
pub fn continues(before: &str, behind: &str) -> bool {
    // The words of a line are searched from its end, so that a long line costs no more.
    let mut words = before.rsplit(char::is_whitespace);
    let word = words.next().unwrap_or_default().trim_start_matches(is_opening);
    let previous = words.next().unwrap_or_default();
    let next = behind.split_whitespace().next().unwrap_or_default();
    let lower = word.to_lowercase();
    if ABBREVIATIONS.contains(&lower.as_str()) {
        return true;
    }
    let next_character = next.trim_start_matches(is_opening).chars().next();
    if next_character.is_some_and(char::is_numeric) && is_before_number(&lower) {
        return true;
    }
    let is_lower_next = next_character.is_some_and(char::is_lowercase);
    if let Some(character) = single_character(word) {
        return character_continues(
            character,
            previous,
            next,
            is_lower_next && !begins_lower(before),
        );
    }
    // "5 p.m. in Rome", "U.S. dollars".
    let mut parts = word.split_terminator('.');
    if parts.all(|part| part.chars().all(has_case) && part.chars().count() == 1) {
        return is_lower_next;
    }
    // "p. ex."
    if previous.ends_with('.') && is_character(previous) && is_short_abbreviation(word) {
        return true;
    }
    is_lower_next && !begins_lower(before) && is_cut(word) && !previous.is_empty()
}

/// Whether the sentence continues behind a character with a full stop. `is_cut` is whether the next word shows it.
fn character_continues(character: char, previous: &str, next: &str, is_cut: bool) -> bool {
    // "z. B.", "c. à d.", "p. ex.": a part of an abbreviation in several words.
    let is_part = is_character(previous) || is_character(next) || is_short_abbreviation(next);
    // "A. First do this. B. Then do that."
    let is_list_mark = previous.is_empty() || previous.ends_with(['.', '!', '?', ':', ';']);
    if is_part || is_cut || is_list_mark {
        return true;
    }
    // An initial, as in "J. Smith".
    let follows_noun = LABELLED.contains(&previous.to_lowercase().as_str());
    // "So do I.", but "Napoleon I."
    let is_pronoun = character == 'I' && previous.starts_with(char::is_lowercase);
    character.is_uppercase() && !follows_noun && !is_pronoun
}

/// Whether a word is one character, with or without a full stop. "I" is an English word, "a" an article.
fn is_character(word: &str) -> bool {
    let word = word.trim_start_matches(is_opening).trim_end_matches([',', ':', ')']);
    let stem = word.strip_suffix('.').unwrap_or(word);
    let mut characters = stem.chars();
    let first = characters.next().filter(|first| first.is_alphabetic());
    let is_one = first.is_some_and(has_case) && characters.next().is_none();
    is_one && (word.ends_with('.') || !matches!(stem, "I" | "a" | "A"))
}

/// Whether a word is short, in lower case and ends with a full stop.
fn is_short_abbreviation(word: &str) -> bool {
    let stem = word.trim_end_matches(|c: char| c != '.').strip_suffix('.').unwrap_or_default();
    (2..=3).contains(&stem.chars().count()) && stem.chars().all(char::is_lowercase)
}

/// The character of a word that is one character of a script with case and a full stop.
fn single_character(word: &str) -> Option<char> {
    let mut characters = word.chars();
    let character = characters.next().filter(|character| has_case(*character))?;
    (characters.as_str() == ".").then_some(character)
}

/// Whether a word, in lower case, is cut before a number: "Fig. 3", "Hauptstr. 5".
fn is_before_number(lower: &str) -> bool {
    BEFORE_NUMBER.contains(&lower) || lower.ends_with("str.")
}

/// Whether a word is capitalised and as short as an abbreviation.
fn is_cut(word: &str) -> bool {
    let stem = word.strip_suffix('.').unwrap_or(word);
    let length = stem.chars().count();
    let is_short = (2..=MOST_CUT_CHARS).contains(&length);
    is_short && stem.starts_with(char::is_uppercase) && stem.chars().skip(1).all(char::is_lowercase)
}

/// Whether a line begins in lower case: who writes so begins every sentence so.
fn begins_lower(line: &str) -> bool {
    line.chars().find(|c| c.is_alphabetic()).is_some_and(char::is_lowercase)
}

fn has_case(character: char) -> bool {
    character.is_lowercase() || character.is_uppercase()
}

fn is_opening(c: char) -> bool {
    matches!(c, '(' | '[' | '"' | '\'' | '„' | '“' | '«' | '‚' | '*' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a line at the full stops that end a sentence.
    fn parts(line: &str) -> Vec<&str> {
        let mut start = 0;
        let mut found = Vec::new();
        for (at, _) in line.match_indices(". ") {
            if !continues(&line[..=at], &line[at + 1..]) {
                found.push(line[start..=at].trim());
                start = at + 1;
            }
        }
        found.push(line[start..].trim());
        found
    }

    #[test]
    fn abbreviations_do_not_end_a_sentence() {
        for line in [
            "Call me Dr. Brandt.",
            "Use tools (e.g. a linter) first.",
            "Ask J. Smith or J. R. R. Tolkien.",
            "Frau Prof. Lind leads it.",
            "Schreib Beträge mit Komma, z. B. 1.249,50 €.",
            "Nimm eine Stadt, z. B. Rom.",
            "Duze mich bitte, d. h. kein Sie, in allen Antworten.",
            "duze mich bitte, d. h. kein Sie, in allen Antworten.",
            "Nutze nie die Abk. Fa. für Firma.",
            "Schick es an die Abt. für Einkauf.",
            "Responda sempre em português, p. ex. sem termos ingleses.",
            "responda sempre em português, p. ex. sem termos ingleses.",
            "Réponds en français, c. à d. sans anglais.",
            "Always cite sources, e. g. the page no. 12 of the manual.",
            "Name the file, i. e. its path.",
            "Wir liefern u. a. nach Rom und u. a. Oslo.",
            "Es sind ca. 5 Liter bzw. Kilo, Nr. 7, Str. 9, Hauptstr. 12.",
            "Пиши полностью, т. е. без сокращений.",
            "See fig. 3 on p. 12.",
            "We meet at 5 p.m. in Rome.",
            "(e.g. this)",
        ] {
            assert_eq!(parts(line), [line]);
        }
    }

    #[test]
    fn a_letter_or_a_short_word_may_end_a_sentence() {
        for (line, ends) in [
            ("Go with plan B. Use it.", 2),
            ("So do I. Then test it.", 2),
            ("do it. then test it. never push.", 3),
            ("use option b. then test it.", 2),
            ("Fix the bug. then run the tests. never push.", 3),
            ("Choose option a. Then run it.", 2),
            ("The casino. Done. Use tabs.", 3),
            ("Use css. Never use tls. Always use npm.", 3),
            ("The limit is at the max. Use less.", 2),
            ("Wir treffen uns um 5. Dann gehen wir.", 2),
            ("用 A. 然后测试。", 1),
            ("Always answer in French. My name is J. Doe. Never use tabs.", 3),
            ("Read it, i.e. the file. Then write it.", 2),
        ] {
            assert_eq!(parts(line).len(), ends, "{:?}", parts(line));
        }
    }

    #[test]
    fn a_list_in_one_line_keeps_marks_with_their_items() {
        assert_eq!(parts("Do: A. Read it. B. Write it."), ["Do: A. Read it.", "B. Write it."]);
        assert_eq!(parts("a. Read it. b. Write it."), ["a. Read it.", "b. Write it."]);
    }

    #[test]
    fn the_end_of_a_line_needs_no_next_word() {
        for text in ["J.", "z. B.", "e.", ".", "..", "", "The casino."] {
            let _ = continues(text, "");
        }
        assert!(!continues("Done.", "") && continues("Call me Dr.", ""));
    }
}
