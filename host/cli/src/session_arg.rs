//! Sessions and their compactions as people name them: `SESSION`, `SESSION@2`, `@2`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A session, and perhaps one of its compactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionArg {
    /// The session file.
    pub(super) path: PathBuf,
    /// Which compaction: from 1, or below 0 from the newest.
    pub(super) number: Option<i64>,
}

impl FromStr for SessionArg {
    type Err = Infallible;

    /// A file whose own name ends like that is meant itself.
    fn from_str(text: &str) -> Result<SessionArg, Infallible> {
        let numbered = || {
            let (path, number) = text.rsplit_once('@')?;
            Some(SessionArg { path: path.into(), number: Some(number.parse().ok()?) })
        };
        let whole = || SessionArg { path: text.into(), number: None };
        Ok(if Path::new(text).exists() { whole() } else { numbered().unwrap_or_else(whole) })
    }
}

/// `@2`, the second compaction of a branch.
pub(super) fn parse_compaction(text: &str) -> Result<i64, String> {
    let number = text.strip_prefix('@').and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        format!("{text:?} names no compaction; write @1 for the first, @-1 for the last")
    })
}

/// A path as a shell takes it.
pub(super) fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_name_its_compaction() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("odd@2");
        std::fs::write(&odd, "").unwrap();
        let odd = odd.display().to_string();
        for (text, path, number) in [
            ("s.jsonl", "s.jsonl", None),
            ("s.jsonl@2", "s.jsonl", Some(2)),
            ("s.jsonl@-1", "s.jsonl", Some(-1)),
            ("a@b/s.jsonl", "a@b/s.jsonl", None),
            (odd.as_str(), odd.as_str(), None),
        ] {
            let named: SessionArg = text.parse().unwrap();
            assert_eq!((named.path, named.number), (path.into(), number), "{text}");
        }
        assert_eq!(parse_compaction("@3"), Ok(3));
        assert!(parse_compaction("3").is_err() && parse_compaction("@x").is_err());
    }

    #[test]
    fn a_shell_reads_the_path_that_was_meant() {
        assert_eq!(shell_quote(Path::new("/a/b-c.jsonl")), "/a/b-c.jsonl");
        assert_eq!(shell_quote(Path::new("it's $x")), r"'it'\''s $x'");
    }
}
