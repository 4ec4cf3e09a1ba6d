//! Secrets that a text alone does not show: values of fields with such names, arguments of flags, and values known from
//! another place.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, MatchKind};
use ctxhost_text::redact::{contains_secret, replace_secrets};
use regex::{Captures, Regex};

/// What a secret is replaced by where only its place names it.
pub(super) const PLACEHOLDER: &str = "[redacted:credential]";

/// Minimum length of a secret with letters and digits that is replaced everywhere, not only where it was
/// recognized. A shorter one could be a word.
const KNOWN_MIN_CHARS: usize = 8;

/// Characters of a text that are searched for secrets before it is cut to an excerpt.
const SEARCHED_CHARS: usize = 2_000;

/// The argument of a flag such as `--password`.
static FLAG: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let name = "(?:password|passwd|pwd|secret|token|api-?key)";
    Regex::new(&format!(
        r#"(?i)(?<flag>--(?:[a-z0-9]+-)*{name} +["']?)(?<secret>[^\s"'\[\]<>$-][^\s"'\[\]<>]{{3,}})"#
    ))
    .ok()
});

/// Whether `name: …` would be a secret in plain text, with `clientSecret` read as `client_secret`.
pub fn is_secret_field(name: &str) -> bool {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push('_');
        }
        words.push(character);
    }
    // The detector of plain text decides, so that both agree on what a secret is.
    contains_secret(&format!("{words}=aaaaaaaa"))
}

/// Whether the value of a field may be the secret itself: a text that starts like this is a placeholder of an earlier
/// step, JSON, or a shell variable.
pub fn is_bare_value(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['[', '{', '<', '$'])
}

/// Whether a value cannot be a word.
pub fn looks_random(secret: &str) -> bool {
    secret.chars().count() >= KNOWN_MIN_CHARS
        && secret.contains(|c: char| c.is_ascii_digit())
        && secret.contains(char::is_alphabetic)
}

/// Replaces the arguments of flags such as `--password` by the result of `with`.
pub fn replace_flag_secrets(text: &str, mut with: impl FnMut(&str) -> String) -> Cow<'_, str> {
    let Some(flag) = FLAG.as_ref().filter(|_| text.contains("--")) else {
        return Cow::Borrowed(text);
    };
    flag.replace_all(text, |found: &Captures<'_>| {
        let part = |name: &str| found.name(name).map_or("", |part| part.as_str());
        format!("{}{}", part("flag"), with(part("secret")))
    })
}

/// The secrets that were recognized in a transcript and cannot be words.
#[derive(Clone, Default)]
pub struct KnownSecrets {
    secrets: BTreeSet<String>,
    /// A search for them; `None` without any.
    searcher: OnceLock<Option<AhoCorasick>>,
}

impl PartialEq for KnownSecrets {
    fn eq(&self, other: &KnownSecrets) -> bool {
        self.secrets == other.secrets
    }
}

impl Eq for KnownSecrets {}

// Reports are logged, and secrets are not.
impl std::fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownSecrets({})", self.secrets.len())
    }
}

impl KnownSecrets {
    /// Adds a secret that is not a word.
    pub(super) fn add(&mut self, secret: &str) {
        // Punctuation at the end of a sentence, or an escape before a quote, does not belong to it.
        let core = secret.trim_end_matches(['.', '!', '?', ':', '\\']);
        if looks_random(core) && !self.secrets.contains(core) {
            self.secrets.insert(core.to_owned());
            self.searcher = OnceLock::new();
        }
    }

    /// Adds the secrets that a text shows.
    pub fn learn(&mut self, text: &str) {
        self.redact_shown(text);
    }

    /// The first line of a text that is not blank, without secrets and cut to a number of characters.
    pub fn first_line(&self, text: &str, max_chars: usize) -> String {
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        self.excerpt(line.trim(), max_chars)
    }

    /// The first characters of a text, without secrets.
    pub fn excerpt(&self, text: &str, max_chars: usize) -> String {
        // Before it is cut: a part of a secret is not recognized.
        let searched: String = text.chars().take(max_chars.max(SEARCHED_CHARS)).collect();
        self.redact(&searched).chars().take(max_chars).collect()
    }

    /// Replaces the secrets that a text shows, and adds them.
    pub(super) fn redact_shown(&mut self, text: &str) -> String {
        let text = replace_secrets(text, |kind, secret| {
            self.add(secret);
            format!("[redacted:{kind}]")
        });
        let text = replace_flag_secrets(&text, |secret| {
            self.add(secret);
            PLACEHOLDER.to_owned()
        });
        text.into_owned()
    }

    /// Whether a text contains one of them.
    pub(super) fn are_in(&self, text: &str) -> bool {
        self.searcher().is_some_and(|searcher| searcher.is_match(text))
    }

    /// Replaces the secrets that a text shows, and these.
    pub fn redact(&self, text: &str) -> String {
        let clean = KnownSecrets::default().redact_shown(text);
        match self.searcher() {
            Some(searcher) => searcher.replace_all(&clean, &vec![PLACEHOLDER; self.secrets.len()]),
            None => clean,
        }
    }

    fn searcher(&self) -> Option<&AhoCorasick> {
        let build = || {
            let builder = || {
                AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&self.secrets)
            };
            (!self.secrets.is_empty()).then(builder)?.ok()
        };
        self.searcher.get_or_init(build).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_read_as_in_text() {
        for name in ["API_TOKEN", "clientSecret", "password", "apiKey"] {
            assert!(is_secret_field(name), "{name}");
        }
        for name in ["path", "tokens", "keyboard"] {
            assert!(!is_secret_field(name), "{name}");
        }
    }

    #[test]
    fn an_excerpt_shows_no_part_of_a_secret() {
        let mut known = KnownSecrets::default();
        let text = "\n Deploy key is password=hunter2secretX9 for staging\nmore";
        assert_eq!(
            known.first_line(text, 60),
            "Deploy key is password=[redacted:credential] for staging"
        );
        assert_eq!(known.first_line(text, 27), "Deploy key is password=[red");
        assert_eq!(known.excerpt("use hunter2secretX9", 80), "use hunter2secretX9");
        known.learn(text);
        assert_eq!(known.excerpt("use hunter2secretX9", 80), "use [redacted:credential]");
        assert_eq!(known.excerpt("use hunter2secretX9", 8), "use [red");
    }

    #[test]
    fn a_known_secret_is_replaced_wherever_it_occurs() {
        let mut known = KnownSecrets::default();
        let shown = known.redact_shown("login --password qqRst55667788 at port 5433");
        assert_eq!(shown, "login --password [redacted:credential] at port 5433");
        assert_eq!(known.redact("it is qqRst55667788."), "it is [redacted:credential].");
        assert_eq!(format!("{known:?}"), "KnownSecrets(1)");
        known.add("option");
        assert_eq!(known.redact("an option"), "an option");
    }
}
