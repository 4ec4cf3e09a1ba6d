//! Two summaries made one: the newer words win, nothing stands twice, nothing grows for ever.

use super::Sections;
use super::sections::{MAX_ASKS, MAX_DECISIONS, MAX_LINES};
use super::similar::{Meaning, newest_once};
use crate::identifiers::MAX_IDENTIFIERS;

/// Opens a task that the newest stretch of conversation did not speak of.
const EARLIER: &str = "(earlier) ";

/// The sections of an older summary carried into a newer one.
#[must_use]
pub fn merge(older: Sections, newer: Sections) -> Sections {
    // A request of an older summary is history as soon as the person has spoken again.
    let asks = if newer.asks.is_empty() { older.asks } else { newer.asks };
    let mut merged = Sections {
        decisions: append(older.decisions, newer.decisions, MAX_DECISIONS),
        todos: append(aged(older.todos), newer.todos, MAX_LINES),
        constraints: append(older.constraints, newer.constraints, MAX_LINES),
        asks: asks.into_iter().take(MAX_ASKS).collect(),
        identifiers: prepend(newer.identifiers, older.identifiers),
    };
    merged.tell_apart();
    merged
}

/// Marks what an earlier summary left to do. What is marked already was not spoken of since the
/// summary before, so it is done or given up: a stale task that is done again costs more than a hint.
fn aged(todos: Vec<String>) -> Vec<String> {
    let fresh = todos.into_iter().filter(|line| !line.starts_with(EARLIER));
    fresh.map(|line| format!("{EARLIER}{line}")).collect()
}

fn append(mut older: Vec<String>, newer: Vec<String>, max: usize) -> Vec<String> {
    let meaning = |line: &String| Meaning::new(line.strip_prefix(EARLIER).unwrap_or(line));
    let said: Vec<Meaning> = newer.iter().map(meaning).collect();
    older.retain(|line| {
        let told = meaning(line);
        !newer.contains(line) && !said.iter().any(|known| known.is_same(&told))
    });
    older.extend(newer);
    let mut lines = newest_once(older);
    lines.split_off(lines.len().saturating_sub(max))
}

fn prepend(mut newer: Vec<String>, older: Vec<String>) -> Vec<String> {
    let fresh: Vec<String> = older.into_iter().filter(|line| !newer.contains(line)).collect();
    newer.extend(fresh);
    newer.truncate(MAX_IDENTIFIERS);
    newer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lines: &[&str]) -> Sections {
        let constraints = lines.iter().map(|line| (*line).to_owned()).collect();
        Sections { constraints, ..Sections::default() }
    }

    #[test]
    fn the_newer_wording_replaces_the_older() {
        let merged = merge(rules(&["Never push.", "use tabs"]), rules(&["never push!"]));
        assert_eq!(merged.constraints, ["use tabs", "never push!"]);
    }

    #[test]
    fn merging_is_bounded_and_idempotent() {
        let lines: Vec<String> = (0..40).map(|n| format!("rule {n}")).collect();
        let many = rules(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let once = merge(many.clone(), rules(&["last rule"]));
        assert_eq!(once.constraints.len(), MAX_LINES);
        assert_eq!(merge(once.clone(), once.clone()), once);
    }

    #[test]
    fn older_requests_stand_only_until_the_person_speaks_again() {
        let asked = |text: &str| Sections { asks: vec![text.into()], ..Sections::default() };
        assert_eq!(merge(asked("a"), asked("b")).asks, ["b"]);
        assert_eq!(merge(asked("a"), Sections::default()).asks, ["a"]);
    }

    #[test]
    fn a_task_that_nobody_speaks_of_fades_out() {
        let left = |text: &str| Sections { todos: vec![text.into()], ..Sections::default() };
        let once = merge(left("Write the docs."), left("Run the tests."));
        assert_eq!(once.todos, ["(earlier) Write the docs.", "Run the tests."]);
        let twice = merge(once, left("write the docs"));
        assert_eq!(twice.todos, ["(earlier) Run the tests.", "write the docs"]);
        assert_eq!(merge(twice, Sections::default()).todos, ["(earlier) write the docs"]);
    }
}
