//! Identifiers that the next step needs verbatim.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ctxhost_engine_api::Entry;
use ctxhost_retention::{names_in, texts_of};
use regex::Regex;

/// File names without a folder, and symbols: `parse_body`, `parseBody`, `Parser::new`.
const SYMBOL: &str = concat!(
    r"\b[A-Za-z0-9_-]+\.(?:rs|ts|tsx|js|jsx|mjs|py|go|c|h|cpp|java|rb|md|json|jsonl|toml|yaml|yml|sh|css|html|txt|lock|sql)\b",
    r"|\b[A-Za-z][a-z0-9]*(?:[A-Z][a-z0-9]+)+\b",
    r"|\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b",
);
/// Shorter matches are noise, longer ones data; in bytes.
const BYTES: std::ops::RangeInclusive<usize> = 5..=120;

// `ok()` instead of a panic; a test covers that the pattern compiles.
static SYMBOLS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SYMBOL).ok());

/// The identifiers of a text: names that the host's ledger knows, files and symbols.
pub(crate) fn in_text(text: &str) -> BTreeSet<String> {
    let symbols = SYMBOLS.iter().flat_map(|pattern| pattern.find_iter(text));
    let symbols = symbols.map(|found| found.as_str().to_owned());
    symbols.chain(names_in(text)).filter(|name| BYTES.contains(&name.len())).collect()
}

/// The identifiers of an entry, including its calls.
pub(crate) fn in_entry(entry: &Entry<'_>) -> BTreeSet<String> {
    texts_of(&ctxhost_engine_api::PlanItem::Kept(*entry))
        .iter()
        .flat_map(|text| in_text(text))
        .collect()
}

/// The identifiers in the arguments of an entry's calls.
pub(crate) fn in_calls(entry: &Entry<'_>) -> BTreeSet<String> {
    let calls = entry.tool_calls();
    let mut found = BTreeSet::new();
    for call in &calls {
        for_each_text(&call.arguments_value(), &mut |text| found.extend(in_text(text)));
    }
    found
}

fn for_each_text(value: &serde_json::Value, found: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::String(text) => found(text),
        serde_json::Value::Array(list) => list.iter().for_each(|value| for_each_text(value, found)),
        serde_json::Value::Object(fields) => {
            fields.values().for_each(|value| for_each_text(value, found));
        }
        _ => {}
    }
}

/// Whether a context contains an identifier. Hashes are compared ignoring case.
pub(crate) fn is_shown(name: &str, context: &str, upper_context: &str) -> bool {
    context.contains(name) || (is_hash(name) && upper_context.contains(name))
}

fn is_hash(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_paths_files_symbols_and_hashes() {
        let found =
            in_text("edit src/a.rs and main.rs, call parse_body or parseBody at deadbeefcafe");
        let expected = ["DEADBEEFCAFE", "main.rs", "parseBody", "parse_body", "src/a.rs"];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert!(is_shown("DEADBEEFCAFE", "at deadbeefcafe", "AT DEADBEEFCAFE"));
        assert!(!is_shown("parseBody", "parsebody", "PARSEBODY"));
    }
}
