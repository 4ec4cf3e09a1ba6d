//! Where bytes go, and whose they are.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn sessions_below_the_state_folder_share_one_file() {
    let state = State::new();
    let one = state.home.session_blobs(&state.session("one.jsonl"));
    let two = state.home.session_blobs(&state.session("two.jsonl"));
    let handle = one.put(b"output").unwrap();
    assert_eq!(two.put(b"output").unwrap(), handle);
    let path = state.folder.path().join("blobs").join(&handle[..2]).join(&handle);
    let blobs = state.shared().blobs().unwrap();
    assert_eq!(blobs.iter().map(|blob| &blob.path).collect::<Vec<_>>(), [&path]);
    let folders = [path.parent().unwrap(), path.ancestors().nth(2).unwrap()].map(mode);
    assert_eq!((mode(&path), folders), (0o600, [0o700, 0o700]));
    assert_eq!(two.handles(&handle[..5]).unwrap(), [handle]);
    assert_eq!(two.get("../../etc/passwd").unwrap(), None);
}

#[test]
fn a_session_elsewhere_has_its_own_folder_and_finds_what_it_left_behind() {
    let state = State::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("s.jsonl");
    let handle = state.home.session_blobs(&path).put(b"own").unwrap();
    assert!(elsewhere.path().join("s.jsonl.blobs").join(&handle).is_file());
    let shared = state.shared().put(b"shared").unwrap();
    let found = state.home.session_blobs(&path).get(&shared).unwrap();
    assert_eq!(found.as_deref(), Some(&b"shared"[..]), "it was moved from where it shared");
    let alone = BlobDirs::default().session_blobs(&path);
    assert_eq!(alone.get(&handle).unwrap().as_deref(), Some(&b"own"[..]));
    assert_eq!(alone.get(&shared).unwrap(), None);
}

#[test]
fn folders_of_older_versions_are_still_read() {
    let state = State::new();
    let session = state.session("old.jsonl");
    let handle = BlobFolder::beside_session(&session).put(b"of old").unwrap();
    let blobs = state.home.session_blobs(&session);
    assert_eq!(blobs.get(&handle).unwrap().as_deref(), Some(&b"of old"[..]));
    assert_eq!(blobs.handles("").unwrap(), std::slice::from_ref(&handle));
    blobs.put(b"of old").unwrap();
    assert_eq!(blobs.handles("").unwrap(), [handle], "each once");
}

#[test]
fn a_damaged_copy_in_one_place_does_not_hide_a_sound_one_in_another() {
    let state = State::new();
    let session = state.session("s.jsonl");
    let handle = BlobFolder::beside_session(&session).put(b"bytes").unwrap();
    state.shared().put(b"bytes").unwrap();
    let shared = state.shared().blobs().unwrap().remove(0);
    fs::write(&shared.path, "other").unwrap();
    let blobs = state.home.session_blobs(&session);
    assert_eq!(blobs.get(&handle).unwrap().as_deref(), Some(&b"bytes"[..]));
    fs::remove_dir_all(BlobFolder::beside_session(&session).path()).unwrap();
    assert!(matches!(blobs.get(&handle), Err(BlobError::Damaged { .. })));
}

#[test]
fn sub_agents_keep_theirs_with_the_session_they_work_for() {
    let elsewhere = tempfile::tempdir().unwrap();
    let parent = elsewhere.path().join("s.jsonl");
    fs::write(&parent, "").unwrap();
    let child = elsewhere.path().join("s.agents/c.jsonl");
    let home = BlobDirs::default();
    let handle = home.session_blobs(&parent).put(b"image").unwrap();
    let grandchild = elsewhere.path().join("s.agents/c.agents/g.jsonl");
    fs::create_dir_all(grandchild.parent().unwrap()).unwrap();
    fs::write(&child, "").unwrap();
    for session in [&child, &grandchild] {
        assert!(
            home.session_blobs(session).get(&handle).unwrap().is_some(),
            "{}",
            session.display()
        );
    }
}
