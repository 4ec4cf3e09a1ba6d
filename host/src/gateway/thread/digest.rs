//! Names of items: one of their bytes, and one of what they say, however it is written.

use std::fs::{OpenOptions, read_to_string};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::session::{SessionError, SessionFolder};

/// 128 bits, seeded with a secret of this machine: who does not know it cannot make up a history that
/// has the name of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(u128);

impl Digest {
    /// Of a text.
    pub fn of(seed: u64, text: &str) -> Digest {
        Digest(xxh3_128_with_seed(text.as_bytes(), seed))
    }

    /// Of what an item says: marks for a cache do not count, nor the order of fields, nor whether one
    /// text stands alone or in a block.
    pub fn of_meaning(seed: u64, item: &str) -> Digest {
        let Ok(mut value) = serde_json::from_str::<Value>(item) else {
            return Digest::of(seed, item);
        };
        settle(&mut value);
        value.sort_all_objects();
        Digest::of(seed, &value.to_string())
    }

    /// As 32 hex digits.
    pub fn to_hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// From 32 hex digits; `None` for anything else.
    pub fn from_hex(hex: &str) -> Option<Digest> {
        let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(hex, 16).ok()).flatten().map(Digest)
    }
}

/// What a program or a tool gave as data: nothing in it is ours to read.
const DATA: [&str; 5] = ["input", "arguments", "args", "response", "action"];

fn settle(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(settle),
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            for (name, field) in fields.iter_mut() {
                if let (true, Value::String(text)) = (name == "content", &mut *field) {
                    *field = json!([{ "type": "text", "text": std::mem::take(text) }]);
                } else if !DATA.contains(&name.as_str()) {
                    settle(field);
                }
            }
        }
        _ => {}
    }
}

/// The items of a request and their names, each worked out when somebody asks.
#[derive(Debug)]
pub struct Asked<'a> {
    items: &'a [&'a str],
    seed: u64,
    raw: Vec<Digest>,
    meaning: Vec<Option<Digest>>,
}

impl<'a> Asked<'a> {
    /// Of a request.
    pub fn new(seed: u64, items: &'a [&'a str]) -> Asked<'a> {
        let raw = items.iter().map(|item| Digest::of(seed, item)).collect();
        Asked { items, seed, raw, meaning: vec![None; items.len()] }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The items.
    pub fn items(&self) -> &'a [&'a str] {
        self.items
    }

    /// The name of the bytes of one.
    pub fn raw(&self, at: usize) -> Option<Digest> {
        self.raw.get(at).copied()
    }

    /// The name of what one says.
    pub fn meaning(&mut self, at: usize) -> Option<Digest> {
        let (item, known) = (self.items.get(at)?, self.meaning.get_mut(at)?);
        Some(*known.get_or_insert_with(|| Digest::of_meaning(self.seed, item)))
    }
}

/// The name of the file that holds the secret.
const SECRET: &str = "secret";

/// The secret that names below this folder are seeded with; made where there is none.
///
/// # Errors
///
/// Where the folder or the file cannot be made or read.
pub fn secret(folder: &Path) -> Result<u64, SessionError> {
    SessionFolder::at(folder).make()?;
    let path = folder.join(SECRET);
    let action = "keep the secret of the gateway in";
    let failed = |source| SessionError::Io { action, path: path.clone(), source };
    let read = || u64::from_str_radix(read_to_string(&path).unwrap_or_default().trim(), 16).ok();
    if let Some(secret) = read() {
        return Ok(secret);
    }
    // The keys of a hash map are drawn from the system.
    let secret = RandomState::new().hash_one(0_u8);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(&path) {
        Ok(mut file) => {
            file.write_all(format!("{secret:016x}\n").as_bytes()).map_err(failed)?;
            Ok(secret)
        }
        // Another gateway was quicker; one that died in between leaves half of one.
        Err(error) => read().ok_or_else(|| failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_cache_do_not_count_and_words_do() {
        let name = |item: &str| Digest::of_meaning(7, item);
        let plain = r#"{"role":"user","content":"hello"}"#;
        for same in [
            r#"{"content":"hello","role":"user"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hello"}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}"#,
        ] {
            assert_eq!(name(same), name(plain), "{same}");
        }
        for other in [
            r#"{"role":"user","content":"hello "}"#,
            r#"{"role":"assistant","content":"hello"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hello"},{"type":"text","text":""}]}"#,
        ] {
            assert_ne!(name(other), name(plain), "{other}");
        }
        assert_ne!(Digest::of(8, plain), Digest::of(7, plain));
    }

    #[test]
    fn what_a_tool_is_given_is_read_by_the_tool_alone() {
        let with = |input: &str| {
            let call = format!(r#"{{"type":"tool_use","id":"1","name":"put","input":{input}}}"#);
            Digest::of_meaning(7, &format!(r#"{{"role":"assistant","content":[{call}]}}"#))
        };
        assert_ne!(with(r#"{"content":"a"}"#), with(r#"{"content":[{"type":"text","text":"a"}]}"#));
        assert_ne!(with(r#"{"cache_control":1}"#), with("{}"));
    }

    #[test]
    fn hex_there_and_back() {
        let digest = Digest::of(7, "x");
        assert_eq!(Digest::from_hex(&digest.to_hex()), Some(digest));
        for wrong in ["", "0", &"g".repeat(32), &"0".repeat(33), &format!("+{}", "0".repeat(31))] {
            assert_eq!(Digest::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("sessions");
        let first = secret(&inner).unwrap();
        assert_eq!(secret(&inner).unwrap(), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&inner), mode(&inner.join(SECRET))), (0o700, 0o600));
        }
    }
}
