//! `ctxhost doctor` in a home folder with the sessions of six agents, and what it reads of them.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ctxhost_tests::ctxhost;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A request that each session loses, and a path that it loses with it.
const LOST: &str = "keep the importer on reader /srv/shop/importer.toml";
const KEPT: &str = "now write the release note";

/// A long answer, without which there would be nothing to compact.
fn answer() -> String {
    "The reader stays as it is. ".repeat(300)
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Claude Code: the first two messages become a summary.
fn claude_code() -> String {
    let user = |uuid: &str, parent: Option<&str>, text: &str| {
        json!({ "type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "cwd": "/srv/shop",
                "version": "9.9", "timestamp": "2026-01-01T10:00:00Z",
                "message": { "role": "user", "content": text } })
    };
    let reply = |uuid: &str, parent: &str, text: &str, input: u64| {
        json!({ "type": "assistant", "uuid": uuid, "parentUuid": parent, "timestamp": "2026-01-01T10:01:00Z",
                "message": { "id": uuid, "role": "assistant", "model": "claude-x",
                             "usage": { "input_tokens": input, "output_tokens": 5, "cache_creation_input_tokens": 100 },
                             "content": [{ "type": "text", "text": text }] } })
    };
    let mut summary = user("s1", Some("b1"), "The importer was discussed.");
    summary["isCompactSummary"] = true.into();
    lines(&[
        user("u1", None, LOST),
        reply("a1", "u1", &answer(), 50),
        user("u2", Some("a1"), KEPT),
        json!({ "type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": null,
                "logicalParentUuid": "u2", "timestamp": "2026-01-01T10:02:00Z",
                "compactMetadata": { "trigger": "auto", "preTokens": 167_763, "postTokens": 40_843,
                                     "preservedMessages": { "uuids": ["u2"] } } }),
        summary,
        reply("a2", "s1", "Written.", 900),
    ])
}

fn codex() -> String {
    let message = |role: &str, text: &str| {
        json!({ "timestamp": "2026-01-01T11:00:00Z", "type": "response_item", "payload": {
            "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] } })
    };
    let kept = |text: &str| message("user", text)["payload"].clone();
    lines(&[
        json!({ "type": "session_meta", "payload": { "id": "c", "cwd": "/srv/shop" } }),
        message("user", LOST),
        message("assistant", &answer()),
        message("user", KEPT),
        json!({ "timestamp": "2026-01-01T11:01:00Z", "type": "compacted", "payload": { "message": "So far.",
            "replacement_history": [kept(KEPT), kept("So far.")] } }),
    ])
}

/// Pi and OpenClaw: the same format.
fn pi() -> String {
    let message = |id: &str, parent: Option<&str>, role: &str, text: &str| {
        json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T12:00:00.000Z",
                "message": { "role": role, "content": [{ "type": "text", "text": text }] } })
    };
    lines(&[
        json!({ "type": "session", "version": 3, "id": "p", "timestamp": "2026-01-01T12:00:00.000Z",
                "cwd": "/srv/shop" }),
        message("m1", None, "user", LOST),
        message("m2", Some("m1"), "assistant", &answer()),
        message("m3", Some("m2"), "user", KEPT),
        json!({ "type": "compaction", "id": "k1", "parentId": "m3", "timestamp": "2026-01-01T12:01:00.000Z",
                "summary": "So far.", "firstKeptEntryId": "m3", "tokensBefore": 90 }),
    ])
}

fn gemini() -> String {
    let message = |id: &str, kind: &str, text: &str| json!({ "id": id, "timestamp": "2026-01-01T13:00:00Z", "type": kind, "content": text });
    lines(&[
        json!({ "sessionId": "g", "projectHash": "h", "directories": ["/srv/shop"] }),
        message("m1", "user", LOST),
        message("m2", "gemini", &answer()),
        message("m3", "user", KEPT),
        json!({ "$set": { "messages": [message("x1", "user", "<state_snapshot>So far.</state_snapshot>"),
                                        message("x2", "user", KEPT)] } }),
    ])
}

/// The messages of opencode, each with its part.
fn opencode_messages() -> Vec<(&'static str, Value, Value)> {
    let messages = [
        ("msg_1", "user", json!({ "type": "text", "text": LOST })),
        ("msg_2", "assistant", json!({ "type": "text", "text": answer() })),
        ("msg_3", "user", json!({ "type": "text", "text": KEPT })),
        ("msg_4", "user", json!({ "type": "compaction", "auto": true, "tail_start_id": "msg_3" })),
        ("msg_5", "assistant", json!({ "type": "text", "text": "So far." })),
    ];
    let numbered = messages.into_iter().enumerate();
    let message = |(number, (id, role, part)): (usize, (&'static str, &str, Value))| {
        let mut info = json!({ "id": id, "role": role, "time": { "created": 1_767_276_000_000_i64 + number as i64 } });
        if id == "msg_5" {
            info["summary"] = true.into();
            info["parentID"] = "msg_4".into();
        }
        (id, info, part)
    };
    numbered.map(message).collect()
}

/// opencode before 1.2: one file for the session, each message and each part.
fn opencode(storage: &Path) {
    let session = json!({ "id": "ses_open12345678", "projectID": "p", "directory": "/srv/shop" });
    write(&storage.join("session/p/ses_open12345678.json"), &session.to_string());
    for (id, info, part) in opencode_messages() {
        write(&storage.join(format!("message/ses_open12345678/{id}.json")), &info.to_string());
        write(&storage.join(format!("part/{id}/prt_1.json")), &part.to_string());
    }
}

/// opencode since: a database, whose log is left behind. It holds the session of the files and a further one.
fn opencode_database(path: &Path) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(path).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    let tables = "
        CREATE TABLE session (id text PRIMARY KEY, directory text, version text, revert text, time_updated integer);
        CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);
        CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);";
    database.execute_batch(tables).unwrap();
    for session in ["ses_open12345678", "ses_base12345678"] {
        let row = "INSERT INTO session VALUES (?1, '/srv/shop', '1.18.33', NULL, 1767300000000)";
        database.execute(row, [session]).unwrap();
        for (id, mut info, part) in opencode_messages() {
            // Ids are columns, and not in the data.
            info.as_object_mut().unwrap().remove("id");
            if info["parentID"].is_string() {
                info["parentID"] = format!("{session}_msg_4").into();
            }
            let part = part.to_string().replace("msg_3", &format!("{session}_msg_3"));
            let created = info["time"]["created"].to_string();
            let id = format!("{session}_{id}");
            let row = "INSERT INTO message VALUES (?1, ?2, ?3, ?4)";
            database.execute(row, [&id, session, &created, &info.to_string()]).unwrap();
            let row = "INSERT INTO part VALUES (?1, ?2, ?3, ?4)";
            database.execute(row, [&format!("{id}_prt"), &id, session, &part]).unwrap();
        }
    }
    database
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    // Newest first is the order of reading, so every file has the same time.
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_767_300_000)).unwrap();
}

