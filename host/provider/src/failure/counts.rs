//! The numbers in a refusal: how large the request was and how large it may be, in provider tokens.

use regex::{Captures, Regex};

use super::classify::{BadPhrase, pattern};

/// Patterns with the groups `observed` (or `first` and `second`, which add up to it) and `limit`.
/// `N` stands for a number. The first that names a count gives it, and likewise the limit.
const COUNTED: &[&str] = &[
    // Anthropic.
    r"too long:? (?<observed>N) tokens? > (?<limit>N)",
    r"too long:? (?<observed>N),? .{0,30}maximum context length:? (?<limit>N)",
    r"context limit: (?<first>N) \+ (?<second>N) > (?<limit>N)",
    r"max_(?:completion_|output_)?tokens\W{0,4}N > (?<limit>N)",
    // OpenAI, xAI, OpenRouter, DeepSeek, vLLM.
    r"maximum (?:context|prompt) length is (?<limit>N).{0,80}?(?:requested(?: about)?|resulted in|contains|has) (?<observed>N)",
    r"maximum (?:context|prompt) length is (?<limit>N)",
    r"resulted in (?<observed>N) tokens",
    r"requested (?:about )?(?<observed>N) tokens",
    r"at most (?<limit>N) (?:completion|output) tokens",
    r"supported range is from N \(inclusive\) to (?<limit>N)",
    r"above maximum value\. expected a value <= (?<limit>N)",
    r"length (?<observed>N)\) is longer than the maximum model length of (?<limit>N)",
    // Tokens in a while.
    r"limit:? (?<limit>N),? .{0,40}requested:? (?<observed>N)",
    // Azure.
    r"configured limit of (?<limit>N)",
    // LiteLLM, Poolside and others.
    r"input length \(?(?<observed>N)\)? .{0,10}exceeds.{0,80}?\(?(?<limit>N)",
    r"exceeds? (?:the )?(?:model'?s )?maximum context length (?:of )?\(?(?<limit>N)",
    r"input length (?<observed>N) tokens",
    // Gemini.
    r"input token count \(?(?<observed>N)\)? exceeds the maximum number of (?:input )?tokens(?: allowed)? \(?(?<limit>N)",
    r"input token count is (?<observed>N) but model only supports up to (?<limit>N)",
    // Together, TGI, llama.cpp.
    r"\((?<observed>N) tokens\) (?:is longer than|exceeds) .{0,60}\((?<limit>N)(?: tokens)?\)",
    r"must be <= (?<limit>N)\. given: (?<first>N) .{0,20}and (?<second>N)",
    // Mistral, DS4, Cerebras, Copilot, Kimi, DashScope.
    r"prompt contains (?<observed>N) tokens.{0,80}?(?<limit>N) maximum context length",
    r"prompt has (?<observed>N) tokens.{0,80}context size is (?<limit>N)",
    r"current length is (?<observed>N).{0,20}while limit is (?<limit>N)",
    r"count of (?<observed>N) exceeds the limit of (?<limit>N)",
    r"token limit: (?<limit>N) \(requested: (?<observed>N)\)",
    r"(?:length|tokens) should be \[N, ?(?<limit>N)\]",
    // ctxhost and its like.
    r"window too small \((?<limit>N) tokens",
];

/// A number as providers write it, with separators or without.
const NUMBER: &str = "[0-9][0-9,_]*";

/// The patterns of [`COUNTED`], ready to be matched.
#[derive(Debug)]
pub(super) struct Counts {
    patterns: Vec<Regex>,
}

impl Counts {
    pub(super) fn new() -> Result<Counts, BadPhrase> {
        let patterns = COUNTED.iter().map(|row| pattern(&row.replace('N', NUMBER)));
        Ok(Counts { patterns: patterns.collect::<Result<_, _>>()? })
    }

    /// The observed count and the limit that a text names.
    pub(super) fn in_text(&self, text: &str) -> (Option<u64>, Option<u64>) {
        let (mut observed_tokens, mut limit_tokens) = (None, None);
        for found in self.patterns.iter().filter_map(|pattern| pattern.captures(text)) {
            observed_tokens = observed_tokens.or_else(|| observed(&found));
            limit_tokens = limit_tokens.or_else(|| number(&found, "limit"));
        }
        (observed_tokens, limit_tokens)
    }
}

fn observed(found: &Captures<'_>) -> Option<u64> {
    let sum = || number(found, "first")?.checked_add(number(found, "second")?);
    number(found, "observed").or_else(sum)
}

fn number(found: &Captures<'_>, group: &str) -> Option<u64> {
    let written = found.name(group)?.as_str();
    written.replace([',', '_'], "").parse().ok()
}
