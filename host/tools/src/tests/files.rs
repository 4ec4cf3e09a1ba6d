//! Reading and writing.

use std::os::unix::fs::{PermissionsExt, symlink};

use base64::Engine as _;
use serde_json::json;

use super::stage::Stage;
use ctxhost_dialects::ChatBlock;

const KIB_50: usize = 50 * 1024;

#[tokio::test]
async fn a_file_is_returned_unchanged() {
    let stage = Stage::new();
    stage.write("a.txt", "one\ntwo\r\nthree");
    assert_eq!(stage.call_ok("read_file", json!({"path": "a.txt"})).await, "one\ntwo\r\nthree");
    let whole = stage.path("a.txt");
    assert_eq!(stage.call_ok("read_file", json!({"path": whole, "offset": 3})).await, "three");
    stage.write("empty", "");
    assert_eq!(stage.call_ok("read_file", json!({"path": "empty"})).await, "(the file is empty)");
}

#[tokio::test]
async fn a_long_file_names_the_next_offset() {
    let stage = Stage::new();
    let lines = (1..=5_000).map(|number| format!("line {number}\n")).collect::<String>();
    stage.write("long.txt", &lines);
    let mut read = String::new();
    let mut offset = 1;
    loop {
        let text = stage.call_ok("read_file", json!({"path": "long.txt", "offset": offset})).await;
        let Some((shown, notice)) = text.split_once('[') else {
            read.push_str(&text);
            break;
        };
        read.push_str(shown);
        let next = offset + 2_000;
        assert_eq!(
            notice,
            format!("lines {offset} to {}; there are more, read on with offset {next}]", next - 1)
        );
        offset = next;
    }
    assert_eq!(read, lines);
    let few =
        stage.call_ok("read_file", json!({"path": "long.txt", "offset": 7, "limit": 2})).await;
    assert!(few.starts_with("line 7\nline 8\n[lines 7 to 8;"), "{few}");
    let exact = stage.call_ok("read_file", json!({"path": "long.txt", "offset": 5_000})).await;
    assert_eq!(exact, "line 5000\n");
}

#[tokio::test]
async fn bytes_are_limited_at_line_ends() {
    let stage = Stage::new();
    let line = format!("{}\n", "x".repeat(1_000));
    stage.write("wide.txt", line.repeat(5_000));
    let text = stage.call_ok("read_file", json!({"path": "wide.txt"})).await;
    let (shown, notice) = text.split_once('[').unwrap();
    assert_eq!(shown.len(), KIB_50 / line.len() * line.len());
    assert_eq!(notice, "lines 1 to 51; there are more, read on with offset 52]");
}

#[tokio::test]
async fn a_huge_line_is_cut_between_characters() {
    let stage = Stage::new();
    stage.write("one-line.json", format!("a{}\nlast\n", "ä".repeat(2_500_000)));
    let text = stage.call_ok("read_file", json!({"path": "one-line.json"})).await;
    let (shown, notice) = text.rsplit_once('[').unwrap();
    assert_eq!(shown.trim_end(), format!("a{}", "ä".repeat(KIB_50 / 2 - 1)));
    assert!(notice.contains("the beginning of line 1") && notice.contains("offset 2"), "{notice}");
    assert_eq!(
        stage.call_ok("read_file", json!({"path": "one-line.json", "offset": 2})).await,
        "last\n"
    );
}

#[tokio::test]
async fn an_image_is_returned_as_an_image() {
    let stage = Stage::new();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.extend([0; 100]);
    stage.write("dot.txt", &png);
    let output = stage.call("read_file", json!({"path": "dot.txt"})).await;
    let data = base64::engine::general_purpose::STANDARD.encode(&png);
    let image = ChatBlock::Image { data, mime_type: "image/png".into() };
    assert_eq!(output.blocks, [ChatBlock::text("image/png, 108 bytes"), image]);
    png.resize(4_000_000, 0);
    stage.write("large.png", &png);
    let refused = stage.call_error("read_file", json!({"path": "large.png"})).await;
    assert!(refused.contains("has 4000000 bytes, above the limit of 3750000"), "{refused}");
}

#[tokio::test]
async fn errors_name_what_cannot_be_read() {
    let stage = Stage::new();
    stage.write("program", b"\x7fELF\0\0\0");
    stage.write("short.txt", "one\ntwo\n");
    let cases = [
        (json!({"path": "nothing"}), "does not exist"),
        (json!({"path": "."}), "is a folder; use `list`"),
        (json!({"path": "program"}), "program is a binary file of 7 bytes"),
        (json!({"path": "/dev/zero"}), "neither a file nor a folder"),
        (json!({"path": "short.txt", "offset": 4}), "has 2 lines; line 4 does not exist"),
    ];
    for (arguments, words) in cases {
        let text = stage.call_error("read_file", arguments.clone()).await;
        assert!(text.contains(words), "{arguments}: {text}");
    }
}

#[tokio::test]
async fn invalid_utf_8_is_shown_with_a_notice() {
    let stage = Stage::new();
    stage.write("latin1.txt", b"caf\xe9\n");
    let text = stage.call_ok("read_file", json!({"path": "latin1.txt"})).await;
    assert!(text.starts_with("caf\u{fffd}\n[not all of it is UTF-8"), "{text}");
}

#[tokio::test]
async fn writing_creates_folders_and_counts_bytes() {
    let stage = Stage::new();
    let path = "deep/er/a.txt";
    let text = stage.call_ok("write_file", json!({"path": path, "content": "grüß"})).await;
    assert!(text.starts_with("wrote 6 bytes to ") && text.ends_with("(new file)"), "{text}");
    assert_eq!(stage.text_of(path), "grüß");
    let mode = stage.path(path).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o400, 0o400);
    assert_ne!(mode & 0o777, 0o600, "as private as a temporary file");
    let text = stage.call_ok("write_file", json!({"path": path, "content": ""})).await;
    assert!(text.ends_with("(replaced)"), "{text}");
    assert_eq!(stage.text_of(path), "");
    let beside = std::fs::read_dir(stage.path("deep/er")).unwrap().count();
    assert_eq!(beside, 1, "a temporary file stayed");
}

#[tokio::test]
async fn writing_keeps_links_and_permissions() {
    let stage = Stage::new();
    stage.write("real.sh", "old");
    let executable = std::fs::Permissions::from_mode(0o750);
    std::fs::set_permissions(stage.path("real.sh"), executable).unwrap();
    symlink("real.sh", stage.path("link.sh")).unwrap();
    stage.call_ok("write_file", json!({"path": "link.sh", "content": "new"})).await;
    assert_eq!(stage.text_of("real.sh"), "new");
    assert!(stage.path("link.sh").symlink_metadata().unwrap().is_symlink());
    assert_eq!(stage.path("real.sh").metadata().unwrap().permissions().mode() & 0o777, 0o750);
}

#[tokio::test]
async fn errors_name_what_cannot_be_written() {
    let stage = Stage::new();
    stage.write("file", "text");
    stage.write("folder/file", "text");
    let cases = [
        ("folder", "is a folder"),
        ("file/below", "cannot write"),
        ("/dev/null", "neither a file nor a folder"),
    ];
    for (path, words) in cases {
        let text = stage.call_error("write_file", json!({"path": path, "content": "x"})).await;
        assert!(text.contains(words), "{path}: {text}");
    }
}
