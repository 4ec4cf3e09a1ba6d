//! Tests of the ledger of names.

use ctxhost_engine_api::testing::TranscriptBuilder;

use super::*;

use super::mentions::{Mention, MentionPlace, PRINTED_WEIGHT, STATED_WEIGHT, USED_WEIGHT};

fn mention(
    name: &str,
    kind: IdentifierKind,
    weight: f32,
    operation: Option<FileOperation>,
) -> Mention<'_> {
    Mention { name, kind, weight, operation, place: MentionPlace::Text }
}

fn note(ledger: &mut NameLedger, names: &[(&str, f32)]) {
    let mut entry = ledger.begin_entry();
    for (name, weight) in names {
        entry.add_mention(mention(name, IdentifierKind::File, *weight, None));
    }
    entry.finish();
}

#[test]
fn what_is_used_often_and_late_comes_first() {
    let mut ledger = NameLedger::default();
    note(&mut ledger, &[("printed.rs", PRINTED_WEIGHT), ("used.rs", USED_WEIGHT)]);
    (0..400).for_each(|_| note(&mut ledger, &[]));
    note(&mut ledger, &[("late.rs", PRINTED_WEIGHT)]);
    let all = ledger.render(&NameSet::default(), [], &NameSet::default(), 1_000).text;
    assert_eq!(all, "<names>\nfiles: late.rs, used.rs, printed.rs\n</names>");
    let shown = ledger.entry_names(401).iter().copied().collect();
    assert!(!ledger.render(&shown, [], &NameSet::default(), 1_000).text.contains("late.rs"));
    assert_eq!(
        ledger.render(&NameSet::default(), [], &NameSet::default(), BLOCK_CHARS + 10).text,
        "<names>\nfiles: late.rs\n</names>"
    );
    assert_eq!(
        ledger.render(&NameSet::default(), [], &NameSet::default(), 10),
        NameList::default()
    );
    assert_eq!(ledger.heaviest_names(0, 9), ["used.rs"]);
}

#[test]
fn a_path_lists_its_endings_and_an_operation_gives_the_title() {
    let mut ledger = NameLedger::default();
    let mut entry = ledger.begin_entry();
    let change = Some(FileOperation::Change);
    entry.add_mention(mention("src/io/a.rs", IdentifierKind::File, USED_WEIGHT, change));
    entry.add_mention(mention("a.rs", IdentifierKind::File, PRINTED_WEIGHT, None));
    entry.add_mention(mention("parse_body", IdentifierKind::Symbol, STATED_WEIGHT, None));
    entry.finish();
    let all = ledger.render(&NameSet::default(), [], &NameSet::default(), 1_000).text;
    assert_eq!(all, "<names>\nchanged: src/io/a.rs\nsymbols: parse_body\n</names>");
}

#[test]
fn a_path_leaves_the_room_of_its_parts_to_other_names() {
    let path = "/home/me/app/src/io/a.rs";
    let mut ledger = NameLedger::default();
    note(&mut ledger, &[("/home/me/app", USED_WEIGHT), ("io/a.rs", USED_WEIGHT)]);
    note(&mut ledger, &[("other.rs", PRINTED_WEIGHT)]);
    (0..8).for_each(|_| note(&mut ledger, &[(path, USED_WEIGHT)]));
    let list = |shown: &NameSet, most_chars| {
        ledger.render(shown, [], &NameSet::default(), BLOCK_CHARS + most_chars).text
    };
    let all = format!("<names>\nfiles: {path}, other.rs\n</names>");
    assert_eq!(list(&NameSet::default(), 1_000), all);
    let both = (path.len() + "other.rs".len() + 2 * 2) as u64;
    assert_eq!(list(&NameSet::default(), both), all, "listed parts leave their room");
    let shown = ledger.entry_names(2).iter().copied().collect();
    assert_eq!(list(&shown, 1_000), "<names>\nfiles: other.rs\n</names>");
}

#[test]
fn a_path_that_is_withheld_hides_none_of_its_parts() {
    let mut ledger = NameLedger::default();
    note(&mut ledger, &[("old/io/a.rs", USED_WEIGHT), ("io/a.rs", USED_WEIGHT)]);
    let withheld = ledger.find_number("old/io/a.rs");
    let list = ledger.render(&NameSet::default(), withheld, &NameSet::default(), 1_000).text;
    assert_eq!(list, "<names>\nfiles: io/a.rs\n</names>");
}

