//! Maps refusals to reasons by tables of phrases, codes and statuses.
//!
//! ```text
//! tokens per minute exceeded by one request ─► overflow, as a ceiling
//!  priority codes ─► vetoes ─► codes that are vetoes ─► 429 ─► malformed history, output caps
//!         ─► overflow codes ─► status gate ─► overflow phrases ─► other codes ─► other phrases ─► overflow hints
//!         ─► status ─► fallback phrases
//! ```
//!
//! Vetoes come first because throttling messages mention tokens, too: a needless compaction costs
//! more than one that comes a turn late. Phrases are searched only in the provider's message. Codes
//! and types are compared as a whole, because their words occur in every refusal.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::counts::{RequestSizes, SizePatterns};
use super::error::ProviderError;
use super::patterns::{PhraseError, compile_pattern};
use super::phrases::{self, PhraseRows};
use super::reason::FailureReason;
use super::refusal::ProviderRefusal;

/// A phrase of the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraPhrase {
    /// A regular expression; case is ignored.
    pub pattern: String,
    /// The reason of refusals that match. Any reason but overflow is also a veto against overflow.
    pub reason: FailureReason,
}

impl ExtraPhrase {
    /// Checks that the phrase compiles.
    ///
    /// # Errors
    ///
    /// [`PhraseError`].
    pub fn validate(&self) -> Result<(), PhraseError> {
        compile_pattern(&self.pattern).map(drop)
    }
}

/// The meaning of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// The reason.
    pub reason: FailureReason,
    /// The size of the request by the provider's count, including the answer if that was counted.
    pub observed_tokens: Option<u64>,
    /// The size of the prompt alone by the provider's count.
    pub prompt_tokens: Option<u64>,
    /// The limit that the provider named: of the window, the output, or tokens per time.
    pub limit_tokens: Option<u64>,
    /// Whether the limit is that of the key's tokens per minute. The request alone exceeds it, so
    /// waiting does not help, and the model's window is another number.
    pub is_ceiling: bool,
    /// Whether the limit is one of bytes, which says nothing about tokens: images and files take most of such requests.
    pub is_byte_limit: bool,
    /// Whether an overflow is one by a provider's known words, and not by a hint or a number alone.
    pub has_clear_words: bool,
}

impl Classification {
    fn new(reason: FailureReason) -> Classification {
        Classification {
            reason,
            observed_tokens: None,
            prompt_tokens: None,
            limit_tokens: None,
            is_ceiling: false,
            is_byte_limit: false,
            has_clear_words: false,
        }
    }

    fn with_sizes(self, sizes: RequestSizes) -> Classification {
        let RequestSizes { prompt_tokens, observed_tokens, limit_tokens } = sizes;
        Classification { observed_tokens, prompt_tokens, limit_tokens, ..self }
    }

    /// The error of the refused request.
    pub fn into_error(
        self,
        provider: &str,
        model: &str,
        refusal: ProviderRefusal,
        retry_after: Option<Duration>,
    ) -> ProviderError {
        let wait_ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        ProviderError {
            status: refusal.status,
            code: refusal.code,
            retry_after_ms: retry_after.map(wait_ms),
            observed_tokens: self.observed_tokens,
            prompt_tokens: self.prompt_tokens,
            limit_tokens: self.limit_tokens,
            is_ceiling: self.is_ceiling,
            is_byte_limit: self.is_byte_limit,
            has_clear_overflow_words: self.has_clear_words,
            ..ProviderError::new(self.reason, provider, model, refusal.message)
        }
    }
}

/// All phrases, compiled.
#[derive(Debug)]
pub struct Classifier {
    vetoes: PhraseTable,
    malformed: PhraseTable,
    output_caps: PhraseTable,
    context_words: Regex,
    prompt_plus_output: Regex,
    own_overflows: PhraseTable,
    overflows: PhraseTable,
    loose_overflows: PhraseTable,
    quotations: Regex,
    phrases: PhraseTable,
    hints: PhraseTable,
    fallback_phrases: PhraseTable,
    token_words: Regex,
    byte_limits: Regex,
    limit_words: Regex,
    hint_exclusions: Regex,
    boilerplate: Regex,
    sentence_end: Regex,
    bodyless: Regex,
    counts: SizePatterns,
}

