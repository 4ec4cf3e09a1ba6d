//! The rules for engines in a row and in the shadow: how many, and each of them once.

use super::error::{ConfigError, Mistake};
use super::places::{Place, Written};
use super::{Origin, places};
use ctxhost_engine::{RowError, check_row, read_row};

/// Engines that run beside the slot's own, at most: each of them reads every request again.
const MAX_SHADOWS: usize = 4;

/// Checks every list of engines, each mistake at its own place.
pub(super) fn rules(origin: &Origin) -> Result<(), ConfigError> {
    let row = texts_in(origin, "context_engine");
    let names: Vec<&str> = row.iter().map(|(_, name)| *name).collect();
    if let Err(error) = check_row(&names) {
        return Err(no_row(origin, culprit(&row, &error), &error));
    }
    for (place, name) in origin.places.iter().filter_map(slot_text) {
        if let Err(error) = read_row(name) {
            return Err(no_row(origin, Some(place), &error));
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
            false => read_row(name)
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
fn slot_text(place: &Place) -> Option<(&Place, &str)> {
    match (place.path.as_slice(), &place.value) {
        ([plugins, slots, slot], Written::Text(text)) => {
            let is_here = plugins == "plugins" && slots == "slots" && slot == "context_engine";
            is_here.then_some((place, text.trim()))
        }
        _ => None,
    }
}

/// The texts in a list of `[plugins.slots]`, with their places.
fn texts_in<'o>(origin: &'o Origin, list: &str) -> Vec<(&'o Place, &'o str)> {
    let text = |place: &'o Place| match (place.path.as_slice(), &place.value) {
        ([plugins, slots, slot, _], Written::Text(text)) => {
            let is_here = plugins == "plugins" && slots == "slots" && slot == list;
            is_here.then_some((place, text.trim()))
        }
        _ => None,
    };
    origin.places.iter().filter_map(text).collect()
}

/// The item that is one too many.
fn culprit<'o>(row: &[(&'o Place, &str)], error: &RowError) -> Option<&'o Place> {
    let at = match error {
        RowError::TooMany { .. } => row.len().checked_sub(1),
        RowError::Blank => None,
        RowError::Twice { id } => row.iter().rposition(|(_, name)| name == id),
    };
    at.and_then(|at| row.get(at)).map(|(place, _)| *place)
}

fn no_row(origin: &Origin, place: Option<&Place>, error: &RowError) -> ConfigError {
    let help = "the engines of a row stand in the order in which they read the session";
    mistake(origin, place, &format!("a row of engines {error}"), help)
}

fn mistake(origin: &Origin, place: Option<&Place>, message: &str, help: &str) -> ConfigError {
    let list = place.map(|place| place.path.get(..3).unwrap_or_default());
    let key = places::dotted(list.unwrap_or_default());
    let mistake = Mistake::new(&origin.name, &origin.text, format!("{key}: {message}"));
    let mistake = mistake.advising(help);
    Box::new(match place {
        Some(place) => mistake.at(place.value_span.clone(), "this one"),
        None => mistake,
    })
    .into()
}
