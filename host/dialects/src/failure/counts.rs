//! Extracts sizes from refusals: of the request and its limit, in provider tokens.

use regex::{Captures, Regex};

use super::patterns::{PhraseError, compile_pattern};

/// Patterns with the groups `prompt` (without the answer), `answer` (requested), `whole` (both),
/// `limit`, and `excess` (above the limit). `N` is replaced by a number. The first match of each
/// group counts.
const COUNTED: &[&str] = &[
    // Anthropic.
    r"too long:? (?<prompt>N) tokens? > (?<limit>N)",
    r"too long:? (?<prompt>N),? .{0,30}maximum context length:? (?<limit>N)",
    r"context limit: (?<prompt>N) \+ (?<answer>N) > (?<limit>N)",
    // OpenAI, xAI, OpenRouter, DeepSeek, vLLM, SGLang.
    r"maximum (?:context|prompt) length is (?<limit>N)",
    r"maximum (?:context|prompt) length of [a-z0-9._/-]+ is (?<limit>N)",
    r"(?:resulted in|contains|request has) (?<prompt>N) (?:input )?tokens",
    r"requested (?:about |a total of )?(?<whole>N) tokens",
    r"(?<answer>N) (?:tokens )?(?:in|for) the (?:completion|output)",
    r"input tokens plus (?<answer>N)",
    r"max_completion_tokens. is too large: (?<answer>N)",
    r"will take (?<whole>N) tokens",
    r"length (?<prompt>N)\) is (?:longer than|too long).{0,60}(?:length (?:of )?|length of )(?<limit>N)",
    // Tokens per time.
    r"limit:? (?<limit>N),? .{0,40}requested:? (?<whole>N)",
    // Azure.
    r"configured limit of (?<limit>N)",
    // LiteLLM, Poolside and others.
    r"input length \(?(?<prompt>N)\)? .{0,10}exceeds.{0,80}?\(?(?<limit>N)",
    r"(?:context|prompt|sequence) (?:length|size)(?: of)? \(?(?<prompt>N)\)?(?: tokens)? (?:exceeds|is (?:longer|greater|larger|more) than).{0,60}?(?<limit>N)",
    r"exceeds? (?:the )?(?:model'?s )?maximum context length (?:of )?\(?(?<limit>N)",
    // Gemini.
    r"input token count \(?(?<prompt>N)\)? exceeds the maximum number of (?:input )?tokens(?: allowed)? \(?(?<limit>N)",
    r"maximum number of (?:input )?tokens allowed \(?(?<limit>N)",
    r"input token count is (?<prompt>N) but model only supports up to (?<limit>N)",
    // Together, TGI, llama.cpp.
    r"\((?<prompt>N) tokens\) (?:is longer than|exceeds) .{0,60}\((?<limit>N)(?: tokens)?\)",
    r"must be <= (?<limit>N)\. given: (?<prompt>N) .{0,20}and (?<answer>N)",
    r"must have less than (?<limit>N) tokens\. given: (?<prompt>N)",
    // Mistral, DS4, Cerebras, Copilot, Kimi, DashScope.
    r"prompt contains (?<prompt>N) tokens.{0,80}?(?<limit>N) maximum context length",
    r"prompt has (?<prompt>N) tokens.{0,80}context size is (?<limit>N)",
    r"current length is (?<prompt>N).{0,20}while limit is (?<limit>N)",
    r"count of (?<prompt>N) exceeds the limit of (?<limit>N)",
    r"token limit: (?<limit>N) \(requested: (?<whole>N)\)",
    r"input length should be \[N, ?(?<limit>N)\]",
    // SambaNova.
    r"generation length (?<answer>N)",
    r"requires? (?:an? )?(?:[a-z]+ ){0,2}(?:length|size|window) of (?<whole>N)",
    // Triton, Together, Cohere.
    r"length \(?(?<prompt>N)\)? exceeds maximum (?:input|sequence) length \(?(?<limit>N)",
    r"context length[a-z ]{0,40}\((?<limit>N)\)",
    r"exceeded by (?<excess>N) tokens",
    // ctxhost and similar hosts.
    r"window too small \((?<limit>N) tokens",
    // Unspecific: what is sent and its size, and a maximum of it.
    r"(?-u:\b)(?:prompt|input|conversation)(?: [a-z]+)? (?:is|are|was|has|had|uses|takes|needs) (?:about |around )?(?<prompt>N) (?:[a-z]+ )?tokens?(?-u:\b)",
    r"(?-u:\b)max(?:imum)?(?: (?:supported|allowed|possible|permitted|total|model|model's|number|of|sequence|context|input|prompt|tokens?|length|size|window|for|this|the)){1,6} (?:is|of|are|was) (?:set to |just |only |currently )?\(?(?<limit>N)",
    // A limit with its name before it.
    r"(?:limit|length|size|window|allowed|supports?)(?: for this model)?:? (?:is|of|up to|only|of only):? \(?(?<limit>N)",
    r"input length (?<prompt>N) tokens",
    r"max(?:imum)? (?<limit>N) tokens",
    r"max(?:imum)?(?: input| context| message)?(?: tokens| size| length)?(?: of|:) \(?(?<limit>N)",
];

