//! The comparison of a file with the catalogue: the first mistake, at its place, with a way out.

use super::catalogue::{self, Known, admits, catalogue};
use super::error::{ConfigError, Mistake};
use super::places::{self, Place, Written};
use super::providers;
use super::{Config, Origin, compaction, gateway, slots};
use ctxhost_engine::{BUNDLED, Isolation};
use ctxhost_engine_api::settings::{Allowed, Setting};
use ctxhost_trust::Keys;

/// Names closer than this are taken for a slip of the same name; below it, guesses annoy.
const LIKENESS: f64 = 0.8;

/// Checks every key and every value, in the order of the file.
pub(super) fn settings(origin: &Origin) -> Result<(), ConfigError> {
    for place in origin.places.iter() {
        match catalogue::known(&place.path) {
            Known::Foreign => {}
            Known::Table if place.value == Written::Table => {}
            Known::Setting(setting) if admits(setting.allowed, &place.value) => {}
            Known::Setting(setting) => return Err(bad_value(origin, place, setting)),
            Known::Table => return Err(no_table(origin, place)),
            Known::Nothing => return Err(unknown_key(origin, place)),
        }
    }
    compaction::rules(origin)?;
    slots::rules(origin)
}

/// Checks what only two settings together can get wrong.
pub(super) fn together(config: &Config) -> Result<(), ConfigError> {
    let timeouts = &config.timeouts;
    if timeouts.compact_cap_ms < timeouts.compact_ms {
        let message = format!(
            "timeouts.compact_cap_ms ({}) is below timeouts.compact_ms ({}), so no compaction gets its time",
            timeouts.compact_cap_ms, timeouts.compact_ms
        );
        let keys = ["timeouts.compact_cap_ms", "timeouts.compact_ms"];
        return Err(clash(config, &keys, message, "raise the cap, or lower compact_ms"));
    }
    for (id, entry) in &config.plugins.entries {
        if entry.isolation == Some(Isolation::Inline) && entry.path.is_some() {
            let key = places::dotted(&["plugins", "entries", id, "isolation"]);
            let message = format!("`{id}` comes from a file, and only bundled engines run inline");
            return Err(clash(
                config,
                &[&key],
                message,
                "write isolation = \"process\" or \"lane\"",
            ));
        }
        let is_linked = entry.path.is_none() && BUNDLED.contains(&id.as_str());
        if entry.isolation == Some(Isolation::Process) && is_linked {
            let key = places::dotted(&["plugins", "entries", id, "isolation"]);
            let message =
                format!("`{id}` is linked in, and only engines from a file run in a process");
            return Err(clash(
                config,
                &[&key],
                message,
                "write isolation = \"lane\", or give its path",
            ));
        }
    }
    if let Err(error) = Keys::parse(&config.plugins.trusted_keys) {
        let help = "`minisign -G` makes a key pair; the public one goes here";
        return Err(clash(config, &["plugins.trusted_keys"], error.to_string(), help));
    }
    providers::together(config)?;
    gateway::together(config)
}

/// A mistake at the first of `keys` that the file holds.
pub(super) fn clash(config: &Config, keys: &[&str], message: String, help: &str) -> ConfigError {
    let mistake = Mistake::new(&config.origin.name, &config.origin.text, message).advising(help);
    let span = keys.iter().find_map(|key| config.span_of(key));
    Box::new(match span {
        Some(span) => mistake.at(span, "this one"),
        None => mistake,
    })
    .into()
}

fn bad_value(origin: &Origin, place: &Place, setting: &Setting) -> ConfigError {
    let key = places::dotted(&place.path);
    let expectation = setting.expectation();
    let found = found(&place.value);
    let guess = match (setting.allowed, &place.value) {
        (Allowed::Word(words), Written::Text(text)) => nearest(text, words),
        _ => None,
    };
    let help = match guess {
        Some(word) => format!("did you mean `{word}`?"),
        None => setting.reason(),
    };
    let mistake = Mistake::new(&origin.name, &origin.text, format!("{key} must be {expectation}"));
    Box::new(mistake.at(place.value_span.clone(), found).advising(help)).into()
}

fn no_table(origin: &Origin, place: &Place) -> ConfigError {
    let key = places::dotted(&place.path);
    let mistake = Mistake::new(&origin.name, &origin.text, format!("{key} must be a table"));
    let help = format!("begin it with a line [{key}]; {}", listing(&place.path));
    Box::new(mistake.at(place.value_span.clone(), found(&place.value)).advising(help)).into()
}

fn unknown_key(origin: &Origin, place: &Place) -> ConfigError {
    let (name, table) = match place.path.split_last() {
        Some((name, table)) => (name.as_str(), table),
        None => ("", place.path.as_slice()),
    };
    let message = match table {
        [] => format!("unknown key `{name}`"),
        table => format!("unknown key `{name}` in [{}]", places::dotted(table)),
    };
    let mistake = Mistake::new(&origin.name, &origin.text, message);
    Box::new(mistake.at_key(place, "not a setting").advising(way_out(name, table))).into()
}

/// A near name in the same table; else the table the name belongs to; else all names there are.
fn way_out(name: &str, table: &[String]) -> String {
    if let Some(near) = nearest(name, &catalogue::names_in(table)) {
        return format!("did you mean `{near}`?");
    }
    match catalogue().iter().find(|row| row.setting.name == name) {
        Some(row) => format!("did you mean {}?", row.key.replace('*', "<name>")),
        None => listing(table),
    }
}

fn listing(table: &[String]) -> String {
    let names = catalogue::names_in(table);
    match table {
        _ if names.is_empty() => "each name in it is a table of its own".into(),
        [] => format!("tables: {}", catalogue::quoted(&names)),
        _ => format!("keys: {}", catalogue::quoted(&names)),
    }
}

/// The name that a slip of the finger was meant to be.
pub fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), other);
    let best = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= LIKENESS).then_some(*best)
}

fn found(value: &Written) -> String {
    match value {
        Written::Text(text) if text.trim().is_empty() => "blank".into(),
        Written::Text(_) => "this is text".into(),
        Written::Whole(None) => "this number is too large".into(),
        Written::Whole(Some(number)) if *number < 0 => "this is negative".into(),
        Written::Whole(Some(number)) => format!("this is the number {number}"),
        Written::Number(number) => format!("this is the number {number}"),
        Written::Flag(_) => "this is true or false".into(),
        Written::Date => "this is a date".into(),
        Written::List { only_text: true } => "this is a list".into(),
        Written::List { only_text: false } => "not everything in this list is text".into(),
        Written::Table => "this is a table".into(),
    }
}
