//! Compiles patterns for providers' texts.

use regex::{Regex, RegexBuilder};

/// A phrase that is not a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{pattern}` is not a regular expression: {problem}; escape ( ) [ ] . * + ? with a backslash"
)]
pub struct PhraseError {
    /// The phrase.
    pub pattern: String,
    /// The problem.
    pub problem: String,
}

/// Compiles a case-insensitive pattern whose `.` matches line breaks.
pub(super) fn compile_pattern(of: &str) -> Result<Regex, PhraseError> {
    let built = RegexBuilder::new(of).case_insensitive(true).dot_matches_new_line(true).build();
    built.map_err(|problem| PhraseError { pattern: of.to_owned(), problem: problem.to_string() })
}