/// Patterns of a limit in any order of words, with the group `limit`. They apply only to texts whose size of the request
/// is known, since they match limits of other things too.
const LOOSE_LIMITS: &[&str] = &[
    r"(?:(?-u:\b)limits?|(?-u:\b)max(?:imum)?|exceed(?:s|ed|ing)?|(?-u:\b)allowed|capacity|(?:longer|greater|larger|more) than|context (?:length|window|size)|(?-u:\b)max_(?:num_tokens|seq_len|model_len|input_tokens|prompt_tokens|context_length))(?-u:\b)\W*(?:[a-z_']+\W+){0,4}?(?-u:\b)(?<limit>N)(?-u:\b)",
    r"(?-u:\b)(?<limit>N)[- ](?:tokens?[- ])?(?:limit|max(?:imum)?|context|window|allowed)",
];

/// Numbers of other things than tokens, and their limits.
const OTHER_NUMBERS: &str = r"(?-u:\b)N[ -](?:characters?|chars|tools?|functions?|images?|files?|documents?|pages?|items?|properties|messages?)(?-u:\b)|(?-u:\b)(?:characters|tools|functions|images|files|documents|pages|choices|candidates|items|properties|messages|batch size)(?: allowed| supported| per request)? (?:is|are|of|exceeds? (?:[a-z]+ ){0,3}(?:of|is)):? N(?-u:\b)";

/// Patterns of refused output limits, with the group `limit`.
const OUTPUT_CAPS: &[&str] = &[
    r"max_?(?:completion_|output_|new_)?tokens\W{0,4}N > (?<limit>N)",
    r"range (?:of|for) max_?[a-z_]*tokens (?:is|should be) \[N, ?(?<limit>N)\]",
    r"at most (?<limit>N) (?:completion|output) tokens",
    r"supported range is from N \(inclusive\) to (?<limit>N)",
    r"above maximum value\. expected a value <= (?<limit>N)",
    r"(?:less than or equal to|cannot exceed|<=|supports at most|model limit of|lower than)\W{0,3}(?<limit>N)",
];

/// A number, with or without separators.
const NUMBER: &str = "[0-9][0-9,_]*";

/// Texts with these words state bytes and not tokens.
const BYTE_WORDS: &str = "bytes|body size|payload|message larger than max";

/// The smallest number of a pair that counts as size and limit without a known pattern. Smaller
/// ones are indices, parts and codes.
const PAIR_MIN_TOKENS: u64 = 100;

/// The largest number of such a pair. Larger ones are ids and times.
const PAIR_MAX_TOKENS: u64 = 100_000_000;

/// The sizes in a refusal, in provider tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestSizes {
    /// The prompt without the answer.
    pub(super) prompt_tokens: Option<u64>,
    /// Everything that was counted.
    pub(super) observed_tokens: Option<u64>,
    /// The limit.
    pub(super) limit_tokens: Option<u64>,
}

impl RequestSizes {
    /// These sizes, completed by others.
    pub(super) fn or(self, other: RequestSizes) -> RequestSizes {
        RequestSizes {
            prompt_tokens: self.prompt_tokens.or(other.prompt_tokens),
            observed_tokens: self.observed_tokens.or(other.observed_tokens),
            limit_tokens: self.limit_tokens.or(other.limit_tokens),
        }
    }

    /// Whether the request exceeds the limit.
    pub(super) fn is_over(self) -> bool {
        self.observed_tokens.zip(self.limit_tokens).is_some_and(|(size, limit)| size > limit)
    }
}

/// The compiled patterns.
#[derive(Debug)]
pub(super) struct SizePatterns {
    patterns: Vec<Regex>,
    loose_limits: Vec<Regex>,
    other_numbers: Regex,
    output_caps: Vec<Regex>,
    ceiling: Regex,
    byte_words: Regex,
}

impl SizePatterns {
    /// `ceiling` is the pattern of a request above the tokens per minute.
    pub(super) fn new(ceiling: &str) -> Result<SizePatterns, PhraseError> {
        let numbered = |row: &str| compile_pattern(&row.replace('N', NUMBER));
        let all = |rows: &[&str]| rows.iter().map(|row| numbered(row)).collect::<Result<_, _>>();
        Ok(SizePatterns {
            patterns: all(COUNTED)?,
            loose_limits: all(LOOSE_LIMITS)?,
            other_numbers: numbered(OTHER_NUMBERS)?,
            output_caps: all(OUTPUT_CAPS)?,
            ceiling: numbered(ceiling)?,
            byte_words: compile_pattern(BYTE_WORDS)?,
        })
    }

