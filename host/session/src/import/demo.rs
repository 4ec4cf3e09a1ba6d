//! Recorded sessions that come with the program, so that there is something to replay on every machine.

use std::io::{self, Read};

use ruzstd::decoding::StreamingDecoder;

use super::{ImportOpenError, ImportedSession, open_bytes};

/// What stands before the name of one where a file could stand as well.
pub const DEMO_PREFIX: &str = "demo:";

/// A recorded session inside the program.
#[derive(Clone, Copy, Debug)]
pub struct DemoSession {
    /// Its name, without the prefix.
    pub name: &'static str,
    /// What was done in it.
    pub about: &'static str,
    /// The window that it is replayed against where none is asked for, in provider tokens. The sessions are
    /// too short to fill the window of a model of today, and an engine shows itself under pressure only.
    pub window_tokens: u64,
    /// Its lines, compressed with zstd.
    compressed: &'static [u8],
}

/// All of them. The program carries them so that replaying needs no sources. A `const` would carry them once in each
/// crate that names them.
pub static DEMOS: [DemoSession; 2] = [
    DemoSession {
        name: "coding",
        about: "work on this repository: a test for engines of other versions",
        window_tokens: 32_000,
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/coding.jsonl.zst")),
    },
    DemoSession {
        name: "mixed",
        about: "work on this repository: its messages and settings; the person writes Chinese",
        window_tokens: 32_000,
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/mixed.jsonl.zst")),
    },
];

impl DemoSession {
    /// The one of a name, with or without its prefix.
    pub fn find(name: &str) -> Option<&'static DemoSession> {
        let name = name.strip_prefix(DEMO_PREFIX).unwrap_or(name);
        DEMOS.iter().find(|demo| demo.name == name)
    }

    /// Opens it as a session in memory.
    ///
    /// # Errors
    ///
    /// [`ImportOpenError`], which a test of this room rules out.
    pub fn open(&self) -> Result<ImportedSession, ImportOpenError> {
        let name = format!("{DEMO_PREFIX}{}", self.name);
        let unreadable = |source| ImportOpenError::Unreadable { path: name.clone().into(), source };
        let decoder = StreamingDecoder::new(self.compressed).map_err(io::Error::other);
        let mut lines = Vec::new();
        decoder.and_then(|mut it| it.read_to_end(&mut lines)).map_err(unreadable)?;
        open_bytes(&name, &lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demo_opens_without_a_bad_line() {
        for demo in DEMOS {
            let recorded =
                DemoSession::find(&format!("demo:{}", demo.name)).unwrap().open().unwrap();
            assert!(recorded.problems.is_empty(), "{}: {:?}", demo.name, recorded.problems);
            assert!(recorded.session.branch().len() > 100, "{}", demo.name);
        }
        assert!(DemoSession::find("demo:nothing").is_none());
    }
}
