//! Tests of entry edits: nothing else changes, and they can be reverted.

use std::fs;

use super::*;

const SHA: &str = "ab";

fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// Sets the path of `x` to `new.so`, returns the text, and reverts it.
#[track_caller]
fn check(before: &str, after: &str) {
    let (_folder, path) = file(before);
    let edit = set_entry_path(&path, "x", "new.so", &SHA.repeat(32)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
    let config = Config::load(&path).unwrap();
    assert!(config.entry("x").unwrap().path.as_ref().unwrap().ends_with("new.so"));
    edit.restore().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn a_path_is_written_and_nothing_else_changes() {
    check("", "[plugins.entries.x]\npath = \"new.so\"\n");
    check(
        "# mine\n[plugins.entries.x] # ours\npath = 'old.so'  # built by hand\nconfig = { a = 1 }\n",
        "# mine\n[plugins.entries.x] # ours\npath = \"new.so\"  # built by hand\nconfig = { a = 1 }\n",
    );
    check(
        "[plugins.slots]\ncontext_engine = \"mask\"\n",
        "[plugins.slots]\ncontext_engine = \"mask\"\n\n[plugins.entries.x]\npath = \"new.so\"\n",
    );
}

#[test]
fn an_existing_digest_is_updated() {
    let old = "cd".repeat(32);
    check(
        &format!("[plugins.entries.x]\npath = \"old.so\"\nsha256 = \"{old}\" # pinned\n"),
        &format!(
            "[plugins.entries.x]\npath = \"new.so\"\nsha256 = \"{}\" # pinned\n",
            SHA.repeat(32)
        ),
    );
}

#[test]
fn removing_a_path_keeps_settings() {
    let (_folder, path) = file("[budget]\n\n[plugins.entries.x]\npath = \"x.so\"\n");
    remove_entry_path(&path, "x").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[budget]\n");
    let (_folder, path) = file("# my file\n\n[plugins.entries.x]\npath = \"x.so\"\n");
    remove_entry_path(&path, "x").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "# my file\n\n[plugins.entries.x]\n");
    let (_folder, path) = file("[plugins.entries.x]\npath = \"x.so\"\nenabled = false\n");
    remove_entry_path(&path, "x").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[plugins.entries.x]\nenabled = false\n");
    let edit = remove_entry_path(&path, "unknown").unwrap();
    assert!(!edit.changed);
}

#[test]
fn a_value_in_place_of_a_table_is_an_error() {
    let (_folder, path) = file("plugins.entries.x = 3\n");
    let error = set_entry_path(&path, "x", "new.so", SHA).unwrap_err();
    assert!(error.to_string().contains("plugins.entries.x in "), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "plugins.entries.x = 3\n");
}
