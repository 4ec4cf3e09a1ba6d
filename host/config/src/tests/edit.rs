//! Tests of slot edits: nothing else changes, and they can be reverted.

use std::fs;

use ctxhost_engine::is_library_path;
use proptest::prelude::*;

use super::*;

/// Sets the slot of a text to `mask`; returns the text after it.
#[track_caller]
fn check(before: &str, old: Option<&str>, after: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    fs::write(&path, before).unwrap();
    let edit = set_slot(&path, "mask").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
    assert_eq!((edit.before.as_deref(), edit.after.as_str()), (old, "mask"));
    assert_eq!(Config::load(&path).unwrap().slot().engine, "mask");
    edit.restore().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn comments_and_spacing_stay() {
    check(
        "# mine\n[plugins.slots]\ncontext_engine   = 'legacy'  # the careful one\nmemory = \"none\"\n\n[budget]\n",
        Some("legacy"),
        "# mine\n[plugins.slots]\ncontext_engine   = \"mask\"  # the careful one\nmemory = \"none\"\n\n[budget]\n",
    );
}

#[test]
fn missing_tables_are_created() {
    check("", None, "[plugins.slots]\ncontext_engine = \"mask\"\n");
    check(
        "[plugins]\nenabled = true # yes\n",
        None,
        "[plugins]\nenabled = true # yes\n\n[plugins.slots]\ncontext_engine = \"mask\"\n",
    );
}

#[test]
fn other_spellings_of_the_table_stay() {
    check(
        "plugins.slots.context_engine = 3\n",
        Some("3"),
        "plugins.slots.context_engine = \"mask\"\n",
    );
    check(
        "plugins = { slots = { memory = \"none\" } }\n",
        None,
        "plugins = { slots = { memory = \"none\" , context_engine = \"mask\" } }\n",
    );
}

#[test]
fn a_missing_file_is_created_and_removed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    let edit = set_slot(&path, "mask").unwrap();
    assert_eq!(edit.old_text, None);
    assert_eq!(Config::load(&path).unwrap().slot().engine, "mask");
    edit.restore().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_broken_file_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    for broken in ["[plugins\n", "plugins = 3\n", "[plugins]\nslots = 3\n"] {
        fs::write(&path, broken).unwrap();
        assert!(matches!(set_slot(&path, "mask"), Err(ConfigError::Invalid(_))), "{broken}");
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real.toml"), folder.path().join(FILE_NAME));
    fs::write(&real, "").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();
    set_slot(&link, "mask").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Config::load(&real).unwrap().slot().engine, "mask");
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The slot holds exactly the id that was written, and nothing else changes.
    #[test]
    fn any_id_is_written_as_it_is(id in "\\PC{1,20}") {
        // An incomplete chain such as `mask+` is rejected, and so is a path.
        prop_assume!(!id.contains(['+', ',']) && !is_library_path(&id));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let rest = "\n[budget]\nsafety_margin = 1.3 # mine\n";
        fs::write(&path, format!("[plugins.slots]\ncontext_engine = \"legacy\"\n{rest}")).unwrap();
        set_slot(&path, &id).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        prop_assert!(text.ends_with(rest));
        prop_assert_eq!(Config::load(&path).unwrap().slot().configured, id);
    }
}
