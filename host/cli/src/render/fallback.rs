//! The reasons why another engine shaped requests, those that differ only in their numbers as one.

use std::collections::BTreeMap;

use ctxhost_agent::replay::report::EngineRun;

use super::format::{format_count, group_digits, one_line};

/// Reasons that differ only in their numbers.
struct ReasonGroup<'a> {
    /// The most frequent of them.
    example: &'a str,
    example_requests: u64,
    requests: u64,
    reasons: u64,
}

/// One text for each group: in how many requests, and why.
pub(crate) fn fallback_reasons(run: &EngineRun) -> Vec<String> {
    let mut groups: BTreeMap<String, ReasonGroup<'_>> = BTreeMap::new();
    for (why, requests) in &run.fallback_reasons {
        let group = groups.entry(without_numbers(why)).or_insert(ReasonGroup {
            example: why,
            example_requests: *requests,
            requests: 0,
            reasons: 0,
        });
        if *requests > group.example_requests {
            (group.example, group.example_requests) = (why, *requests);
        }
        group.requests += requests;
        group.reasons += 1;
    }
    groups.into_values().map(|group| group.describe()).collect()
}

impl ReasonGroup<'_> {
    fn describe(&self) -> String {
        let (requests, why) = (format_count(self.requests, "request"), one_line(self.example));
        match self.reasons {
            1 => format!("{requests}: {why}"),
            reasons => {
                format!("{requests} ({} different numbers), such as: {why}", group_digits(reasons))
            }
        }
    }
}

/// The text with `#` for each number. Each plan has a size of its own, which says nothing new.
fn without_numbers(text: &str) -> String {
    let mut shape = String::new();
    let mut in_number = false;
    for c in text.chars() {
        let is_digit = c.is_ascii_digit();
        if is_digit && !in_number {
            shape.push('#');
        }
        // A number continues behind the comma of its thousands.
        in_number = is_digit || in_number && c == ',';
        if !in_number {
            shape.push(c);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn reasons_that_differ_in_their_numbers_are_one() {
        let mut run = sample::compared().runs.swap_remove(0);
        let reasons =
            [("plan needs 46,831 tokens", 1), ("plan needs 9,007 tokens", 3), ("timeout", 2)];
        run.fallback_reasons = reasons.map(|(why, count)| (why.to_owned(), count)).into();
        let expected = [
            "4 requests (2 different numbers), such as: plan needs 9,007 tokens",
            "2 requests: timeout",
        ];
        assert_eq!(fallback_reasons(&run), expected);
    }
}
