//! Checks chains and shadow lists: number of engines, duplicates, and paths in place of ids.

use super::error::ConfigDiagnostic;
use super::spans::{KeySpan, TomlValueKind};
use super::{ConfigSource, spans};
use ctxhost_engine::{ChainSpecError, is_library_path, parse_chain, split_ids, validate_chain};

/// Most shadow engines: each one processes every request again.
const MAX_SHADOWS: usize = 4;

/// Checks every list of engines; each error has its own position.
pub(super) fn check_slots(origin: &ConfigSource, found: &mut Vec<ConfigDiagnostic>) {
    let row = texts_in(origin, "context_engine");
    let names: Vec<&str> = row.iter().map(|(_, name)| *name).collect();
    if let Err(error) = validate_chain(&names) {
        found.push(chain_error(origin, offending_item(&row, &error), &error));
    }
    // The slot may be one text with `+` as well as a list.
    for (span, name) in origin.spans.iter().filter_map(slot_text) {
        if let Err(error) = parse_chain(name) {
            found.push(chain_error(origin, Some(span), &error));
        }
    }
    let shadows = texts_in(origin, "shadow");
    let slot = origin.spans.iter().filter_map(slot_text);
    for (span, text) in slot.chain(row).chain(shadows.iter().copied()) {
        // A pin belongs to an id, so a library named by its path would be loaded without one.
        for name in split_ids(text).into_iter().filter(|name| is_library_path(name)) {
            let help = format!("run `ctxhost install {name}`, and write the id that it prints");
            let message = format!("{name:?} is a path; the slot needs an id");
            found.push(diagnostic(origin, Some(span), &message, &help));
        }
    }
    if let Some((span, _)) = shadows.get(MAX_SHADOWS) {
        let message = format!("at most {MAX_SHADOWS} shadow engines are allowed");
        let help = "each one processes every request again";
        found.push(diagnostic(origin, Some(span), &message, help));
    }
    for (at, (span, name)) in shadows.iter().enumerate() {
        if shadows.iter().take(at).any(|(_, earlier)| earlier == name) {
            let message = format!("shadow {name:?} is listed twice");
            found.push(diagnostic(origin, Some(span), &message, "list it once"));
            continue;
        }
        let row = if name.is_empty() {
            Err("a shadow name is blank".to_owned())
        } else {
            parse_chain(name).map_err(|error| format!("shadow {name:?}: a chain {error}"))
        };
        if let Err(message) = row {
            let help = "write a chain as `mask+legacy`";
            found.push(diagnostic(origin, Some(span), &message, help));
        }
    }
}

/// The slot's value, if it is text.
fn slot_text(span: &KeySpan) -> Option<(&KeySpan, &str)> {
    match (span.path.as_slice(), &span.value) {
        ([plugins, slots, slot], TomlValueKind::Text(text)) => {
            let is_here = plugins == "plugins" && slots == "slots" && slot == "context_engine";
            is_here.then_some((span, text.trim()))
        }
        _ => None,
    }
}

/// The texts of a list in `[plugins.slots]`, with their positions.
fn texts_in<'o>(origin: &'o ConfigSource, list: &str) -> Vec<(&'o KeySpan, &'o str)> {
    let text = |span: &'o KeySpan| match (span.path.as_slice(), &span.value) {
        ([plugins, slots, slot, _], TomlValueKind::Text(text)) => {
            let is_here = plugins == "plugins" && slots == "slots" && slot == list;
            is_here.then_some((span, text.trim()))
        }
        _ => None,
    };
    origin.spans.iter().filter_map(text).collect()
}

/// The item that breaks the rule.
fn offending_item<'o>(row: &[(&'o KeySpan, &str)], error: &ChainSpecError) -> Option<&'o KeySpan> {
    let at = match error {
        ChainSpecError::TooMany { .. } => row.len().checked_sub(1),
        ChainSpecError::EmptyName => None,
        // The second occurrence is the one to remove.
        ChainSpecError::Duplicate { id } => row.iter().rposition(|(_, name)| name == id),
    };
    at.and_then(|at| row.get(at)).map(|(span, _)| *span)
}

fn chain_error(
    origin: &ConfigSource,
    span: Option<&KeySpan>,
    error: &ChainSpecError,
) -> ConfigDiagnostic {
    let help = "list the engines in the order in which they process a request";
    diagnostic(origin, span, &format!("a chain {error}"), help)
}

fn diagnostic(
    origin: &ConfigSource,
    span: Option<&KeySpan>,
    message: &str,
    help: &str,
) -> ConfigDiagnostic {
    let list = span.map(|span| span.path.get(..3).unwrap_or_default());
    let key = spans::join_path(list.unwrap_or_default());
    let diagnostic = ConfigDiagnostic::new(&origin.name, &origin.text, format!("{key}: {message}"));
    let diagnostic = diagnostic.with_help(help);
    match span {
        Some(span) => diagnostic.with_label(span.value_span.clone(), "here"),
        None => diagnostic,
    }
}
