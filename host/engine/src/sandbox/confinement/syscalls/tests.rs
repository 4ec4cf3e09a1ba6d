//! The allowlist has no duplicates, and matches the documentation.

use std::collections::HashSet;

use super::*;

#[test]
fn no_call_is_in_two_groups_and_none_is_newer_than_the_newest() {
    let conditional = CONDITIONAL.iter().flat_map(|group| group.calls);
    let all = ALLOWED.iter().flat_map(|group| group.calls).chain(conditional).chain(UNKNOWN.calls);
    let mut seen = HashSet::new();
    for (name, number) in all {
        assert!(seen.insert(number), "{name} is in two groups");
        assert!((0..=NEWEST).contains(number), "{name} is {number}, the newest is {NEWEST}");
    }
}

/// The result and the reason of a call in the documentation.
fn row_of(name: &str, number: c_long, page: &str) -> String {
    // The numbers are those of x86-64.
    let number = if cfg!(target_arch = "x86_64") { format!("{number}`") } else { String::new() };
    let cell = format!("`{}={number}", name.trim_start_matches("SYS_"));
    let row = page.lines().find(|line| line.contains(&cell));
    let row = row.unwrap_or_else(|| panic!("{cell} is not in docs/engines/sandbox.md"));
    row.trim_matches(['|', ' ']).rsplit_once(" | ").unwrap().0.to_owned()
}

#[test]
fn the_documentation_matches_the_list() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines/sandbox.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut listed = 0;
    let mut check = |calls: &[(&str, c_long)], expected: String| {
        for (name, number) in calls {
            assert_eq!(row_of(name, *number, &page), expected, "{name}");
            listed += 1;
        }
    };
    for group in ALLOWED {
        check(group.calls, format!("allowed | {}", group.reason));
    }
    for conditional in CONDITIONAL {
        check(conditional.calls, format!("by arguments | {}", conditional.when));
    }
    check(UNKNOWN.calls, format!("unknown | {}", UNKNOWN.reason));
    for (name, number) in WRITING.iter().flat_map(|group| group.calls) {
        assert_eq!(row_of(name, *number, &page), "refused | writes files", "{name}");
    }
    let sentence = page.lines().find(|line| line.starts_with("With a writable folder")).unwrap();
    let named: HashSet<&str> = sentence.split('`').skip(1).step_by(2).collect();
    let allowed = WRITING.iter().flat_map(|group| group.calls).map(|(name, _)| *name);
    let allowed: HashSet<&str> = allowed.map(|name| name.trim_start_matches("SYS_")).collect();
    let opens = HashSet::from(["open", "openat"]);
    let expected: HashSet<&str> = allowed.union(&opens).copied().collect();
    if cfg!(target_arch = "x86_64") {
        assert_eq!(named, expected, "the sentence on writable folders differs");
    }
    if cfg!(target_arch = "x86_64") {
        let is_open = |line: &&str| {
            ["| allowed |", "| by arguments |", "| unknown |"]
                .iter()
                .any(|cell| line.contains(cell))
        };
        let calls = page.lines().filter(is_open).map(|line| line.matches('=').count());
        assert_eq!(calls.sum::<usize>(), listed, "the table allows more");
    }
}
