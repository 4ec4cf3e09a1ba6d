//! Parses sessions and compactions on the command line: `SESSION`, `SESSION@2`, `@2`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A session, and optionally one of its compactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionArg {
    /// The session file.
    pub(super) path: PathBuf,
    /// The number of the compaction: from 1, or negative from the newest.
    pub(super) number: Option<i64>,
}

impl From<OsString> for SessionArg {
    /// A file whose name ends in `@2` is taken as it is.
    fn from(text: OsString) -> SessionArg {
        let numbered = || {
            let (path, number) = split_number(&text)?;
            Some(SessionArg { path, number: Some(number) })
        };
        // A file may have `@` in its name, so an existing path is never split.
        let numbered = if Path::new(&text).exists() { None } else { numbered() };
        numbered.unwrap_or_else(|| SessionArg { path: text.into(), number: None })
    }
}

/// Splits `SESSION@2`. Of a path with bytes that are not UTF-8, the extension is read.
fn split_number(text: &OsStr) -> Option<(PathBuf, i64)> {
    if let Some(text) = text.to_str() {
        let (path, number) = text.rsplit_once('@')?;
        return Some((path.into(), number.parse().ok()?));
    }
    let path = Path::new(text);
    let (extension, number) = path.extension()?.to_str()?.rsplit_once('@')?;
    Some((path.with_extension(extension), number.parse().ok()?))
}

/// Parses `@2`, the second compaction of a branch.
pub(super) fn parse_compaction(text: &str) -> Result<i64, String> {
    let number = text.strip_prefix('@').and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        format!("{text:?} is not a compaction; write @1 for the first, @-1 for the last")
    })
}

/// Quotes a path for a shell.
pub(super) fn shell_quote(path: &Path) -> String {
    let readable = path.to_str().filter(|text| !text.contains(is_changed_by_terminal));
    let Some(text) = readable else { return quote_bytes(path) };
    // Quotes only when needed, since the commands are meant to be read as well as pasted.
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Whether what is printed is not this character: a control character, or one that changes the direction of text.
fn is_changed_by_terminal(c: char) -> bool {
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_separator || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Quotes a path with escapes for what cannot be printed.
fn quote_bytes(path: &Path) -> String {
    let mut quoted = "$'".to_owned();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => quoted.extend(['\\', character]),
                changed if is_changed_by_terminal(changed) => {
                    escape(changed.encode_utf8(&mut [0; 4]).as_bytes(), &mut quoted);
                }
                plain => quoted.push(plain),
            }
        }
        escape(chunk.invalid(), &mut quoted);
    }
    quoted + "'"
}

fn escape(bytes: &[u8], quoted: &mut String) {
    bytes.iter().for_each(|byte| *quoted += &format!("\\x{byte:02x}"));
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
            let named = SessionArg::from(OsString::from(text));
            assert_eq!((named.path, named.number), (path.into(), number), "{text}");
        }
        use std::os::unix::ffi::OsStrExt as _;
        let bytes = OsStr::from_bytes(b"caf\xe9.jsonl@1");
        let named = SessionArg::from(bytes.to_owned());
        let path = OsStr::from_bytes(b"caf\xe9.jsonl");
        assert_eq!((named.path.as_os_str(), named.number), (path, Some(1)));
        assert_eq!(parse_compaction("@3"), Ok(3));
        assert!(parse_compaction("3").is_err() && parse_compaction("@x").is_err());
    }

    #[test]
    fn quoted_paths_survive_a_shell() {
        assert_eq!(shell_quote(Path::new("/a/b-c.jsonl")), "/a/b-c.jsonl");
        assert_eq!(shell_quote(Path::new("it's $x")), r"'it'\''s $x'");
        use std::os::unix::ffi::OsStrExt as _;
        let quoted = |bytes: &[u8]| shell_quote(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(quoted(b"caf\xe9 it's.jsonl"), r"$'caf\xe9 it\'s.jsonl'");
        assert_eq!(quoted(b"a\x1bb\\n.jsonl"), r"$'a\x1bb\\n.jsonl'");
        assert_eq!(quoted("a\u{202e}b".as_bytes()), r"$'a\xe2\x80\xaeb'");
    }
}
