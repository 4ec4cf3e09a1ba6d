//! The frames between host and sandbox: a length, then JSON.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ctxhost_engine_api::border::EntryPoint;
use ctxhost_engine_api::transcript::replica::{EntryPatch, ReplicaEntry};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use super::info::{Confinement, ConfinementLimits};
use ctxhost_engine_api::border::{EngineCall, EngineReply};

/// The version of the frames. Host and sandbox are the same program; a mismatch is reported early.
pub(super) const WIRE_VERSION: u32 = 5;

/// The largest frame that a sandbox accepts from its host, in bytes: the largest length.
pub(super) const ANY_LENGTH: usize = u32::MAX as usize;

/// A frame from the host to the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToSandbox<'a> {
    /// The first frame.
    Hello(Hello),
    /// Creates the engine. Answered by `Reply`, like a call.
    Create {
        call: u64,
        limit_ms: u64,
        config: Value,
    },
    /// Updates the transcript of a session.
    Transcript(#[serde(borrow)] TranscriptDelta<'a>),
    /// Drops the transcript of a session.
    Forget {
        session: String,
    },
    Call(CallFrame),
    /// Cancels a call.
    Cancel {
        call: u64,
    },
    /// Answers a host call.
    HostReply {
        host_call: u64,
        result: Result<HostReply>,
    },
}

/// The parameters of a sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) wire: u32,
    pub(super) version: String,
    /// The engine's id.
    pub(super) id: String,
    /// Whether the library uses the C interface.
    pub(super) in_c: bool,
    /// The private copy of its library.
    pub(super) library: PathBuf,
    /// The path of the original, for messages.
    pub(super) origin: PathBuf,
    /// The host's name, version and capabilities.
    pub(super) host: HostInfo,
    /// Whether the host uses a recorded clock instead of the system's.
    pub(super) recorded_clock: bool,
    pub(super) limits: ConfinementLimits,
}

impl Hello {
    /// The entry point of the library.
    pub(super) fn entry_point(&self) -> EntryPoint {
        if self.in_c { EntryPoint::C } else { EntryPoint::Rust }
    }
}

/// The difference between two versions of a transcript: kept, patched and appended entries.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TranscriptDelta<'a> {
    #[serde(borrow)]
    pub(super) session: Cow<'a, str>,
    pub(super) kept: u64,
    pub(super) patches: Vec<EntryPatch>,
    #[serde(borrow)]
    pub(super) added: Vec<ReplicaEntry<'a>>,
}

/// A call of the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallFrame {
    pub(super) call: u64,
    /// Its session, also for host calls that name none.
    pub(super) session: Option<String>,
    /// The epoch of the session's transcript; `None` where the call needs no transcript.
    pub(super) epoch: Option<u64>,
    /// The limit without a progress report, in milliseconds.
    pub(super) timeout_ms: u64,
    /// The limit in all, in milliseconds.
    pub(super) cap_ms: u64,
    pub(super) request: EngineCall,
}

/// A frame from the sandbox to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromSandbox {
    /// The process has confined itself. Sent first, because code of the library could forge it afterwards.
    Confined(Confinement),
    /// The library is loaded; the engine is not created yet.
    Loaded(EngineInfo),
    /// The library was not loaded.
    Refused {
        reason: String,
    },
    /// A call has ended. Also sent after `Cancel`, once the engine's code has returned.
    Reply {
        call: u64,
        result: Result<EngineReply>,
    },
    /// The engine calls the host.
    HostCall {
        host_call: u64,
        /// The session of the calling call.
        session: Option<String>,
        request: HostCall,
    },
    /// The engine dropped the future of a host call.
    CancelHostCall {
        host_call: u64,
    },
    Progress {
        call: u64,
        permille: u32,
        note: String,
    },
    Log {
        level: u8,
        target: String,
        message: String,
        fields: Value,
    },
}

