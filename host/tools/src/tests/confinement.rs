//! Confined tools stay in their folders, also through links.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::stage::Stage;
use crate::ToolSettings;

fn confined(roots: Vec<PathBuf>) -> Stage {
    Stage::with(ToolSettings { confine: true, roots, ..ToolSettings::default() })
}

#[tokio::test]
async fn without_confinement_all_paths_are_allowed() {
    let outside = TempDir::new().unwrap();
    let path = outside.path().join("a.txt");
    let stage = Stage::new();
    stage.call_ok("write_file", json!({"path": path, "content": "x"})).await;
    assert_eq!(std::fs::read_to_string(path).unwrap(), "x");
}

#[tokio::test]
async fn paths_outside_are_neither_read_nor_written() {
    let outside = TempDir::new().unwrap();
    let secret = outside.path().join("secret.txt");
    std::fs::write(&secret, "secret").unwrap();
    let stage = confined(Vec::new());
    std::fs::create_dir(stage.path("folder")).unwrap();
    symlink(outside.path(), stage.path("way-out")).unwrap();
    symlink(&secret, stage.path("innocent.txt")).unwrap();
    symlink(outside.path().join("not-yet"), stage.path("dangling")).unwrap();
    let up = "../".repeat(40) + secret.to_str().unwrap();
    let ways = [
        secret.to_str().unwrap(),
        "way-out/secret.txt",
        "way-out/new/file.txt",
        "innocent.txt",
        "dangling",
        "folder/../way-out/secret.txt",
        "new/../../x",
        up.as_str(),
    ];
    for way in ways {
        for (tool, more) in [
            ("read_file", json!({})),
            ("write_file", json!({"content": "x"})),
            ("edit", json!({"old_text": "secret", "new_text": "x"})),
            ("list", json!({})),
            ("grep", json!({"pattern": "secret"})),
        ] {
            let output = stage.call(tool, with_path(more, way)).await;
            assert!(output.is_error, "{tool} {way}: {output:?}");
            assert!(!output.joined_text().contains(": secret"), "{tool} {way}");
        }
    }
    let words = stage.call_error("read_file", json!({"path": "innocent.txt"})).await;
    assert!(words.contains("is outside the allowed folders"), "{words}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

fn with_path(mut arguments: Value, path: &str) -> Value {
    arguments["path"] = path.into();
    arguments
}

#[tokio::test]
async fn the_working_folder_the_roots_and_saved_output_are_allowed() {
    let other = TempDir::new().unwrap();
    let stage = confined(vec![other.path().to_owned(), "/no/such/folder".into()]);
    stage.call_ok("write_file", json!({"path": "new/a.txt", "content": "here"})).await;
    stage.call_ok("edit", json!({"path": "new/a.txt", "old_text": "here", "new_text": "x"})).await;
    let there = other.path().join("deep/b.txt");
    stage.call_ok("write_file", json!({"path": there, "content": "there"})).await;
    assert_eq!(stage.call_ok("read_file", json!({"path": there})).await, "there");
    let long = stage.call_ok("shell", json!({"command": "yes | head -c 60000"})).await;
    let saved = long.split(" in ").nth(1).unwrap().split(']').next().unwrap().to_owned();
    stage.call_ok("read_file", json!({"path": saved})).await;
    stage.call_error("write_file", json!({"path": saved, "content": "x"})).await;
    std::fs::remove_file(saved).unwrap();
}
