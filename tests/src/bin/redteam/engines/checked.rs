//! What an engine reaches while `ctxhost check` runs it.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use super::{Hostile, QUESTIONS, attack, claims, library};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::{Ran, Stand};

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "checked: reach",
            "reads, writes, connects, forks and kills while `check` runs it",
            reach,
        ),
        attack("checked: ends", "ends, hangs or crashes while `check` runs it", ends),
    ]
}

/// Longer than any check of one group takes, also where its engine hangs.
const LIMIT: Duration = Duration::from_secs(40);

fn check(stand: &Stand, hostile: &Hostile, group: &str) -> Ran {
    stand.tried(1);
    fs::write(stand.path("work/ctxhost.toml"), hostile.config(stand)).expect("a config");
    let library = library().display().to_string();
    let arguments = ["--config", "ctxhost.toml", "--call-limit", "3s", "--only", group, "--json"];
    stand.ctxhost(&[&["check"], &arguments[..], &[&library]].concat(), LIMIT)
}

fn reach(stand: &Stand) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket that does not wait");
    let port = listener.local_addr().expect("an address").port();
    let before = stand.snapshot();
    // Each with a call that it comes to in the end.
    let attacks = [
        ("files", "chmod"),
        ("secrets", "vm-readv"),
        ("network", "listen"),
        ("processes", "kill"),
        ("rights", "perf"),
    ];
    for (name, last) in attacks {
        let ran =
            check(stand, &Hostile::new(name).with("confesses", 1).with("port", port), "contract");
        stand.must(ran.code == Some(1), Breach::Wrong, || {
            format!("{name}: `check` ends with {:?}: {:.200}", ran.code, ran.said())
        });
        let claims = claims(&ran.text());
        stand.tried(claims.len() as u64);
        stand.must(claims.iter().any(|claim| claim.name == last), Breach::Wrong, || {
            format!("{name}: the engine did not come to its end: {:.300}", ran.text())
        });
        let is_meant = |name: &str| name != "assemble" && !QUESTIONS.contains(&name);
        for claim in claims.iter().filter(|claim| claim.result >= 0 && is_meant(&claim.name)) {
            let what = format!("the engine can {}: {}", claim.name, claim.result);
            stand.broke(Breach::Escaped, what);
        }
    }
    stand.must(listener.accept().is_err(), Breach::Escaped, || "a connection has come".to_owned());
    stand.must_be_as(&before);
}

fn ends(stand: &Stand) {
    let ways = ["call-segv", "call-exit", "create-abort", "drop-loop", "call-close-all"];
    for way in ways.iter().take(stand.size(3, 99, 99) as usize) {
        let ran = check(stand, &Hostile::new(way), "isolation");
        stand.must(ran.code == Some(1), Breach::Wrong, || {
            format!("{way}: `check` ends with {:?}: {:.200}", ran.code, ran.said())
        });
        let is_reported = ran.text().contains("\"failures\": [\n        {");
        stand
            .must(is_reported, Breach::Wrong, || format!("{way}: no failure: {:.300}", ran.text()));
    }
}
