//! The metadata block, which a host reads from a library file before loading it.
//!
//! ```text
//!  16 bytes   magic
//!   2 bytes   length of the text, little endian
//!   n bytes   lines of `key=value`: abi_major, abi_minor, id, version, api, rustc, target, pointer, panic
//!             C engines: door=c, language, compiler instead of rustc and panic
//!   rest      zero, up to 1,024 bytes in all
//! ```

use crate::engine::Info;

/// Size of the block.
pub const META_BYTES: usize = 1024;

/// The magic bytes, in two halves, so that a search in the host's own binary does not find them.
const MAGIC_HALVES: (&[u8; 8], &[u8; 8]) = (b"CTXHOST\x01", b"ENGMETA\n");

/// The major version of the ABI; part of the symbol's name.
pub const ABI_MAJOR: u32 = 1;

const API_VERSION: &str = env!("CARGO_PKG_VERSION");
const API_MINOR: &str = env!("CARGO_PKG_VERSION_MINOR");
const RUSTC: &str = env!("CTXHOST_RUSTC_VERSION");
const TARGET: &str = env!("CTXHOST_TARGET");
const POINTER: &str = if cfg!(target_pointer_width = "64") { "64" } else { "32" };

/// The kind of entry point that a library exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryPoint {
    /// The header of `export_engine!`, whose layouts are compared.
    #[default]
    Rust,
    /// The table of `ctxhost_engine.h`, for C and languages with a C ABI.
    C,
}

/// The content of a metadata block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineMetadata {
    /// The kind of entry point.
    pub entry_point: EntryPoint,
    /// Major version of the ABI it was built for.
    pub abi_major: u32,
    /// Minor version of the engine API it was built with.
    pub abi_minor: u32,
    /// The engine's id.
    pub id: String,
    /// The engine's version.
    pub version: String,
    /// Full version of the engine API.
    pub api: String,
    /// The compiler: the output of `rustc --version`, or the version macro of a C compiler.
    pub rustc: String,
    /// The target triple; for C engines architecture and system.
    pub target: String,
    /// Bits of a pointer.
    pub pointer: u32,
    /// `unwind` or `abort`; empty for C engines.
    pub panic: String,
    /// The language it was written in; `rust` if the block has none.
    pub language: String,
}

impl EngineMetadata {
    /// The metadata of a library built by this compiler for this target, without id and version.
    pub fn current() -> EngineMetadata {
        EngineMetadata {
            abi_major: ABI_MAJOR,
            abi_minor: API_MINOR.parse().unwrap_or(0),
            api: API_VERSION.into(),
            rustc: RUSTC.into(),
            target: TARGET.into(),
            pointer: POINTER.parse().unwrap_or(0),
            panic: "unwind".into(),
            language: "rust".into(),
            ..EngineMetadata::default()
        }
    }

    /// The same for a C library.
    pub fn current_c() -> EngineMetadata {
        let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        EngineMetadata {
            entry_point: EntryPoint::C,
            target,
            panic: String::new(),
            ..EngineMetadata::current()
        }
    }

    /// The major versions of the ABI and of the engine API; both must match the host's.
    pub fn majors(&self) -> Vec<u32> {
        // Layouts are those of the API crate, so its major version has to match as well.
        let api = self.api.split('.').next().and_then(|major| major.parse().ok());
        [Some(self.abi_major), api].into_iter().flatten().collect()
    }

    /// Whether the engine should run in its own process by default: faults of C code cannot be caught.
    pub fn needs_process(&self) -> bool {
        self.entry_point == EntryPoint::C
    }
}

/// The magic bytes at the start of a block.
pub fn metadata_magic() -> [u8; 16] {
    let mut magic = [0; 16];
    let (first, second) = MAGIC_HALVES;
    magic.iter_mut().zip(first.iter().chain(second)).for_each(|(to, from)| *to = *from);
    magic
}

