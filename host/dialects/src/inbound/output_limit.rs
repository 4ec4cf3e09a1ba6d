//! Lowers the limits of the answer in a request body. Every other byte stays.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

use super::optional::parse_count;
use super::spans::{replace_spans, span_of};

/// The smallest thinking budget that Anthropic accepts, in provider tokens.
const MIN_THINKING_TOKENS: u64 = 1_024;

/// A body with a lower limit of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredBody {
    /// The body.
    pub body: String,
    /// Its new limit of the answer, in provider tokens.
    pub max_tokens: u64,
}

/// A number in a body and its position.
struct NumberSpan {
    span: Range<usize>,
    value: u64,
}

/// Lowers each number at one of `paths` to `limit`; `None` if no number exceeds it.
pub(crate) fn lower_numbers(json: &str, paths: &[&[&str]], limit: u64) -> Option<LoweredBody> {
    let numbers = paths.iter().filter_map(|path| number_at(json, path));
    let above = numbers.filter(|number| number.value > limit);
    let changes: Vec<_> = above.map(|number| (number.span, limit.to_string())).collect();
    if changes.is_empty() {
        return None;
    }
    Some(LoweredBody { body: replace_spans(json, changes)?, max_tokens: limit })
}

/// The fields in which a request may state a budget for thinking. Providers require it to be below the limit of the answer.
const THINKING_BUDGETS: [&[&str]; 2] =
    [&["thinking", "budget_tokens"], &["reasoning", "max_tokens"]];

/// [`lower_numbers`] for a request that may have a budget for thinking, which is lowered with the limit.
pub(crate) fn lower_with_thinking(
    json: &str,
    paths: &[&[&str]],
    limit: u64,
) -> Option<LoweredBody> {
    let limits = || paths.iter().filter_map(|path| number_at(json, path));
    let asked = limits().map(|number| number.value).max()?;
    let is_enabled = |path: &&&[&str]| {
        let state = path.first().and_then(|object| raw_at(json, &[object, "type"]));
        state.is_none_or(|state| state == "\"enabled\"")
    };
    let budgets = THINKING_BUDGETS.iter().filter(is_enabled);
    let budgets = budgets.filter_map(|path| number_at(json, path));
    // Interleaved thinking may have a budget above `max_tokens`; that one is valid as it is.
    let budgets = budgets.filter(|budget| (limit..asked).contains(&budget.value));
    let budgets: Vec<NumberSpan> = budgets.collect();
    if budgets.is_empty() {
        return lower_numbers(json, paths, limit);
    }
    let limit = limit.max(2 * MIN_THINKING_TOKENS);
    if limit >= asked {
        return None;
    }
    let limits = limits().filter(|number| number.value > limit);
    let limits = limits.map(|number| (number.span, limit.to_string()));
    let budgets = budgets.into_iter().map(|budget| {
        // Halved and not fitted exactly: every new budget invalidates the provider's cache of the
        // messages, so consecutive requests should arrive at the same one.
        let mut tokens = budget.value;
        while tokens > limit / 2 {
            tokens /= 2;
        }
        (budget.span, tokens.max(MIN_THINKING_TOKENS).to_string())
    });
    let changes = limits.chain(budgets).collect();
    Some(LoweredBody { body: replace_spans(json, changes)?, max_tokens: limit })
}

fn number_at(json: &str, path: &[&str]) -> Option<NumberSpan> {
    let raw = raw_at(json, path)?;
    Some(NumberSpan { span: span_of(json, raw), value: parse_count(raw)? })
}

/// The JSON text of the value at a path.
fn raw_at<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(json, |object, name| {
        let fields: HashMap<String, &'a RawValue> = serde_json::from_str(object).ok()?;
        fields.get(*name).map(|value| value.get())
    })
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
            let lowered = lower_with_thinking(&thinking(max, budget), &[&["max_tokens"]], limit);
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
    fn a_budget_counts_only_while_thinking_is_enabled() {
        let json =
            "{\"max_tokens\":32000,\"thinking\":{\"type\":\"adaptive\",\"budget_tokens\":31000}}";
        let expected = json.replace("32000", "500");
        assert_eq!(lower_with_thinking(json, &[&["max_tokens"]], 500).unwrap().body, expected);
    }

    #[test]
    fn the_budgets_of_routers_are_lowered_too() {
        let paths: [&[&str]; 2] = [&["max_completion_tokens"], &["max_tokens"]];
        let json = "{\"max_tokens\":16000,\"reasoning\":{\"max_tokens\":12000}}";
        let lowered = lower_with_thinking(json, &paths, 3_499).unwrap();
        assert_eq!(lowered.body, "{\"max_tokens\":3499,\"reasoning\":{\"max_tokens\":1500}}");
        let json = "{\"reasoning\":{\"effort\":\"high\"},\"max_completion_tokens\":16000}";
        let lowered = lower_with_thinking(json, &paths, 3_499).unwrap();
        assert_eq!(lowered.body, json.replace("16000", "3499"));
    }
}
