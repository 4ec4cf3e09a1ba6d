//! Engines and hosts of different versions of the engine API meet.
//!
//! Other versions are made here by patching a copy of today's API: the one before by taking away what
//! the newest minor brought, later ones by adding what a minor adds. A copy in git would age; a patch
//! is today's source and a few lines, and fails when the place it hangs at is gone. And a feature of
//! the API itself could change neither the version nor a frozen struct, and would be published.
//! Libraries as they were released are in `tests/golden`.

mod variants;
mod workspace;

use std::process::Command;

use variants::*;
use workspace::{library, program};

/// A host meets an engine, and this comes of it.
struct Row(&'static Variant, &'static Variant, Outcome);

enum Outcome {
    /// What the engine learns of the weather and of vectors, and the host of the forecast.
    Runs(&'static str, &'static str, &'static str),
    /// What the sentence of the refusal names.
    Refused(&'static str),
}
use Outcome::{Refused, Runs};

/// What an engine gets of a host that embeds.
const VECTOR: &str = "bare Some([1.0, 0.5])";

#[rustfmt::skip]
const ROWS: [Row; 19] = [
    //   host   engine
    Row(&V1_0, &V1_0,         Runs("unknown to API 1.0.0", "unknown",      "unknown")),
    // The host has no such service: the default that the engine brought along answers.
    Row(&V1_0, &V1_1,         Runs("unknown to API 1.0.0", "ModelMissing", "unknown")),
    Row(&V1_0, &V1_2,         Runs("77",                   "ModelMissing", "unknown")),
    Row(&V1_1, &V1_0,         Runs("unknown to API 1.1.0", "unknown",      "unknown")),
    Row(&V1_1, &V1_1,         Runs("unknown to API 1.1.0", VECTOR,         "unknown")),
    Row(&V1_1, &V1_2,         Runs("77",                   VECTOR,         "unknown")),
    Row(&V1_1, &V1_3,         Runs("77",                   VECTOR,         "unknown")),
    // The engine has no such call: the default that the host brought along answers.
    Row(&V1_2, &V1_0,         Runs("unknown to API 1.2.0", "unknown",      "1001")),
    Row(&V1_2, &V1_1,         Runs("unknown to API 1.2.0", VECTOR,         "1001")),
    Row(&V1_2, &V1_2,         Runs("8",                    VECTOR,         "2002")),
    Row(&V1_2, &V1_3,         Runs("8",                    VECTOR,         "2002")),
    Row(&V1_0, &V2_0,         Refused("incompatible package versions")),
    Row(&V1_1, &V2_0,         Refused("incompatible package versions")),
    Row(&V1_2, &V2_0,         Refused("incompatible package versions")),
    Row(&V1_0, &V1_2_FIELD,   Refused("incompatible type size")),
    Row(&V1_1, &V1_2_FIELD,   Refused("incompatible type size")),
    Row(&V1_1, &V1_2_REMOVED, Refused("incompatible type size")),
    Row(&V1_2, &V1_2_FIELD,   Refused("incompatible type size")),
    Row(&V1_2, &V1_2_REMOVED, Refused("incompatible type size")),
];

#[test]
fn every_row_comes_out_as_it_says() {
    for Row(host, engine, _) in &ROWS {
        meet(host, &[engine]);
    }
}

#[test]
fn minors_share_one_process_in_any_order() {
    for host in [&V1_0, &V1_1, &V1_2] {
        meet(host, &[&V1_0, &V1_1, &V1_2]);
        meet(host, &[&V1_2, &V1_1, &V1_0]);
        meet(host, &[&V1_1, &V1_0, &V1_2]);
    }
    meet(&V1_2, &[&V1_1, &V1_3, &V1_0, &V1_2]);
}

#[test]
fn a_refused_engine_spoils_nothing() {
    meet(&V1_1, &[&V2_0, &V1_0, &V1_2_FIELD, &V1_1, &V1_2_REMOVED, &V1_2]);
    meet(&V1_2, &[&V2_0, &V1_2, &V1_2_FIELD, &V1_0, &V1_2_REMOVED, &V1_3, &V1_1]);
}

/// What the golden engine of 1.0.0 answers to the host fixture.
const GOLDEN: &str = "id keep-ends\n";

/// A library as it was released, and one of today: a person swaps one for the other, in both orders.
#[test]
fn a_released_library_and_one_of_today_share_a_process() {
    let golden = ctxhost_tests::root().join("tests/golden/1.0.0/libkeep_ends.so");
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return;
    }
    for golden_at in [0, 1] {
        let mut libraries = vec![library(&V1_1)];
        libraries.insert(golden_at, golden.clone());
        let output = Command::new(program(&V1_1)).args(libraries).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let mut paragraphs: Vec<&str> = said.trim_end().split("\n\n").collect();
        assert!(paragraphs.remove(golden_at).starts_with(GOLDEN), "{said}");
        assert_eq!(paragraphs, [story(&V1_1, "unknown to API 1.1.0", VECTOR, "unknown")]);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
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
            Runs(weather, vector, forecast) => {
                let story = story(engine, weather, vector, forecast);
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

/// What the host fixture prints of an engine that it loaded.
fn story(engine: &Variant, weather: &str, vector: &str, forecast: &str) -> String {
    let name = engine.name;
    format!("id engine-{name}\nKeep(0..3), {weather}, embed {vector}\nforecast {forecast}")
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
