//! The embedding example as a person runs it, against a scripted provider.

use std::process::Command;

use ctxhost_tests::product;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};
use ctxhost_tests::workplace::{ConfigText, words};
use serde_json::json;

#[test]
fn the_example_answers_with_an_engine_of_its_own() {
    let wire = Wire::Anthropic;
    let read = Step::call("read_file", json!({"path": "notes.txt"}));
    let server = ScriptedServer::start(wire, Model::new(32_000))
        .script(Steps::new([vec![read], vec![Step::say("It is 4711.")]]));
    let place = ConfigText::new().provider("fake", wire, &server.url(), 32_000).workplace();
    let output = Command::new(product("embed"))
        .arg("What is the number?")
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("It is 4711."), "{said}");
    assert!(said.contains("[newest shaped 2 requests]"), "{said}");
    assert_eq!(server.broken(), []);
    let session = ctxhost_tests::workplace::lawful_session(&place.path().join("embed.jsonl"));
    assert_eq!(words(&session), ["What is the number?"]);
}
