//! Paths that are not regular files: pipes, devices, folders, links; folders that disappear, are full or read-only.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::{QUICK, attack, read_by_all};
use crate::bodies::Talk;
use crate::origin::{Act, Origin, decent};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "no session files",
            "pipes, devices, folders and loops of links instead of a session",
            places,
        ),
        attack("configs", "a config that is damaged, endless, a pipe or a folder", configs),
        attack(
            "state taken away",
            "the state folder is deleted under a running gateway",
            taken_away,
        ),
        attack(
            "state that is none",
            "a file, a link or a pipe where the state folder should be",
            no_state,
        ),
        attack("a full disk", "a state folder on a disk of 512 KiB", full),
        attack("planted links", "links in the place of the gateway's folders and files", planted),
    ]
}

/// A pipe that nobody writes to, and other things that are no files.
fn strange_places(stand: &Stand) -> Vec<(&'static str, String)> {
    let path = |name: &str| stand.path(&format!("work/{name}"));
    let _ = nix::unistd::mkfifo(&path("pipe.jsonl"), nix::sys::stat::Mode::S_IRWXU);
    let _ = std::os::unix::fs::symlink(path("one.jsonl"), path("two.jsonl"));
    let _ = std::os::unix::fs::symlink(path("two.jsonl"), path("one.jsonl"));
    let _ = std::os::unix::fs::symlink("/dev/zero", path("zero.jsonl"));
    let _ = fs::create_dir(path("folder.jsonl"));
    let _socket = std::os::unix::net::UnixListener::bind(path("socket.jsonl"));
    ["pipe", "one", "zero", "folder", "socket"]
        .map(|name| (name, path(&format!("{name}.jsonl")).display().to_string()))
        .into_iter()
        .chain([
            ("a device", "/dev/zero".to_owned()),
            ("full", "/dev/full".to_owned()),
            ("a terminal", "/dev/tty".to_owned()),
            ("nobody's memory", "/proc/self/mem".to_owned()),
        ])
        .collect()
}

fn places(stand: &Stand) {
    let places = strange_places(stand);
    let some = stand.size(5, 99, 99) as usize;
    for (what, name) in places.iter().take(some) {
        read_by_all(stand, name, what, Duration::from_secs(5), 300);
        stand.tried(1);
        // Commands that write.
        for command in [
            ["undo", name].as_slice(),
            &["compact", "--window", "8k", name],
            &["fsck", "--repair", name],
        ] {
            let ran = stand.ctxhost(command, Duration::from_secs(5));
            let is_error = ran.is_late || ran.code != Some(0) || command[0] == "fsck";
            stand.must(is_error, Breach::Wrong, || format!("{} of {what} ends well", command[0]));
        }
    }
}

fn configs(stand: &Stand) {
    let good = fs::read(ctxhost_tests::root().join("examples/ctxhost.toml")).expect("the example");
    let path = stand.path("work/ctxhost.toml");
    let mut random = stand.random();
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("zeros".into(), vec![0; 100_000]),
        (
            "deep tables".into(),
            format!("a = {}1{}\n", "[".repeat(100_000), "]".repeat(100_000)).into_bytes(),
        ),
        ("a deep key".into(), format!("{}a = 1\n", "a.".repeat(50_000)).into_bytes()),
        (
            "a long text".into(),
            format!("[agent]\nmodel = \"{}\"\n", "x".repeat(20 << 20)).into_bytes(),
        ),
        ("escapes".into(), b"[agent]\n\x1b[31mmodel = \"\x1b]0;owned\x07\"\n".to_vec()),
        ("escapes in a key".into(), "[agent]\n\"\\u001b[31mx\\u0007\" = 1\n".as_bytes().to_vec()),
    ];
    for _ in 0..stand.size(15, 200, 2_000) {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at),
                _ => {
                    bytes.remove(at);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        cases.push(("flipped".into(), bytes));
    }
    for (what, bytes) in cases {
        stand.tried(1);
        fs::write(&path, &bytes).expect("a config");
        let ran = stand.ctxhost(&["config", "check"], QUICK);
        stand.must(ran.peak_mib < 500, Breach::Unbounded, || {
            format!("{what}: {} MiB", ran.peak_mib)
        });
        let raw = ran.out.iter().chain(&ran.err).find(|byte| **byte == 0x1b || **byte == 7);
        stand.must(raw.is_none(), Breach::Escaped, || {
            format!("{what}: the config's bytes reach the terminal")
        });
    }
    for (what, name) in strange_places(stand).into_iter().take(stand.size(4, 99, 99) as usize) {
        stand.tried(1);
        let ran = stand.ctxhost(&["config", "check", "--config", &name], Duration::from_secs(5));
        stand.must(ran.is_late || ran.code != Some(0), Breach::Wrong, || {
            format!("a config that is {what} is taken")
        });
    }
}

