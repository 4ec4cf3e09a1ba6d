//! The host closes the connection while the engine is busy, or sends a call that cannot be decoded.

use std::sync::mpsc;

use super::*;
use crate::sandbox::info::ConfinementLimits;
use crate::spec::{EngineSource, EngineSpec};
use ctxhost_engine_api::border::EngineCall;

/// Blocks its thread forever in `assemble`.
struct Stone(Host);

impl ContextEngine for Stone {
    const INFO: Info = Info::new("stone", "Stone", "1.0.0");

    fn create(host: Host, _: Value) -> Result<Self> {
        Ok(Stone(host))
    }

    async fn assemble(&self, _: Transcript, _: AssembleRequest) -> Result<Plan> {
        self.0.log(LogLevel::Info, "in assemble");
        loop {
            std::thread::park();
        }
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

fn hello() -> Hello {
    Hello {
        wire: wire::WIRE_VERSION,
        version: String::new(),
        id: "stone".into(),
        in_c: false,
        library: "".into(),
        origin: "".into(),
        host: HostInfo::default(),
        recorded_clock: false,
        limits: ConfinementLimits {
            memory_bytes: 0,
            open_files: 0,
            readable: Vec::new(),
            writable: None,
        },
    }
}

/// A server with a created engine, and whether it ended without an error.
fn server() -> (UnixStream, mpsc::Receiver<bool>) {
    let EngineSource::Linked(linked) = EngineSpec::linked::<Stone>(Value::Null).source else {
        panic!("it is linked");
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let writer = FrameWriter::new(theirs.try_clone().unwrap());
    let server = SandboxServer::new(linked.factory, hello(), writer).unwrap();
    let (send, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = send.send(server.serve(&theirs, Vec::new()).is_ok());
    });
    wire::send(&ours, &ToSandbox::Create { call: 1, limit_ms: 60_000, config: Value::Null })
        .unwrap();
    let mut buffer = Vec::new();
    assert!(wire::receive(&ours, wire::ANY_LENGTH, &mut buffer).unwrap(), "it is created");
    (ours, ended)
}

#[test]
fn a_server_does_not_wait_for_its_engine_when_the_host_closes_the_connection() {
    let (ours, ended) = server();
    let mut buffer = Vec::new();
    let request = EngineCall::Assemble(AssembleRequest::default());
    let call = CallFrame {
        call: 2,
        session: None,
        epoch: None,
        timeout_ms: 60_000,
        cap_ms: 60_000,
        request,
    };
    wire::send(&ours, &ToSandbox::Call(call)).unwrap();
    assert!(wire::receive(&ours, wire::ANY_LENGTH, &mut buffer).unwrap(), "it is in assemble");
    drop(ours);
    assert!(ended.recv_timeout(Duration::from_secs(30)).expect("it does not wait"));
}

#[test]
fn a_call_that_is_nested_too_deep_costs_that_call_alone() {
    let (ours, _ended) = server();
    let arguments = (0..125).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let mut buffer = Vec::new();
    for (call, arguments, expected) in
        [(2, arguments, "the call is nested too deep to be sent"), (3, Value::Null, "no tool")]
    {
        let request = EngineCall::CallTool(ToolCallRequest { arguments, ..Default::default() });
        let call = CallFrame {
            call,
            session: None,
            epoch: None,
            timeout_ms: 60_000,
            cap_ms: 60_000,
            request,
        };
        wire::send(&ours, &ToSandbox::Call(call)).unwrap();
        assert!(wire::receive(&ours, wire::ANY_LENGTH, &mut buffer).unwrap());
        let FromSandbox::Reply { result: Err(error), .. } = wire::decode(&buffer).unwrap() else {
            panic!("another frame");
        };
        assert!(error.message.contains(expected), "{error}");
    }
}
