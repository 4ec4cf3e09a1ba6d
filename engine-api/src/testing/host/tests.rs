//! Tests of the scripted host.

use std::time::Duration;

use super::*;
use crate::border::HostServices;
use crate::request::SessionRef;
use crate::testing::block_on;

#[test]
fn answers_come_in_order_and_run_out() {
    let host = ScriptedHost::new();
    host.answer("one");
    host.script(Err(EngineError::new(ErrorKind::ModelTimeout, "too slow")));
    let complete = || block_on(host.complete(CallId(1), CompletionRequest::default()));
    assert_eq!(complete().unwrap().text, "one");
    assert_eq!(complete().unwrap_err().kind, ErrorKind::ModelTimeout);
    assert_eq!(complete().unwrap_err().kind, ErrorKind::ModelMissing);
    host.answer_always("again");
    let complete = || block_on(host.complete(CallId(1), CompletionRequest::default()));
    assert_eq!(
        (complete().unwrap().text, complete().unwrap().text),
        ("again".into(), "again".into())
    );
    assert_eq!(host.completion_requests().len(), 5);
}

#[test]
fn stores_list_and_forget() {
    let host = ScriptedHost::new();
    for key in ["a/2", "b", "a/1"] {
        block_on(host.kv_put(key.into(), key.into())).unwrap();
    }
    assert_eq!(block_on(host.kv_list("a/".into())).unwrap(), ["a/1", "a/2"]);
    block_on(host.kv_delete("a/1".into())).unwrap();
    assert_eq!(block_on(host.kv_get("a/1".into())).unwrap(), None);
    let handle = block_on(host.blob_put(vec![1, 2])).unwrap();
    assert_eq!(handle.len(), 64);
    assert_eq!(block_on(host.blob_get(handle)).unwrap(), Some(vec![1, 2]));
}

#[test]
fn services_without_their_capability_fail() {
    let host = ScriptedHost::new();
    host.answer("unused");
    host.set_capabilities(&[]);
    let result = block_on(host.complete(CallId(1), CompletionRequest::default()));
    assert_eq!(result.unwrap_err().kind, ErrorKind::ModelMissing);
    let read = block_on(host.kv_get("k".into()));
    assert_eq!(read.unwrap_err().kind, ErrorKind::Unsupported);
}

#[test]
fn a_long_sleep_moves_the_clock_and_is_short() {
    let host = ScriptedHost::new();
    host.set_now_ms(1_000);
    let start = std::time::Instant::now();
    block_on(host.sleep(3_600_000));
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!((host.now_ms(), host.monotonic_ns()), (3_601_000, 3_600_000_000_000));
}

#[test]
fn history_is_paged() {
    let host = ScriptedHost::new();
    let entry = |id: u32| HistoryEntry { id: id.to_string(), ..HistoryEntry::default() };
    host.set_history((1..=5).map(entry).collect());
    let page = |after: &str| {
        let after_id = after.to_owned();
        let request = HistoryRequest { after_id, limit: 2, ..HistoryRequest::default() };
        let page = block_on(host.history(request)).unwrap();
        (page.entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>(), page.more)
    };
    assert_eq!(page(""), (vec!["1".into(), "2".into()], true));
    assert_eq!(page("4"), (vec!["5".into()], false));
}

#[test]
fn tasks_are_kept_run_or_stopped() {
    let host = ScriptedHost::new();
    let ran = Arc::new(AtomicBool::new(false));
    let mark = ran.clone();
    let session = SessionRef::default();
    host.spawn(&session, Box::pin(async move { mark.store(true, Ordering::Release) }));
    assert!(!ran.load(Ordering::Acquire));
    assert_eq!(host.run_tasks(), 1);
    assert!(ran.load(Ordering::Acquire));

    let held = Arc::new(());
    let hold = held.clone();
    host.run_tasks_on_threads();
    host.spawn(
        &session,
        Box::pin(async move {
            let _hold = hold;
            std::future::pending::<()>().await;
        }),
    );
    host.stop_tasks();
    let start = std::time::Instant::now();
    while Arc::strong_count(&held) > 1 && start.elapsed() < Duration::from_secs(5) {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&held), 1);
}
