//! Recorded sessions embedded in the program, for replays without any files.

use std::io::{self, Read};

use ctxhost_files::ZstdReader;

use super::open::{ImportOpenError, ImportedSession, open_bytes};

/// The prefix of a demo name where a file name is accepted too.
pub const DEMO_PREFIX: &str = "demo:";

/// An embedded session.
#[derive(Clone, Copy, Debug)]
pub struct DemoSession {
    /// Its name, without the prefix.
    pub name: &'static str,
    /// A description.
    pub about: &'static str,
    /// The default context window of a replay, in provider tokens. The sessions are too short to fill the
    /// window of a current model, and without pressure no engine would compact.
    pub window_tokens: u64,
    /// Its lines, compressed with zstd.
    compressed: &'static [u8],
}

/// All demo sessions. A `const` would embed them once per crate that uses them.
pub static DEMOS: [DemoSession; 2] = [
    DemoSession {
        name: "coding",
        about: "work on this repository: a test for engines of other versions",
        window_tokens: 32_000,
        compressed: include_bytes!("../demo/coding.jsonl.zst"),
    },
    DemoSession {
        name: "mixed",
        about: "work on this repository: its messages and settings; the user writes Chinese",
        window_tokens: 32_000,
        compressed: include_bytes!("../demo/mixed.jsonl.zst"),
    },
];

impl DemoSession {
    /// The demo with this name, with or without the prefix.
    pub fn find(name: &str) -> Option<&'static DemoSession> {
        let name = name.strip_prefix(DEMO_PREFIX).unwrap_or(name);
        DEMOS.iter().find(|demo| demo.name == name)
    }

    /// Opens it as a session in memory.
    ///
    /// # Errors
    ///
    /// [`ImportOpenError`], which a unit test rules out.
    pub fn open(&self) -> Result<ImportedSession, ImportOpenError> {
        let name = format!("{DEMO_PREFIX}{}", self.name);
        let unreadable = |source| ImportOpenError::Unreadable { path: name.clone().into(), source };
        open_bytes(&name, &self.lines().map_err(unreadable)?)
    }

    fn lines(&self) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        ZstdReader::new(self.compressed).read_to_end(&mut lines)?;
        Ok(lines)
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

    /// Compressed beforehand, since the best compression takes a program that is no crate.
    #[test]
    fn every_demo_is_its_example() {
        for demo in DEMOS {
            let example = format!("../../examples/sessions/{}.jsonl", demo.name);
            let lines = std::fs::read(&example).unwrap();
            let remedy =
                "zstd --ultra -22 --no-check -c <example> > host/import/demo/<name>.jsonl.zst";
            assert!(
                demo.lines().unwrap() == lines,
                "{example} has changed; renew its demo with `{remedy}`"
            );
        }
    }
}