/// A home folder with the sessions of six agents, and an empty folder to work in.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let below = |path: &str| home.path().join(path);
    write(
        &below(".claude/projects/-srv-shop/0b1c2d3e-0000-4000-8000-0000c1a0de00.jsonl"),
        &claude_code(),
    );
    write(&below(".claude/projects/-srv-shop/agent-1234.jsonl"), &claude_code());
    write(
        &below(".codex/sessions/2026/01/01/rollout-2026-01-01T11-00-00-0000c0de0001.jsonl"),
        &codex(),
    );
    write(&below(".pi/agent/sessions/--srv-shop--/2026-01-01_pi000001.jsonl"), &pi());
    write(&below(".openclaw/agents/main/sessions/claw0001.jsonl"), &pi());
    write(
        &below(".clawdbot/agents/main/sessions/claw0002.jsonl"),
        &pi().replace("compaction", "label"),
    );
    write(&below(".gemini/tmp/abc/chats/session-2026-01-01-gem00001.jsonl"), &gemini());
    opencode(&below(".local/share/opencode/storage"));
    fs::create_dir(below("project")).unwrap();
    home
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(home: &Path, arguments: &[&str]) -> Ran {
    let mut command = ctxhost();
    for name in ["CODEX_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR", "OPENCLAW_STATE_DIR"] {
        command.env_remove(name);
    }
    for name in [
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "GEMINI_CLI_HOME",
        "CTXHOST_STATE_DIR",
    ] {
        command.env_remove(name);
    }
    let output = command
        .current_dir(home.join("project"))
        .env("HOME", home)
        .env("SOURCE_DATE_EPOCH", "1767398400")
        .args(arguments)
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Ran { code: output.status.code(), out, err }
}

#[test]
fn without_permission_nothing_outside_is_read() {
    let home = home();
    // Without a terminal nobody can be asked. No argument is the same command.
    for arguments in [&["doctor"][..], &[]] {
        let ran = run(home.path(), arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.err.contains("--yes") && ran.err.contains("--path"), "{}", ran.err);
        assert!(ran.out.starts_with("no session found in\n  ~/project\n"), "{}", ran.out);
        assert!(ran.out.contains("ctxhost replay demo:coding"), "{}", ran.out);
    }
}

