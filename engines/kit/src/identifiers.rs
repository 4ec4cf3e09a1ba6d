//! Exact identifiers that a summary must repeat character by character.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::{hash, redact};

/// Identifiers per summary.
// Enough for the current work, few enough that a model repeats all of them.
pub const MAX_IDENTIFIERS: usize = 12;

/// Minimum length of an identifier.
const MIN_CHARS: usize = 4;
/// Maximum length of an identifier; a longer one is data.
const MAX_CHARS: usize = 200;

/// Candidates in order of precedence, so that a URL is not also matched as a path.
const PATTERN: &str = concat!(
    r#"https?://[^\s<>"'`\\]+"#,
    r"|[A-Za-z]:\\[^\s<>|?*]+",
    r"|(?:^|[\s\x22'`(\[=:,])(?:/[A-Za-z0-9_.@+~-]+){2,}/?",
    r"|(?-u:\b)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+:\d{2,5}(?-u:\b)",
    r"|[A-Za-z0-9_.+-]*(?:[0-9A-Fa-f]{8}|\d{6})[A-Za-z0-9_.+-]*",
);

/// File suffixes of source code.
// Without them `main.rs:120` would match as a host with a port.
const SOURCE_ENDINGS: [&str; 20] = [
    ".ts", ".tsx", ".js", ".jsx", ".mjs", ".rs", ".py", ".go", ".c", ".h", ".cc", ".cpp", ".java",
    ".rb", ".php", ".sh", ".md", ".json", ".toml", ".yaml",
];

/// File modes of git.
// They are frequent in listings and look like numbers of 6 digits.
const FILE_MODES: [&str; 4] = ["100644", "100755", "120000", "040000"];

/// Length of the pseudonym of an anonymised identifier.
const PSEUDONYM_LETTERS: usize = 6;

static CANDIDATES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN).ok());
static NUMBER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[+-]?(?:\d+\.\d+|\d+(?:\.\d+)?[eE][+-]?\d+)$").ok());

/// Returns at most `max` identifiers of `texts`, in the order of the texts (newest first).
pub fn extract<'a>(texts: impl IntoIterator<Item = &'a str>, max: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for text in texts {
        for identifier in find_in_redacted(&redact::redact(text)) {
            if found.len() == max {
                return found;
            }
            if seen.insert(identifier.clone()) {
                found.push(identifier);
            }
        }
    }
    found
}

/// Finds the identifiers of a text that is already redacted, repetitions included.
pub fn find_in_redacted(text: &str) -> impl Iterator<Item = String> {
    let candidates = CANDIDATES.iter().flat_map(|pattern| pattern.find_iter(text));
    candidates.filter_map(|candidate| identifier_of(candidate.as_str()))
}

/// Whether a text contains an identifier; hex is compared case-insensitively.
pub fn is_mentioned(identifier: &str, text: &str) -> bool {
    // Models change the case of hashes but not of paths.
    text.contains(identifier)
        || (is_hex(identifier) && text.to_ascii_uppercase().contains(&identifier.to_uppercase()))
}

/// Replaces every identifier by a pseudonym: `/srv/app` becomes `path-kdwxqa`. Equal identifiers
/// have equal pseudonyms, which cannot be reversed.
pub fn anonymise(text: &str) -> Cow<'_, str> {
    let Some(pattern) = CANDIDATES.as_ref() else { return Cow::Borrowed(text) };
    pattern.replace_all(text, |found: &Captures<'_>| {
        let candidate = found.get(0).map_or("", |part| part.as_str());
        match identifier_of(candidate) {
            Some(identifier) => candidate.replacen(bare(candidate), &pseudonym(&identifier), 1),
            None => candidate.to_owned(),
        }
    })
}

fn pseudonym(identifier: &str) -> String {
    let kind = match identifier {
        url if url.contains("://") => "url",
        path if path.contains(['/', '\\']) => "path",
        host if host.contains(':') => "host",
        _ => "id",
    };
    format!("{kind}-{}", hash::hash_letters(identifier, PSEUDONYM_LETTERS))
}

fn bare(candidate: &str) -> &str {
    let strip = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;:=.!?".contains(c);
    candidate.trim_matches(strip)
}

