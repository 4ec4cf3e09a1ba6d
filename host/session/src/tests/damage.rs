//! Files that something went wrong with.

use std::fs;

use super::*;
use crate::SessionError;

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;

fn line(id: &str, parent: &str, text: &str) -> String {
    format!(
        r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"user","content":"{text}"}}}}"#
    )
}

/// A session of these lines behind a header, with what it reports.
fn check(lines: &[&str], expected_texts: &[&str], expected_problems: &[(usize, &str)]) {
    let file = format!("{HEADER}\n{}\n", lines.join("\n"));
    let session = Session::parse("damaged", file.as_bytes()).unwrap();
    assert_eq!(texts(&session), expected_texts);
    assert_eq!(session.to_bytes(), file.as_bytes());
    let problems = session.problems();
    assert_eq!(problems.len(), expected_problems.len(), "{problems:?}");
    for (problem, (line, words)) in problems.iter().zip(expected_problems) {
        assert!(problem.line == *line && problem.message.contains(words), "{problem:?}");
    }
}

#[test]
fn a_broken_line_hides_nothing_but_itself() {
    let (a, c) = (line("a", "none", "1"), line("c", "b", "3"));
    check(
        &[&a.replace("\"none\"", "null"), "{\"type\":\"message\",\"id\":\"b\"", &c],
        &["1", "3"],
        &[(3, "skipped: not JSON from column 26"), (4, "its parent `b`")],
    );
}

#[test]
fn every_bad_line_is_reported_by_number() {
    let a = line("a", "none", "1").replace("\"none\"", "null");
    let no_parent = r#"{"type":"message","id":"d","message":{"role":"user","content":"4"}}"#;
    check(
        &[
            &a,
            "[]",
            r#"{"type":"message","parentId":"a"}"#,
            &line("a", "a", "again"),
            "",
            HEADER,
            r#"{"id":"x"}"#,
            no_parent,
        ],
        &["1", "4"],
        &[
            (3, "not a JSON object"),
            (4, "no id"),
            (5, "duplicate id `a`"),
            (7, "second header"),
            (8, "no type"),
            (9, "no parent"),
        ],
    );
}

#[test]
fn a_parent_further_down_makes_no_circle() {
    check(
        &[&line("a", "b", "1"), &line("b", "a", "2")],
        &["1", "2"],
        &[(2, "its parent `b` is not above")],
    );
}

#[test]
fn what_is_no_session_is_refused() {
    for bytes in [
        "",
        "\n\n",
        "nonsense",
        r#"{"type":"message","id":"a"}"#,
        r#"{"type":"session","version":"x"}"#,
        r#"{"type":"session","version":0}"#,
    ] {
        let error = Session::parse("some.jsonl", bytes.as_bytes()).unwrap_err();
        assert!(matches!(error, SessionError::Header { .. }), "{bytes}: {error}");
        assert!(error.to_string().contains("some.jsonl"), "{error}");
    }
}

#[test]
fn a_bad_line_before_the_header_is_stepped_over() {
    let file = format!("\ngarbage\n{HEADER}\n");
    let session = Session::parse("late", file.as_bytes()).unwrap();
    assert_eq!((session.header().id(), session.problems()[0].line), ("s", 2));
    assert_eq!(session.to_bytes(), file.as_bytes());
}

#[test]
fn a_newer_version_is_read_but_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.jsonl");
    let file = format!(
        "{}\n{}\n",
        HEADER.replace(":3", ":4"),
        line("a", "x", "1").replace("\"x\"", "null")
    );
    fs::write(&path, &file).unwrap();

    let mut session = Session::read(&path).unwrap();
    assert_eq!(texts(&session), ["1"]);
    assert!(session.problems()[0].message.contains("version 4"));
    assert!(matches!(session.append(user("no")), Err(SessionError::Newer { version: 4, .. })));
    assert!(matches!(Session::open(&path), Err(SessionError::Newer { version: 4, .. })));
    // A replay and a dry run append to a copy in memory, which is not written.
    let copies = [session.into_memory(), Session::parse("copy", file.as_bytes()).unwrap()];
    for mut copy in copies {
        copy.append(user("2")).unwrap();
        assert_eq!(texts(&copy), ["1", "2"]);
        let saved = copy.into_file(&folder.path().join("copy.jsonl"));
        assert!(matches!(saved, Err(SessionError::Newer { version: 4, .. })));
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), file);
}

