//! Names of earlier versions (keys, values, guard metrics, environment variables), so that a message can give the
//! new ones.

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

/// Renamed metrics of canary guards: old name, new name. `survival.paths` is renamed with its first part.
const METRICS: &[(&str, &str)] = &[("illegal", "violations"), ("survival", "retention")];

/// Renamed environment variables: old name, new name.
const VARIABLES: &[(&str, &str)] = &[("CTXHOST_WORKER", "CTXHOST_SANDBOX")];

/// The new name of a renamed metric of a canary guard.
pub fn new_metric_name(name: &str) -> Option<String> {
    let first = name.split('.').next().unwrap_or_default();
    let (old, new) = METRICS.iter().find(|(old, _)| *old == first)?;
    Some(name.replacen(old, new, 1))
}

/// The renamed environment variables that are set under their old name only: old name, new name.
pub fn ignored_variables(
    is_set: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    VARIABLES.iter().copied().filter(move |(old, new)| is_set(old) && !is_set(new))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_variables_have_new_names() {
        assert_eq!(new_metric_name("illegal").as_deref(), Some("violations"));
        assert_eq!(new_metric_name("survival.paths").as_deref(), Some("retention.paths"));
        assert_eq!(new_metric_name("violations"), None);
        let old = |set: &[&str]| ignored_variables(|name| set.contains(&name)).count();
        assert_eq!(old(&["CTXHOST_WORKER"]), 1);
        assert_eq!(old(&["CTXHOST_WORKER", "CTXHOST_SANDBOX"]), 0, "the new name counts");
        assert_eq!(old(&[]), 0);
    }
}