impl Classifier {
    /// A classifier with the built-in phrases and those of the config.
    ///
    /// # Errors
    ///
    /// [`PhraseError`] for the first phrase that is not a regular expression.
    pub fn with_extra_phrases(extra: &[ExtraPhrase]) -> Result<Classifier, PhraseError> {
        let (own_overflows, own_vetoes): (Vec<_>, Vec<_>) =
            extra.iter().partition(|phrase| phrase.reason == FailureReason::ContextOverflow);
        let mut vetoes = PhraseTable::from_extra(&own_vetoes)?;
        vetoes.rows.extend(PhraseTable::from_phrases(phrases::VETOES)?.rows);
        Ok(Classifier {
            vetoes,
            malformed: PhraseTable::from_phrases(phrases::MALFORMED)?,
            output_caps: PhraseTable::from_phrases(phrases::OUTPUT_CAPS)?,
            context_words: compile_pattern(phrases::CONTEXT_WORDS)?,
            prompt_plus_output: compile_pattern(phrases::PROMPT_PLUS_OUTPUT)?,
            own_overflows: PhraseTable::from_extra(&own_overflows)?,
            overflows: PhraseTable::from_phrases(phrases::OVERFLOWS)?,
            loose_overflows: PhraseTable::from_phrases(phrases::LOOSE_OVERFLOWS)?,
            quotations: compile_pattern(phrases::QUOTATIONS)?,
            phrases: PhraseTable::from_phrases(phrases::PHRASES)?,
            hints: PhraseTable::from_phrases(phrases::HINTS)?,
            fallback_phrases: PhraseTable::from_phrases(phrases::FALLBACK_PHRASES)?,
            token_words: compile_pattern(phrases::TOKEN_WORDS)?,
            byte_limits: compile_pattern(phrases::BYTE_LIMITS)?,
            limit_words: compile_pattern(phrases::LIMIT_WORDS)?,
            hint_exclusions: compile_pattern(phrases::HINT_EXCLUSIONS)?,
            boilerplate: compile_pattern(phrases::BOILERPLATE)?,
            sentence_end: compile_pattern(phrases::SENTENCE_END)?,
            bodyless: compile_pattern(phrases::BODYLESS)?,
            counts: SizePatterns::new(phrases::CEILING)?,
        })
    }

    /// A classifier for a provider; those without extra phrases share one.
    ///
    /// # Errors
    ///
    /// As [`with_extra_phrases`](Self::with_extra_phrases).
    // Compiling all phrases takes longer than any number of matches.
    pub fn for_phrases(extra: &[ExtraPhrase]) -> Result<Arc<Classifier>, PhraseError> {
        static KNOWN: LazyLock<Result<Arc<Classifier>, PhraseError>> =
            LazyLock::new(|| Classifier::with_extra_phrases(&[]).map(Arc::new));
        match extra {
            [] => KNOWN.clone(),
            extra => Classifier::with_extra_phrases(extra).map(Arc::new),
        }
    }

    /// Classifies a refusal of any provider.
    pub fn classify(&self, refusal: &ProviderRefusal) -> Classification {
        self.classify_for("", refusal)
    }

    /// Classifies a refusal of this provider. A few providers have rules of their own.
    pub fn classify_for(&self, provider: &str, refusal: &ProviderRefusal) -> Classification {
        let refusal = RefusalText::new(refusal);
        if let Some(sizes) = self.ceiling(&refusal) {
            let overflow = Classification::new(FailureReason::ContextOverflow).with_sizes(sizes);
            return Classification { is_ceiling: true, ..overflow };
        }
        let classified = Classification::new(self.reason(provider, &refusal));
        match classified.reason {
            // The numbers are sizes of the answer, not of the request.
            FailureReason::OutputLimit => Classification {
                limit_tokens: self.counts.find_output_cap(refusal.message),
                ..classified
            },
            FailureReason::ContextOverflow => {
                let has_clear_words = self.has_clear_words(&refusal);
                let classified = Classification { has_clear_words, ..classified };
                if self.is_byte_limit(&refusal) {
                    return Classification { is_byte_limit: true, ..classified };
                }
                classified.with_sizes(self.counts.find_sizes(refusal.message))
            }
            _ => classified.with_sizes(self.counts.find_sizes(refusal.message)),
        }
    }