#[test]
fn models_of_the_config_are_not_asked() {
    let home = home();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let url = format!("http://{}/v1", server.local_addr().unwrap());
    let config = format!(
        "[summariser]\nbase_url = {url:?}\nmodel = \"m\"\n[embedder]\nurl = {url:?}\nmodel = \"m\"\n"
    );
    fs::write(home.path().join("project/ctxhost.toml"), config).unwrap();
    let ran = run(home.path(), &["doctor", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("would have kept"), "{}", ran.out);
    assert!(server.accept().is_err(), "nothing is sent");
}

#[test]
fn where_no_agent_has_a_folder_yes_is_not_proposed() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("project")).unwrap();
    for arguments in [&["doctor"][..], &["doctor", "--yes"]] {
        let ran = run(home.path(), arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(!ran.err.contains("not read") && !ran.out.contains("--yes"), "{ran:?}");
        assert!(ran.out.contains("ctxhost doctor --path DIR"), "{}", ran.out);
    }
}

#[test]
fn every_agent_is_found_and_what_it_lost_is_told() {
    let home = home();
    let ran = run(home.path(), &["doctor", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let out = &ran.out;
    assert!(out.starts_with("7 sessions read, 6 compacted, 6 compactions\n"), "{out}");
    for agent in ["claude-code", "codex", "pi", "openclaw", "opencode", "gemini-cli"] {
        assert!(out.contains(&format!("({agent}, /srv/shop, ")), "{agent}: {out}");
    }
    assert!(
        out.contains(
            "1 compaction; 1 of your 2 requests and 1 of 1 paths and identifiers are gone"
        ),
        "{out}"
    );
    assert!(out.contains(&format!("gone: \"{LOST}\"")), "{out}");
    assert!(out.contains("gone: /srv/shop/importer.toml"), "{out}");
    assert!(out.contains("1,000 tokens re-billed"), "{out}");
    assert!(out.contains("recall would have kept "), "{out}");
    assert!(out.contains("1 session without compactions"), "{out}");
    for line in out.lines() {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
    }
    assert_eq!(run(home.path(), &["doctor", "--yes"]).out, *out, "a second run says the same");
}

#[test]
fn the_printed_id_works_in_other_commands() {
    let home = home();
    let report: Value =
        serde_json::from_str(&run(home.path(), &["doctor", "--yes", "--json"]).out).unwrap();
    let compacted = report["compacted"].as_array().unwrap();
    assert_eq!(compacted.len(), 6);
    for session in compacted {
        let id = session["name"].as_str().unwrap();
        let diff = run(home.path(), &["diff", id]);
        assert_eq!(diff.code, Some(0), "{id}: {}", diff.err);
        assert!(diff.out.contains(LOST), "{id}: {}", diff.out);
        let bisect = run(home.path(), &["bisect", id, "reader /srv/shop/importer.toml"]);
        assert!(bisect.out.contains("lost by           @1"), "{id}: {}", bisect.out);
        let line = run(home.path(), &["statusline", id]);
        assert!(line.out.contains(" · 1 compaction"), "{id}: {}", line.out);
        for command in ["context", "replay"] {
            let ran = run(home.path(), &[command, id]);
            assert_eq!(ran.code, Some(0), "{command} {id}: {}", ran.err);
        }
    }
    let unknown = run(home.path(), &["diff", "deadbeef"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("ctxhost doctor"), "{}", unknown.err);
}

#[test]
fn sessions_of_a_database_are_found_once_and_their_ids_work() {
    let home = home();
    let folder = home.path().join(".local/share/opencode");
    let _open = opencode_database(&folder.join("opencode.db"));
    let names = || {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let before = names();
    let ran = run(home.path(), &["doctor", "--yes", "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let of_opencode = |session: &&Value| session["agent"] == "opencode";
    let compacted = report["compacted"].as_array().unwrap().iter();
    let mut ids: Vec<&str> =
        compacted.filter(of_opencode).map(|session| session["name"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["e12345678", "n12345678"]);
    for id in ids {
        let diff = run(home.path(), &["diff", id]);
        assert_eq!(diff.code, Some(0), "{id}: {}", diff.err);
        assert!(diff.out.contains(LOST), "{id}: {}", diff.out);
        for arguments in [&["undo", id][..], &["compact", id], &["restore", id, "--turn", "1"]] {
            let refused = run(home.path(), arguments);
            assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.err);
            assert!(
                refused.err.contains("recording of opencode"),
                "{arguments:?}: {}",
                refused.err
            );
        }
    }
    for path in [folder.clone(), folder.join("opencode.db")] {
        let ran = run(home.path(), &["doctor", "--path", path.to_str().unwrap()]);
        assert!(ran.out.contains("ses_base12345678"), "{}", ran.out);
        assert!(ran.out.contains("\n1. /"), "{}", ran.out);
    }
    assert_eq!(names(), before);
    let whole = run(home.path(), &["replay", folder.join("opencode.db").to_str().unwrap()]);
    assert_eq!(whole.code, Some(2));
    assert!(whole.err.contains("a database of 2 sessions; the newest is "), "{}", whole.err);
}

#[test]
fn a_database_that_cannot_be_read_is_named_with_the_reason() {
    let home = home();
    write(&home.path().join(".local/share/opencode/opencode.db"), "no database");
    let ran = run(home.path(), &["doctor", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("opencode.db: file is not a database (`opencode export ID`"), "{words}");
}

#[test]
fn given_paths_are_read_alone_and_without_asking() {
    let home = home();
    let codex = home.path().join(".codex");
    let codex = codex.to_str().unwrap();
    let ran = run(home.path(), &["doctor", "--path", codex]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.starts_with("1 session read, 1 compacted"), "{}", ran.out);
    let storage = home.path().join(".local/share/opencode");
    let ran = run(home.path(), &["doctor", "--path", storage.to_str().unwrap()]);
    assert!(ran.out.starts_with("1 session read, 1 compacted"), "{}", ran.out);
    let missing = run(home.path(), &["doctor", "--path", "nowhere", "--path", codex]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("cannot read nowhere"), "{}", missing.err);
    assert!(missing.out.starts_with("1 session read"), "{}", missing.out);
}

#[test]
fn sessions_of_the_current_folder_are_read_and_the_limit_says_what_is_left() {
    let home = home();
    write(&home.path().join("project/here.jsonl"), &pi());
    write(&home.path().join("project/notes.jsonl"), "{\"a\":1}\n");
    write(&home.path().join("project/torn.jsonl"), &codex()[..400]);
    let ran = run(home.path(), &["doctor"]);
    assert!(ran.out.contains("1. here.jsonl (pi-v3, /srv/shop, "), "{}", ran.out);
    assert!(ran.out.contains("ctxhost diff here.jsonl\n"), "{}", ran.out);
    let ran = run(home.path(), &["doctor", "--yes", "--limit", "2"]);
    assert!(ran.out.contains("older sessions (--limit "), "{}", ran.out);
}

#[test]
fn a_recording_that_cannot_be_changed_says_what_to_do() {
    let home = home();
    write(&home.path().join("project/claude.jsonl"), &claude_code());
    for arguments in [&["undo", "claude.jsonl"][..], &["sessions", "show", "claude.jsonl"]] {
        let ran = run(home.path(), arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}");
        let first =
            "error: claude.jsonl is a recording of claude-code; recordings are never written\n";
        assert!(ran.err.starts_with(first), "{}", ran.err);
        assert!(ran.err.contains("ctxhost export claude.jsonl --out session.jsonl"), "{}", ran.err);
    }
    assert_eq!(
        run(home.path(), &["export", "claude.jsonl", "--out", "session.jsonl"]).code,
        Some(0)
    );
    let undone = run(home.path(), &["undo", "session.jsonl"]);
    assert_eq!(undone.code, Some(0), "{}", undone.err);
    assert!(undone.out.contains("claude-code 9.9, auto"), "{}", undone.out);
}

#[test]
fn the_files_of_openclaw_are_not_changed_though_their_format_is_that_of_pi() {
    let home = home();
    let file = home.path().join(".openclaw/agents/main/sessions/claw0001.jsonl");
    let path = file.display().to_string();
    for arguments in [
        &["undo", "claw0001"][..],
        &["restore", "claw0001", "--turn", "1"],
        &["compact", "claw0001", "--engine", "legacy"],
        &["fsck", "--repair", path.as_str()],
    ] {
        let ran = run(home.path(), arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.err);
        let named = arguments.iter().find(|word| word.ends_with("claw0001") || **word == path);
        let named = named.unwrap();
        let first =
            format!("error: {named} is a recording of openclaw; recordings are never written\n");
        assert!(ran.err.contains(&first), "{}", ran.err);
        let export = format!("`ctxhost export {named} --out session.jsonl`");
        assert!(ran.err.contains(&export), "{}", ran.err);
    }
    let shown = run(home.path(), &["restore", "claw0001", "--turn", "1", "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert_eq!(fs::read_to_string(&file).unwrap(), pi());
    let forked = run(home.path(), &["branch", "claw0001"]);
    assert_eq!(forked.code, Some(0), "{}", forked.err);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "{}", forked.out);
}
