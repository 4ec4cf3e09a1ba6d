//! The rules for engines in a row and in the shadow: how many, and each of them once.

use super::error::{ConfigDiagnostic, ConfigError};
use super::spans::{KeySpan, TomlValueKind};
use super::{ConfigSource, spans};
use ctxhost_engine::{ChainSpecError, parse_chain, validate_chain};

/// Engines that run beside the slot's own, at most: each of them reads every request again.
const MAX_SHADOWS: usize = 4;

/// Checks every list of engines, each mistake at its own place.
pub(super) fn check_slots(origin: &ConfigSource) -> Result<(), ConfigError> {
    let row = texts_in(origin, "context_engine");
    let names: Vec<&str> = row.iter().map(|(_, name)| *name).collect();
    if let Err(error) = validate_chain(&names) {
        return Err(chain_error(origin, offending_item(&row, &error), &error));
    }
    for (place, name) in origin.places.iter().filter_map(slot_text) {
        if let Err(error) = parse_chain(name) {
            return Err(chain_error(origin, Some(place), &error));
        }
    }
    let shadows = texts_in(origin, "shadow");
    if let Some((place, _)) = shadows.get(MAX_SHADOWS) {
        let message = format!("at most {MAX_SHADOWS} engines run in the shadow of the slot's own");
        return Err(mistake(
            origin,
            Some(place),
            &message,
            "each of them reads every request again",
        ));
    }
    for (at, (place, name)) in shadows.iter().enumerate() {
        if shadows.iter().take(at).any(|(_, earlier)| earlier == name) {
            let message = format!("the shadow {name:?} is named twice");
            return Err(mistake(origin, Some(place), &message, "name it once"));
        }
        let row = match name.is_empty() {
            true => Err("a blank shadow names no engine".to_owned()),
            false => parse_chain(name)
                .map_err(|error| format!("the shadow {name:?}: a row of engines {error}")),
        };
        if let Err(message) = row {
            let help = "several in a row are written as `mask+legacy`";
            return Err(mistake(origin, Some(place), &message, help));
        }
    }
    Ok(())
}

/// What stands in the slot, where that is one text.
fn slot_text(place: &KeySpan) -> Option<(&KeySpan, &str)> {
    match (place.path.as_slice(), &place.value) {
        ([plugins, slots, slot], TomlValueKind::Text(text)) => {
            let is_here = plugins == "plugins" && slots == "slots" && slot == "context_engine";
            is_here.then_some((place, text.trim()))
        }
        _ => None,
    }
}

/// The texts in a list of `[plugins.slots]`, with their places.
fn texts_in<'o>(origin: &'o ConfigSource, list: &str) -> Vec<(&'o KeySpan, &'o str)> {
    let text = |place: &'o KeySpan| match (place.path.as_slice(), &place.value) {
        ([plugins, slots, slot, _], TomlValueKind::Text(text)) => {
            let is_here = plugins == "plugins" && slots == "slots" && slot == list;
            is_here.then_some((place, text.trim()))
        }
        _ => None,
    };
    origin.places.iter().filter_map(text).collect()
}

/// The item that is one too many.
fn offending_item<'o>(row: &[(&'o KeySpan, &str)], error: &ChainSpecError) -> Option<&'o KeySpan> {
    let at = match error {
        ChainSpecError::TooMany { .. } => row.len().checked_sub(1),
        ChainSpecError::EmptyName => None,
        ChainSpecError::Duplicate { id } => row.iter().rposition(|(_, name)| name == id),
    };
    at.and_then(|at| row.get(at)).map(|(place, _)| *place)
}

fn chain_error(
    origin: &ConfigSource,
    place: Option<&KeySpan>,
    error: &ChainSpecError,
) -> ConfigError {
    let help = "the engines of a row stand in the order in which they read the session";
    mistake(origin, place, &format!("a row of engines {error}"), help)
}

fn mistake(
    origin: &ConfigSource,
    place: Option<&KeySpan>,
    message: &str,
    help: &str,
) -> ConfigError {
    let list = place.map(|place| place.path.get(..3).unwrap_or_default());
    let key = spans::join_path(list.unwrap_or_default());
    let mistake = ConfigDiagnostic::new(&origin.name, &origin.text, format!("{key}: {message}"));
    let mistake = mistake.with_help(help);
    Box::new(match place {
        Some(place) => mistake.with_label(place.value_span.clone(), "this one"),
        None => mistake,
    })
    .into()
}
