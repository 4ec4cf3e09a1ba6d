//! Sessions with damage, and output files, on the command line.

use std::fs;
use std::path::Path;
use std::process::Output;

use ctxhost_tests::ctxhost;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
const RECORD: &str = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-21T01:41:21.054Z","message":{"role":"user","content":"the red fox"}}"#;
const COMPACTION: &str = r#"{"type":"compaction","id":"b","parentId":"a","timestamp":"2026-11-21T01:41:22.054Z","summary":"a fox","firstKeptEntryId":"a","tokensBefore":9}"#;

fn run(arguments: &[&str], folder: &Path) -> Output {
    let arguments = arguments.iter().filter(|argument| !argument.is_empty());
    ctxhost().args(arguments).current_dir(folder).env("XDG_STATE_HOME", folder).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A session with this number of damaged lines, as `s.jsonl`.
fn session(damaged: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines = [HEADER, RECORD, COMPACTION].join("\n");
    let text = format!("{lines}\n{}", "damaged\n".repeat(damaged));
    fs::write(folder.path().join("s.jsonl"), text).unwrap();
    folder
}

#[test]
fn no_output_file_replaces_an_input() {
    let folder = session(0);
    let before = fs::read(folder.path().join("s.jsonl")).unwrap();
    std::os::unix::fs::symlink("s.jsonl", folder.path().join("link.html")).unwrap();
    for file in ["s.jsonl", "link.html", "./s.jsonl"] {
        for arguments in [
            &["replay", "s.jsonl", "--report", file][..],
            &["fetch", "s.jsonl", "a", "--out", file],
            &["bench", "quality", "s.jsonl", "--report", file],
        ] {
            let output = run(arguments, folder.path());
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
            assert!(errors(&output).contains("would be overwritten"), "{}", errors(&output));
            assert_eq!(fs::read(folder.path().join("s.jsonl")).unwrap(), before, "{arguments:?}");
        }
    }
    for _ in 0..2 {
        let output = run(&["replay", "s.jsonl", "--report", "page.html"], folder.path());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(folder.path().join("page.html").exists());
    }
    let config = "[plugins.slots]\ncontext_engine = \"window\"\n";
    fs::write(folder.path().join("ctxhost.toml"), config).unwrap();
    for command in [&["replay"][..], &["bench", "quality"]] {
        let arguments = [command, &["s.jsonl", "--report", "ctxhost.toml"]].concat();
        let output = run(&arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains("is not a page"), "{}", errors(&output));
        assert_eq!(fs::read_to_string(folder.path().join("ctxhost.toml")).unwrap(), config);
    }
}

#[test]
fn every_reader_reports_lines_that_it_skips() {
    let folder = session(3);
    for arguments in [
        ["context", "s.jsonl", ""],
        ["diff", "s.jsonl", ""],
        ["bisect", "s.jsonl", "red fox"],
        ["export", "s.jsonl", ""],
        ["fetch", "s.jsonl", "a"],
    ] {
        let output = run(&arguments, folder.path());
        let said = errors(&output);
        assert!(said.contains("3 problems in s.jsonl, such as line 4"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_report_lists_a_few_damaged_lines_and_counts_the_rest() {
    let folder = session(500);
    let output = run(&["replay", "s.jsonl", "--report", "page.html"], folder.path());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    for report in [&text, &page] {
        assert_eq!(report.matches("s.jsonl:").count(), 10, "{report}");
        assert!(report.contains("490 lines more"), "{report}");
    }
    let json = run(&["replay", "s.jsonl", "--json"], folder.path()).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["session"]["problems"].as_array().unwrap().len(), 500);
}

#[test]
fn a_budget_that_is_too_small_has_a_row_without_figures() {
    let folder = session(0);
    let arguments =
        ["bench", "quality", "demo:mixed", "--budgets", "1,8000", "--engines", "window"];
    let output = run(&arguments, folder.path());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text} {}", errors(&output));
    assert!(text.contains("Not measured") && text.contains("8,000"), "{text}");
    let output = run(&[&arguments[..], &["--json"]].concat(), folder.path());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let budgets = |rows: &str| -> Vec<u64> {
        let rows = report[rows].as_array().unwrap().iter();
        rows.map(|row| row["budget_tokens"].as_u64().unwrap()).collect()
    };
    assert_eq!((budgets("unmeasured"), budgets("recordings")), (vec![1], vec![8_000]));
}

#[test]
fn a_price_is_a_finite_share() {
    let folder = session(0);
    for price in ["nan", "-1", "1e400", "inf", "cheap"] {
        for name in ["--cache-read", "--cache-write"] {
            let argument = format!("{name}={price}");
            let output = run(&["bench", "quality", "s.jsonl", &argument], folder.path());
            assert_eq!(output.status.code(), Some(2), "{argument}: {}", errors(&output));
            assert!(errors(&output).contains("from 0 to 1000"), "{}", errors(&output));
        }
    }
}

#[test]
fn bench_reads_what_replay_reads() {
    let folder = session(0);
    let text = fs::read(folder.path().join("s.jsonl")).unwrap();
    let packed = compress_to_vec(text.as_slice(), CompressionLevel::Fastest);
    fs::write(folder.path().join("s.jsonl.zst"), packed).unwrap();
    for command in [
        &["replay", "s.jsonl.zst"][..],
        &["bench", "quality", "s.jsonl.zst", "--engines", "window", "--budgets", "8k"],
    ] {
        let output = run(command, folder.path());
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", errors(&output));
    }
}

#[test]
fn a_config_beside_a_session_runs_nothing() {
    let folder = session(0);
    let work = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let config = format!(
        "[summariser]\nprovider = \"p\"\nmodel = \"m\"\n[providers.p]\ndialect = \"openai-completions\"\n\
         base_url = \"http://127.0.0.1:9/v1\"\napi_key_command = [\"touch\", {:?}]\n",
        ran.display()
    );
    fs::write(folder.path().join("ctxhost.toml"), config).unwrap();
    let path = folder.path().join("s.jsonl").display().to_string();
    for command in ["replay", "context", "compact"] {
        let output = run(&[command, &path, "--window", "16k"], work.path());
        let said = errors(&output);
        assert!(
            said.contains("ctxhost.toml, beside the session, is not used; --config "),
            "{said}"
        );
        assert!(!ran.exists(), "{command}: {said}");
    }
}
