//! What sessions take.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

fn lines(images: &[&[u8]]) -> String {
    let line = |bytes: &&[u8]| {
        let image =
            json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": "image/png" });
        format!("{}\n", json!({ "role": "user", "content": [image] }))
    };
    images.iter().map(line).collect()
}

fn away(state: &State, name: &str, text: &str) -> PathBuf {
    let images = ImageStore::new_stored(state.home.session_blobs(&state.session(name)), 64);
    let line =
        |line: &str| format!("{}\n", images.store_images(line).unwrap_or_else(|| line.into()));
    state.write(name, &text.lines().map(line).collect::<String>())
}

#[test]
fn logical_bytes_are_those_of_the_same_sessions_inline() {
    let state = State::new();
    let (large, other) = (vec![1; 3_001], vec![2; 2_000]);
    let one = lines(&[&large, &large, b"small"]);
    let two = lines(&[&large, &other]);
    let paths = [away(&state, "one.jsonl", &one), away(&state, "two.jsonl", &two)];
    let files: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    let root = state.home.sessions_dir().unwrap();
    let usage = DiskUsage::measure_folder(&root, &state.home).unwrap();
    let logical = |name: &str| {
        let session = usage.sessions.iter().find(|it| it.path.ends_with(name)).unwrap();
        session.logical_bytes
    };
    assert_eq!(logical("one.jsonl"), one.len() as u64);
    assert_eq!(logical("two.jsonl"), two.len() as u64);
    assert_eq!(usage.logical_bytes, (one.len() + two.len()) as u64);
    assert_eq!(usage.stored_bytes, files + 3_001 + 2_000, "each image once");
    assert!(usage.dedup_factor() > 1.5);
    assert_eq!(usage.unreferenced, []);
}

#[test]
fn a_result_that_was_put_away_counts_once_in_each_session_and_once_on_the_disk() {
    let state = State::new();
    let handle = state.shared().put(&[5; 1_000]).unwrap();
    let text = format!("see file {handle} and again file {handle}\n");
    state.write("one.jsonl", &text);
    state.write("two.jsonl", &text);
    fs::write(state.session("two.jsonl.crc"), "12345").unwrap();
    let unnamed = state.shared().put(b"nobody's").unwrap();
    let usage =
        DiskUsage::measure_folder(&state.home.sessions_dir().unwrap(), &state.home).unwrap();
    let files = 2 * text.len() as u64 + 5;
    assert_eq!((usage.logical_bytes, usage.stored_bytes), (files + 2_000, files + 1_000));
    assert_eq!(usage.unreferenced.iter().map(|blob| &blob.handle).collect::<Vec<_>>(), [&unnamed]);
    assert!(usage.sessions[0].path.ends_with("two.jsonl"), "the largest first");
}

#[test]
fn sessions_elsewhere_are_counted_with_the_folders_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let handle = BlobFolder::beside_session(&path).put(&[5; 1_000]).unwrap();
    fs::write(&path, &handle).unwrap();
    let usage = DiskUsage::measure_folder(folder.path(), &BlobDirs::default()).unwrap();
    assert_eq!((usage.sessions.len(), usage.stored_bytes), (1, 1_064));
    let nothing =
        DiskUsage::measure_folder(&folder.path().join("none"), &BlobDirs::default()).unwrap();
    assert_eq!((nothing.sessions.len(), nothing.dedup_factor()), (0, 1.0));
}
