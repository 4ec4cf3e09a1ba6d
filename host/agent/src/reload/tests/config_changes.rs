//! A config file that changes under a running host.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A runtime that follows a config in a folder of its own.
pub(super) struct Host {
    pub(super) talk: Talk,
    pub(super) folder: TempDir,
}

impl Host {
    /// It, with this in the slot.
    pub(super) async fn with(engine: &str, settings: &str) -> Host {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, engine, settings);
        let talk = Talk::with(following(&folder)).await;
        Host { talk, folder }
    }

    fn write(&self, engine: &str, settings: &str) {
        write(&self.folder, engine, settings);
    }

    /// What a look at the config comes to: the engine, nothing, or what is wrong.
    async fn reload(&self) -> std::result::Result<Option<String>, String> {
        let swapped = self.talk.runtime.reload().await;
        swapped.map(|it| it.map(|it| it.engine)).map_err(|error| error.to_string())
    }
}

pub(super) fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("ctxhost.toml")
}

pub(super) fn following(folder: &TempDir) -> RuntimeBuilder {
    let config = Config::load(path(folder)).unwrap();
    let builder =
        RuntimeBuilder::from_config(&config).model("scripted/model").window_tokens(64_000);
    let builder = builder.client(says("yes")).without_builtin_tools();
    builder.watch_config(path(folder), folder.path().join("state"))
}

pub(super) fn write(folder: &TempDir, engine: &str, settings: &str) {
    let text = format!(
        "{settings}swap.watch_ms = 0\ncompaction.timing = \"manual\"\n\
         [plugins.slots]\ncontext_engine = {engine:?}\n"
    );
    fs::write(path(folder), text).unwrap();
}

#[tokio::test]
async fn another_engine_in_the_file_is_another_one_in_the_slot() {
    let mut host = Host::with("mask", "").await;
    assert_eq!(host.talk.say().await, "mask");
    assert_eq!(host.reload().await, Ok(None), "the file is as it was");
    host.write("mask", "");
    assert_eq!(host.reload().await, Ok(None), "it says what it said");
    host.write("window", "");
    assert_eq!(host.reload().await, Ok(Some("window".into())));
    assert_eq!(host.talk.say().await, "window");
    host.write("window", "plugins.on_engine_error = \"fail\"\n");
    assert_eq!(host.reload().await, Ok(Some("window".into())), "what a failure leads to is new");
    host.write("none", "");
    assert_eq!(host.reload().await, Ok(Some("legacy".into())), "an agent needs some engine");
    let changed = host.talk.news();
    assert_eq!(changed.len(), 3, "{changed:?}");
    assert_eq!(host.talk.runtime.generation(), 4);
}

#[tokio::test]
async fn a_change_that_cannot_be_taken_in_is_told_and_changes_nothing() {
    let mut host = Host::with("mask", "").await;
    host.talk.news();
    for (engine, settings, says) in [
        ("nobody", "", "no engine \"nobody\""),
        ("window", "sesion.sync = \"always\"\n", "sesion"),
        ("window", "plugins.entries.window.config.turns = \"few\"\n", "window"),
    ] {
        host.write(engine, settings);
        let told = host.reload().await.unwrap_err();
        assert!(told.contains(says), "{told}");
        assert_eq!(host.reload().await, Ok(None), "it is told once");
        let news = host.talk.news();
        assert!(
            matches!(&news[..], [EventKind::ReloadRejected { why, serving }]
                if serving == "mask" && why.contains(says)),
            "{news:?}"
        );
        assert_eq!(host.talk.say().await, "mask");
    }
    fs::write(path(&host.folder), "[plugins").unwrap();
    assert!(host.reload().await.is_err());
    fs::remove_file(path(&host.folder)).unwrap();
    assert!(host.reload().await.is_err());
    assert_eq!(host.talk.say().await, "mask");
    host.write("window", "");
    assert_eq!(host.reload().await, Ok(Some("window".into())), "once it is mended it is taken in");
}

#[tokio::test]
async fn an_engine_put_in_by_hand_stays_until_the_file_names_another_one() {
    let host = Host::with("mask", "").await;
    host.talk.runtime.replace_engine(&EngineSpec::bundled("boundary", json!({}))).await.unwrap();
    host.write("mask", "");
    assert_eq!(host.reload().await, Ok(None));
    assert_eq!(host.talk.say().await, "boundary");
    host.write("window", "");
    assert_eq!(host.reload().await, Ok(Some("window".into())), "the last word counts");
}

#[tokio::test]
async fn a_host_that_watches_needs_no_telling() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "mask", "");
    let watching = |engine: &str| {
        let text = fs::read_to_string(path(&folder)).unwrap();
        let text = text.replace("swap.watch_ms = 0", "swap.watch_ms = 5");
        fs::write(path(&folder), text.replace("\"mask\"", &format!("{engine:?}"))).unwrap();
    };
    watching("mask");
    let talk = Talk::with(following(&folder)).await;
    assert_eq!(talk.say().await, "mask");
    watching("window");
    soon(|| talk.runtime.engine() == "window").await;
    assert_eq!(talk.say().await, "window");
    talk.runtime.shutdown().await;
}
