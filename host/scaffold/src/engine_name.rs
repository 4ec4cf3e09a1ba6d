//! Validates the id of a new engine.

use std::str::FromStr;

use ctxhost_engine::BUNDLED;

/// Maximum length of an id, in characters: the limit of [`Info::id`](ctxhost_engine_api::Info::id).
const ID_CHARS: usize = 64;

/// Names with another meaning for cargo, the compiler or the slot.
#[rustfmt::skip]
const RESERVED: [&str; 62] = [
    "abstract", "alloc", "as", "async", "await", "become", "box", "break", "build", "const", "continue", "core",
    "crate", "ctxhost", "ctxhost-engine-api", "deps", "do", "dyn", "else", "enum", "examples", "extern", "false",
    "final", "fn", "for", "gen", "if", "impl", "in", "incremental", "let", "loop", "macro", "match", "mod", "move",
    "mut", "none", "override", "priv", "proc-macro", "pub", "ref", "return", "self", "static", "std", "struct",
    "super", "test", "trait", "true", "try", "type", "typeof", "unsafe", "use", "virtual", "where", "while", "yield",
];

/// An id in kebab-case: `keep-errors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineName(String);

/// Why a text is not a valid id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineNameError {
    /// It is not in kebab-case.
    #[error(
        "{text:?} is not an engine id; use lower-case words and digits joined by single hyphens, starting with a-z, such as {suggestion:?}"
    )]
    NotKebab {
        /// The text.
        text: String,
        /// A valid id close to it.
        suggestion: String,
    },
    /// It is too long.
    #[error("the engine id {text:?} has {chars} characters; the limit is {ID_CHARS}")]
    TooLong {
        /// The text.
        text: String,
        /// Its length.
        chars: usize,
    },
    /// It is reserved.
    #[error("{text:?} is reserved by Rust, cargo or the slot; choose another engine id")]
    Reserved {
        /// The text.
        text: String,
    },
    /// It is the id of a bundled engine.
    #[error("{text:?} is a bundled engine; choose another id")]
    Bundled {
        /// The text.
        text: String,
    },
}

impl EngineName {
    /// The id: slot value, package, folder.
    pub fn id(&self) -> &str {
        &self.0
    }

    /// The name of the library, as an identifier: `keep_errors`.
    pub fn library(&self) -> String {
        self.0.replace('-', "_")
    }

    /// The display name: `Keep errors`.
    pub fn title(&self) -> String {
        let words = self.0.replace('-', " ");
        let mut chars = words.chars();
        chars
            .next()
            .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect::<String>())
    }
}

impl FromStr for EngineName {
    type Err = EngineNameError;

    fn from_str(text: &str) -> Result<Self, EngineNameError> {
        let owned = text.to_owned();
        if !is_kebab(text) {
            return Err(EngineNameError::NotKebab { text: owned, suggestion: nearest(text) });
        }
        if text.len() > ID_CHARS {
            return Err(EngineNameError::TooLong { text: owned, chars: text.len() });
        }
        // An id selects one engine, so a file could not be selected by this one.
        if BUNDLED.contains(&text) {
            return Err(EngineNameError::Bundled { text: owned });
        }
        if RESERVED.contains(&text) {
            return Err(EngineNameError::Reserved { text: owned });
        }
        Ok(EngineName(owned))
    }
}

/// Whether a text starts with a-z and consists of words of a-z and digits, joined by single hyphens.
fn is_kebab(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    // Stricter than ids of engines: cargo requires a-z first, and double hyphens are usually
    // typos.
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.split('-').all(is_word)
}

/// The valid id closest to a text.
fn nearest(text: &str) -> String {
    let mut id = String::new();
    let mut after_lower = false;
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            if character.is_ascii_uppercase() && after_lower {
                id.push('-');
            }
            id.push(character.to_ascii_lowercase());
        } else if !id.is_empty() && !id.ends_with('-') {
            id.push('-');
        }
        after_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
    }
    let id: String = id.trim_matches('-').chars().take(ID_CHARS).collect();
    match id.chars().next() {
        None => "keep-errors".into(),
        Some(first) if first.is_ascii_digit() => format!("engine-{id}"),
        Some(_) => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kebab_case() {
        for id in ["a", "keep-errors", "e2e", "keep-2-turns"] {
            assert_eq!(id.parse::<EngineName>().unwrap().id(), id);
        }
        let name: EngineName = "keep-errors".parse().unwrap();
        assert_eq!(
            (name.library().as_str(), name.title().as_str()),
            ("keep_errors", "Keep errors")
        );
    }

    #[test]
    fn invalid_ids_come_with_a_suggestion() {
        for (text, meant) in [
            ("KeepErrors", "keep-errors"),
            ("keep_errors", "keep-errors"),
            ("keep--errors", "keep-errors"),
            ("-keep-", "keep"),
            ("Keep Errors!", "keep-errors"),
            ("2nd", "engine-2nd"),
            ("../etc", "etc"),
            ("", "keep-errors"),
            ("记忆", "keep-errors"),
        ] {
            let suggestion = meant.to_owned();
            let refused = EngineNameError::NotKebab { text: text.into(), suggestion };
            assert_eq!(text.parse::<EngineName>(), Err(refused));
            assert!(meant.parse::<EngineName>().is_ok(), "{meant}");
        }
    }

    #[test]
    fn reserved_and_bundled_names_are_rejected() {
        let refused = |text: &str| text.parse::<EngineName>().unwrap_err();
        assert!(matches!(refused("legacy"), EngineNameError::Bundled { .. }));
        assert!(matches!(refused("head-tail"), EngineNameError::Bundled { .. }));
        for word in RESERVED {
            assert!(matches!(refused(word), EngineNameError::Reserved { .. }), "{word}");
        }
        assert!(matches!(refused(&"a".repeat(65)), EngineNameError::TooLong { chars: 65, .. }));
    }
}
