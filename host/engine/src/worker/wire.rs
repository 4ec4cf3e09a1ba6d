//! The frames between a host and its worker: a length, then MessagePack with named fields.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use ctxhost_engine_api::border::Door;
use ctxhost_engine_api::transcript::mirror::{Mark, MirrorEntry};
use ctxhost_engine_api::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::confinement::{Confinement, Limits};
use crate::question::{Answer, Question};

/// Rises with every change of a frame. Both sides are of one version anyway; this says so early.
pub(super) const WIRE: u32 = 1;

/// The largest frame that a worker takes from its host, in bytes: what a length can say.
pub(super) const ANY_LENGTH: usize = u32::MAX as usize;

/// What a host says to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToWorker<'a> {
    /// First of all: what to be.
    Hello(Hello),
    /// Build the engine. Answered by `Ended`, like a call.
    Create {
        call: u64,
        limit_ms: u64,
        config: Value,
    },
    /// What is new in the transcript of a session.
    Change(#[serde(borrow)] Change<'a>),
    /// A session will not be asked about for a while.
    Forget {
        session: String,
    },
    Call(Call),
    /// A call was given up.
    Cancel {
        call: u64,
    },
    /// A service of the host, done.
    Served {
        ask: u64,
        result: Result<Given>,
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
    pub(super) limits: Limits,
}

impl Hello {
    /// The way into the library.
    pub(super) fn door(&self) -> Door {
        if self.in_c { Door::C } else { Door::Rust }
    }
}

/// A step of a transcript: what stays, what changed of it, what comes behind it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Change<'a> {
    pub(super) session: &'a str,
    pub(super) kept: u64,
    pub(super) marks: Vec<Mark>,
    #[serde(borrow)]
    pub(super) added: Vec<MirrorEntry<'a>>,
}

/// A call of the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) call: u64,
    /// The session it is for; services that name none mean this one.
    pub(super) session: Option<String>,
    /// The epoch of the session's transcript; `None` where the question needs no transcript.
    pub(super) epoch: Option<u64>,
    /// How long it may take without a sign of life, in milliseconds.
    pub(super) patience_ms: u64,
    /// How long it may take in all, in milliseconds.
    pub(super) cap_ms: u64,
    pub(super) question: Question,
}

/// What a worker says to its host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromWorker {
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
        result: Result<Answer>,
    },
    /// The engine wants something of the host.
    Ask {
        ask: u64,
        /// The session of the call that asks.
        session: Option<String>,
        wanted: Wanted,
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
pub(super) enum Wanted {
    NowMs,
    PromptCache(SessionRef),
    Complete { call: u64, request: CompletionRequest },
    KvGet { key: String },
    KvPut { key: String, value: String },
    KvDelete { key: String },
    KvList { prefix: String },
    BlobPut(#[serde(with = "serde_bytes")] Vec<u8>),
    BlobGet { handle: String },
    History(HistoryRequest),
    DelegateCompact { call: u64, request: CompactRequest },
}

/// What a service gave.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Given {
    Nothing,
    Time(i64),
    Cache(PromptCache),
    Completion(Completion),
    Value(Option<String>),
    Keys(Vec<String>),
    Handle(String),
    Bytes(Option<serde_bytes::ByteBuf>),
    Page(HistoryPage),
    Compaction(Compaction),
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
    rmp_serde::encode::write_named(&mut bytes, message).map_err(io::Error::other)?;
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

/// The message of a frame.
pub(super) fn decode<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<M> {
    rmp_serde::from_slice(bytes).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("a frame that nobody knows: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::generate::plans;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn over_the_wire<'a, M: Serialize + Deserialize<'a>>(
        message: &M,
        buffer: &'a mut Vec<u8>,
    ) -> M {
        let frame = frame(message).unwrap();
        assert!(receive(frame.as_slice(), ANY_LENGTH, buffer).unwrap());
        decode(buffer).unwrap()
    }

    fn ended(result: Result<Answer>) -> Result<Answer> {
        let mut buffer = Vec::new();
        match over_the_wire(&FromWorker::Ended { call: 7, result }, &mut buffer) {
            FromWorker::Ended { call: 7, result } => result,
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn every_plan_comes_over_as_it_is(plan in plans(9)) {
            let came = Plan::try_from(ended(Ok(plan.clone().into())).unwrap()).unwrap();
            prop_assert_eq!(came, plan);
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<FromWorker>(&bytes);
            let _ = decode::<ToWorker<'_>>(&bytes);
        }
    }

    #[test]
    fn what_is_rare_about_a_plan_and_errors_come_over() {
        let mut plan = Plan::keep_all(3);
        plan.note("window", "three");
        plan.extras.compaction_wanted = Some("soon".into());
        plan.extras.details = json!({ "files": ["a", 1.5, null, { "deep": -3 }] });
        let compaction = Compaction::Plan(plan);
        let came = Compaction::try_from(ended(Ok(compaction.clone().into())).unwrap()).unwrap();
        assert_eq!(came, compaction);
        let error = EngineError::config("a.b", "is 3").with_detail(json!({ "key": "a.b" }));
        let came = ended(Err(error.clone())).unwrap_err();
        assert_eq!(
            (came.kind, came.message, came.detail),
            (error.kind, error.message, error.detail)
        );
        let odd = ended(Err(EngineError::new(ErrorKind::Other(999), ""))).unwrap_err();
        assert_eq!(odd.kind, ErrorKind::Other(999));
    }

    #[test]
    fn questions_and_texts_come_over() {
        let model = ModelRef { provider: "p".into(), id: "m".into(), window_tokens: u64::MAX };
        let request = CompactRequest {
            call: CallId(3),
            trigger: Trigger::Overflow,
            custom_instructions: Some("长".into()),
            model,
            now_ms: -1,
            ..CompactRequest::default()
        };
        let question = Question::Compact(request.clone());
        let call = Call {
            call: 3,
            session: Some("s".into()),
            epoch: Some(1),
            patience_ms: 1,
            cap_ms: 2,
            question,
        };
        let mut buffer = Vec::new();
        let ToWorker::Call(came) = over_the_wire(&ToWorker::Call(call), &mut buffer) else {
            panic!("another message came");
        };
        let Question::Compact(came) = came.question else { panic!("another question came") };
        assert_eq!(format!("{came:?}"), format!("{request:?}"));

        let bytes =
            FromWorker::Ask { ask: 1, session: None, wanted: Wanted::BlobPut(vec![0, 200, 255]) };
        let mut buffer = Vec::new();
        let came = over_the_wire(&bytes, &mut buffer);
        assert_eq!(format!("{came:?}"), format!("{bytes:?}"));
    }

    #[test]
    fn a_length_that_is_too_long_is_refused_before_it_is_read() {
        let mut buffer = Vec::new();
        let error = receive([0, 1, 0, 0, 9].as_slice(), 100, &mut buffer).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 65536 bytes, where 100 are allowed");
        assert!(!receive([].as_slice(), 100, &mut buffer).unwrap(), "the end is no error");
        let torn = receive([0, 0, 0, 9, 1].as_slice(), 100, &mut buffer).unwrap_err();
        assert_eq!(torn.kind(), io::ErrorKind::UnexpectedEof);
    }
}