    /// The sizes in a text.
    pub(super) fn find_sizes(&self, text: &str) -> RequestSizes {
        // Byte counts would be taken for tokens.
        if self.byte_words.is_match(text) {
            return RequestSizes::default();
        }
        let text = &*self.other_numbers.replace_all(text, " ");
        let (mut prompt, mut answer, mut whole) = (None, None, None);
        let (mut limit, mut excess) = (None, None);
        for found in self.patterns.iter().filter_map(|pattern| pattern.captures(text)) {
            prompt = prompt.or_else(|| number(&found, "prompt"));
            answer = answer.or_else(|| number(&found, "answer"));
            whole = whole.or_else(|| number(&found, "whole"));
            limit = limit.or_else(|| number(&found, "limit"));
            excess = excess.or_else(|| number(&found, "excess"));
        }
        let above = || limit.zip(excess).map(|(limit, excess)| limit.saturating_add(excess));
        let sum = || prompt.map(|prompt| prompt.saturating_add(answer.unwrap_or_default()));
        let named = RequestSizes {
            prompt_tokens: prompt.or_else(|| whole.zip(answer).map(|(w, a)| w.saturating_sub(a))),
            observed_tokens: whole.or_else(sum).or_else(above),
            limit_tokens: limit,
        };
        if let (Some(size), None) = (named.observed_tokens, limit) {
            let parts = [named.prompt_tokens, answer, whole];
            return RequestSizes {
                limit_tokens: self.find_loose_limit(text, size, parts),
                ..named
            };
        }
        if named.observed_tokens.is_some() || excess.is_some() {
            return named;
        }
        // Only if no pattern found a size: the numbers of a known text are unambiguous.
        let pair = pair_in(text);
        let fits = limit.is_none_or(|limit| pair.limit_tokens == Some(limit));
        if fits { named.or(pair) } else { named }
    }

    /// The limit that a request of this size exceeds. `parts` are its own numbers.
    fn find_loose_limit(&self, text: &str, size: u64, parts: [Option<u64>; 3]) -> Option<u64> {
        let all = self.loose_limits.iter().flat_map(|pattern| pattern.captures_iter(text));
        // "Exceeds the window by 512 tokens" states the excess.
        let of_limits =
            all.filter(|found| !found.get(0).is_some_and(|found| found.as_str().contains(" by ")));
        let mut limits = of_limits.filter_map(|found| number(&found, "limit"));
        limits
            .find(|limit| (PAIR_MIN_TOKENS..size).contains(limit) && !parts.contains(&Some(*limit)))
    }

    /// The largest answer that a text allows.
    pub(super) fn find_output_cap(&self, text: &str) -> Option<u64> {
        let found = self.output_caps.iter().filter_map(|pattern| pattern.captures(text));
        found.into_iter().find_map(|found| number(&found, "limit"))
    }

    /// The sizes of a request that alone exceeds the tokens per minute.
    pub(super) fn find_ceiling(&self, text: &str) -> Option<RequestSizes> {
        let found = self.ceiling.captures(text)?;
        let sizes = RequestSizes {
            prompt_tokens: None,
            observed_tokens: number(&found, "whole"),
            limit_tokens: number(&found, "limit"),
        };
        Some(sizes).filter(|sizes| sizes.is_over())
    }
}

/// The two numbers of a text, or three if one is a sum: the largest is the size, the smallest the
/// limit. Whether the size includes the answer is unknown.
fn pair_in(text: &str) -> RequestSizes {
    let range = PAIR_MIN_TOKENS..=PAIR_MAX_TOKENS;
    let mut numbers: Vec<u64> = numbers_in(text).filter(|number| range.contains(number)).collect();
    numbers.sort_unstable();
    match numbers.as_slice() {
        // Of three numbers the middle one is a part of the sum.
        [limit, size] | [limit, _, size] if limit < size => RequestSizes {
            prompt_tokens: None,
            observed_tokens: Some(*size),
            limit_tokens: Some(*limit),
        },
        _ => RequestSizes::default(),
    }
}

/// The numbers that are words of their own, not parts of names, versions, dates or fractions.
fn numbers_in(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|c: char| c.is_whitespace() || "()[]{}'\"`<>=+".contains(c));
    words.filter_map(|word| {
        let word = word.trim_end_matches([',', '.', ';', ':', '!', '?']);
        // TensorRT-LLM prints a whole number as a float.
        let word = word.strip_suffix(".0").unwrap_or(word).replace([',', '_'], "");
        word.parse().ok().filter(|_: &u64| word.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn number(found: &Captures<'_>, group: &str) -> Option<u64> {
    let written = found.name(group)?.as_str();
    written.replace([',', '_'], "").parse().ok()
}
