//! Parses an engine's settings; an unknown key is refused with the nearest known key.

use std::fmt::Display;

use ctxhost_engine_api::settings::{Setting, SettingKind};
use ctxhost_engine_api::{EngineError, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Maximum edit distance of a suggested key.
const NEAREST_DISTANCE: usize = 4;

/// Parses the settings of an engine; a missing table gives the defaults.
///
/// # Errors
///
/// [`EngineError::config`] with the dotted path of the key that is unknown or has a wrong value.
pub fn parse<T: DeserializeOwned + Default>(config: &Value) -> Result<T> {
    if config.is_null() {
        return Ok(T::default());
    }
    serde_path_to_error::deserialize(config).map_err(|error| {
        let reason = error.inner().to_string();
        let path = error.path().to_string();
        match unknown_key(&reason) {
            Some(key) => EngineError::config(dotted(&path, key), unknown_message(key, &reason)),
            None => EngineError::config(path, reason),
        }
    })
}

/// The error for a value that the type allows and the engine does not.
pub fn setting_error(key: &str, message: impl Display) -> EngineError {
    EngineError::config(key, format!("{key} {message}"))
}

/// Refuses the first number outside its range, nested tables included.
///
/// # Errors
///
/// As [`setting_error`], with the allowed range.
pub fn check_ranges(settings: &impl Serialize, table: &[Setting]) -> Result<()> {
    check_numbers("", settings, table, range)
}

/// Refuses the first number that its definition does not allow. `rule` describes the allowed
/// values; settings without a description are not checked. `above` prefixes the keys, such as
/// `room.`.
///
/// # Errors
///
/// As [`setting_error`].
pub fn check_numbers(
    above: &str,
    settings: &impl Serialize,
    table: &[Setting],
    rule: fn(SettingKind) -> Option<String>,
) -> Result<()> {
    // Cannot fail: the settings were parsed from JSON.
    let values = serde_json::to_value(settings).unwrap_or_default();
    check_table(above, &values, table, rule)
}

fn check_table(
    above: &str,
    values: &Value,
    table: &[Setting],
    rule: fn(SettingKind) -> Option<String>,
) -> Result<()> {
    for setting in table {
        let Some(value) = values.get(setting.name) else { continue };
        let key = format!("{above}{}", setting.name);
        if let SettingKind::Table(inner) = setting.kind {
            check_table(&format!("{key}."), value, inner, rule)?;
        }
        // Types other than numbers were checked by serde.
        let Some(number) = value.as_f64() else { continue };
        if !setting.kind.allows_number(number)
            && let Some(rule) = rule(setting.kind)
        {
            return Err(setting_error(&key, format_args!("is {number}; {rule}")));
        }
    }
    Ok(())
}

/// The allowed values of a number, as advice.
fn range(allowed: SettingKind) -> Option<String> {
    match allowed {
        SettingKind::Whole(least) => Some(format!("set {least} or more")),
        SettingKind::Between(least, most) => Some(format!("set {least} to {most}")),
        SettingKind::Number(least, most) => Some(format!("set {least:?} to {most:?}")),
        SettingKind::Share => Some("set a share above 0, at most 1".to_owned()),
        _ => None,
    }
}

/// A share of a number of tokens or characters, rounded down.
pub fn share_of(whole: u64, share: f64) -> u64 {
    (whole as f64 * share) as u64
}

fn unknown_message(key: &str, reason: &str) -> String {
    let known: Vec<&str> = quoted(reason).skip(1).collect();
    let distance = |name: &&&str| strsim::damerau_levenshtein(key, name);
    let nearest =
        known.iter().min_by_key(distance).filter(|name| distance(name) <= NEAREST_DISTANCE);
    match nearest {
        Some(nearest) => format!("unknown setting {key:?}; did you mean {nearest:?}?"),
        None => format!("unknown setting {key:?}; known here: {}", known.join(", ")),
    }
}

/// The key in serde's message: ``unknown field `blok`, expected one of `block`, `warn` ``.
fn unknown_key(reason: &str) -> Option<&str> {
    // serde has no typed error for unknown fields.
    if reason.starts_with("unknown field") { quoted(reason).next() } else { None }
}

fn quoted(reason: &str) -> impl Iterator<Item = &str> {
    reason.split('`').skip(1).step_by(2)
}

/// The dotted path of the key; serde names either its table or the key itself.
fn dotted(path: &str, key: &str) -> String {
    let ends_with_key = path == key || path.ends_with(&format!(".{key}"));
    match path {
        "." | "" => key.to_owned(),
        _ if ends_with_key => path.to_owned(),
        _ => format!("{path}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::ErrorKind;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    ctxhost_engine_api::settings! {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Settings {
            ratio: f64 = 0.5, Share;
            window: Window = Window::default(), Table(Window::SETTINGS);
        }
    }

    ctxhost_engine_api::settings! {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Window {
            block_tokens: u64 = 1, Whole(1);
            warn_share: f64 = 1.0, Share;
        }
    }

    fn check(config: Value, key: &str, words: &str) {
        let error = parse::<Settings>(&config).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert_eq!(error.detail["key"], key);
        assert!(error.message.contains(words), "{}", error.message);
    }

    #[test]
    fn an_empty_table_gives_the_defaults() {
        assert_eq!(parse::<Settings>(&json!({})).unwrap(), Settings::default());
        assert_eq!(parse::<Settings>(&Value::Null).unwrap(), Settings::default());
    }

    #[test]
    fn a_wrong_key_is_named_with_its_nearest_neighbour() {
        check(json!({"window": {"blok_tokens": 1}}), "window.blok_tokens", "\"block_tokens\"");
        check(json!({"rato": 1}), "rato", "did you mean \"ratio\"?");
        check(json!({"something_else": 1}), "something_else", "known here: ratio, window");
    }

    #[test]
    fn the_first_setting_that_is_not_allowed_is_refused() {
        let check = |settings: &Settings| check_ranges(settings, Settings::SETTINGS);
        let window = Window { block_tokens: 1, warn_share: 1.5 };
        assert!(check(&Settings::default()).is_ok());
        let error = check(&Settings { window, ..Settings::default() }).unwrap_err();
        assert_eq!(error.message, "window.warn_share is 1.5; set a share above 0, at most 1");
        assert_eq!(error.detail["key"], "window.warn_share");
        assert_eq!(share_of(10, 0.25), 2);
    }

    #[test]
    fn a_wrong_value_is_named() {
        check(json!({"window": {"block_tokens": "many"}}), "window.block_tokens", "invalid type");
        check(json!({"window": 3}), "window", "invalid type");
    }
}
