//! Changes of the config file of a running host.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A runtime that watches a config in a temporary folder.
pub(super) struct Host {
    pub(super) agent: TestAgent,
    pub(super) folder: TempDir,
}

impl Host {
    /// A host with this engine in the slot.
    pub(super) async fn with(engine: &str, settings: &str) -> Host {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, engine, settings);
        let agent = TestAgent::with(watching_builder(&folder)).await;
        Host { agent, folder }
    }

    fn write(&self, engine: &str, settings: &str) {
        write(&self.folder, engine, settings);
    }

    /// Reloads the config: the new engine, `None`, or the error.
    async fn reload(&self) -> std::result::Result<Option<String>, String> {
        let change = self.agent.runtime.reload().await;
        change.map(|change| change.map(|change| change.engine)).map_err(|error| error.to_string())
    }
}

pub(super) fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("ctxhost.toml")
}

pub(super) fn watching_builder(folder: &TempDir) -> RuntimeBuilder {
    let config = Config::load(path(folder)).unwrap();
    let builder =
        RuntimeBuilder::from_config(&config).model("scripted/model").window_tokens(64_000);
    let builder = builder.client(answering("yes")).without_builtin_tools();
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
async fn a_changed_slot_replaces_the_engine() {
    let mut host = Host::with("mask", "").await;
    assert_eq!(host.agent.send().await, "mask");
    assert_eq!(host.reload().await, Ok(None), "the file is as it was");
    host.write("mask", "");
    assert_eq!(host.reload().await, Ok(None), "its content is the same");
    host.write("window", "");
    assert_eq!(host.reload().await, Ok(Some("window".into())));
    assert_eq!(host.agent.send().await, "window");
    host.write("window", "plugins.on_engine_error = \"fail\"\n");
    assert_eq!(host.reload().await, Ok(Some("window".into())), "on_engine_error has changed");
    host.write("none", "");
    assert_eq!(host.reload().await, Ok(Some("legacy".into())), "an agent needs an engine");
    let changed = host.agent.engine_events();
    assert_eq!(changed.len(), 3, "{changed:?}");
    assert_eq!(host.agent.runtime.generation(), 4);
}

#[tokio::test]
async fn an_invalid_change_is_reported_and_changes_nothing() {
    let mut host = Host::with("mask", "").await;
    host.agent.engine_events();
    for (engine, settings, expected) in [
        ("unknown", "", "no engine \"unknown\""),
        ("window", "sesion.sync = \"always\"\n", "sesion"),
        ("window", "plugins.entries.window.config.turns = \"few\"\n", "window"),
    ] {
        host.write(engine, settings);
        let error = host.reload().await.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(host.reload().await, Ok(None), "reported once");
        let events = host.agent.engine_events();
        assert!(
            matches!(&events[..], [EventKind::ReloadRejected { why, serving }]
                if serving == "mask" && why.contains(expected)),
            "{events:?}"
        );
        assert_eq!(host.agent.send().await, "mask");
    }
    fs::write(path(&host.folder), "[plugins").unwrap();
    assert!(host.reload().await.is_err());
    fs::remove_file(path(&host.folder)).unwrap();
    assert!(host.reload().await.is_err());
    assert_eq!(host.agent.send().await, "mask");
    host.write("window", "");
    assert_eq!(host.reload().await, Ok(Some("window".into())), "a repaired config is applied");
}

#[tokio::test]
async fn a_manual_replacement_stays_until_the_file_names_another_engine() {
    let host = Host::with("mask", "").await;
    host.agent.replace(&EngineSpec::bundled("boundary", json!({}))).await;
    host.write("mask", "");
    assert_eq!(host.reload().await, Ok(None));
    assert_eq!(host.agent.send().await, "boundary");
    host.write("window", "");
    assert_eq!(host.reload().await, Ok(Some("window".into())), "the newest change wins");
}

#[tokio::test]
async fn changes_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "mask", "");
    let watching = |engine: &str| {
        let text = fs::read_to_string(path(&folder)).unwrap();
        let text = text.replace("swap.watch_ms = 0", "swap.watch_ms = 5");
        fs::write(path(&folder), text.replace("\"mask\"", &format!("{engine:?}"))).unwrap();
    };
    watching("mask");
    let agent = TestAgent::with(watching_builder(&folder)).await;
    assert_eq!(agent.send().await, "mask");
    watching("window");
    soon(|| agent.runtime.engine() == "window").await;
    assert_eq!(agent.send().await, "window");
    agent.runtime.shutdown().await;
}
