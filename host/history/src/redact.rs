//! What must not leave the house, replaced by numbered placeholders: the same secret, the same number.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use ctxhost_retention::{contains_secret, replace_secrets};

/// A secret of so many characters, with letters and digits, is replaced wherever it stands, not only
/// where its place gives it away. A shorter one could be a word.
const KNOWN_MIN_CHARS: usize = 8;

/// Signatures of providers: they may hold the thinking that they sign, and fit no changed text.
const SIGNATURES: [&str; 3] = ["thinkingSignature", "textSignature", "thoughtSignature"];

static URL_PASSWORD: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"://[^/\s:@]*:(?<inner>[^/\s@\[\]]+)@").ok());
/// What follows the flag of a command, such as `--password`.
static FLAG: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let name = "(?:password|passwd|pwd|secret|token|api-?key)";
    Regex::new(&format!(
        r#"(?i)--(?:[a-z0-9]+-)*{name} +["']?(?<inner>[^\s"'\[\]<>$-][^\s"'\[\]<>]{{3,}})"#
    ))
    .ok()
});
static ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?<inner>[\w.%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})\b").ok());
static HOME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let name = r"(?<inner>\w(?:[\w.-]*\w)?)";
    // A folder of that name inside of another one is nobody's home, unless the name is known.
    Regex::new(&format!(r"(?:(?:^|[^\w.\]-])(?:/home/|/Users/)|\b[A-Za-z]:\\+Users\\+){name}")).ok()
});
/// Agents name the folder of a project's sessions after its path.
static HOME_IN_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:--|/-)(?:home|Users)-(?<inner>\w+)").ok());

/// How many different things were replaced, and how many were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedactionCounts {
    /// Secrets.
    pub secrets: usize,
    /// E-mail addresses.
    pub addresses: usize,
    /// Names of home folders.
    pub names: usize,
    /// Pictures: nobody knows what they show.
    pub images: usize,
}

/// Replaces what must not leave the house, in one session.
#[derive(Debug, Default)]
pub struct SessionRedactor {
    secrets: PlaceholderMap,
    addresses: PlaceholderMap,
    names: PlaceholderMap,
    images: usize,
    /// Secrets that are replaced wherever they stand.
    known: Option<Regex>,
    /// Names that are replaced in every path that has a folder for homes.
    known_names: Option<Regex>,
    /// Whether a field of this name holds a secret.
    fields: HashMap<String, bool>,
}

impl SessionRedactor {
    /// The lines of a session, each a JSON object, without what must not leave the house. A line that is
    /// none is left out.
    pub fn redact_lines<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<String> {
        // A secret that its place gives away late may have been said before: so first they are learnt.
        lines.clone().for_each(|line| drop(self.line(line)));
        self.known = self.secrets.any_of(looks_random);
        self.known_names = self.names.any_of(|_| true).and_then(|names| {
            Regex::new(&format!(r"(?:home|Users)[/\\-]+(?<inner>{})\b", names.as_str())).ok()
        });
        self.images = 0;
        lines.filter_map(|line| self.line(line)).collect()
    }

    /// What was replaced.
    pub fn counts(&self) -> RedactionCounts {
        RedactionCounts {
            secrets: self.secrets.0.len(),
            addresses: self.addresses.0.len(),
            names: self.names.0.len(),
            images: self.images,
        }
    }

    fn line(&mut self, line: &str) -> Option<String> {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(self.value("", value).to_string())
    }

