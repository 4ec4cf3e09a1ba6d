//! Exports: a session again, and nothing in it that should stay at home.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::{ExportCounts, HistoryError, RedactionCounts};
use crate::{export_branch, export_markdown, write_new};

fn export(session: &Session, is_redacted: bool) -> (String, ExportCounts) {
    let mut text = String::new();
    let counts = export_branch(session, is_redacted, |line| {
        text.push_str(line);
        Ok::<(), HistoryError>(())
    });
    (text, counts.unwrap())
}

#[test]
fn an_export_is_the_branch_line_for_line() {
    let mut session = memory();
    let first = turn(&mut session, 1, "text");
    user(&mut session, "another way");
    session.set_leaf(&first[3]).unwrap();
    fold(&mut session, 0, "short");
    let (text, counts) = export(&session, false);
    assert_eq!(counts, ExportCounts { messages: 4, compactions: 1, replaced: None });
    let again = Session::parse("export", text.as_bytes()).unwrap();
    assert_eq!(again.problems(), []);
    assert_eq!(again.digest(), session.digest());
    assert!(!text.contains("another way"));
    let line = session.record(&first[2]).unwrap().line();
    assert!(text.contains(line), "byte for byte");
}

const SECRET: &str = "hunter2-hunter2";

/// A session with something to hide in every place that there is.
fn private() -> Session {
    let mut session = memory();
    user(
        &mut session,
        &format!("I use {SECRET} everywhere. export TOKEN={SECRET}. Write to Jo.Doe@example.org"),
    );
    let call = json!({ "type": "toolCall", "id": "c1", "name": "login", "arguments": {
        "clientSecret": SECRET, "url": "postgres://me:jo-jo-77@db/x", "nested": { "api_key": "k-1" },
        "body": format!("{{\"password\": \"{SECRET}\"}}") } });
    let thinking = json!({ "type": "thinking", "thinking": "hm", "thinkingSignature": "c2VjcmV0" });
    say(&mut session, json!({ "role": "assistant", "content": [thinking, call] }));
    let image = json!({ "type": "image", "data": "aGVsbG8=", "mimeType": "image/png" });
    let text = "cat /home/jo/.netrc ui/home/page login --db-password pass-word -I/home/jo/i file:///home/jo/x\n/Users/jo/x C:\\Users\\jo\\y /s/--home-jo-app--/z sk-abcdefgh1234";
    say(
        &mut session,
        json!({ "role": "toolResult", "toolCallId": "c1", "toolName": "login",
            "content": [{ "type": "text", "text": text }, image] }),
    );
    let mut plan = Plan::default();
    let raw = session.live(0).snapshot().get(2).unwrap().raw().to_owned();
    plan.insert(Role::User, format!("they use {SECRET}"), 0..1).keep(1..2).replace_raw(2, raw);
    compact(&mut session, &plan);
    session
}

#[test]
fn a_redacted_export_holds_no_secret_and_is_still_a_session() {
    let session = private();
    let (text, counts) = export(&session, true);
    for private in [
        SECRET,
        "jo-jo-77",
        "k-1",
        "Doe",
        "pass-word",
        "/jo",
        "\\jo",
        "-jo-",
        "sk-abc",
        "c2Vj",
        "aGVs",
    ] {
        assert!(!text.contains(private), "{private} is in\n{text}");
    }
    let replaced = RedactionCounts { secrets: 5, addresses: 1, names: 2, images: 2 };
    assert_eq!(counts.replaced, Some(replaced), "the compaction holds the picture again");
    assert_eq!(text.matches("[secret 1]").count(), 6, "the same secret has one number\n{text}");
    assert!(text.contains("ui/home/page"), "nobody's home\n{text}");
    assert!(text.contains("postgres://me:[secret"), "{text}");
    assert!(text.contains("/home/[name 1]/app"), "the folder of the session too\n{text}");

    let again = Session::parse("export", text.as_bytes()).unwrap();
    assert_eq!(again.problems(), []);
    assert_eq!(again.live(0).len(), session.live(0).len(), "calls and results still pair");
    assert_eq!(export(&again, true).0, text, "nothing is left to replace");
}

#[test]
fn a_page_has_turns_calls_and_compactions() {
    let mut session = memory();
    turn(&mut session, 1, "```\n# no heading\n```");
    fold(&mut session, 0, "short");
    let page = export_markdown(&session, true).unwrap().0;
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(headings[..2], ["# Session test", "## Turn 1"]);
    assert!(headings[2..].iter().any(|line| line.starts_with("### Compaction @1")));
    assert!(page.contains("````text\n```\n# no heading\n```\n````"), "{page}");
    assert!(page.contains("calls `read`\n\n```json\n{\"path\":\"src/file_1.rs\"}\n```"), "{page}");
}

#[test]
fn a_file_is_new_and_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.jsonl");
    write_new(&path, |file| file.write_all(b"x")).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(
        write_new(&path, |file| file.write_all(b"y")),
        Err(HistoryError::AlreadyExists { .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"x");

    let half = folder.path().join("half.jsonl");
    let failed = write_new(&half, |file| {
        file.write_all(b"half of it")?;
        Err::<(), _>(std::io::Error::from(std::io::ErrorKind::StorageFull))
    });
    assert!(matches!(failed, Err(HistoryError::Unwritable { .. })));
    assert!(!half.exists(), "half an export is deleted");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_secret_is_redacted_at_every_position(
        mut session in sessions(),
        secret in "[a-z]{4}[0-9]{4}[A-Z]{4}[0-9]{4}",
        before in prop_oneof![Just("token="), Just("export DB_PASSWORD='"), Just("Bearer "), Just("{\\\"secret\\\": \\\"")],
    ) {
        user(&mut session, &format!("as I said, {secret}"));
        user(&mut session, &format!("{before}{secret}'"));
        fold(&mut session, 1, &format!("about {secret}"));
        let (text, _) = export(&session, true);
        prop_assert!(!text.contains(&secret));
        prop_assert!(!export_markdown(&session, true).unwrap().0.contains(&secret));
        let again = Session::parse("export", text.as_bytes()).unwrap();
        prop_assert_eq!(again.live(0).len(), session.live(0).len());
    }
}