fn identifier_of(candidate: &str) -> Option<String> {
    let bare = bare(candidate);
    let chars = bare.chars().count();
    let is_named = (MIN_CHARS..=MAX_CHARS).contains(&chars) && !bare.contains("redacted:");
    if !is_named || FILE_MODES.contains(&bare) {
        return None;
    }
    // Decimal fractions and exponents are measurements.
    if NUMBER.as_ref().is_some_and(|number| number.is_match(bare)) {
        return None;
    }
    if bare.split_once(':').is_some_and(|(name, _)| names_source(name)) {
        return None;
    }
    // Plain words and small numbers are not identifiers.
    let has_shape = bare.contains(['/', '\\', ':']) || is_code(bare);
    has_shape.then(|| if is_hex(bare) { bare.to_uppercase() } else { bare.to_owned() })
}

fn names_source(name: &str) -> bool {
    !name.contains('/') && SOURCE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a token is unlike a word: 6 digits in a row, or 8 hex digits with a decimal digit.
fn is_code(token: &str) -> bool {
    let digits = longest_run(token, |c| c.is_ascii_digit());
    let hex = longest_run(token, |c| c.is_ascii_hexdigit());
    digits >= 6 || hex >= 8
}

fn is_hex(token: &str) -> bool {
    // At least one letter: a long decimal number keeps its case anyway.
    token.len() >= 8
        && token.chars().all(|c| c.is_ascii_hexdigit())
        && token.contains(|c: char| c.is_ascii_alphabetic())
}

fn longest_run(token: &str, is_in: impl Fn(char) -> bool) -> usize {
    token.split(|c| !is_in(c)).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(extract([text], MAX_IDENTIFIERS), expected, "{text}");
    }

    #[test]
    fn case_56_what_counts_as_an_identifier() {
        check("see https://example.com/a?b=1, then", &["https://example.com/a?b=1"]);
        check("run /usr/local/bin/tool.", &["/usr/local/bin/tool"]);
        check("commit deadbeefcafe", &["DEADBEEFCAFE"]);
        check("order 123456 and port 8080", &["123456"]);
        check(
            "id 550e8400-e29b-41d4-a716-446655440000!",
            &["550e8400-e29b-41d4-a716-446655440000"],
        );
        check("just /a here", &[]);
        check("host db.example.com:5432", &["db.example.com:5432"]);
        check(r"open C:\work\notes.txt", &[r"C:\work\notes.txt"]);
        check("see main.rs:120 and agent-session.ts:16", &[]);
        check("pi is 3.14159265 and 1.5e10", &[]);
        check("create mode 100644 kit.rs", &[]);
    }

    #[test]
    fn case_56_at_most_twelve() {
        let many = (0..20).map(|n| format!("{}", 100_000 + n)).collect::<Vec<_>>().join(" ");
        assert_eq!(extract([many.as_str()], MAX_IDENTIFIERS).len(), 12);
    }

    #[test]
    fn a_secret_is_no_identifier() {
        check("use sk-1234567890abcdef and AKIAIOSFODNN7EXAMPLE", &[]);
        check("password=12345678abcdef", &[]);
    }

    #[test]
    fn under_other_names_nothing_exact_is_left() {
        let text =
            "copy /srv/app/main.rs to https://example.com/a, commit deadbeefcafe, /srv/app/main.rs";
        let anonymous = anonymise(text);
        assert_eq!(extract([anonymous.as_ref()], 9), Vec::<String>::new(), "{anonymous}");
        assert_eq!(anonymous.matches("path-").count(), 2);
        let path = anonymous.split(' ').find(|word| word.starts_with("path-")).unwrap();
        assert_eq!(anonymous.matches(path).count(), 2, "the same name for the same path");
        assert!(
            anonymous.starts_with("copy path-")
                && anonymous.contains("url-")
                && anonymous.contains("id-")
        );
        assert_eq!(anonymise(&anonymous), anonymous, "once is enough");
    }

    #[test]
    fn hex_is_compared_without_case() {
        assert!(is_mentioned("DEADBEEF", "at deadbeef"));
        assert!(!is_mentioned("/Tmp/Notes", "at /tmp/notes"));
    }
}