    fn value(&mut self, field: &str, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.string(field, text)),
            Value::Array(values) => {
                values.into_iter().map(|value| self.value(field, value)).collect()
            }
            Value::Object(fields) => self.object(fields),
            plain => plain,
        }
    }

    fn object(&mut self, fields: Map<String, Value>) -> Value {
        if fields.get("type").is_some_and(|kind| kind == "image") {
            self.images += 1;
            return json!({ "type": "text", "text": "[image left out]" });
        }
        let kept = fields.into_iter().filter(|(name, _)| !SIGNATURES.contains(&name.as_str()));
        kept.map(|(name, value)| {
            let value = self.value(&name, value);
            (name, value)
        })
        .collect()
    }

    /// A text, or JSON in a text. What stands in a placeholder's brackets, or names a variable, is no
    /// secret even in a field for one.
    fn string(&mut self, field: &str, text: String) -> String {
        let is_bare = !text.is_empty() && !text.starts_with(['[', '{', '<', '$']);
        if is_bare && self.is_secret_field(field) {
            return self.secrets.placeholder("secret", &text);
        }
        // Arguments and rewritten messages are JSON once more.
        if let Some(inner) = serde_json::from_str::<Value>(&text).ok().filter(is_compound) {
            let clean = self.value(field, inner.clone());
            return if clean == inner { text } else { clean.to_string() };
        }
        self.text(&text)
    }

    fn text(&mut self, text: &str) -> String {
        let secrets = &mut self.secrets;
        let text = replace_secrets(text, |_, secret| {
            // The end of a sentence, or an escape before a quote, is no part of it.
            let core = secret.trim_end_matches(['.', '!', '?', ':', '\\']);
            let rest = secret.strip_prefix(core).unwrap_or_default();
            format!("{}{rest}", secrets.placeholder("secret", core))
        });
        let text = secrets.replace(&FLAG, "secret", &text);
        let text = secrets.replace(&URL_PASSWORD, "secret", &text);
        let text = match &self.known {
            Some(known) => known
                .replace_all(&text, |found: &Captures<'_>| {
                    secrets.placeholder("secret", found.get(0).map_or("", |found| found.as_str()))
                })
                .into_owned(),
            None => text,
        };
        let text = self.addresses.replace(&ADDRESS, "address", &text);
        let text = self.names.replace(&HOME, "name", &text);
        let text = self.names.replace(&HOME_IN_NAME, "name", &text);
        self.names.replace(&self.known_names, "name", &text)
    }

    /// Whether `field: …` would be taken for a secret in plain text; `clientSecret` as `client_secret`.
    fn is_secret_field(&mut self, field: &str) -> bool {
        if let Some(known) = self.fields.get(field) {
            return *known;
        }
        let mut name = String::new();
        for character in field.chars() {
            if character.is_uppercase() && name.ends_with(char::is_lowercase) {
                name.push('_');
            }
            name.push(character);
        }
        let is_secret = contains_secret(&format!("{name}=aaaaaaaa"));
        self.fields.insert(field.to_owned(), is_secret);
        is_secret
    }
}

fn is_compound(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// Things by number, in the order in which they were met.
#[derive(Debug, Default)]
struct PlaceholderMap(HashMap<String, usize>);

impl PlaceholderMap {
    fn placeholder(&mut self, word: &str, thing: &str) -> String {
        let next = self.0.len() + 1;
        let number = self.0.entry(thing.to_owned()).or_insert(next);
        format!("[{word} {number}]")
    }

    /// Replaces the inner part of whatever the pattern finds.
    fn replace(&mut self, pattern: &Option<Regex>, word: &str, text: &str) -> String {
        let Some(pattern) = pattern else { return text.to_owned() };
        let replaced = pattern.replace_all(text, |found: &Captures<'_>| {
            let (Some(whole), Some(inner)) = (found.get(0), found.name("inner")) else {
                return String::new();
            };
            let before = text.get(whole.start()..inner.start()).unwrap_or_default();
            let after = text.get(inner.end()..whole.end()).unwrap_or_default();
            format!("{before}{}{after}", self.placeholder(word, inner.as_str()))
        });
        replaced.into_owned()
    }

    /// A pattern of those that are like this, the longest first.
    fn any_of(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Regex> {
        let mut wanted: Vec<&String> = self.0.keys().filter(|thing| is_wanted(thing)).collect();
        wanted.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        let pattern: Vec<String> = wanted.into_iter().map(|thing| regex::escape(thing)).collect();
        (!pattern.is_empty()).then(|| Regex::new(&pattern.join("|")).ok()).flatten()
    }
}

/// Whether no word looks like this.
fn looks_random(secret: &str) -> bool {
    secret.chars().count() >= KNOWN_MIN_CHARS
        && secret.contains(|c: char| c.is_ascii_digit())
        && secret.contains(char::is_alphabetic)
}
