//! Merges two summaries: newer lines win, similar lines are dropped, sizes are bounded.

use super::open_tasks::{EARLIER, is_reported};
use super::sections::{
    MAX_CONSTRAINTS, MAX_DECISIONS, MAX_LINES, MAX_REQUESTS, SummarySections, drop_oldest,
};
use super::similarity::{LineWords, keep_newest_unique};
use crate::rules::{RuleLines, RuleSentence, drop_replaced, find_rules_and_hints};
use ctxhost_text::identifiers::MAX_IDENTIFIERS;

/// Merges an older summary into a newer one.
#[must_use]
pub fn merge(older: SummarySections, newer: SummarySections) -> SummarySections {
    // A new user message makes the older requests history.
    let asks = if newer.requests.is_empty() { older.requests } else { newer.requests };
    let mut merged = SummarySections {
        todos: append(still_open(older.todos, &newer.decisions), newer.todos, MAX_LINES),
        decisions: append_decisions(older.decisions, newer.decisions),
        constraints: merge_rules(older.constraints, newer.constraints, newer.hints),
        // What changes no older rule is an ordinary request.
        hints: Vec::new(),
        requests: asks.into_iter().take(MAX_REQUESTS).collect(),
        identifiers: prepend(newer.identifiers, older.identifiers),
    };
    merged.remove_overlaps();
    merged
}

/// The rules of an older summary and newer ones without those that a later one replaces. `hints` are sentences behind
/// the older summary that may change one of its rules.
#[must_use]
pub fn merge_rules(older: Vec<String>, newer: Vec<String>, hints: Vec<String>) -> Vec<String> {
    drop_replaced(append(change_rules(older, hints), newer, MAX_CONSTRAINTS))
}

/// The rules of a summary with the changes in the messages behind it, which are not part of it. A message that changes
/// no rule adds none.
#[must_use]
pub fn with_later_changes<'t>(
    mut rules: Vec<String>,
    later: impl IntoIterator<Item = &'t str>,
) -> Vec<String> {
    for sentence in later.into_iter().flat_map(find_rules_and_hints) {
        let mut lines = RuleLines::default();
        rules.iter().for_each(|rule| lines.add(rule.clone()));
        match sentence {
            RuleSentence::Rule(rule) => lines.add(rule),
            RuleSentence::Hint(hint) => _ = lines.add_hint(hint),
        }
        let changed = lines.into_lines();
        if rules.iter().any(|rule| !changed.contains(rule)) {
            // The change is listed as well: the next compaction finds no rule that it could be about.
            rules = changed;
        }
    }
    rules
}

/// The rules of an older summary, changed by sentences behind it.
fn change_rules(rules: Vec<String>, hints: Vec<String>) -> Vec<String> {
    let mut lines = RuleLines::default();
    rules.into_iter().for_each(|rule| lines.add(rule));
    hints.into_iter().for_each(|hint| drop(lines.add_hint(hint)));
    lines.into_lines()
}

/// Marks the tasks of an earlier summary and drops those that a later line reports as done.
fn still_open(todos: Vec<String>, reports: &[String]) -> Vec<String> {
    let is_open = |task: &String| !reports.iter().any(|line| is_reported(task, line));
    let mark = |line: String| {
        if line.starts_with(EARLIER) { line } else { format!("{EARLIER}{line}") }
    };
    todos.into_iter().filter(is_open).map(mark).collect()
}

fn append_decisions(older: Vec<String>, newer: Vec<String>) -> Vec<String> {
    let mut lines = append(older, newer, usize::MAX);
    while lines.len() > MAX_DECISIONS {
        drop_oldest(&mut lines);
    }
    lines
}

fn append(mut older: Vec<String>, newer: Vec<String>, max: usize) -> Vec<String> {
    let words_of = |line: &String| LineWords::new(line.strip_prefix(EARLIER).unwrap_or(line));
    let newer_words: Vec<LineWords> = newer.iter().map(words_of).collect();
    older.retain(|line| {
        let words = words_of(line);
        !newer.contains(line) && !newer_words.iter().any(|known| known.is_similar(&words))
    });
    older.extend(newer);
    let mut lines = keep_newest_unique(older);
    // The newest lines are at the end.
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

    fn rules(lines: &[&str]) -> SummarySections {
        let constraints = lines.iter().map(|line| (*line).to_owned()).collect();
        SummarySections { constraints, ..SummarySections::default() }
    }

    #[test]
    fn the_newer_wording_replaces_the_older() {
        let merged = merge(rules(&["Never push.", "use tabs"]), rules(&["never push!"]));
        assert_eq!(merged.constraints, ["use tabs", "never push!"]);
    }

    #[test]
    fn a_sentence_without_a_cue_changes_a_rule_of_the_older_summary() {
        let newer = SummarySections {
            constraints: vec!["You may edit the lock file again.".into()],
            hints: vec!["Longer answers again.".into(), "Show the page again.".into()],
            ..SummarySections::default()
        };
        let older = rules(&["I prefer short answers.", "Never edit the lock file.", "use tabs"]);
        assert_eq!(
            merge(older, newer).constraints,
            ["use tabs", "Longer answers again.", "You may edit the lock file again."]
        );
    }

    #[test]
    fn a_message_behind_a_summary_changes_its_rules() {
        let rules = || vec!["Never edit the lock file.".to_owned(), "use tabs".to_owned()];
        let change = "Show the page. You may edit the lock file again.";
        let changed = ["use tabs", "You may edit the lock file again."];
        assert_eq!(with_later_changes(rules(), [change]), changed);
        assert_eq!(with_later_changes(rules(), ["Always write tests.", "Go on."]), rules());
    }

    #[test]
    fn merging_is_bounded_and_idempotent() {
        let lines: Vec<String> = (0..80).map(|n| format!("rule {n}")).collect();
        let many = rules(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let once = merge(many.clone(), rules(&["last rule"]));
        assert_eq!(once.constraints.len(), MAX_CONSTRAINTS);
        assert_eq!(merge(once.clone(), once.clone()), once);
    }

    #[test]
    fn older_requests_are_pending_until_the_next_one() {
        let asked = |text: &str| SummarySections {
            requests: vec![text.into()],
            ..SummarySections::default()
        };
        assert_eq!(merge(asked("a"), asked("b")).requests, ["b"]);
        assert_eq!(merge(asked("a"), SummarySections::default()).requests, ["a"]);
    }

    #[test]
    fn a_task_stays_until_it_is_reported_as_done() {
        let left =
            |text: &str| SummarySections { todos: vec![text.into()], ..SummarySections::default() };
        let once = merge(left("Write the docs."), left("Run the tests."));
        assert_eq!(once.todos, ["(earlier) Write the docs.", "Run the tests."]);
        let reported = SummarySections {
            decisions: vec!["The tests run again, and I wrote nothing else.".into()],
            ..SummarySections::default()
        };
        let later = merge(merge(once.clone(), SummarySections::default()), reported);
        assert_eq!(later.todos, ["(earlier) Write the docs."]);
        assert_eq!(
            merge(once, left("write the docs")).todos,
            ["(earlier) Run the tests.", "write the docs"]
        );
    }
}
