//! Identifiers that the next step needs verbatim.

use std::collections::BTreeSet;

use ctxhost_engine_api::Entry;
use ctxhost_retention::{names_and_symbols_in, texts_of};

/// Shorter matches are noise, longer ones data; in bytes.
const BYTES: std::ops::RangeInclusive<usize> = 5..=120;

/// The identifiers of a text: names that the engines' ledgers know, and symbols.
pub(crate) fn in_text(text: &str) -> BTreeSet<String> {
    names_and_symbols_in(text).into_iter().filter(|name| BYTES.contains(&name.len())).collect()
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
