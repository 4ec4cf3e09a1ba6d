//! Fields of records by other programs: a value of another type counts as absent, so that it costs nothing but itself.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a field; its default in place of a value of another type.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// Reads a count, which JavaScript may write as `2.0` or `1e5`; none for a negative or a larger number.
pub(super) fn count<'de, D>(deserializer: D) -> Result<Option<u64>, D::Error>
where
    D: Deserializer<'de>,
{
    /// Up to here every whole number has a float of its own.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let value = Value::deserialize(deserializer)?;
    let float = value.as_f64().filter(|number| (0.0..=MOST).contains(number));
    Ok(value.as_u64().or(float.map(|number| number as u64)))
}