    /// Whether the provider's own words say overflow. Quotations are left out, since they may be the request's.
    fn has_clear_words(&self, refusal: &RefusalText<'_>) -> bool {
        let own_words = self.quotations.replace_all(refusal.message, " ");
        self.own_overflows.find(refusal.message).is_some()
            || refusal.has_status_of(phrases::OVERFLOW_STATUSES)
                && self.overflows.find(&own_words).is_some()
    }

    /// Whether an overflow is one of bytes: by its text, or a 413 that does not speak of tokens.
    fn is_byte_limit(&self, refusal: &RefusalText<'_>) -> bool {
        let is_code = refusal.code.eq_ignore_ascii_case("request_too_large");
        let is_of_bytes =
            is_code || refusal.status == Some(413) || self.byte_limits.is_match(refusal.message);
        is_of_bytes && !self.token_words.is_match(refusal.message)
    }

    /// The sizes of a request that alone exceeds the tokens per minute.
    fn ceiling(&self, refusal: &RefusalText<'_>) -> Option<RequestSizes> {
        // Groq sends these limits with 413, OpenAI with 429.
        let may_be = refusal.status.is_none_or(|status| matches!(status, 400 | 413 | 429));
        may_be.then(|| self.counts.find_ceiling(refusal.message)).flatten()
    }

    fn reason(&self, provider: &str, refusal: &RefusalText<'_>) -> FailureReason {
        let text = refusal.message;
        refusal
            // Gemini's code is right where its message claims an exhausted plan, OpenAI's where it only says "quota".
            .code_in(phrases::PRIORITY_CODES)
            .or_else(|| self.vetoes.find(text))
            .or_else(|| refusal.code_in(phrases::VETO_CODES))
            // A 429 that no veto explains is throttling, never an overflow: throttling mentions
            // tokens.
            .or_else(|| (refusal.status == Some(429)).then_some(FailureReason::RateLimit))
            // Before the overflow: texts about fields and output limits match its phrases as well.
            .or_else(|| self.malformed.find(text))
            .or_else(|| self.output_cap(text))
            .or_else(|| self.overflow(provider, refusal))
            // After the overflow: providers send overflows with generic codes.
            .or_else(|| refusal.code_in(phrases::CODES))
            .or_else(|| self.phrases.find(text))
            // After all specific texts, since hints match many of them.
            .or_else(|| self.hint(refusal))
            // After the texts: proxies answer with statuses of their own.
            .or_else(|| refusal.clear_status())
            .or_else(|| self.fallback_phrases.find(text))
            .or_else(|| refusal.vague_status())
            .unwrap_or(FailureReason::Unclassified)
    }

    /// Whether only the requested answer is too large. If the text mentions the context as well, it
    /// is an overflow, which a shorter answer may also solve.
    fn output_cap(&self, text: &str) -> Option<FailureReason> {
        let is_of_context =
            || self.context_words.is_match(text) || self.prompt_plus_output.is_match(text);
        self.output_caps.find(text).filter(|_| !is_of_context())
    }

    fn overflow(&self, provider: &str, refusal: &RefusalText<'_>) -> Option<FailureReason> {
        // Users know their provider, so their phrases apply to any status.
        let is_overflow = self.own_overflows.find(refusal.message).is_some()
            || refusal.has_overflow_code()
            || self.is_bodyless_overflow(provider, refusal)
            || refusal.has_status_of(phrases::OVERFLOW_STATUSES)
                && (self.overflows.find(refusal.message).is_some()
                    || self.loose_overflows.find(refusal.message).is_some()
                    || self.counts_too_much(refusal));
        is_overflow.then_some(FailureReason::ContextOverflow)
    }

    /// Whether the text states a size above a limit of tokens. This recognises overflows of
    /// providers whose phrases are unknown.
    fn counts_too_much(&self, refusal: &RefusalText<'_>) -> bool {
        let text = self.boilerplate.replace_all(refusal.message, "");
        self.counts.find_sizes(&text).is_over()
            && self.token_words.is_match(&text)
            && self.limit_words.is_match(&text)
            && !self.hint_exclusions.is_match(&text)
    }

