//! Names of tools: what providers accept, what a server's tool is called here, patterns of names.

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest name that every provider accepts.
const NAME_MAX_CHARS: usize = 64;

/// Hex digits that make a shortened name unique: four bytes are plenty for the tools of one agent.
const MARK_CHARS: usize = 8;

/// Whether every provider accepts this name: `^[a-zA-Z0-9_-]{1,64}$`.
pub(super) fn is_valid(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX_CHARS && name.chars().all(is_allowed_char)
}

/// What the tool of a server is called: `server__tool`.
///
/// A name that had to be bent, or that is taken, ends in a mark made of the real names. It depends
/// on them alone, so that tools keep their names however a server lists them.
pub(super) fn mcp_tool_name(server: &str, tool: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let plain = format!("{server}__{tool}");
    if is_valid(&plain) && !is_taken(&plain) {
        return plain;
    }
    let bent = plain.chars().map(|c| if is_allowed_char(c) { c } else { '_' });
    let head = bent.take(NAME_MAX_CHARS - MARK_CHARS - 1).collect::<String>();
    format!("{head}_{}", mark(server, tool))
}

fn is_allowed_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn mark(server: &str, tool: &str) -> String {
    let digest = Sha256::digest(format!("{server}\0{tool}"));
    digest.iter().take(MARK_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// A name, or several by `*`, `?`, `[ab]` and `{one,other}`.
#[derive(Clone, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern {
    written: String,
    matcher: Option<GlobMatcher>,
}

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is no pattern of names: {cause}; write names, with * for any part")]
pub struct BadPattern {
    /// As written.
    pub pattern: String,
    /// What is wrong with it.
    pub cause: String,
}

impl NamePattern {
    /// A pattern of our own. One that is none fits its own letters alone.
    pub(super) fn fixed(written: &str) -> NamePattern {
        let matcher = Glob::new(written).ok().map(|glob| glob.compile_matcher());
        NamePattern { written: written.to_owned(), matcher }
    }

    /// Whether it fits a name.
    pub fn matches(&self, name: &str) -> bool {
        self.written == name || self.matcher.as_ref().is_some_and(|matcher| matcher.is_match(name))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = BadPattern;

    fn try_from(written: String) -> Result<Self, BadPattern> {
        match Glob::new(&written) {
            Ok(glob) => Ok(NamePattern { matcher: Some(glob.compile_matcher()), written }),
            Err(error) => Err(BadPattern { cause: error.kind().to_string(), pattern: written }),
        }
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> String {
        pattern.written
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl std::fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.written)
    }
}