/// The request of a host call. Services that need no host run in the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HostCall {
    NowMs,
    PromptCache(SessionRef),
    Complete { call: u64, request: CompletionRequest },
    Embed { call: u64, request: EmbedRequest },
    KvGet { key: String },
    KvPut { key: String, value: String },
    KvDelete { key: String },
    KvList { prefix: String },
    BlobPut(Base64Bytes),
    BlobGet { handle: String },
    History(HistoryRequest),
    DelegateCompact { call: u64, request: CompactRequest },
}

/// The result of a host call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HostReply {
    Nothing,
    Time(i64),
    Cache(PromptCache),
    Completion(Completion),
    Vectors(WireVectors),
    Value(Option<String>),
    Keys(Vec<String>),
    Handle(String),
    Bytes(Option<Base64Bytes>),
    Page(HistoryPage),
    Compaction(Compaction),
}

/// Vectors with their numbers as bytes, little endian: as JSON they would be three times as long, and read digit by
/// digit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireVectors {
    model: String,
    dimensions: usize,
    values: Base64Bytes,
}

impl From<Embeddings> for WireVectors {
    fn from(vectors: Embeddings) -> Self {
        let Embeddings { model, dimensions, values } = vectors;
        let values = values.into_iter().flat_map(f32::to_le_bytes).collect();
        WireVectors { model, dimensions, values: Base64Bytes(values) }
    }
}

impl From<WireVectors> for Embeddings {
    fn from(vectors: WireVectors) -> Self {
        let WireVectors { model, dimensions, values: Base64Bytes(bytes) } = vectors;
        let (numbers, _) = bytes.as_chunks();
        let values = numbers.iter().copied().map(f32::from_le_bytes).collect();
        Embeddings { model, dimensions, values }
    }
}

/// Bytes as base64; JSON's array of numbers would be three times as long.
#[derive(Debug)]
pub(super) struct Base64Bytes(pub(super) Vec<u8>);

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed: base64 needs no escapes, so the frame contains it as it is.
        let text = <&str>::deserialize(deserializer)?;
        STANDARD.decode(text).map(Base64Bytes).map_err(de::Error::custom)
    }
}

/// The log level of a number.
pub(super) fn level(number: u8) -> LogLevel {
    match number {
        1 => LogLevel::Error,
        2 => LogLevel::Warn,
        3 => LogLevel::Info,
        4 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

/// Encodes a message as one frame.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    // Space for the length, which is known after encoding.
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4)
        .map_err(|_| io::Error::other("a frame of more than 4 GiB"))?
        .to_be_bytes();
    bytes.splice(..4, length);
    Ok(bytes)
}

/// Sends one message.
pub(super) fn send(mut wire: impl Write, message: &impl Serialize) -> io::Result<()> {
    wire.write_all(&frame(message)?)
}

/// Reads the next frame into `buffer`; false at the end of the stream.
pub(super) fn receive(
    mut wire: impl Read,
    most_bytes: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<bool> {
    // The end of the stream is expected between two frames only.
    let mut length = [0; 4];
    match wire.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        done => done?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > most_bytes {
        let [length, limit] = [length, most_bytes].map(|bytes| group_thousands(bytes as u64));
        let message = format!("a frame of {length} bytes; the limit is {limit}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // Grows with the bytes that arrive: a length alone must not allocate 4 GiB.
    buffer.clear();
    let read = wire.take(length as u64).read_to_end(buffer)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(true)
}

/// Decodes a frame. serde_json refuses more than 128 levels of nesting.
pub(super) fn decode<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<M> {
    // As text, like the ABI: most messages carry its requests and replies, and would be compiled a second time.
    let text = std::str::from_utf8(bytes).map_err(invalid_frame)?;
    serde_json::from_str(text).map_err(invalid_frame)
}

fn invalid_frame(error: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an invalid frame: {error}"))
}

/// The number of the call that a frame starts, even where the rest is nested too deep to decode.
pub(super) fn call_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    enum CallHeader {
        Create { call: u64 },
        Call { call: u64 },
    }
    let (CallHeader::Create { call } | CallHeader::Call { call }) = decode(bytes).ok()?;
    Some(call)
}

#[cfg(test)]
mod tests;
