//! Damaged sessions: their intact records can still be read.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{QUICK, TURNS, attack, read_by_all, words, written_session};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("flipped bytes", "single bytes of a session changed, the header among them", flips),
        attack("cut sessions", "sessions that end anywhere", cuts),
        attack(
            "damaged neighbours",
            "checksums, checkpoints and notes beside a session, damaged",
            neighbours,
        ),
        attack("huge lines", "a line that is longer than memory should be", huge),
        attack(
            "escapes in texts",
            "what was said steers the terminal of whoever reads it",
            escapes,
        ),
        attack(
            "strange lines",
            "lines that are JSON and no entries: loops of parents, doubled ids, huge numbers",
            strange,
        ),
    ]
}

/// Copies a session without its neighbours, or with them.
fn copy(from: &Path, to: &Path, with_neighbours: bool) {
    let _ = fs::remove_file(to);
    fs::copy(from, to).expect("a copy");
    for end in [".crc", ".live", ".ids"] {
        let beside = |path: &Path| format!("{}{end}", path.display());
        let _ = fs::remove_file(beside(to));
        if with_neighbours && Path::new(&beside(from)).exists() {
            fs::copy(beside(from), beside(to)).expect("a copy");
        }
    }
}

/// The person's words that a damaged copy must still tell: those whose line is as it was.
fn sound_words(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let is_whole = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    let lines: Vec<&str> = text.lines().filter(is_whole).collect();
    let is_there = |words: &String| lines.iter().any(|line| line.contains(words.as_str()));
    (0..TURNS).map(words).filter(is_there).collect()
}

/// Opens a damaged session as it is or, where nothing opens it, after a repair. Sound words must come out.
fn must_tell(stand: &Stand, session: &Path, what: &str) {
    stand.tried(1);
    let sound = sound_words(&fs::read(session).expect("the damaged session"));
    let name = session.display().to_string();
    stand.ctxhost(&["fsck", &name], QUICK);
    let mut ran = stand.ctxhost(&["export", &name], QUICK);
    if ran.code != Some(0) || sound.iter().any(|words| !ran.text().contains(words.as_str())) {
        stand.ctxhost(&["fsck", "--repair", &name], QUICK);
        ran = stand.ctxhost(&["export", &name], QUICK);
    }
    let reported = ran.text();
    let lost = sound.iter().filter(|words| !reported.contains(words.as_str())).count();
    stand.must(lost == 0, Breach::Lost, || {
        let said = ran.said();
        let said = said.lines().next().unwrap_or_default().to_owned();
        format!(
            "{what}: {lost} of {} sound requests cannot be read, repaired or not: {said}",
            sound.len()
        )
    });
}

fn flips(stand: &Stand) {
    let session = written_session(stand);
    let good = fs::read(&session).expect("a session");
    let header = good.iter().position(|byte| *byte == b'\n').expect("a line");
    let damaged = stand.path("work/damaged.jsonl");
    let mut random = stand.random();
    let mut places: Vec<usize> = vec![0, 2, header / 2, header.saturating_sub(1), header];
    let times = stand.size(8, 60, 600) as usize;
    places.extend((0..times).map(|_| random.usize(..good.len())));
    for (n, at) in places.into_iter().enumerate() {
        copy(&session, &damaged, n % 2 == 0);
        let mut bytes = good.clone();
        bytes[at] = if n % 3 == 0 { b'\n' } else { bytes[at] ^ (1 << random.u32(..7)) };
        fs::write(&damaged, &bytes).expect("a damaged session");
        let place = if at <= header { "of the header" } else { "behind the header" };
        // A byte within a JSON text leaves a line that still is JSON: the words in it are others then.
        must_tell(stand, &damaged, &format!("byte {at} {place}"));
    }
}

fn cuts(stand: &Stand) {
    let session = written_session(stand);
    let good = fs::read(&session).expect("a session");
    let damaged = stand.path("work/damaged.jsonl");
    let mut random = stand.random();
    let header = good.iter().position(|byte| *byte == b'\n').expect("a line");
    for n in 0..stand.size(6, 60, 600) {
        let end = random.usize(header + 1..good.len());
        copy(&session, &damaged, n % 2 == 0);
        fs::write(&damaged, &good[..end]).expect("a damaged session");
        must_tell(stand, &damaged, &format!("cut at {end}"));
    }
    for (what, bytes) in [
        ("zeros at the end", vec![0; 4_096]),
        ("half a line of another", b"{\"type\":\"mess".to_vec()),
    ] {
        copy(&session, &damaged, true);
        fs::write(&damaged, [good.as_slice(), &bytes].concat()).expect("a damaged session");
        must_tell(stand, &damaged, what);
    }
}

