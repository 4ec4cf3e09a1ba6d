//! Tool names: validation, names for MCP tools, and name patterns.

use ctxhost_dialects::tool_name::{TOOL_NAME_MAX_CHARS, is_legal_tool_name, legalize_chars};
use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Hex digits that make a changed name unique: four bytes are enough for the tools of one agent.
const HASH_CHARS: usize = 8;

/// The name of an MCP tool: `server__tool`. A name that is invalid or taken is changed and gets a hash of the
/// original names, so that it does not depend on the order of the list.
pub(super) fn mcp_tool_name(server: &str, tool: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let plain = format!("{server}__{tool}");
    if is_legal_tool_name(&plain) && !is_taken(&plain) {
        return plain;
    }
    let head: String = legalize_chars(&plain).take(TOOL_NAME_MAX_CHARS - HASH_CHARS - 1).collect();
    format!("{head}_{}", hash_suffix(server, tool))
}

fn hash_suffix(server: &str, tool: &str) -> String {
    // The separator distinguishes `a` + `b__c` from `a__b` + `c`.
    let digest = Sha256::digest(format!("{server}\0{tool}"));
    digest.iter().take(HASH_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// A name or a glob: `*`, `?`, `[ab]`, `{one,other}`.
#[derive(Clone, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern {
    pattern: String,
    matcher: Option<GlobMatcher>,
}

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name pattern `{pattern}`: {cause}; write a name, with * for any part")]
pub struct BadPattern {
    /// The pattern.
    pub pattern: String,
    /// The cause.
    pub cause: String,
}

impl NamePattern {
    /// A built-in pattern. An invalid one matches itself only.
    pub(super) fn fixed(pattern: &str) -> NamePattern {
        let matcher = Glob::new(pattern).ok().map(|glob| glob.compile_matcher());
        NamePattern { pattern: pattern.to_owned(), matcher }
    }

    /// A pattern that matches this name only, whatever is in it.
    pub(super) fn literal(name: &str) -> NamePattern {
        NamePattern { pattern: name.to_owned(), matcher: None }
    }

    /// Whether it matches a name.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern == name || self.matcher.as_ref().is_some_and(|matcher| matcher.is_match(name))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = BadPattern;

    fn try_from(pattern: String) -> Result<Self, BadPattern> {
        match Glob::new(&pattern) {
            Ok(glob) => Ok(NamePattern { matcher: Some(glob.compile_matcher()), pattern }),
            Err(error) => Err(BadPattern { cause: error.kind().to_string(), pattern }),
        }
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> String {
        pattern.pattern
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl std::fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.pattern)
    }
}
