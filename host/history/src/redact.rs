//! Redacts secrets and personal data: equal values get the same numbered placeholder.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use ctxhost_retention::{
    is_bare_value, is_secret_field, looks_random, replace_flag_secrets, replace_secrets,
};

/// Signatures of providers, which may contain the signed thinking and do not match redacted text.
const SIGNATURES: [&str; 3] = ["thinkingSignature", "textSignature", "thoughtSignature"];

static URL_PASSWORD: LazyLock<Option<Regex>> =
    // No brackets: a placeholder of an earlier step is not replaced again.
    LazyLock::new(|| Regex::new(r"://[^/\s:@]*:(?<inner>[^/\s@\[\]]+)@").ok());
static ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?<inner>[\w.%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})\b").ok());
static HOME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let name = r"(?<inner>\w(?:[\w.-]*\w)?)";
    // Not inside other folders: `/srv/home/x` is no home folder, unless the name is known.
    Regex::new(&format!(r"(?:(?:^|[^\w.\]-])(?:/home/|/Users/)|\b[A-Za-z]:\\+Users\\+){name}")).ok()
});
/// Agents name the session folder of a project after its path.
static HOME_IN_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:--|/-)(?:home|Users)-(?<inner>\w+)").ok());

/// Numbers of redacted values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedactionCounts {
    /// Different secrets.
    pub secrets: usize,
    /// Different e-mail addresses.
    pub addresses: usize,
    /// Different names of home folders.
    pub names: usize,
    /// Removed images, whose content is unknown.
    pub images: usize,
}

/// Redacts one session.
#[derive(Debug, Default)]
pub struct SessionRedactor {
    secrets: PlaceholderMap,
    addresses: PlaceholderMap,
    names: PlaceholderMap,
    images: usize,
    /// Secrets to replace everywhere.
    known: Option<Regex>,
    /// Names to replace in every path below a folder of homes.
    known_names: Option<Regex>,
    /// Whether fields with this name contain secrets.
    fields: HashMap<String, bool>,
}

impl SessionRedactor {
    /// Redacts the lines of a session, and passes each to `write`. Lines that are not JSON objects are removed.
    ///
    /// # Errors
    ///
    /// The first error of `write`.
    pub fn redact_lines<'a, E>(
        mut self,
        lines: impl Iterator<Item = &'a str> + Clone,
        mut write: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<RedactionCounts, E> {
        // Two passes: a secret may occur before the place where it is recognized.
        for line in lines.clone() {
            self.line(line);
        }
        self.known = self.secrets.any_of(looks_random);
        self.known_names = self.names.any_of(|_| true).and_then(|names| {
            Regex::new(&format!(r"(?:home|Users)[/\\-]+(?<inner>{})\b", names.as_str())).ok()
        });
        // The second pass counts them again.
        self.images = 0;
        for line in lines {
            if let Some(value) = self.line(line) {
                write(&value.to_string())?;
            }
        }
        Ok(RedactionCounts {
            secrets: self.secrets.0.len(),
            addresses: self.addresses.0.len(),
            names: self.names.0.len(),
            images: self.images,
        })
    }

    fn line(&mut self, line: &str) -> Option<Value> {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(self.value("", value))
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

    /// Redacts a string, or JSON in a string. Placeholders in brackets and variable names are not secrets, even in
    /// a field for one.
    fn string(&mut self, field: &str, text: String) -> String {
        if is_bare_value(&text) && self.is_secret_field(field) {
            return self.secrets.placeholder("secret", &text);
        }
        // Arguments and rewritten messages are JSON in a string.
        if let Some(inner) = serde_json::from_str::<Value>(&text).ok().filter(is_compound) {
            let clean = self.value(field, inner.clone());
            return if clean == inner { text } else { clean.to_string() };
        }
        self.text(&text)
    }

    fn text(&mut self, text: &str) -> String {
        let secrets = &mut self.secrets;
        let text = replace_secrets(text, |_, secret| {
            // Punctuation at the end of a sentence, or an escape before a quote, does not belong to it.
            let core = secret.trim_end_matches(['.', '!', '?', ':', '\\']);
            let rest = secret.strip_prefix(core).unwrap_or_default();
            format!("{}{rest}", secrets.placeholder("secret", core))
        });
        let text = replace_flag_secrets(&text, |secret| secrets.placeholder("secret", secret));
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

    fn is_secret_field(&mut self, field: &str) -> bool {
        if let Some(known) = self.fields.get(field) {
            return *known;
        }
        let is_secret = is_secret_field(field);
        self.fields.insert(field.to_owned(), is_secret);
        is_secret
    }
}

fn is_compound(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// Numbered values, in the order of their first occurrence.
#[derive(Debug, Default)]
struct PlaceholderMap(HashMap<String, usize>);

impl PlaceholderMap {
    fn placeholder(&mut self, word: &str, value: &str) -> String {
        let next = self.0.len() + 1;
        let number = self.0.entry(value.to_owned()).or_insert(next);
        format!("[{word} {number}]")
    }

    /// Replaces the group `inner` of each match.
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

    /// A pattern that matches the wanted values, longest first.
    fn any_of(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Regex> {
        let mut wanted: Vec<&String> = self.0.keys().filter(|value| is_wanted(value)).collect();
        // A regex takes the first alternative that matches, which may be the start of a longer value.
        wanted.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        let pattern: Vec<String> = wanted.into_iter().map(|value| regex::escape(value)).collect();
        (!pattern.is_empty()).then(|| Regex::new(&pattern.join("|")).ok()).flatten()
    }
}