/// Reads the block at the start of `bytes`; `None` if it is invalid.
pub fn decode_meta(bytes: &[u8]) -> Option<EngineMetadata> {
    // The bytes are untrusted: every access is checked, since the host reads them before any
    // policy.
    let rest = bytes.strip_prefix(&metadata_magic())?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let text = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
    let mut meta = EngineMetadata { language: "rust".into(), ..EngineMetadata::default() };
    for line in std::str::from_utf8(text).ok()?.lines() {
        let (key, value) = line.split_once('=')?;
        // Users see these values before they trust the library: control characters could alter the terminal.
        if value.contains(char::is_control) {
            return None;
        }
        match key {
            "abi_major" => meta.abi_major = value.parse().ok()?,
            "abi_minor" => meta.abi_minor = value.parse().ok()?,
            "id" => meta.id = value.into(),
            "version" => meta.version = value.into(),
            "api" => meta.api = value.into(),
            // The host could not call an entry point of an unknown kind, so the block is invalid.
            "door" => meta.entry_point = if value == "c" { EntryPoint::C } else { return None },
            "language" => meta.language = value.into(),
            "rustc" | "compiler" => meta.rustc = value.into(),
            "target" => meta.target = value.into(),
            "pointer" => meta.pointer = value.parse().ok()?,
            "panic" => meta.panic = value.into(),
            // Unknown keys are skipped, so that newer engines can add some.
            _ => {}
        }
    }
    Some(meta)
}

/// Writes the block at compile time. A text that does not fit is a compile error.
pub const fn encode_meta(info: &Info, panic: &str) -> [u8; META_BYTES] {
    // Text starts after magic and length, which `finish` writes when the length is known.
    let mut block = MetadataWriter { bytes: [0; META_BYTES], at: 18 };
    block.line("abi_major=", "1");
    block.line("abi_minor=", API_MINOR);
    block.line("id=", info.id);
    block.line("version=", info.version);
    block.line("api=", API_VERSION);
    block.line("rustc=", RUSTC);
    block.line("target=", TARGET);
    block.line("pointer=", POINTER);
    block.line("panic=", panic);
    block.finish()
}

struct MetadataWriter {
    bytes: [u8; META_BYTES],
    at: usize,
}

impl MetadataWriter {
    const fn line(&mut self, key: &str, value: &str) {
        self.text(key.as_bytes());
        self.text(value.as_bytes());
        self.text(b"\n");
    }

    // Evaluated at compile time only: an index past the end is a compile error, not a panic.
    #[allow(clippy::indexing_slicing)]
    const fn text(&mut self, text: &[u8]) {
        let mut i = 0;
        while i < text.len() {
            self.bytes[self.at] = text[i];
            self.at += 1;
            i += 1;
        }
    }

    const fn finish(mut self) -> [u8; META_BYTES] {
        let length = ((self.at - 18) as u16).to_le_bytes();
        let end = self.at;
        self.at = 0;
        self.text(MAGIC_HALVES.0);
        self.text(MAGIC_HALVES.1);
        self.text(&length);
        self.at = end;
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_wrote() {
        let block = encode_meta(&Info::new("keep-ends", "Keep ends", "0.3.1"), "unwind");
        let expected = EngineMetadata {
            id: "keep-ends".into(),
            version: "0.3.1".into(),
            ..EngineMetadata::current()
        };
        assert_eq!(decode_meta(&block), Some(expected));
    }

    #[test]
    fn refuses_what_is_cut_or_foreign() {
        let block = encode_meta(&Info::new("a", "A", "1.0.0"), "unwind");
        assert_eq!(decode_meta(&block[..40]), None);
        assert_eq!(decode_meta(&block[1..]), None);
        let painted = encode_meta(&Info::new("a", "A", "1.0.0\x1b[2K\rsigner me"), "unwind");
        assert_eq!(decode_meta(&painted), None, "control characters are rejected");
    }
}
