//! Listing and searching.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::stage::Stage;

fn project() -> Stage {
    let stage = Stage::new();
    stage.write(".gitignore", "target/\n*.log\n");
    stage.write(".git/config", "needle\n");
    stage.write("src/main.rs", "fn main() {\n    needle();\n}\n");
    stage.write("src/deep/inner.rs", "// Needle\r\n");
    stage.write("notes.md", "no such thing\n");
    stage.write("target/out.rs", "needle\n");
    stage.write("run.log", "needle\n");
    stage.write("data.bin", b"needle\0\n");
    stage
}

#[tokio::test]
async fn a_listing_omits_what_git_ignores() {
    let stage = project();
    let text = stage.call_ok("list", json!({})).await;
    assert_eq!(text, ".gitignore\ndata.bin\nnotes.md\nsrc/\n");
    let text = stage.call_ok("list", json!({"include_ignored": true})).await;
    assert_eq!(text, ".gitignore\ndata.bin\nnotes.md\nrun.log\nsrc/\ntarget/\n");
    let text = stage.call_ok("list", json!({"path": "src", "depth": 2})).await;
    assert_eq!(text, "deep/\ndeep/inner.rs\nmain.rs\n");
    let text = stage.call_ok("list", json!({"glob": "*.rs"})).await;
    assert_eq!(text, "src/deep/inner.rs\nsrc/main.rs\n");
    let text = stage.call_ok("list", json!({"glob": "src/*.rs"})).await;
    assert_eq!(text, "src/main.rs\n");
    let text = stage.call_ok("list", json!({"path": "notes.md"})).await;
    assert!(text.ends_with("notes.md is a file of 14 bytes"), "{text}");
    let text = stage.call_ok("list", json!({"glob": "*.py"})).await;
    assert!(text.starts_with("(nothing"), "{text}");
}

#[tokio::test]
async fn a_listing_is_limited() {
    let stage = Stage::new();
    for number in 0..1_100 {
        stage.write(&format!("{number:04}"), "");
    }
    let text = stage.call_ok("list", json!({})).await;
    assert!(text.starts_with("0000\n") && text.contains("\n0999\n"));
    assert!(text.ends_with("[cut after 1000 names; take a subfolder or a glob]\n"));
    assert_eq!(text.lines().count(), 1_001);
}

#[tokio::test]
async fn matches_have_file_and_line_number() {
    let stage = project();
    let text = stage.call_ok("grep", json!({"pattern": "needle"})).await;
    assert_eq!(text, "src/main.rs:2:     needle();\n");
    let text = stage.call_ok("grep", json!({"pattern": "needle", "ignore_case": true})).await;
    assert_eq!(text, "src/deep/inner.rs:1: // Needle\nsrc/main.rs:2:     needle();\n");
    let text = stage.call_ok("grep", json!({"pattern": "needle", "include_ignored": true})).await;
    assert_eq!(text, "run.log:1: needle\nsrc/main.rs:2:     needle();\ntarget/out.rs:1: needle\n");
    let arguments = json!({"pattern": "^", "glob": "*.md"});
    assert_eq!(stage.call_ok("grep", arguments).await, "notes.md:1: no such thing\n");
    let arguments = json!({"pattern": "main", "path": "src/main.rs"});
    assert_eq!(stage.call_ok("grep", arguments).await, "src/main.rs:1: fn main() {\n");
    assert_eq!(stage.call_ok("grep", json!({"pattern": "zzz"})).await, "(no line fits)\n");
}

#[tokio::test]
async fn a_search_is_limited_and_long_lines_are_cut() {
    let stage = Stage::new();
    stage.write("many.txt", "hit\n".repeat(1_000_000));
    let text = stage.call_ok("grep", json!({"pattern": "hit"})).await;
    assert_eq!(text.lines().count(), 201);
    assert!(text.ends_with("[cut after 200 lines; narrow the pattern, path or glob]\n"));
    let text = stage.call_ok("grep", json!({"pattern": "hit", "limit": 3})).await;
    assert!(
        text.ends_with("many.txt:3: hit\n[cut after 3 lines; narrow the pattern, path or glob]\n")
    );
    stage.write("many.txt", "é".repeat(2_500_000));
    let text = stage.call_ok("grep", json!({"pattern": "é$"})).await;
    assert_eq!(text, format!("many.txt:1: {} [line cut, 5000000 bytes]\n", "é".repeat(400)));
    let huge = std::fs::File::create(stage.path("huge.txt")).unwrap();
    huge.set_len(40_000_000).unwrap();
    let text = stage.call_ok("grep", json!({"pattern": "nothing"})).await;
    assert_eq!(text, "(no line fits)\n[1 files above 33554432 bytes were left out]\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_without_a_length_does_not_fill_the_memory() {
    let stage = Stage::new();
    // It claims to be empty and has one byte for each 512 bytes of address space.
    let arguments = json!({"pattern": "x", "path": "/proc/self/pagemap"});
    assert_eq!(stage.call_ok("grep", arguments).await, "(no line fits)\n");
}

#[tokio::test]
async fn link_cycles_are_not_followed() {
    let stage = project();
    symlink("..", stage.path("src/up")).unwrap();
    let text = stage.call_ok("list", json!({"path": "src", "depth": 5})).await;
    assert_eq!(text, "deep/\ndeep/inner.rs\nmain.rs\nup\n");
    let text = stage.call_ok("grep", json!({"pattern": "needle", "path": "src"})).await;
    assert_eq!(text.lines().count(), 1);
}

#[tokio::test]
async fn errors_name_what_cannot_be_searched() {
    let stage = project();
    let cases = [
        ("grep", json!({"pattern": "("}), "invalid regular expression"),
        ("grep", json!({"pattern": "x", "path": "nowhere"}), "does not exist"),
        ("grep", json!({"pattern": "x", "glob": "[a"}), "invalid glob `[a`"),
        ("list", json!({"path": "nowhere"}), "does not exist"),
        ("list", json!({"glob": "{a"}), "invalid glob"),
    ];
    for (tool, arguments, words) in cases {
        let text = stage.call_error(tool, arguments.clone()).await;
        assert!(text.contains(words), "{arguments}: {text}");
    }
}
