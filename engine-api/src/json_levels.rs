//! The limit of nested lists and objects in JSON of engines.

use serde_json::Value;

use crate::error::{EngineError, ErrorKind, Result};

/// The most levels of JSON in an answer of an engine. serde_json reads 127 levels, and frames and records put the JSON of an engine into
/// other values: what is deeper could be recorded and not be read again.
pub const MAX_JSON_LEVELS: usize = 64;

/// The levels of lists and objects in JSON text.
pub fn levels_of_text(json: &str) -> usize {
    let (mut level, mut most) = (0_usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                level += 1;
                most = most.max(level);
            }
            b']' | b'}' if !is_text => level = level.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Refuses JSON text of an engine with more levels than [`MAX_JSON_LEVELS`]; `what` names it.
///
/// # Errors
///
/// [`ErrorKind::Protocol`].
pub fn check_text_levels(what: &str, json: &str) -> Result<()> {
    let levels = levels_of_text(json);
    if levels > MAX_JSON_LEVELS {
        let message = format!(
            "{what} nests lists and objects {levels} levels deep, the limit is {MAX_JSON_LEVELS}; put the inner ones into a string"
        );
        return Err(EngineError::new(ErrorKind::Protocol, message));
    }
    Ok(())
}

/// Refuses a value of an engine with more levels than [`MAX_JSON_LEVELS`]; `what` names it.
///
/// # Errors
///
/// [`ErrorKind::Protocol`].
pub fn check_value_levels(what: &str, value: &Value) -> Result<()> {
    if has_levels_up_to(value, MAX_JSON_LEVELS) {
        return Ok(());
    }
    let message = format!(
        "{what} nests lists and objects more than {MAX_JSON_LEVELS} levels deep, which is the limit; put the inner ones into a string"
    );
    Err(EngineError::new(ErrorKind::Protocol, message))
}

/// Whether a value has at most `most` levels of lists and objects.
// Not deeper than the limit, so that a value of any depth needs little of the stack.
pub fn has_levels_up_to(value: &Value, most: usize) -> bool {
    let is_within = |value| most > 0 && has_levels_up_to(value, most - 1);
    match value {
        Value::Array(values) => most > 0 && values.iter().all(is_within),
        Value::Object(fields) => most > 0 && fields.values().all(is_within),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}\"]]\\\"\"{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn levels_beyond_the_limit_are_refused_with_their_number() {
        for levels in [0, 1, MAX_JSON_LEVELS, MAX_JSON_LEVELS + 1, 120] {
            let json = nested(levels);
            assert_eq!(levels_of_text(&json), levels);
            let value: Value = serde_json::from_str(&json).unwrap();
            let allowed = levels <= MAX_JSON_LEVELS;
            assert_eq!(check_text_levels("the details", &json).is_ok(), allowed, "{levels}");
            assert_eq!(check_value_levels("the details", &value).is_ok(), allowed, "{levels}");
        }
        assert_eq!(levels_of_text(r#"{"a":[{"b":1},{"c":[]}],"d":"[[[["}"#), 4);
        let refused = check_text_levels("the details", &nested(126)).unwrap_err();
        assert!(
            refused.message.contains("126 levels deep, the limit is 64"),
            "{}",
            refused.message
        );
    }
}