fn neighbours(stand: &Stand) {
    let session = written_session(stand);
    let good = fs::read(&session).expect("a session");
    let mut random = stand.random();
    let name = session.display().to_string();
    for end in ["crc", "live", "ids", "inbox", "pending", "lock"] {
        let path = stand.path(&format!("work/session.jsonl.{end}"));
        for round in 0..stand.size(2, 10, 100) {
            let was = fs::read(&path).unwrap_or_default();
            let mut bytes = was.clone();
            match round % 3 {
                0 => bytes = (0..200).map(|_| random.u8(..)).collect(),
                1 => bytes.truncate(bytes.len() / 2),
                _ => bytes.iter_mut().for_each(|byte| *byte ^= 1),
            }
            let _ = fs::write(&path, &bytes);
            must_tell(stand, &session, &format!("a damaged .{end}"));
            let is_same = fs::read(&session).is_ok_and(|now| now.starts_with(&good));
            stand.must(is_same, Breach::Lost, || format!("a damaged .{end} changes the session"));
            let _ = fs::remove_file(&path);
        }
    }
    let ran = stand.ctxhost(&["export", &name], QUICK);
    stand.must(ran.code == Some(0), Breach::Lost, || format!("without neighbours: {}", ran.said()));
}

fn huge(stand: &Stand) {
    let session = written_session(stand);
    let good = fs::read(&session).expect("a session");
    let mib = stand.size(64, 256, 1_024);
    let limit = Duration::from_secs(stand.size(20, 60, 120));
    let line = "{\"type\":\"message\",\"id\":\"abcdef01\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"message\":{\"role\":\"user\",\"content\":\"";
    for (what, begin, byte, end) in
        [("a text", line, b'x', "\"}}\n"), ("no JSON", "", b'[', ""), ("zeros", "", 0, "")]
    {
        let path = stand.path("work/huge.jsonl");
        let mut file = fs::File::create(&path).expect("a file");
        std::io::Write::write_all(&mut file, &good).expect("a session");
        std::io::Write::write_all(&mut file, begin.as_bytes()).expect("a line");
        let block = vec![byte; 1 << 20];
        for _ in 0..mib {
            match byte {
                // A hole of the file takes no disk.
                0 => {
                    std::io::Seek::seek(&mut file, std::io::SeekFrom::Current(1 << 20))
                        .expect("a hole");
                }
                _ => std::io::Write::write_all(&mut file, &block).expect("a block"),
            }
        }
        std::io::Write::write_all(&mut file, if byte == 0 { b"\n" } else { end.as_bytes() })
            .expect("an end");
        drop(file);
        let name = path.display().to_string();
        read_by_all(stand, &name, &format!("a line of {mib} MiB ({what})"), limit, 100 + mib * 6);
        fs::remove_file(&path).expect("it is cleared away");
    }
}

/// What a terminal obeys: colours, titles, the clipboard, a cleared screen, a line that hides itself.
const STEERING: &str =
    "\u{1b}[31mred\u{1b}]0;title\u{7}\u{1b}]52;c;b3duZWQ=\u{7}\u{1b}[2J\r\u{8}\u{9b}31mC1\u{7f}";

/// Pieces of it, each of which no screen may get.
const OBEYED: [&str; 6] =
    ["\u{1b}[31mred", "\u{1b}]0;title", "\u{1b}]52;c;", "\u{1b}[2J", "\u{9b}31m", "C1\u{7f}"];

