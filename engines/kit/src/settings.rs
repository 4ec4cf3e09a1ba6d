//! An engine's table of settings, read so that a wrong key is named and the right one offered.

use std::fmt::Display;

use ctxhost_engine_api::{EngineError, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A key further away than this is another word, not a slip of the hand.
const NEAREST_DISTANCE: usize = 4;

/// Reads the settings of an engine; an absent table gives the defaults.
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

/// A value that the type allows and the engine cannot use.
pub fn refuse(key: &str, message: impl Display) -> EngineError {
    EngineError::config(key, format!("{key} {message}"))
}

/// Refuses the first of some settings that is not allowed; `rule` says in words what is.
///
/// # Errors
///
/// As [`refuse`].
pub fn check_all<T: Display>(
    settings: impl IntoIterator<Item = (&'static str, T)>,
    is_allowed: impl Fn(&T) -> bool,
    rule: &str,
) -> Result<()> {
    match settings.into_iter().find(|(_, value)| !is_allowed(value)) {
        Some((key, value)) => Err(refuse(key, format_args!("is {value}; {rule}"))),
        None => Ok(()),
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

/// The key in serde's own words: ``unknown field `blok`, expected one of `block`, `warn` ``.
fn unknown_key(reason: &str) -> Option<&str> {
    if reason.starts_with("unknown field") { quoted(reason).next() } else { None }
}

fn quoted(reason: &str) -> impl Iterator<Item = &str> {
    reason.split('`').skip(1).step_by(2)
}

/// The path of the key; serde names its table or the key itself, depending on where it noticed.
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

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        ratio: f64,
        window: Window,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Window {
        block_tokens: u64,
        warn_tokens: u64,
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
        let shares = [("a_share", 0.5), ("b_share", 1.5)];
        assert!(check_all(shares, |share: &f64| *share < 2.0, "set less").is_ok());
        let error = check_all(shares, |share: &f64| *share <= 1.0, "set 0 to 1").unwrap_err();
        assert_eq!(error.message, "b_share is 1.5; set 0 to 1");
        assert_eq!(share_of(10, 0.25), 2);
    }

    #[test]
    fn a_wrong_value_is_named() {
        check(json!({"window": {"block_tokens": "many"}}), "window.block_tokens", "invalid type");
        check(json!({"window": 3}), "window", "invalid type");
    }
}
