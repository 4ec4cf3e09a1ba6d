//! Lowers the numbers of a request body that say how long its answer may be. Every other byte stays.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

use super::byte_offset;

/// The smallest budget for thinking that Anthropic takes, in provider tokens.
const MIN_THINKING_TOKENS: u64 = 1_024;

/// A body whose answer was lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredBody {
    /// The body.
    pub body: String,
    /// The longest answer that it asks for now, in provider tokens.
    pub max_tokens: u64,
}

/// A number of a body: where it is, and its value.
struct NumberSpan {
    span: Range<usize>,
    value: u64,
}

/// The body with each number at one of `paths` lowered to `limit`; `None` where none is above it.
pub(crate) fn lower_numbers(json: &str, paths: &[&[&str]], limit: u64) -> Option<LoweredBody> {
    let numbers = paths.iter().filter_map(|path| number_at(json, path));
    let above = numbers.filter(|number| number.value > limit);
    let changes: Vec<_> = above.map(|number| (number.span, limit)).collect();
    if changes.is_empty() {
        return None;
    }
    Some(LoweredBody { body: replace_numbers(json, changes)?, max_tokens: limit })
}

/// The same for Anthropic, whose budget for thinking has to be smaller than the whole answer.
///
/// The budget is halved until the answer has as much room as the thinking, not fitted exactly: each other
/// budget costs the provider's cache of the messages.
pub(crate) fn lower_anthropic(json: &str, limit: u64) -> Option<LoweredBody> {
    let asked = number_at(json, &["max_tokens"])?;
    let is_enabled = raw_at(json, &["thinking", "type"]) == Some("\"enabled\"");
    let budget = is_enabled.then(|| number_at(json, &["thinking", "budget_tokens"])).flatten();
    // Thinking between calls of tools may have a budget above the answer; that one stays.
    let budget = budget.filter(|budget| (limit..asked.value).contains(&budget.value));
    let Some(budget) = budget else { return lower_numbers(json, &[&["max_tokens"]], limit) };
    let limit = limit.max(2 * MIN_THINKING_TOKENS);
    if limit >= asked.value {
        return None;
    }
    let mut tokens = budget.value;
    while tokens > limit / 2 {
        tokens /= 2;
    }
    let tokens = tokens.max(MIN_THINKING_TOKENS);
    let changes = vec![(asked.span, limit), (budget.span, tokens)];
    Some(LoweredBody { body: replace_numbers(json, changes)?, max_tokens: limit })
}

fn number_at(json: &str, path: &[&str]) -> Option<NumberSpan> {
    let raw = raw_at(json, path)?;
    let start = byte_offset(json, raw);
    Some(NumberSpan { span: start..start + raw.len(), value: raw.parse().ok()? })
}

/// The value at a path, as it is written.
fn raw_at<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(json, |object, name| {
        let fields: HashMap<String, &'a RawValue> = serde_json::from_str(object).ok()?;
        fields.get(*name).map(|value| value.get())
    })
}

fn replace_numbers(json: &str, mut changes: Vec<(Range<usize>, u64)>) -> Option<String> {
    changes.sort_by_key(|(place, _)| place.start);
    let (mut written, mut from) = (String::with_capacity(json.len()), 0);
    for (place, value) in changes {
        written.push_str(json.get(from..place.start)?);
        written.push_str(&value.to_string());
        from = place.end;
    }
    written.push_str(json.get(from..)?);
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_lowered_and_every_other_byte_stays() {
        let json = "{ \"max_tokens\" : 64000,\n\"x\": {\"max_tokens\":64000}, \"max_completion_tokens\":9 , \"options\":{ \"num_predict\": 5000}}";
        let paths: [&[&str]; 3] =
            [&["max_completion_tokens"], &["max_tokens"], &["options", "num_predict"]];
        let lowered = lower_numbers(json, &paths, 1_000).unwrap();
        let expected = "{ \"max_tokens\" : 1000,\n\"x\": {\"max_tokens\":64000}, \"max_completion_tokens\":9 , \"options\":{ \"num_predict\": 1000}}";
        assert_eq!(lowered, LoweredBody { body: expected.into(), max_tokens: 1_000 });
        assert_eq!(lower_numbers(json, &paths, 64_000), None);
        for odd in
            ["{\"max_tokens\":-1}", "{\"max_tokens\":\"9000\"}", "{", "[]", "{\"max_tokens\":null}"]
        {
            assert_eq!(lower_numbers(odd, &paths, 1), None, "{odd}");
        }
    }

    fn thinking(max: u64, budget: u64) -> String {
        format!(
            "{{\"thinking\":{{\"type\":\"enabled\",\"budget_tokens\":{budget}}},\"max_tokens\":{max},\"messages\":[]}}"
        )
    }

    #[test]
    fn a_budget_for_thinking_stays_below_the_answer() {
        let check = |max, budget, limit, expected: Option<(u64, u64)>| {
            let lowered = lower_anthropic(&thinking(max, budget), limit);
            let expected = expected
                .map(|(max, budget)| LoweredBody { body: thinking(max, budget), max_tokens: max });
            assert_eq!(lowered, expected, "{max} {budget} {limit}");
        };
        check(32_000, 31_999, 12_000, Some((12_000, 3_999)));
        check(32_000, 31_999, 30_000, Some((30_000, 7_999)));
        check(32_000, 4_000, 12_000, Some((12_000, 4_000)));
        check(32_000, 31_999, 300, Some((2_048, 1_024)));
        check(2_000, 1_024, 300, None);
        // Thinking between calls of tools.
        check(32_000, 64_000, 12_000, Some((12_000, 64_000)));
        check(32_000, 31_999, 32_000, None);
    }

    #[test]
    fn thinking_that_is_off_has_no_budget() {
        let json =
            "{\"max_tokens\":32000,\"thinking\":{\"type\":\"adaptive\",\"budget_tokens\":31000}}";
        let expected = json.replace("32000", "500");
        assert_eq!(lower_anthropic(json, 500).unwrap().body, expected);
    }
}