fn escapes(stand: &Stand) {
    let mut lines = vec![
        serde_json::json!({ "type": "session", "version": 3, "id": "11111111-1111-4111-8111-111111111111",
        "timestamp": "2026-01-01T00:00:00.000Z", "cwd": format!("/tmp/{STEERING}") }),
    ];
    let mut parent = serde_json::Value::Null;
    for n in 0..6 {
        let id = format!("0000000{n}");
        let text = serde_json::json!([{ "type": "text", "text": format!("{STEERING} {n} {}", "word ".repeat(3_000)) }]);
        let message = match n % 2 {
            0 => serde_json::json!({ "role": "user", "content": text, "timestamp": 1 }),
            _ => {
                serde_json::json!({ "role": "assistant", "content": text, "model": STEERING, "provider": STEERING,
                "api": "openai-completions", "stopReason": "stop", "timestamp": 1 })
            }
        };
        lines.push(serde_json::json!({ "type": "message", "id": id, "parentId": parent,
            "timestamp": "2026-01-01T00:00:00.000Z", "message": message }));
        parent = id.into();
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = stand.path("work/steering.jsonl");
    fs::write(&path, text).expect("a session");
    let name = path.display().to_string();
    // `export` as JSON is not among them: that is data, and goes to no screen.
    let commands: [&[&str]; 10] = [
        &["context", &name],
        &["replay", "--window", "8k", &name],
        &["replay", "--markdown", "--window", "8k", &name],
        &["export", "--format", "markdown", &name],
        &["sessions", "show", &name],
        &["compact", "--window", "8k", &name],
        &["diff", &name],
        &["bisect", &name, "title"],
        &["fsck", &name],
        &["statusline", "--session", &name],
    ];
    for command in commands {
        stand.tried(1);
        let ran = stand.ctxhost(command, Duration::from_secs(30));
        let name = command.iter().take(3).filter(|word| !word.starts_with('/'));
        let name = name.copied().collect::<Vec<_>>().join(" ");
        for (stream, bytes) in [("prints", &ran.out), ("says", &ran.err)] {
            let text = String::from_utf8_lossy(bytes);
            let found = OBEYED.iter().find(|piece| text.contains(**piece));
            stand.must(found.is_none(), Breach::Escaped, || {
                format!("`{name}` {stream} {found:?} of a text as it is")
            });
        }
    }
}

fn strange(stand: &Stand) {
    let header = "{\"type\":\"session\",\"version\":3,\"id\":\"x\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n";
    let entry = |id: &str, parent: &str, more: &str| {
        format!(
            "{{\"type\":\"message\",\"id\":{id},\"parentId\":{parent},\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"message\":{{\"role\":\"user\",\"content\":\"x\"}}{more}}}\n"
        )
    };
    let own = entry("\"a\"", "\"a\"", "");
    let circle = entry("\"a\"", "\"b\"", "") + &entry("\"b\"", "\"a\"", "");
    let doubled = entry("\"a\"", "null", "").repeat(3);
    let deep = format!("{}1{}\n", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    let long: String =
        (0..20_000).map(|n| entry(&format!("\"e{n}\""), &format!("\"e{}\"", n + 1), "")).collect();
    let compaction = "{\"type\":\"compaction\",\"id\":\"c\",\"parentId\":\"a\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"summary\":\"s\",\"firstKeptEntryId\":\"nobody\",\"tokensBefore\":-1e308}\n";
    let compacted = entry("\"a\"", "null", "") + compaction;
    let versions =
        "{\"type\":\"session\",\"version\":99999999999999999999,\"id\":\"x\"}\n".to_owned();
    for (what, text) in [
        ("its own parent", format!("{header}{own}")),
        ("parents in a circle", format!("{header}{circle}")),
        ("doubled ids", format!("{header}{doubled}")),
        ("parents that come later", format!("{header}{long}")),
        (
            "ids that are none",
            format!("{header}{}{}", entry("7", "null", ""), entry("null", "[]", "")),
        ),
        ("deep JSON", format!("{header}{deep}")),
        ("a compaction of nothing", format!("{header}{compacted}")),
        ("two headers", format!("{header}{header}{own}")),
        ("a version beyond all", versions),
        ("no lines", "\n\n\n\n".to_owned()),
        ("UTF-16", "\u{feff}{\u{0}\"\u{0}".to_owned()),
    ] {
        let path = stand.path("work/strange.jsonl");
        fs::write(&path, text).expect("a file");
        read_by_all(stand, &path.display().to_string(), what, QUICK, 300);
    }
}