fn upstream() -> Origin {
    Origin::start(|_| vec![Act::Send(decent("Noted."))])
}

/// What was answered is kept, or somebody is told that it is not.
fn is_kept_or_reported(stand: &Stand, talk: &Talk, is_told: bool, what: &str) {
    let reported = stand.reported_sessions();
    let lost: Vec<&String> = talk
        .acknowledged
        .iter()
        .filter(|words| !reported.iter().any(|session| session.contains(words.as_str())))
        .collect();
    stand.must(lost.is_empty() || is_told, Breach::Lost, || {
        format!(
            "{what}: {} messages were answered, are in no session, and nobody is told: {:?}",
            lost.len(),
            lost[0]
        )
    });
}

/// A gateway that makes a file again while its folder is emptied leaves it with something in it.
fn take_away(folder: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 20 => {}
            ended => return ended,
        }
    }
}

fn taken_away(stand: &Stand) {
    for (what, below) in [("the state folder", "state"), ("the sessions", "state/gateway/sessions")]
    {
        stand.tried(1);
        let origin = upstream();
        let gateway = stand.serve(&origin.url(), "");
        let mut talk = Talk::new(Some("steady"));
        talk.ask(&gateway.address, &format!("{what}: first."));
        talk.ask(&gateway.address, &format!("{what}: second."));
        let begun = Instant::now();
        while stand.kept_sessions().is_empty() && begun.elapsed() < QUICK {
            talk.ask(&gateway.address, "Once more, so that there is something to keep.");
            std::thread::sleep(Duration::from_millis(50));
        }
        let is_kept = !stand.kept_sessions().is_empty();
        stand.must(is_kept, Breach::Wrong, || format!("{what}: nothing was kept before"));
        let before = gateway.log_bytes();
        take_away(&stand.path(below)).expect("it goes away");
        // What was kept before is gone with the folder; what comes now has no excuse.
        talk.acknowledged.clear();
        for n in 0..3 {
            let answer = talk.ask(&gateway.address, &format!("{what}: behind it, {n}."));
            stand.must(answer.status != 0, Breach::Wrong, || format!("{what}: no answer"));
        }
        std::thread::sleep(Duration::from_millis(300));
        let is_told = gateway.log_bytes() > before;
        gateway.end();
        is_kept_or_reported(stand, &talk, is_told, what);
        origin.stop();
        fs::create_dir_all(stand.path("state")).expect("a new one");
    }
}

fn no_state(stand: &Stand) {
    let state = stand.path("state");
    for what in ["a file", "a pipe", "a loop of links", "a device"] {
        stand.tried(1);
        let _ = fs::remove_dir_all(&state);
        let _ = fs::remove_file(&state);
        let made = match what {
            "a file" => fs::write(&state, b"no folder"),
            "a pipe" => {
                nix::unistd::mkfifo(&state, nix::sys::stat::Mode::S_IRWXU).map_err(Into::into)
            }
            "a loop of links" => std::os::unix::fs::symlink("state", &state),
            _ => std::os::unix::fs::symlink("/dev/null", &state),
        };
        made.expect("something stands there");
        let origin = upstream();
        fs::write(stand.path("work/ctxhost.toml"), "gateway.drain_ms = 1000\n").expect("a config");
        let command =
            stand.command(&["serve", "--listen", "127.0.0.1:0", "--upstream", &origin.url()]);
        match stand.serve_by(command) {
            // Both are right: to say so and end, and to go on, saying so.
            Err(said) => stand.must(!said.is_empty(), Breach::Wrong, || {
                format!("{what}: it ends without a word")
            }),
            Ok(gateway) => {
                let mut talk = Talk::new(Some("steady"));
                talk.ask(&gateway.address, "First.");
                talk.ask(&gateway.address, "Second.");
                let is_told = gateway.says(&["warn", "error"], Duration::from_secs(1));
                stand.must(is_told || talk.acknowledged.is_empty(), Breach::Lost, || {
                    format!("{what} for a state folder: it serves, keeps nothing and says nothing")
                });
                gateway.end();
            }
        }
        origin.stop();
    }
    let _ = fs::remove_file(&state);
    fs::create_dir_all(&state).expect("a folder again");
}

