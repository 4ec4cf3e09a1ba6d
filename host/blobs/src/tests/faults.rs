//! Every step of every write fails once: what was there stays, what is new is whole or not there.

use ctxhost_files::{FileAccess, replace_file_on};

use super::*;

const BYTES: &[u8] = b"a large result, or so it is said";

/// The steps of putting bytes into a folder that is not there yet, and again, which renews them.
fn steps(layout: fn(PathBuf) -> BlobFolder, times: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Fault::Refused(0), usize::MAX);
    let store = layout(folder.path().join("blobs")).on(disk.clone());
    (0..times).for_each(|_| drop(store.put(BYTES).unwrap()));
    disk.steps()
}

const FAULTS: [Fault; 5] = [
    Fault::Refused(nix::libc::ENOSPC),
    Fault::Refused(nix::libc::EIO),
    Fault::Refused(nix::libc::EACCES),
    Fault::Short,
    Fault::Killed,
];

/// Whatever fails, a handle that was answered finds its bytes, and every handle finds its own or none.
fn survives(layout: fn(PathBuf) -> BlobFolder, fault: Fault, at: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blobs");
    let faulty = FaultyDisk::new(fault, at);
    let store = layout(path.clone()).on(faulty.clone());
    let put = [store.put(BYTES), store.put(BYTES)];
    let handle = hash(BYTES);
    let sound = layout(path);
    let found = sound.get(&handle).unwrap();
    assert!(found.as_deref().is_none_or(|bytes| bytes == BYTES), "{fault:?} at {at}");
    if put.iter().any(Result::is_ok) {
        assert_eq!(found.as_deref(), Some(BYTES), "{fault:?} at {at}");
    }
    if fault != Fault::Killed {
        assert_eq!(sound.staged_files().unwrap(), [], "{fault:?} at {at}");
        assert!(put.iter().filter(|put| put.is_err()).count() <= 1, "{fault:?} at {at}");
    } else {
        assert!(faulty.is_dead() && put.iter().any(Result::is_err), "{at}");
    }
    assert_eq!(sound.put(BYTES).unwrap(), handle, "a sound disk goes on after {fault:?} at {at}");
    assert_eq!(sound.get(&handle).unwrap().as_deref(), Some(BYTES));
}

#[test]
fn a_put_that_fails_anywhere_leaves_whole_bytes_or_none() {
    for layout in [BlobFolder::new, BlobFolder::new_shared] {
        let steps = steps(layout, 2);
        assert!(steps >= 9, "folder, staging, write, sync, rename, folder sync, touch: {steps}");
        for fault in FAULTS {
            (0..steps).for_each(|at| survives(layout, fault, at));
        }
    }
}

#[test]
fn what_a_kill_leaves_behind_is_cleared_up_when_it_is_old() {
    let state = State::new();
    for at in 0..steps(BlobFolder::new_shared, 1) {
        let _ = state.shared().on(FaultyDisk::new(Fault::Killed, at)).put(BYTES);
    }
    let left = state.shared().staged_files().unwrap();
    assert!(!left.is_empty());
    let collection = state.collection();
    assert_eq!(collection.find().unwrap().staging, [], "somebody may still be writing it");
    left.iter().for_each(|file| age(&file.path, GRACE * 2));
    let mut garbage = collection.find().unwrap();
    assert_eq!(garbage.staging.len(), left.len());
    collection.remove(&mut garbage).unwrap();
    assert_eq!(state.shared().staged_files().unwrap(), []);
}

#[test]
fn a_failed_removal_is_reported_and_removes_nothing_else() {
    let state = State::new();
    let handle = put_old(&state.shared(), BYTES, DAY * 100);
    let blob = state.shared().blobs().unwrap().remove(0);
    let faulty = state.shared().on(FaultyDisk::new(Fault::Refused(nix::libc::EIO), 0));
    assert!(matches!(
        faulty.remove_if_older(&blob, SystemTime::now()),
        Err(BlobError::Disk { action: "remove", .. })
    ));
    assert_eq!(state.shared().get(&handle).unwrap().as_deref(), Some(BYTES));
}

#[test]
fn a_value_is_replaced_whole_or_not_at_all() {
    for access in [FileAccess::Private, FileAccess::Mode(0o644), FileAccess::Inherited] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        fs::write(&path, b"old").unwrap();
        let replace = |disk: &dyn FileSystem, bytes| replace_file_on(disk, &path, bytes, access);
        let counting = FaultyDisk::new(Fault::Refused(0), usize::MAX);
        replace(&*counting, b"old").unwrap();
        for at in 0..counting.steps() {
            for fault in FAULTS {
                let outcome = replace(&*FaultyDisk::new(fault, at), b"newer");
                let found = fs::read(&path).unwrap();
                let expected: &[&[u8]] =
                    if outcome.is_ok() { &[b"newer"] } else { &[b"old", b"newer"] };
                assert!(expected.contains(&found.as_slice()), "{fault:?} at {at}");
                replace(&OsFileSystem, b"old").unwrap();
            }
        }
    }
}

#[test]
fn the_step_that_failed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("value");
    let named = |at| {
        let disk = FaultyDisk::new(Fault::Refused(nix::libc::EIO), at);
        replace_file_on(&*disk, &path, b"new", FileAccess::Mode(0o644)).unwrap_err().step
    };
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(named),
        [
            "create a file beside",
            "write",
            "set the mode of",
            "sync",
            "replace",
            "sync the folder of"
        ],
    );
}

#[test]
fn what_was_damaged_is_put_right_by_the_next_put() {
    let state = State::new();
    let handle = state.shared().put(BYTES).unwrap();
    let blob = state.shared().blobs().unwrap().remove(0);
    fs::write(&blob.path, "other").unwrap();
    assert!(matches!(state.shared().get(&handle), Err(BlobError::Damaged { .. })));
    state.shared().put(BYTES).unwrap();
    assert_eq!(state.shared().get(&handle).unwrap().as_deref(), Some(BYTES));
}
