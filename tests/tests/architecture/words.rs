//! Names and words in code and documents.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ctxhost_tests::root;
use regex::Regex;

use super::sources;

/// Words that describe where the field has a term.
const ODD_WORDS: &str = r"(?ix)\b(
    told | heard | nobody | somebody | whoever | whose\ word | goes\ on | went\ on | stands\ in | mouth | errands? | crew |
    journey | desk | house | guests? | lawful | last\ rung | nursery | parrot
)\b";

/// Lines where such a word has its plain sense: the file, and what the line contains.
const PLAIN_SENSE: &[(&str, &str)] = &[
    // The name of a decision is its address.
    ("docs/gateway/conversations.md", "decisions/"),
    ("CHANGELOG.md", "`Passage`, `Guest`"),
    // What a model reads, and what users say to an agent.
    ("engines/kit/src/prompt.rs", ""),
    ("engines/kit/src/notes.rs", "rename"),
    ("engines/legacy/src/compaction/fallbacks.rs", "[Partial summary"),
    ("engines/kit/src/history_fold.rs", "told in the summary"),
    ("host/quality/src/rules_generator.rs", ""),
    // The user id and the group of that name.
    ("host/gateway/src/tls.rs", "nobody"),
];

/// Participles that do not end in `ed` or `ing`.
const IRREGULAR_PARTICIPLES: &[&str] = &[
    "Told", "Said", "Heard", "Sent", "Kept", "Known", "Shown", "Written", "Taken", "Begun", "Torn",
    "Cut", "Found", "Come", "Came", "Gone", "Read", "Spoken", "Given", "Left", "Lost", "Stood",
    "Fallen",
];

/// Sources of what is shipped.
fn product() -> Vec<(PathBuf, String)> {
    ["engine-api/src", "text/src", "engines", "host"]
        .into_iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .collect()
}

/// The documents of the repository, except the log of changes and what other programs' tests compare.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                let skipped = name.starts_with('.')
                    || name == "target"
                    || name.ends_with(".in")
                    || name.ends_with(".out");
                if !skipped {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

/// The types that a source defines at its outermost level, each with whether other crates can name it.
fn types(text: &str) -> Vec<(&str, bool)> {
    static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?m)^(pub(?:\([a-z: ]+\))? )?(?:unsafe )?(?:struct|enum|trait|union|type) ([A-Z]\w*)",
        )
        .unwrap()
    });
    let found = DEFINITION.captures_iter(text);
    found
        .map(|found| {
            let visible = found.get(1).is_some_and(|visible| visible.as_str() == "pub ");
            (found.get(2).unwrap().as_str(), visible)
        })
        .collect()
}

/// Whether a name is one word and says what happened to a thing instead of what it is.
fn is_participle(name: &str) -> bool {
    let one_word = name.chars().filter(char::is_ascii_uppercase).count() == 1;
    let ending = name.ends_with("ing") && !["String", "Setting"].contains(&name)
        || name.ends_with("ed") && !name.ends_with("eed");
    one_word && (ending || IRREGULAR_PARTICIPLES.contains(&name))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in product() {
        for (name, visible) in types(&text) {
            if visible {
                owners.entry(name.to_owned()).or_default().push(shown(&path));
            }
        }
    }
    owners.retain(|_, places| places.len() > 1);
    assert!(owners.is_empty(), "types that share a name: {owners:#?}");
}

#[test]
fn types_are_nouns() {
    let mut found = Vec::new();
    for (path, text) in product() {
        let participles = types(&text).into_iter().filter(|(name, _)| is_participle(name));
        found.extend(participles.map(|(name, _)| format!("{}: {name}", shown(&path))));
    }
    assert!(found.is_empty(), "types named by participles: {found:#?}");
    assert!(is_participle("Told") && is_participle("Waiting") && !is_participle("String"));
}

#[test]
fn words_are_those_of_the_field() {
    let odd = Regex::new(ODD_WORDS).unwrap();
    let mut found = Vec::new();
    for (path, text) in product().into_iter().chain(documents()) {
        let path = shown(&path);
        for (number, line) in text.lines().enumerate() {
            let plain = PLAIN_SENSE.iter().any(|(file, part)| path == *file && line.contains(part));
            if let Some(word) = odd.find(line).filter(|_| !plain) {
                found.push(format!("{path}:{}: {}", number + 1, word.as_str()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} lines use words that are not the field's: {found:#?}",
        found.len()
    );
}

#[test]
fn references_lead_into_the_repository() {
    let link = Regex::new(r"\]\(([^)#\s]+)(?:#[^)]*)?\)").unwrap();
    let elsewhere = Regex::new(r"\bDESIGN\b|\(facts?:|/facts/").unwrap();
    let mut found = Vec::new();
    for (path, text) in product() {
        found
            .extend(elsewhere.find(&text).map(|hit| format!("{}: {}", shown(&path), hit.as_str())));
    }
    for (path, text) in documents() {
        found
            .extend(elsewhere.find(&text).map(|hit| format!("{}: {}", shown(&path), hit.as_str())));
        let mut in_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            let links = link.captures_iter(line).filter(|_| !in_code);
            for target in links.map(|found| found.get(1).unwrap().as_str()) {
                let here = path.parent().unwrap().join(target);
                if !target.contains("://") && !target.starts_with("mailto:") && !here.exists() {
                    found.push(format!("{}: {target}", shown(&path)));
                }
            }
        }
    }
    assert!(found.is_empty(), "references to what the repository does not hold: {found:#?}");
}
