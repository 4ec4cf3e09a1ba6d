//! Lock files of strangers: their paths lead out of the folder.

use std::fs;

use sha2::{Digest as _, Sha256};

use super::{QUICK, attack};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![attack(
        "a stranger's lock",
        "ctxhost.lock with ids, digests, files and sources that lead elsewhere",
        lock,
    )]
}

/// The bytes that the locks name; no code of them runs.
const BYTES: &[u8] = b"not an engine";

/// A lock with one engine; `NAME` lines replace the decent ones.
fn lock_text(field: &str, value: &str) -> String {
    let digest = Sha256::digest(BYTES).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let decent = [
        ("id", "mine".to_owned()),
        ("version", "0.1.0".to_owned()),
        ("file", ".ctxhost/engines/mine.so".to_owned()),
        ("source", "mine.so".to_owned()),
        ("sha256", digest),
        ("installed_at", "2026-11-21T17:00:00Z".to_owned()),
    ];
    let lines = decent.iter().map(|(name, usual)| {
        let value = if *name == field { value } else { usual.as_str() };
        format!("{name} = {value:?}\n")
    });
    let size = BYTES.len();
    format!("version = 1\n\n[[engine]]\n{}size = {size}\n", lines.collect::<String>())
}

fn lock(stand: &Stand) {
    let victims = stand.path("victims").display().to_string();
    let absolute = format!("{victims}/made.so");
    fs::write(stand.path("work/mine.so"), BYTES).expect("a source");
    fs::write(stand.path("victims/source.so"), BYTES).expect("a source outside");
    let before = stand.snapshot();
    let cases = [
        ("id", "../../victims/made"),
        ("id", "mine/../../../victims/made"),
        ("sha256", "../../../victims/made"),
        ("file", "../victims/made.so"),
        ("file", ".ctxhost/engines/../../../victims/made.so"),
        ("file", absolute.as_str()),
        ("file", "../victims/private.txt"),
        ("source", "../victims/source.so"),
        ("source", "/etc/passwd"),
        ("source", "link/source.so"),
        ("source", "/dev/zero"),
    ];
    let _ = std::os::unix::fs::symlink(&victims, stand.path("work/link"));
    for (field, value) in cases {
        stand.tried(1);
        let case = format!("{field} = {value}");
        let _ = fs::remove_dir_all(stand.path("work/.ctxhost"));
        fs::write(stand.path("work/ctxhost.toml"), "").expect("a config");
        fs::write(stand.path("work/ctxhost.lock"), lock_text(field, value)).expect("a lock");
        let ran = stand.ctxhost(&["sync"], QUICK);
        stand.must(ran.is_late || ran.code.is_some_and(|code| code != 0), Breach::Wrong, || {
            format!("{case}: `sync` ends with {:?}: {:.200}", ran.code, ran.text())
        });
        stand.must(ran.is_late || !ran.err.is_empty(), Breach::Wrong, || {
            format!("{case}: `sync` fails without a word")
        });
        for command in [&["engines", "list"][..], &["uninstall", "mine"]] {
            stand.ctxhost(command, QUICK);
        }
    }
    stand.must_be_as(&before);
}
