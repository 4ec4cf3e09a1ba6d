//! Lowers the limits of the answer in a request body. Every other byte stays.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

use super::optional::parse_count;
use super::spans::{replace_spans, span_of};

/// Where a request may state a budget for thinking, and the smallest that the provider accepts. Thinking counts against the
/// limit of the answer, and most providers require a budget below it.
const THINKING_BUDGETS: &[(&[&str], u64)] = &[
    // Anthropic, and Cohere.
    (&["thinking", "budget_tokens"], 1_024),
    (&["thinking", "token_budget"], 1),
    // OpenRouter.
    (&["reasoning", "max_tokens"], 1_024),
    // DashScope and SiliconFlow; servers with chat templates.
    (&["thinking_budget"], 128),
    (&["chat_template_kwargs", "thinking_budget"], 1),
    // Gemini accepts both spellings, and clients mix them.
    (&["generationConfig", "thinkingConfig", "thinkingBudget"], 512),
    (&["generationConfig", "thinkingConfig", "thinking_budget"], 512),
    (&["generationConfig", "thinking_config", "thinkingBudget"], 512),
    (&["generationConfig", "thinking_config", "thinking_budget"], 512),
    (&["generation_config", "thinkingConfig", "thinkingBudget"], 512),
    (&["generation_config", "thinkingConfig", "thinking_budget"], 512),
    (&["generation_config", "thinking_config", "thinkingBudget"], 512),
    (&["generation_config", "thinking_config", "thinking_budget"], 512),
    (&["extra_body", "google", "thinking_config", "thinking_budget"], 512),
];

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

/// Lowers each number at one of `paths` to `limit_tokens`, and with it a budget for thinking; `None` if no number exceeds
/// the limit.
pub(crate) fn lower(json: &str, paths: &[&[&str]], limit_tokens: u64) -> Option<LoweredBody> {
    let body = BodyFields::parse(json)?;
    let limits: Vec<NumberSpan> = paths.iter().filter_map(|path| body.number_at(path)).collect();
    let asked = limits.iter().map(|number| number.value).max()?;
    let mut limit = limit_tokens;
    let mut budgets = Vec::new();
    for (path, min_tokens) in THINKING_BUDGETS {
        let budget = body.number_at(path).filter(|_| body.is_enabled(path));
        // Interleaved thinking may have a budget above the limit; that one is valid as it is.
        let budget = budget.filter(|budget| (limit_tokens..asked).contains(&budget.value));
        if let Some(budget) = budget {
            limit = limit.max(2 * min_tokens);
            budgets.push((budget, *min_tokens));
        }
    }
    if limit >= asked {
        return None;
    }
    let limits = limits.into_iter().filter(|number| number.value > limit);
    let limits = limits.map(|number| (number.span, limit.to_string()));
    let budgets = budgets.into_iter().map(|(budget, min_tokens)| {
        // Halved and not fitted exactly: every new budget invalidates the provider's cache of the
        // messages, so consecutive requests should arrive at the same one.
        let mut tokens = budget.value;
        while tokens > limit / 2 {
            tokens /= 2;
        }
        (budget.span, tokens.max(min_tokens).to_string())
    });
    let changes = limits.chain(budgets).collect();
    Some(LoweredBody { body: replace_spans(json, changes)?, max_tokens: limit })
}

/// The fields of an object, by name.
type RawFields<'a> = HashMap<String, &'a RawValue>;

/// The fields of a body. They are parsed once, since the messages among them are long.
struct BodyFields<'a> {
    json: &'a str,
    fields: RawFields<'a>,
}