    /// Whether one sentence hints at an overflow.
    fn hint(&self, refusal: &RefusalText<'_>) -> Option<FailureReason> {
        if !refusal.has_status_of(phrases::HINT_STATUSES) {
            return None;
        }
        let text = self.boilerplate.replace_all(refusal.message, "");
        let sentences = self.sentence_end.split(&text);
        let sentences = sentences.filter(|sentence| !self.hint_exclusions.is_match(sentence));
        sentences.into_iter().find_map(|sentence| self.hints.find(sentence))
    }

    fn is_bodyless_overflow(&self, provider: &str, refusal: &RefusalText<'_>) -> bool {
        let has_habit = |name: &&str| provider.eq_ignore_ascii_case(name);
        refusal.status == Some(400)
            && phrases::BODYLESS_OVERFLOW_PROVIDERS.iter().any(has_habit)
            && self.bodyless.is_match(refusal.message)
    }
}

/// The parts of a refusal that the tables match.
struct RefusalText<'a> {
    status: Option<u16>,
    code: &'a str,
    message: &'a str,
}

impl<'a> RefusalText<'a> {
    fn new(refusal: &'a ProviderRefusal) -> RefusalText<'a> {
        RefusalText {
            status: refusal.status.or_else(|| leading_status(&refusal.message)),
            code: refusal.code.trim(),
            message: &refusal.message,
        }
    }

    fn has_overflow_code(&self) -> bool {
        let is_code = |code: &&str| self.code.eq_ignore_ascii_case(code);
        self.has_status_of(phrases::OVERFLOW_STATUSES)
            && phrases::OVERFLOW_CODES.iter().any(is_code)
    }

    fn has_status_of(&self, statuses: &[u16]) -> bool {
        self.status.is_none_or(|status| statuses.contains(&status))
    }

    fn code_in(&self, table: &[PhraseRows]) -> Option<FailureReason> {
        let names_it =
            |codes: &[&str]| codes.iter().any(|code| self.code.eq_ignore_ascii_case(code));
        table.iter().find(|(_, codes)| names_it(codes)).map(|(reason, _)| *reason)
    }

    fn clear_status(&self) -> Option<FailureReason> {
        let status = self.status?;
        phrases::CLEAR_STATUSES.iter().find(|(clear, _)| *clear == status).map(|(_, why)| *why)
    }

    fn vague_status(&self) -> Option<FailureReason> {
        match self.status? {
            400..=499 => Some(FailureReason::Format),
            500..=599 => Some(FailureReason::ServerError),
            _ => None,
        }
    }
}

/// The status at the start of a message, where SDKs put it: `400 context_length_exceeded`.
fn leading_status(message: &str) -> Option<u16> {
    let rest = message.trim_start().trim_start_matches("HTTP ").trim_start_matches("Error: ");
    let (digits, after) = rest.split_at_checked(3)?;
    let stands_alone = !after.starts_with(|c: char| c.is_alphanumeric() || c == '.' || c == ',');
    let status = digits.parse().ok().filter(|status| (400..600).contains(status));
    status.filter(|_| stands_alone)
}

/// Patterns with their reasons.
#[derive(Debug)]
struct PhraseTable {
    rows: Vec<(Regex, FailureReason)>,
}

impl PhraseTable {
    fn from_phrases(rows: &[PhraseRows]) -> Result<PhraseTable, PhraseError> {
        let each = rows.iter().flat_map(|(reason, of)| of.iter().map(|of| (*of, *reason)));
        PhraseTable::from_rows(each)
    }

    fn from_extra(phrases: &[&ExtraPhrase]) -> Result<PhraseTable, PhraseError> {
        PhraseTable::from_rows(
            phrases.iter().map(|phrase| (phrase.pattern.as_str(), phrase.reason)),
        )
    }

    fn from_rows<'a>(
        rows: impl Iterator<Item = (&'a str, FailureReason)>,
    ) -> Result<PhraseTable, PhraseError> {
        let rows = rows.map(|(of, reason)| Ok((compile_pattern(of)?, reason)));
        Ok(PhraseTable { rows: rows.collect::<Result<_, PhraseError>>()? })
    }

    fn find(&self, text: &str) -> Option<FailureReason> {
        self.rows.iter().find(|(pattern, _)| pattern.is_match(text)).map(|(_, reason)| *reason)
    }
}
