//! Keys and values of earlier versions, so that an error can name the new ones.

use super::all_settings::matches_pattern;

/// Renamed keys and tables: old path, new path. A later rename is one more row.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("law", "invariants"),
    ("failover.throttled_rest_ms", "failover.rate_limit_cooldown_ms"),
    ("failover.troubled_rest_ms", "failover.error_cooldown_ms"),
    ("failover.refused_rest_ms", "failover.refused_cooldown_ms"),
    ("swap.proving_requests", "swap.trial_requests"),
    ("plugins.worker", "plugins.sandbox"),
    ("plugins.sandbox.letting_go_ms", "plugins.sandbox.cancel_grace_ms"),
];

/// Renamed values: path of the setting, old value, new value. `*` stands for a user's name.
pub(super) const VALUES: &[(&str, &str, &str)] =
    &[("plugins.isolation", "lane", "thread"), ("plugins.entries.*.isolation", "lane", "thread")];

/// The new path of a renamed key.
pub(super) fn new_key(path: &[String]) -> Option<&'static str> {
    KEYS.iter().find(|(old, _)| is_path(old, path)).map(|(_, new)| *new)
}

/// The new name of a renamed value.
pub(super) fn new_value(path: &[String], value: &str) -> Option<&'static str> {
    let row = VALUES.iter().find(|(key, old, _)| *old == value && is_path(key, path));
    row.map(|(_, _, new)| *new)
}

fn is_path(pattern: &str, path: &[String]) -> bool {
    let pattern: Vec<&str> = pattern.split('.').collect();
    // matches_pattern compares the common length only.
    pattern.len() == path.len() && matches_pattern(&pattern, path)
}