#[test]
fn a_torn_last_line_is_set_aside_at_the_first_append() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("torn.jsonl");
    let torn = "{\"type\":\"message\",\"id\":\"b\",\"mess".as_bytes();
    let whole = format!("{HEADER}\n{}\n", line("a", "x", "1").replace("\"x\"", "null"));
    let bytes = [whole.as_bytes(), torn].concat();
    fs::write(&path, &bytes).unwrap();

    let mut session = Session::open(&path).unwrap();
    assert_eq!(session.problems()[0].line, 3);
    assert_eq!(texts(&session), ["1"]);
    assert_eq!(fs::read(&path).unwrap(), bytes, "opening changes nothing");
    session.append(user("2")).unwrap();
    assert_eq!(fs::read(folder.path().join("torn.jsonl.torn")).unwrap(), torn);
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    assert!(fs::read(&path).unwrap().starts_with(whole.as_bytes()));
    drop(session);

    let again = Session::open(&path).unwrap();
    assert_eq!((texts(&again), again.problems()), (vec!["1".to_owned(), "2".to_owned()], &[][..]));
}

#[test]
fn another_torn_line_gets_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    for torn in ["{\"one", "{\"two", "{\"two"] {
        fs::write(&path, format!("{HEADER}\n{torn}")).unwrap();
        Session::open(&path).unwrap().append(user("on")).unwrap();
    }
    let copy = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
    assert_eq!(copy("s.jsonl.torn").as_deref(), Some("{\"one"));
    assert_eq!(copy("s.jsonl.torn.2").as_deref(), Some("{\"two"));
    assert_eq!(copy("s.jsonl.torn.3"), None);
}

#[test]
fn a_missing_last_line_break_is_added_with_the_next_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let file = format!("{HEADER}\n{}", line("a", "x", "1").replace("\"x\"", "null"));
    fs::write(&path, &file).unwrap();
    let mut session = Session::open(&path).unwrap();
    assert_eq!(session.problems(), []);
    session.append(user("2")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    assert!(fs::read_to_string(&path).unwrap().starts_with(&format!("{file}\n{{")));
    assert_eq!(texts(&Session::read(&path).unwrap()), ["1", "2"]);
}

#[test]
fn a_line_that_is_too_long_keeps_its_number_and_its_length() {
    use ctxhost_files::{FileLines, LongLine};
    let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
    let record = r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"first"}}"#;
    let long = |line| LongLine { line, length_bytes: 1 << 30 };
    for (text, line) in [
        (format!("{header}\n\n{record}\n"), 2),
        (format!("{header}\n{record}\n\n"), 3),
        // The last line has no line break.
        (format!("{header}\n{record}\n"), 3),
    ] {
        let lines = FileLines { bytes: text.clone().into_bytes(), long: vec![long(line)] };
        let contents = crate::parse::parse_lines("s", &lines).unwrap();
        assert_eq!(contents.problems[0].line, line, "{text}");
        assert!(contents.problems[0].message.contains("1073741824 bytes"), "{text}");
        assert_eq!(contents.length_bytes(), text.len() as u64 + (1 << 30), "{text}");
        assert_eq!(contents.records.len(), 1, "{text}");
    }
}

/// Texts that JavaScript cut inside an emoji, numbers beyond floats, deep arguments and equal fields: see `readable`.
#[test]
fn what_one_reader_refuses_hides_no_message() {
    let root = line("a", "none", r"cut \ud83d").replace("\"none\"", "null");
    let answer = |id: &str, parent: &str, block: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"assistant","content":[{block}]}}}}"#
        )
    };
    let call = |arguments: &str| {
        format!(r#"{{"type":"toolCall","id":"k","name":"shell","arguments":{{"c":{arguments}}}}}"#)
    };
    let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
    let equal = answer("d", "c", r#"{"type":"text","text":"old","text":"new"}"#);
    let (number, nested) = (answer("b", "a", &call("1e999")), answer("c", "b", &call(&deep)));
    check(&[&root, &number, &nested, &equal], &["cut \u{FFFD}", "", "", "new"], &[]);
    let file = [HEADER, &root, &number, &nested, &equal].join("\n");
    let session = Session::parse("damaged", file.as_bytes()).unwrap();
    for entry in session.live(0).snapshot().iter() {
        assert!(
            serde_json::from_str::<ctxhost_dialects::ChatMessage>(entry.raw()).is_ok(),
            "{}",
            entry.raw()
        );
        assert_eq!(entry.tool_calls().len(), usize::from(matches!(entry.id(), "b" | "c")));
    }
}

#[test]
fn a_message_that_is_left_out_is_named() {
    let root = line("a", "none", "1").replace("\"none\"", "null");
    let unknown = line("b", "a", "2").replace("user", "oracle");
    check(&[&root, &unknown, &line("c", "b", "3")], &["1", "3"], &[(3, "role `oracle`")]);
}
