//! Engines and hosts of different versions of the engine API meet.
//!
//! A later version is made here by patching a copy of today's API, for three reasons. Only 1.0
//! exists, and the first 1.1 would be a late moment to learn that it does not load. A copy in git
//! would age; a patch is today's source and the few lines a minor adds, and fails when the place it
//! hangs at is gone. And a feature of the API itself could change neither the version nor a frozen
//! struct, and would be published. When a real 1.1 is out, libraries of both belong into the table;
//! the patches stay for what must be refused.

mod variants;
mod workspace;

use std::process::Command;

use variants::*;
use workspace::{library, program};

/// A host meets an engine, and this comes of it.
struct Row(&'static Variant, &'static Variant, Outcome);

enum Outcome {
    /// What the engine learns of the weather, and the host of the forecast.
    Runs(&'static str, &'static str),
    /// What the sentence of the refusal names.
    Refused(&'static str),
}
use Outcome::{Refused, Runs};

#[rustfmt::skip]
const ROWS: [Row; 12] = [
    //   host   engine
    Row(&V1_0, &V1_0,         Runs("unknown to API 1.0.0", "unknown")),
    // The host has no such service: the default that the engine brought along answers.
    Row(&V1_0, &V1_1,         Runs("77",                   "unknown")),
    Row(&V1_0, &V1_2,         Runs("77",                   "unknown")),
    // The engine has no such call: the default that the host brought along answers.
    Row(&V1_1, &V1_0,         Runs("unknown to API 1.1.0", "1001")),
    Row(&V1_1, &V1_1,         Runs("8",                    "2002")),
    Row(&V1_1, &V1_2,         Runs("8",                    "2002")),
    Row(&V1_0, &V2_0,         Refused("incompatible package versions")),
    Row(&V1_1, &V2_0,         Refused("incompatible package versions")),
    Row(&V1_0, &V1_1_FIELD,   Refused("incompatible type size")),
    Row(&V1_0, &V1_1_REMOVED, Refused("incompatible type size")),
    Row(&V1_1, &V1_1_FIELD,   Refused("incompatible type size")),
    Row(&V1_1, &V1_1_REMOVED, Refused("incompatible type size")),
];

#[test]
fn every_row_comes_out_as_it_says() {
    for Row(host, engine, _) in &ROWS {
        meet(host, &[engine]);
    }
}

#[test]
fn three_minors_share_one_process() {
    meet(&V1_0, &[&V1_0, &V1_1, &V1_2]);
    meet(&V1_0, &[&V1_2, &V1_1, &V1_0]);
    meet(&V1_1, &[&V1_1, &V1_0, &V1_2]);
    meet(&V1_1, &[&V1_2, &V1_1, &V1_0]);
}

#[test]
fn a_refused_engine_spoils_nothing() {
    meet(&V1_0, &[&V2_0, &V1_0, &V1_1_FIELD, &V1_1, &V1_1_REMOVED, &V1_2]);
    meet(&V1_1, &[&V2_0, &V1_1, &V1_1_FIELD, &V1_0, &V1_1_REMOVED, &V1_2]);
}

/// A person sees this when an old engine is loaded first and then swapped for a new build.
#[test]
fn an_older_engine_may_come_first() {
    meet(&V1_1, &[&V1_0, &V1_1, &V1_2]);
}

/// What the host fixture ends with when it has refused a library.
const REFUSED_CODE: i32 = 3;

/// Runs a host with some engines, one after the other in one process, against their rows.
fn meet(host: &Variant, engines: &[&Variant]) {
    let libraries = engines.iter().map(|engine| library(engine));
    let output = Command::new(program(host)).args(libraries).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let paragraphs: Vec<&str> = said.trim_end().split("\n\n").collect();
    assert_eq!(paragraphs.len(), engines.len(), "host {}: {said}", host.name);
    let mut code = 0;
    for (engine, paragraph) in engines.iter().zip(paragraphs) {
        match outcome(host, engine) {
            Runs(weather, forecast) => {
                let name = engine.name;
                let story = format!("id engine-{name}\nKeep(0..3), {weather}\nforecast {forecast}");
                assert_eq!(paragraph, story, "host {}: {said}", host.name);
            }
            Refused(reason) => {
                check_sentence(paragraph, reason);
                code = REFUSED_CODE;
            }
        }
    }
    // A process that died of a signal has no code.
    assert_eq!(output.status.code(), Some(code), "host {}: {said}", host.name);
}

fn outcome(host: &Variant, engine: &Variant) -> &'static Outcome {
    let row = ROWS.iter().find(|row| row.0.name == host.name && row.1.name == engine.name);
    &row.expect("the table has a row for the pair").2
}

/// The longest sentence that a refusal may take, in characters.
const SENTENCE_CHARS: usize = 400;

/// The report behind the sentence has up to 190 kB; a person must never see it.
fn check_sentence(paragraph: &str, reason: &str) {
    let sentence = paragraph.strip_prefix("refused: ").expect("a refusal");
    assert!(sentence.contains(reason), "{sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    assert!(sentence.chars().count() <= SENTENCE_CHARS, "{sentence}");
}
