//! A host whose store fails: requests continue and the log has the reason.

use std::sync::Arc;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{
    AssembleRequest, BootstrapRequest, EngineError, ErrorKind, ModelRef, capability,
};
use ctxhost_engine_legacy::LegacyEngine;
use serde_json::json;

use crate::fixtures::assemble;

#[test]
fn a_full_disk_is_logged_and_fails_no_request() {
    let host = ScriptedHost::new();
    for store in [capability::KV, capability::BLOB] {
        host.fail(store, EngineError::new(ErrorKind::Store, "the disk is full"));
    }
    let door = EngineFactory::linked::<LegacyEngine>();
    let engine = door.create(Arc::new(host.clone()), &json!({})).unwrap();
    let mut talk = TranscriptBuilder::new();
    for round in 0..12 {
        let id = round.to_string();
        talk.user("go").calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"x".repeat(20_000));
        talk.assistant("done");
    }
    let transcript = talk.transcript();
    block_on(engine.bootstrap(transcript.clone(), BootstrapRequest::default())).unwrap();
    let request = || AssembleRequest {
        model: ModelRef { window_tokens: 64_000, ..ModelRef::default() },
        budget: 60_000,
        ..AssembleRequest::default()
    };
    let first = assemble(&engine, &transcript, request()).unwrap();
    assert!(first.ops.len() > 1, "something was decided");
    assert_eq!(assemble(&engine, &transcript, request()).unwrap(), first);
    let lines: Vec<String> = host.log_lines().into_iter().map(|line| line.message).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("stored decisions could not be read: the disk is full"));
    assert!(lines[1].starts_with("new decisions could not be stored: the disk is full"));
}
