//! Suggests a name for one that does not exist.

/// Names with a higher similarity are suggested; lower ones gave misleading suggestions.
const MIN_SIMILARITY: f64 = 0.8;

/// The name that was probably meant.
pub fn closest_name<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    // Jaro-Winkler favours a common prefix, which suits keys that are misspelt at their end.
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), other);
    let best = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= MIN_SIMILARITY).then_some(*best)
}
