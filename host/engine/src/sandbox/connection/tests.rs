//! The tests play the sandbox at the other end of the socket, where hostile code could write any frame.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_provider::Completer;
use serde_json::json;

use super::*;
use crate::calls::{CallLimit, CallTable};
use crate::clock::HostClock;
use crate::environment::EngineEnvironment;
use crate::spec::EngineSpec;
use crate::store::{EngineStore, EngineStores, MemoryStore, StoreError, StoreSize};
use crate::threads::EngineThreads;
use crate::timeouts::EngineTimeouts;

/// More than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

const MIB: usize = 1024 * 1024;

/// A store whose blobs have a mebibyte, and which counts how often one is read.
#[derive(Debug, Default)]
struct CountedStore {
    values: MemoryStore,
    reads: AtomicUsize,
}

impl EngineStore for CountedStore {
    fn get(&self, key: &str) -> std::result::Result<Option<String>, StoreError> {
        self.values.get(key)
    }

    fn put(&self, key: &str, value: &str) -> std::result::Result<(), StoreError> {
        self.values.put(key, value)
    }

    fn delete(&self, key: &str) -> std::result::Result<(), StoreError> {
        self.values.delete(key)
    }

    fn list(&self, prefix: &str) -> std::result::Result<Vec<String>, StoreError> {
        self.values.list(prefix)
    }

    fn put_blob(&self, bytes: &[u8]) -> std::result::Result<String, StoreError> {
        self.values.put_blob(bytes)
    }

    fn get_blob(&self, _: &str) -> std::result::Result<Option<Vec<u8>>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Ok(Some(vec![7; MIB]))
    }

    fn size(&self) -> std::result::Result<StoreSize, StoreError> {
        self.values.size()
    }
}

#[derive(Debug)]
struct OneStore(Arc<CountedStore>);

impl EngineStores for OneStore {
    fn open_store(&self, _: &str) -> Arc<dyn EngineStore> {
        self.0.clone()
    }
}

/// A model that never answers, and counts the requests that wait for it.
#[derive(Debug, Default)]
struct SlowModel {
    waiting: Arc<AtomicUsize>,
}

struct WaitingRequest(Arc<AtomicUsize>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Completer for SlowModel {
    fn complete(&self, _: CompletionRequest) -> BoxFuture<Result<Completion>> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let request = WaitingRequest(self.waiting.clone());
        Box::pin(async move {
            let _request = request;
            std::future::pending().await
        })
    }
}

/// A connection whose other end the test holds.
struct PlayedSandbox {
    connection: SandboxConnection,
    process: Arc<SandboxProcess>,
    wire: UnixStream,
    calls: Arc<CallTable>,
    reads: Arc<CountedStore>,
    waiting: Arc<AtomicUsize>,
    _threads: EngineThreads,
    _folder: tempfile::TempDir,
}

fn play(settings: &SandboxSettings) -> PlayedSandbox {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    // Busy where another test forks while the file is open for writing.
    let (process, _) = wait_for(|| {
        let output = std::fs::File::create("/dev/null").unwrap();
        SandboxProcess::spawn(&program, folder.path(), output, "played").ok()
    });
    let (wire, host_end) = UnixStream::pair().unwrap();
    let (reads, model) = (Arc::new(CountedStore::default()), SlowModel::default());
    let waiting = model.waiting.clone();
    let mut environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    environment.stores = Some(Arc::new(OneStore(reads.clone())));
    environment.completer = Some(Arc::new(model));
    let calls = Arc::new(CallTable::default());
    let spec = EngineSpec::bundled("played", json!({}));
    let services = EngineServices::new("played", &environment, &spec, calls.clone());
    let (threads, runtime) = EngineThreads::start("played", &Default::default()).unwrap();
    let connection = SandboxConnection::open(
        0,
        process.clone(),
        host_end,
        Arc::new(services),
        runtime,
        settings,
    );
    PlayedSandbox {
        connection: connection.unwrap(),
        process,
        wire,
        calls,
        reads,
        waiting,
        _threads: threads,
        _folder: folder,
    }
}

impl PlayedSandbox {
    fn ask(&self, host_call: u64, request: HostCall) {
        let frame = FromSandbox::HostCall { host_call, session: None, request };
        // Fails once the host has closed its end.
        let _ = wire::send(&self.wire, &frame);
    }

    fn get_blob(&self, host_call: u64) {
        self.ask(host_call, HostCall::BlobGet { handle: "x".into() });
    }

    fn complete(&self, host_call: u64, call: CallId) {
        self.ask(host_call, HostCall::Complete { call: call.0, request: Default::default() });
    }

    /// Why the process ended.
    fn exit_reason(&self) -> String {
        wait_for(|| self.connection.exit_reason())
    }

