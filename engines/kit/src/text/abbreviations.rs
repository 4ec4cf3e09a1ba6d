//! Full stops that do not end a sentence.

/// Abbreviations with their last full stop, in the languages in which agents are asked most.
const ABBREVIATIONS: [&str; 29] = [
    "e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "dr.", "no.", "mr.", "mrs.", "ms.", "prof.",
    "st.", "jr.", "sr.", "nr.", "z.b.", "d.h.", "bzw.", "ca.", "fr.", "hr.", "mme.", "sra.",
    "srta.", "dott.", "núm.", "tel.", "p.ej.",
];

/// Whether a text ends with an abbreviation or an initial, as in "Call me Dr." or "J.".
pub(crate) fn ends_with_abbreviation(text: &str) -> bool {
    let word = text.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let mut initial = word.chars();
    let is_initial = initial.next().is_some_and(char::is_uppercase) && initial.as_str() == ".";
    is_initial || ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abbreviations_are_whole_words() {
        for text in ["Call me Dr.", "(e.g.", "J.", "Frau Prof.", "z.B."] {
            assert!(ends_with_abbreviation(text), "{text}");
        }
        for text in ["The casino.", "Done.", "", "Use tabs.", "a.", "I like it!"] {
            assert!(!ends_with_abbreviation(text), "{text}");
        }
    }
}
