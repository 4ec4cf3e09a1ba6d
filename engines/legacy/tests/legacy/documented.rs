//! Checks `cases.md` against the code: every case once, every named test exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ctxhost_engine_legacy::settings::Settings;

/// Number of recorded cases.
const CASES: u32 = 107;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn document() -> String {
    fs::read_to_string(Path::new(CRATE).join("tests/cases.md")).unwrap()
}

/// The rows of the table under a heading, as cells.
fn rows<'b>(document: &'b str, heading: &str) -> Vec<Vec<&'b str>> {
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let lines = section.lines().filter(|line| line.starts_with('|') && !line.starts_with("|--"));
    lines.skip(1).map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Names that look like tests: three words at least.
fn test_names(document: &str) -> BTreeSet<&str> {
    let is_name = |name: &&str| {
        name.matches('_').count() >= 2
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
    };
    quoted(document).filter(is_name).collect()
}

#[test]
fn every_case_is_listed_once() {
    let document = document();
    let mut cases: Vec<u32> = Vec::new();
    for row in rows(&document, "Cases") {
        for part in row[0].split(", ") {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            cases.extend(first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap());
        }
    }
    cases.sort_unstable();
    assert_eq!(cases, (1..=CASES).collect::<Vec<_>>());
}

#[test]
fn every_listed_test_exists() {
    let mut code = String::new();
    for folder in ["../../text", "../kit", "."] {
        sources(&Path::new(CRATE).join(folder), &mut code);
    }
    let document = document();
    let settings = serde_json::to_string(&Settings::default()).unwrap();
    let names = test_names(&document);
    let unknown: Vec<_> = names
        .iter()
        .filter(|name| !code.contains(&format!("fn {name}(")) && !settings.contains(**name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(names.len() > 40, "{}", names.len());
}