impl<'a> BodyFields<'a> {
    fn parse(json: &'a str) -> Option<BodyFields<'a>> {
        Some(BodyFields { json, fields: serde_json::from_str(json).ok()? })
    }

    fn number_at(&self, path: &[&str]) -> Option<NumberSpan> {
        let raw = self.raw_at(path)?;
        Some(NumberSpan { span: span_of(self.json, raw), value: parse_count(raw)? })
    }

    /// Whether the object of a budget does not say that thinking is off, or that the model decides.
    fn is_enabled(&self, budget: &[&str]) -> bool {
        let state = budget.first().and_then(|object| self.raw_at(&[object, "type"]));
        state.is_none_or(|state| state == "\"enabled\"")
    }

    /// The JSON text of the value at a path.
    fn raw_at(&self, path: &[&str]) -> Option<&'a str> {
        let (first, inner) = path.split_first()?;
        let outer: &'a RawValue = self.fields.get(*first)?;
        inner.iter().try_fold(outer.get(), |object, name| {
            let fields: RawFields<'a> = serde_json::from_str(object).ok()?;
            fields.get(*name).map(|value| value.get())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbound::InboundDialect;
    use crate::{AnthropicInbound, GeminiInbound, OpenAiChatInbound, OpenAiResponsesInbound};

    #[test]
    fn each_number_is_lowered_and_every_other_byte_stays() {
        let json = "{ \"max_tokens\" : 64000,\n\"x\": {\"max_tokens\":64000}, \"max_completion_tokens\":9 , \"options\":{ \"num_predict\": 5000}}";
        let paths: [&[&str]; 3] =
            [&["max_completion_tokens"], &["max_tokens"], &["options", "num_predict"]];
        let lowered = lower(json, &paths, 1_000).unwrap();
        let expected = "{ \"max_tokens\" : 1000,\n\"x\": {\"max_tokens\":64000}, \"max_completion_tokens\":9 , \"options\":{ \"num_predict\": 1000}}";
        assert_eq!(lowered, LoweredBody { body: expected.into(), max_tokens: 1_000 });
        assert_eq!(lower(json, &paths, 64_000), None);
        for odd in
            ["{\"max_tokens\":-1}", "{\"max_tokens\":\"9000\"}", "{", "[]", "{\"max_tokens\":null}"]
        {
            assert_eq!(lower(odd, &paths, 1), None, "{odd}");
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
            let lowered = lower(&thinking(max, budget), &[&["max_tokens"]], limit);
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
        assert_eq!(lower(json, &[&["max_tokens"]], 500).unwrap().body, expected);
    }

    #[test]
    fn the_budgets_of_routers_are_lowered_too() {
        let paths: [&[&str]; 2] = [&["max_completion_tokens"], &["max_tokens"]];
        let json = "{\"max_tokens\":16000,\"reasoning\":{\"max_tokens\":12000}}";
        let lowered = lower(json, &paths, 3_499).unwrap();
        assert_eq!(lowered.body, "{\"max_tokens\":3499,\"reasoning\":{\"max_tokens\":1500}}");
        let json = "{\"reasoning\":{\"effort\":\"high\"},\"max_completion_tokens\":16000}";
        let lowered = lower(json, &paths, 3_499).unwrap();
        assert_eq!(lowered.body, json.replace("16000", "3499"));
    }

    #[test]
    fn each_dialect_keeps_its_thinking_below_its_answer() {
        let gemini = r#"{"contents":[],"generationConfig":{"maxOutputTokens":16000,"thinkingConfig":{"thinkingBudget":12000}}}"#;
        let snake = r#"{"contents":[],"generation_config":{"max_output_tokens":16000,"thinking_config":{"thinking_budget":12000}}}"#;
        let responses =
            r#"{"input":[],"max_output_tokens":16000,"reasoning":{"max_tokens":12000}}"#;
        let chat = r#"{"messages":[],"max_tokens":16000,"thinking_budget":12000}"#;
        let google = r#"{"messages":[],"max_tokens":16000,"extra_body":{"google":{"thinking_config":{"thinking_budget":12000}}}}"#;
        let anthropic = thinking(16_000, 12_000);
        let cases: [(&dyn InboundDialect, &str); 6] = [
            (&GeminiInbound, gemini),
            (&GeminiInbound, snake),
            (&OpenAiResponsesInbound, responses),
            (&OpenAiChatInbound, chat),
            (&OpenAiChatInbound, google),
            (&AnthropicInbound, &anthropic),
        ];
        for (dialect, json) in cases {
            let lowered = dialect.lower_output_limit(json, 9_000).unwrap();
            let expected = json.replace("16000", "9000").replace("12000", "3000");
            assert_eq!(lowered, LoweredBody { body: expected, max_tokens: 9_000 });
        }
        // Off, left to the model, and small enough.
        for budget in ["0", "-1", "2000"] {
            let json = gemini.replace("12000", budget);
            let lowered = GeminiInbound.lower_output_limit(&json, 9_000).unwrap();
            assert_eq!(lowered.body, json.replace("16000", "9000"));
        }
        let lowered = GeminiInbound.lower_output_limit(gemini, 300).unwrap();
        assert_eq!(lowered.body, gemini.replace("16000", "1024").replace("12000", "512"));
    }
}