/// A gateway whose state lies on a small disk of its own, which only it sees.
fn full(stand: &Stand) {
    let probe =
        Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let flags = match probe {
        Ok(output) if output.status.success() => "--mount",
        _ => {
            stand.skip("a full disk: a mount namespace cannot be made here");
            return;
        }
    };
    stand.tried(1);
    let origin = upstream();
    let state = stand.path("state").display().to_string();
    // The size is a file beside it, so that the kit sees what is on the disk through the process's own root.
    let script = format!(
        "mount -t tmpfs -o size=512k,mode=0700 none '{state}' && exec '{}' serve --listen 127.0.0.1:0 --upstream {}",
        stand.binary().display(),
        origin.url()
    );
    fs::write(stand.path("work/ctxhost.toml"), "gateway.drain_ms = 1000\n").expect("a config");
    let mut command = Command::new("unshare");
    command.args([flags, "sh", "-c", &script]);
    stand.surround(&mut command);
    let gateway = match stand.serve_by(command) {
        Ok(gateway) => gateway,
        Err(said) => return stand.skip(format!("a full disk: {said}")),
    };
    let mut talk = Talk::new(Some("steady"));
    for n in 0..stand.size(30, 60, 200) {
        let answer = talk.ask(
            &gateway.address,
            &format!("Words {n} on a disk that gets full. {}", "More words. ".repeat(2_000)),
        );
        stand.must(answer.status != 0, Breach::Wrong, || "no answer on a full disk".to_owned());
    }
    let is_told = gateway.says(&["space", "full", "os error 28"], Duration::from_secs(1));
    // The disk is seen through the process: it is gone with it.
    let kept = format!("/proc/{}/root{state}", gateway.pid());
    let copied = stand.path("kept");
    let _ = Command::new("cp").args(["-r", &kept]).arg(&copied).output();
    gateway.must_answer("on a full disk");
    gateway.end();
    let folder = copied.join("gateway/sessions");
    stand.must(folder.is_dir(), Breach::Wrong, || "nothing was kept at all".to_owned());
    let ran = stand.ctxhost(&["fsck", &folder.display().to_string()], QUICK);
    let text = ran.text() + &ran.said();
    stand
        .must(ran.code == Some(0), Breach::Lost, || format!("after a full disk fsck says: {text}"));
    let bytes = all_texts(&folder);
    let lost = talk.acknowledged.iter().filter(|words| !bytes.contains(&words[..30])).count();
    stand.must(lost == 0 || is_told, Breach::Lost, || {
        format!(
            "{lost} of {} messages are in no session, and nobody is told",
            talk.acknowledged.len()
        )
    });
    stand.must(lost > 0, Breach::Wrong, || {
        "the disk did not get full, so nothing was tried".to_owned()
    });
    origin.stop();
}

fn all_texts(path: &Path) -> String {
    let each = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| match entry.path() {
        path if path.is_dir() => all_texts(&path),
        path => String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned(),
    });
    each.collect()
}

/// Nothing is written through a link that somebody has put in the place of a file.
fn planted(stand: &Stand) {
    let before = stand.snapshot();
    let origin = upstream();
    let victims = stand.path("victims");
    for below in ["state/gateway/sessions", "state/gateway", "state"] {
        stand.tried(1);
        let gateway = stand.serve(&origin.url(), "");
        let mut talk = Talk::new(Some("steady"));
        talk.ask(&gateway.address, "First.");
        talk.ask(&gateway.address, "Second.");
        // Every file that there is becomes a link to a victim, and the gateway starts again.
        gateway.kill();
        for path in stand.kept_sessions() {
            for end in ["", ".crc", ".live", ".ids", ".lock", ".inbox", ".pending"] {
                let path = format!("{}{end}", path.display());
                let _ = fs::remove_file(&path);
                let _ = std::os::unix::fs::symlink(victims.join("private.txt"), &path);
            }
        }
        let gateway = stand.serve(&origin.url(), "");
        let mut again = talk.clone();
        again.ask(&gateway.address, "Behind the links.");
        again.ask(&gateway.address, "Still behind them.");
        gateway.end();
        let _ = fs::remove_dir_all(stand.path(below));
        fs::create_dir_all(stand.path("state")).expect("a new one");
    }
    stand.must_be_as(&before);
    origin.stop();
}
