//! The list is one list: no call twice, none past its end.

use std::collections::HashSet;

use super::*;

#[test]
fn no_call_stands_in_two_groups_and_none_is_newer_than_the_newest() {
    let conditional = CONDITIONAL.iter().flat_map(|it| it.calls);
    let all = ALLOWED.iter().flat_map(|it| it.calls).chain(conditional).chain(UNKNOWN.calls);
    let mut seen = HashSet::new();
    for (name, number) in all {
        assert!(seen.insert(number), "{name} stands in two groups");
        assert!((0..=NEWEST).contains(number), "{name} is {number}, the newest is {NEWEST}");
    }
}

/// What the table for people says of a call: its row without the number.
fn row_of(name: &str, page: &str) -> String {
    let cell = format!("| `{}` |", name.trim_start_matches("SYS_"));
    let row = page.lines().find(|line| line.contains(&cell));
    let row = row.unwrap_or_else(|| panic!("{name} is not in docs/engines/sandbox.md"));
    row.split(" | ").skip(2).collect::<Vec<_>>().join(" | ").trim_end_matches(" |").to_owned()
}

#[test]
fn the_table_for_people_says_what_the_list_does() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines/sandbox.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut listed = 0;
    let mut check = |calls: &[(&str, c_long)], expected: String| {
        for (name, _) in calls {
            assert_eq!(row_of(name, &page), expected, "{name}");
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
    if cfg!(target_arch = "x86_64") {
        let is_open = |line: &&str| {
            ["| allowed |", "| by arguments |", "| unknown |"].iter().any(|it| line.contains(it))
        };
        assert_eq!(page.lines().filter(is_open).count(), listed, "the table allows more");
    }
}