    fn reads(&self) -> usize {
        self.reads.reads.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl Drop for PlayedSandbox {
    fn drop(&mut self) {
        self.process.kill(None);
    }
}

fn wait_for<T>(ready: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn holding(mib: u64, receive_ms: u64) -> SandboxSettings {
    SandboxSettings { answer_mib: mib, receive_ms, ..SandboxSettings::default() }
}

#[test]
fn replies_that_a_sandbox_does_not_read_fill_their_room_and_no_more() {
    let sandbox = play(&holding(4, 500));
    (0..200).for_each(|id| sandbox.get_blob(id));
    let reason = sandbox.exit_reason();
    assert!(reason.contains("within 500 ms (plugins.sandbox.receive_ms)"), "{reason}");
    // Two of them fill the room as base64, one is sent, one waits for room.
    assert!((1..=5).contains(&sandbox.reads()), "{} replies were made", sandbox.reads());
}

#[test]
fn a_sandbox_that_reads_gets_more_than_the_room_holds() {
    let sandbox = play(&holding(4, 30_000));
    (0..50).for_each(|id| sandbox.get_blob(id));
    let mut buffer = Vec::new();
    for _ in 0..50 {
        assert!(wire::receive(&sandbox.wire, wire::ANY_LENGTH, &mut buffer).unwrap());
    }
    // Who has a reply may use its id again.
    (0..50).for_each(|id| sandbox.get_blob(id));
    assert!(wire::receive(&sandbox.wire, wire::ANY_LENGTH, &mut buffer).unwrap());
    assert_eq!(sandbox.connection.exit_reason(), None);
}

#[test]
fn requests_beyond_their_room_wait_in_the_sandbox() {
    let sandbox = play(&holding(1, 30_000));
    let call = sandbox.calls.begin(CallLimit::fixed(PATIENCE), None);
    let prompt = "x".repeat(MIB / 2);
    let request = |id: u64| {
        let request = CompletionRequest { prompt: prompt.clone(), ..Default::default() };
        FromSandbox::HostCall {
            host_call: id,
            session: None,
            request: HostCall::Complete { call: call.id.0, request },
        }
    };
    sandbox.wire.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let sent = (0..20).take_while(|id| wire::send(&sandbox.wire, &request(*id)).is_ok()).count();
    assert!((1..=4).contains(&sent), "{sent} of half a mebibyte each");
    assert_eq!(sandbox.waiting(), 1, "the second does not fit beside the first");
}

#[test]
fn a_second_host_call_of_one_id_is_an_error() {
    let sandbox = play(&SandboxSettings::default());
    let call = sandbox.calls.begin(CallLimit::fixed(PATIENCE), None);
    sandbox.complete(7, call.id);
    sandbox.complete(7, call.id);
    let reason = sandbox.exit_reason();
    assert!(reason.contains("a second host call 7 before the reply to the first"), "{reason}");
}

#[test]
fn more_host_calls_than_the_limit_are_an_error() {
    let sandbox = play(&SandboxSettings::default());
    let calls: Vec<_> =
        (0..5).map(|_| sandbox.calls.begin(CallLimit::fixed(PATIENCE), None)).collect();
    // One too many and nothing behind it: the host reads no more.
    (0..1_025).for_each(|id| sandbox.complete(id, calls[id as usize / 220].id));
    let reason = sandbox.exit_reason();
    assert!(reason.contains("more than 1024 concurrent host calls"), "{reason}");
    wait_for(|| (sandbox.waiting() == 0).then_some(()));
}

#[test]
fn host_calls_end_with_the_process_and_with_their_call() {
    let sandbox = play(&SandboxSettings::default());
    let [first, second] = [1, 2].map(|_| sandbox.calls.begin(CallLimit::fixed(PATIENCE), None));
    (0..10).for_each(|id| sandbox.complete(id, first.id));
    (10..20).for_each(|id| sandbox.complete(id, second.id));
    wait_for(|| (sandbox.waiting() == 20).then_some(()));
    drop(first);
    wait_for(|| (sandbox.waiting() == 10).then_some(()));
    sandbox.process.kill(None);
    sandbox.exit_reason();
    wait_for(|| (sandbox.waiting() == 0).then_some(()));
    // What it had written before it died is read, and starts nothing.
    (20..40).for_each(|id| sandbox.complete(id, second.id));
    sandbox.wire.shutdown(std::net::Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(sandbox.waiting(), 0);
}

#[test]
fn a_model_is_not_called_outside_of_a_call() {
    let sandbox = play(&SandboxSettings::default());
    sandbox.complete(1, CallId(1));
    let mut buffer = Vec::new();
    assert!(wire::receive(&sandbox.wire, wire::ANY_LENGTH, &mut buffer).unwrap());
    let Ok(ToSandbox::HostReply { result: Err(error), .. }) = wire::decode(&buffer) else {
        panic!("{}", String::from_utf8_lossy(&buffer));
    };
    assert!(error.message.contains("no call of the engine with this id is running"), "{error}");
    assert_eq!(sandbox.waiting(), 0);
}

#[tokio::test]
async fn the_reply_to_another_call_is_an_error_of_the_engine() {
    let sandbox = play(&SandboxSettings::default());
    for wrong in [EngineReply::Created, EngineReply::Tools(Vec::new())] {
        let call = sandbox.calls.begin(CallLimit::fixed(PATIENCE), None);
        let request = EngineCall::Assemble(AssembleRequest::default());
        let mut pending = sandbox.connection.send_call(&call, &Transcript::empty(), request);
        let name = wrong.name();
        let reply = FromSandbox::Reply { call: call.id.0, result: Ok(wrong) };
        wire::send(&sandbox.wire, &reply).unwrap();
        let error = pending.answer().await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.message.contains(&format!("to {name}, not to assemble")), "{error}");
    }
}
