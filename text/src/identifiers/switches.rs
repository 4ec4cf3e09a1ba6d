//! What switches a program: environment variables, long options, names of branches.

/// Prefixes with which teams begin the name of a branch.
const BRANCH_PREFIXES: [&str; 12] = [
    "feature",
    "feat",
    "fix",
    "bugfix",
    "hotfix",
    "release",
    "chore",
    "refactor",
    "dependabot",
    "renovate",
    "origin",
    "upstream",
];
/// The word before the name of a branch.
const BRANCH_WORDS: [&str; 6] = ["branch", "Branch", "Zweig", "rama", "branche", "ветка"];

/// Whether a name is `DATABASE_URL`.
pub(super) fn is_variable(name: &str) -> bool {
    let is_upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() >= 5
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(is_upper)
        && name.trim_end_matches('_').contains('_')
}

/// The option of a word: `--max-size=4` is `--max-size`.
pub(super) fn flag_in(word: &str) -> Option<&str> {
    let name = word.strip_prefix("--")?;
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let len = name.bytes().take_while(is_part).count();
    let name = name.get(..len)?.trim_end_matches('-');
    (name.len() >= 2 && name.starts_with(|c: char| c.is_ascii_lowercase()))
        .then(|| word.get(..2 + name.len()))
        .flatten()
}

/// Whether a name is `feature/login`, or follows the word branch.
pub(super) fn is_branch(name: &str, previous: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '.' | '-' | '#');
    let name = name.trim_end_matches('/');
    let is_named = match name.split_once('/') {
        Some((prefix, rest)) => rest.len() >= 3 && BRANCH_PREFIXES.contains(&prefix),
        // `branch main` is found in any text.
        None => {
            name.bytes().any(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'-'))
                && BRANCH_WORDS.contains(&previous.trim_end_matches(':'))
        }
    };
    is_named && name.len() >= 4 && name.chars().all(is_part) && !name.contains("//")
}
