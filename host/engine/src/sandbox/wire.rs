//! The frames between a host and its worker: a length, then JSON.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ctxhost_engine_api::border::EntryPoint;
use ctxhost_engine_api::transcript::replica::{EntryPatch, ReplicaEntry};
use ctxhost_engine_api::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use super::confinement::{Confinement, ConfinementLimits};
use ctxhost_engine_api::border::{EngineCall, EngineReply};

/// Rises with every change of a frame. Both sides are of one version anyway; this says so early.
pub(super) const WIRE_VERSION: u32 = 2;

/// The largest frame that a worker takes from its host, in bytes: what a length can say.
pub(super) const ANY_LENGTH: usize = u32::MAX as usize;

/// What a host says to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToSandbox<'a> {
    /// First of all: what to be.
    Hello(Hello),
    /// Build the engine. Answered by `Ended`, like a call.
    Create {
        call: u64,
        limit_ms: u64,
        config: Value,
    },
    /// What is new in the transcript of a session.
    Change(#[serde(borrow)] TranscriptDelta<'a>),
    /// A session will not be asked about for a while.
    Forget {
        session: String,
    },
    Call(CallFrame),
    /// A call was given up.
    Cancel {
        call: u64,
    },
    /// A service of the host, done.
    Served {
        ask: u64,
        result: Result<HostReply>,
    },
}

/// What a worker needs to begin.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) wire: u32,
    pub(super) version: String,
    /// The id of the engine.
    pub(super) id: String,
    /// Whether it speaks through the C header.
    pub(super) in_c: bool,
    /// The private copy of its library.
    pub(super) library: PathBuf,
    /// Where that came from, for messages.
    pub(super) origin: PathBuf,
    /// What the host is.
    pub(super) host: HostInfo,
    /// Whether the host's clock is another than the system's.
    pub(super) recorded_clock: bool,
    pub(super) limits: ConfinementLimits,
}

impl Hello {
    /// The way into the library.
    pub(super) fn door(&self) -> EntryPoint {
        if self.in_c { EntryPoint::C } else { EntryPoint::Rust }
    }
}

/// A step of a transcript: what stays, what changed of it, what comes behind it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TranscriptDelta<'a> {
    #[serde(borrow)]
    pub(super) session: Cow<'a, str>,
    pub(super) kept: u64,
    pub(super) marks: Vec<EntryPatch>,
    #[serde(borrow)]
    pub(super) added: Vec<ReplicaEntry<'a>>,
}

/// A call of the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallFrame {
    pub(super) call: u64,
    /// The session it is for; services that name none mean this one.
    pub(super) session: Option<String>,
    /// The epoch of the session's transcript; `None` where the question needs no transcript.
    pub(super) epoch: Option<u64>,
    /// How long it may take without a sign of life, in milliseconds.
    pub(super) timeout_ms: u64,
    /// How long it may take in all, in milliseconds.
    pub(super) cap_ms: u64,
    pub(super) request: EngineCall,
}

/// What a worker says to its host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromSandbox {
    /// The library is loaded, nothing is created yet.
    Loaded {
        info: EngineInfo,
        confinement: Confinement,
    },
    /// It could not be loaded.
    Refused {
        reason: String,
    },
    /// A call has ended, well or not. After `Cancel` too: only then has its code let go.
    Ended {
        call: u64,
        result: Result<EngineReply>,
    },
    /// The engine wants something of the host.
    Ask {
        ask: u64,
        /// The session of the call that asks.
        session: Option<String>,
        wanted: HostCall,
    },
    /// The engine does not wait for it any more.
    Drop {
        ask: u64,
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

/// A service of the host. Those that need no host are done where the engine is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HostCall {
    NowMs,
    PromptCache(SessionRef),
    Complete { call: u64, request: CompletionRequest },
    KvGet { key: String },
    KvPut { key: String, value: String },
    KvDelete { key: String },
    KvList { prefix: String },
    BlobPut(Base64Bytes),
    BlobGet { handle: String },
    History(HistoryRequest),
    DelegateCompact { call: u64, request: CompactRequest },
}

/// What a service gave.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HostReply {
    Nothing,
    Time(i64),
    Cache(PromptCache),
    Completion(Completion),
    Value(Option<String>),
    Keys(Vec<String>),
    Handle(String),
    Bytes(Option<Base64Bytes>),
    Page(HistoryPage),
    Compaction(Compaction),
}

/// Bytes in a frame: base64, since an array of numbers would be three times as long.
#[derive(Debug)]
pub(super) struct Base64Bytes(pub(super) Vec<u8>);

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&str>::deserialize(deserializer)?;
        STANDARD.decode(text).map(Base64Bytes).map_err(de::Error::custom)
    }
}

/// The level of a number.
pub(super) fn level(number: u8) -> LogLevel {
    match number {
        1 => LogLevel::Error,
        2 => LogLevel::Warn,
        3 => LogLevel::Info,
        4 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

/// A message as one frame.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
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

/// Reads the bytes of the next message into `buffer`; false at the end of the wire.
pub(super) fn receive(
    mut wire: impl Read,
    most_bytes: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut length = [0; 4];
    match wire.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        done => done?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > most_bytes {
        let message = format!("a frame of {length} bytes, where {most_bytes} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // Grown as bytes come, so that a length alone costs nothing.
    buffer.clear();
    let read = wire.take(length as u64).read_to_end(buffer)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(true)
}

/// The message of a frame, which is UTF-8 and nested at most 128 levels deep.
pub(super) fn decode<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<M> {
    serde_json::from_slice(bytes).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("an invalid frame: {error}"))
    })
}

/// The call that a frame of the host begins, read even where the rest of it is nested too deep.
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
