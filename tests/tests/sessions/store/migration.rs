//! `ctxhost store migrate`, and the commands that work on a database afterwards.

use std::fs;
use std::path::Path;

use ctxhost_session::Session;
use ctxhost_store::{PostgresStore, SessionStore, StoreSettings};
use ctxhost_tests::postgres::PostgresServer;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};
use ctxhost_tests::workplace::ConfigText;
use ctxhost_tests::{ctxhost, recorded_session};

use super::contract::said;

/// Runs a command in a folder; its exit code and all that it said.
fn run(folder: &Path, settings: &StoreSettings, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ctxhost()
        .current_dir(folder)
        .env("CTXHOST_STATE_DIR", folder.join("state"))
        .env("STORE_URL", settings.url.clone().unwrap())
        .args(arguments)
        .output()
        .unwrap();
    let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), texts.concat())
}

fn table(settings: &StoreSettings) -> String {
    let schema = &settings.schema;
    format!("[store]\nkind = \"postgres\"\nurl_env = \"STORE_URL\"\nschema = {schema:?}\n")
}

#[test]
fn files_are_copied_in_once() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = server.empty_schema();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ctxhost.toml"), table(&settings)).unwrap();
    let files = folder.path().join("files");
    fs::create_dir_all(files.join("inner")).unwrap();
    fs::write(files.join("coding.jsonl"), recorded_session()).unwrap();
    let old = concat!(
        r#"{"type":"session","version":1,"id":"old","timestamp":"2025-01-01T00:00:00Z","cwd":"/w"}"#,
        "\n",
        r#"{"type":"message","message":{"role":"user","content":"hello"},"timestamp":1}"#,
        "\n"
    );
    fs::write(files.join("inner/old.jsonl"), old).unwrap();
    let mut torn = Session::create(&files.join("torn.jsonl"), "/w", Some("torn")).unwrap();
    torn.append(said("whole")).unwrap();
    let whole = torn.to_bytes();
    drop(torn);
    fs::write(files.join("torn.jsonl"), [&whole[..], br#"{"type":"mess"#].concat()).unwrap();
    fs::write(files.join("none.jsonl"), "no session\n").unwrap();

    let migrate = |expected: Option<i32>, lines: &[&str]| {
        let (code, said) = run(folder.path(), &settings, &["store", "migrate", "--from", "files"]);
        assert_eq!(code, expected, "{said}");
        for line in lines {
            assert!(said.contains(line), "{line:?} is not in\n{said}");
        }
        assert!(!said.contains("postgres://"), "{said}");
    };
    migrate(Some(1), &["created, version 3", "3 sessions copied", "not copied: files/none.jsonl"]);
    fs::remove_file(files.join("none.jsonl")).unwrap();
    migrate(Some(0), &["already at version 3", "0 sessions copied (0 lines), 3 already present"]);

    let store = PostgresStore::open(&settings).unwrap();
    assert_eq!(store.read("torn").unwrap().to_bytes(), whole);
    let mut old = store.open("old").unwrap();
    assert_eq!(old.header().version(), 3);
    old.append(said("more")).unwrap();
    // What grew there is still the same session; what says something else is told.
    migrate(Some(0), &["3 already present"]);
    let other = Session::create(&files.join("other.jsonl"), "/w", Some("other")).unwrap();
    drop((store.create(super::contract::header("other", "/x")).unwrap(), other));
    migrate(Some(1), &["differs in the database, not changed: files/other.jsonl"]);
}

#[test]
fn people_talk_in_a_database() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = server.schema();
    let model = ScriptedServer::start(Wire::OpenAiChat, Model::new(32_000))
        .script(|_: &Ask<'_>| vec![Step::say("It is 4711.")]);
    let place = ConfigText::new()
        .provider("fake", Wire::OpenAiChat, &model.url(), 32_000)
        .tables(&table(&settings))
        .workplace();
    let ask = |arguments: &[&str]| {
        let (code, said) = run(place.path(), &settings, arguments);
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let answer = ask(&["chat", "--session", "mine", "-p", "Which number is it?"]);
    assert!(answer.contains("It is 4711."), "{answer}");
    ask(&["chat", "-c", "-p", "Are you sure?"]);
    ask(&["chat", "-p", "Another session"]);
    let listed = ask(&["sessions", "list"]);
    assert_eq!(listed.matches(" entries, ").count(), 2, "{listed}");
    let shown = ask(&["sessions", "show", "mine"]);
    assert_eq!(shown.matches("It is 4711.").count(), 2, "{shown}");
    assert!(!place.path().join("state/sessions").exists());
    let (code, said) = run(place.path(), &settings, &["sessions", "show", "nobody"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the store has no session nobody"), "{said}");
}
