//! What is read and what is not: every kind of file, and files without an end.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::*;

fn message(path: &Path) -> String {
    read(path, 100).unwrap_err().to_string()
}

#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink(at("loop"), at("loop")).unwrap();
    fs::write(at("file"), "words").unwrap();
    symlink(at("file"), at("link")).unwrap();
    assert!(message(&at("pipe")).contains("a named pipe"));
    assert!(message(Path::new("/dev/zero")).contains("a device"));
    assert!(message(folder.path()).contains("a folder"));
    // The system does not even open one.
    assert!(!message(&at("socket")).is_empty());
    assert!(message(&at("loop")).contains("symbolic links"));
    assert_eq!(read(&at("link"), 100).unwrap(), b"words");
    assert_eq!(read_text(&at("file"), 5).unwrap(), "words");
    assert!(read(&at("file"), 4).unwrap_err().to_string().contains("its 5 bytes exceed"));
    fs::write(at("file"), b"ab\xFF").unwrap();
    assert!(read_text(&at("file"), 9).unwrap_err().to_string().contains("at byte 2"));
    assert_eq!(read(&at("nothing"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_without_a_length_is_read_up_to_the_limit() {
    let endless = PathBuf::from("/proc/self/status");
    if !endless.exists() {
        return;
    }
    assert!(!read(&endless, SMALL_FILE_BYTES).unwrap().is_empty());
    assert_eq!(read(&endless, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_sparse_file_is_refused_by_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    File::create(&path).unwrap().set_len(5 << 30).unwrap();
    assert_eq!(read(&path, SMALL_FILE_BYTES).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(read_lines(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}