#[test]
fn a_changed_file_stays_beside_a_path_that_was_only_printed() {
    let mut ledger = NameLedger::default();
    let mut entry = ledger.begin_entry();
    let change = Some(FileOperation::Change);
    entry.add_mention(mention("io/a.rs", IdentifierKind::File, USED_WEIGHT, change));
    entry.add_mention(mention("PROJ-7", IdentifierKind::Code, PRINTED_WEIGHT, None));
    entry.finish();
    (0..8).for_each(|_| note(&mut ledger, &[("/tmp/PROJ-7/io/a.rs", USED_WEIGHT)]));
    note(&mut ledger, &[("PROJ-7/io/a.rs", PRINTED_WEIGHT)]);
    let all = ledger.render(&NameSet::default(), [], &NameSet::default(), 1_000).text;
    let lines = "changed: io/a.rs\nfiles: /tmp/PROJ-7/io/a.rs\nother: PROJ-7";
    assert_eq!(all, format!("<names>\n{lines}\n</names>"));
}

#[test]
fn a_fact_stays_beside_a_path_with_it() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Everything is in /srv/data/notes.txt, nothing else.");
    (0..8).for_each(|number| {
        let id = number.to_string();
        talk.calls(&[(&id, "bash", r#"{"command":"cp /mnt/srv/data/notes.txt ."}"#)]);
        talk.result(&id, "bash", "done");
    });
    let mut ledger = NameLedger::default();
    talk.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
    let list = ledger.render(&NameSet::default(), [], &NameSet::default(), 1_000).text;
    assert!(list.contains("facts: /srv/data/notes.txt\n"), "{list}");
}

#[test]
fn old_names_leave_the_candidates_and_return_when_mentioned() {
    let mut ledger = NameLedger::default();
    note(&mut ledger, &[("first.rs", PRINTED_WEIGHT)]);
    for number in 0..3 * CANDIDATES {
        note(&mut ledger, &[(&format!("f{number}.rs"), PRINTED_WEIGHT)]);
    }
    assert!(ledger.candidates.len() < 2 * CANDIDATES);
    assert!(!ledger.rows[0].is_candidate);
    let list =
        |ledger: &NameLedger| ledger.render(&NameSet::default(), [], &NameSet::default(), 200).text;
    assert!(!list(&ledger).contains("first.rs"));
    note(&mut ledger, &[("first.rs", USED_WEIGHT)]);
    assert!(list(&ledger).contains("first.rs"));
}

#[test]
fn what_the_user_stated_comes_before_what_tools_print() {
    let mut talk = TranscriptBuilder::new();
    talk.user("My order is ORD-2024-00817, I paid € 1.249,50 on 2026-11-23; mail max@example.com.");
    for number in 0..200 {
        let id = number.to_string();
        talk.calls(&[(&id, "bash", r#"{"command":"ls"}"#)]);
        talk.result(&id, "bash", &format!("src/part{number}.rs\nsrc/other{number}.rs 2026-01-01"));
    }
    let mut ledger = NameLedger::default();
    talk.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
    let list = ledger.render(&NameSet::default(), [], &NameSet::default(), 400).text;
    let facts = "facts: max@example.com, 2026-11-23, € 1.249,50, ORD-2024-00817\n";
    assert!(list.contains(facts), "{list}");
    assert!(list.contains("src/part199.rs") && !list.contains("2026-01-01"), "{list}");
    // A compaction summary hands them on.
    let mut next = TranscriptBuilder::with_epoch(1);
    next.summary(&list);
    let mut ledger = NameLedger::default();
    next.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
    let list = ledger.render(&NameSet::default(), [], &NameSet::default(), 240).text;
    assert!(list.contains(facts), "{list}");
}

#[test]
fn the_user_does_not_fill_the_list() {
    let mut talk = TranscriptBuilder::new();
    talk.calls(&[("1", "edit", r#"{"path":"src/main.rs"}"#)]).result("1", "edit", "done");
    (0..200).for_each(|number| _ = talk.user(&format!("and order ORD-{number}-00817")));
    let mut ledger = NameLedger::default();
    talk.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
    let list = ledger.render(&NameSet::default(), [], &NameSet::default(), 400).text;
    assert!(list.contains("ORD-199-00817") && list.matches("ORD-").count() < 25, "{list}");
}

#[test]
fn a_secret_is_never_a_fact() {
    let mut talk = TranscriptBuilder::new();
    talk.user("The password is hunter2hunter2, the PIN is 483920, and the token: \"Blue Heron\".");
    talk.user("Use postgres://app:s3cretpass@db.example/x and sk_live_0123456789abcdefABCD.");
    talk.user("-----BEGIN PRIVATE KEY-----\nMIIEvQ9812345678901234\n-----END PRIVATE KEY-----");
    let mut ledger = NameLedger::default();
    talk.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
    let list = ledger.render(&NameSet::default(), [], &NameSet::default(), 4_000).text;
    for secret in ["hunter2", "483920", "Blue Heron", "s3cretpass", "sk_live", "MIIE"] {
        assert!(!list.contains(secret), "{secret}: {list}");
    }
}
