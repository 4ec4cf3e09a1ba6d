//! From a refusal to a reason: which table of phrases is asked when.
//!
//! ```text
//!  over a minute's tokens alone ─► overflow, as a ceiling
//!  vetoes ─► codes that are vetoes ─► 429 ─► malformed history, output caps ─► overflow codes
//!         ─► status gate ─► overflow phrases ─► other codes ─► other phrases ─► overflow hints
//!         ─► status ─► vague words
//! ```
//!
//! A veto comes first because throttling speaks of tokens too, and a compaction that nobody needs
//! costs more than one that comes a turn later. Phrases are looked for in the provider's message alone;
//! codes and types are compared as a whole, because their words are in every refusal.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::counts::{Counts, Sizes};
use super::phrases::{self, Rows};
use super::{ProviderError, Reason, Refusal};

/// A phrase of the person's own, from the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraPhrase {
    /// A regular expression, matched without regard to case.
    pub pattern: String,
    /// What a refusal with it means. Any reason but overflow is also a veto against overflow.
    pub reason: Reason,
}

impl ExtraPhrase {
    /// Whether it can be matched.
    ///
    /// # Errors
    ///
    /// [`BadPhrase`].
    pub fn check(&self) -> Result<(), BadPhrase> {
        pattern(&self.pattern).map(drop)
    }
}

/// A phrase that cannot be matched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is no regular expression: {problem}; escape ( ) [ ] . * + ? with a backslash")]
pub struct BadPhrase {
    /// The phrase.
    pub pattern: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// Why there was no answer.
    pub reason: Reason,
    /// The size of the request as the provider counted it, with the answer where that was counted in.
    pub observed_tokens: Option<u64>,
    /// The prompt alone as the provider counted it.
    pub prompt_tokens: Option<u64>,
    /// The limit that the provider named: of the window, of the output, or of tokens in a while.
    pub limit_tokens: Option<u64>,
    /// Whether the limit is what this key may use in a minute: the request alone is larger, so waiting
    /// does not help, and the model's window is another one.
    pub is_ceiling: bool,
}

impl Classified {
    fn of(reason: Reason) -> Classified {
        Classified {
            reason,
            observed_tokens: None,
            prompt_tokens: None,
            limit_tokens: None,
            is_ceiling: false,
        }
    }

    fn sized(self, sizes: Sizes) -> Classified {
        let Sizes { prompt_tokens, observed_tokens, limit_tokens } = sizes;
        Classified { observed_tokens, prompt_tokens, limit_tokens, ..self }
    }

    /// The error of a request that this refusal ended.
    pub fn into_error(
        self,
        provider: &str,
        model: &str,
        refusal: Refusal,
        retry_after: Option<Duration>,
    ) -> ProviderError {
        let wait_ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        ProviderError {
            reason: self.reason,
            provider: provider.to_owned(),
            model: model.to_owned(),
            status: refusal.status,
            code: refusal.code,
            message: refusal.message,
            retry_after_ms: retry_after.map(wait_ms),
            observed_tokens: self.observed_tokens,
            prompt_tokens: self.prompt_tokens,
            limit_tokens: self.limit_tokens,
            is_ceiling: self.is_ceiling,
            began: false,
        }
    }
}

/// All phrases, ready to be matched. Built once.
#[derive(Debug)]
pub struct Classifier {
    vetoes: Table,
    malformed: Table,
    output_caps: Table,
    context: Regex,
    sum: Regex,
    own_overflows: Table,
    overflows: Table,
    words: Table,
    hints: Table,
    vague_words: Table,
    of_tokens: Regex,
    of_a_limit: Regex,
    no_hint: Regex,
    habits: Regex,
    sentence_end: Regex,
    bodyless: Regex,
    counts: Counts,
}

impl Classifier {
    /// The phrases that ctxhost knows, and some of the person's own.
    ///
    /// # Errors
    ///
    /// [`BadPhrase`], of the first one that is no regular expression.
    pub fn with_extra(extra: &[ExtraPhrase]) -> Result<Classifier, BadPhrase> {
        let (own_overflows, own_vetoes): (Vec<_>, Vec<_>) =
            extra.iter().partition(|phrase| phrase.reason == Reason::ContextOverflow);
        let mut vetoes = Table::own(&own_vetoes)?;
        vetoes.rows.extend(Table::of(phrases::VETOES)?.rows);
        Ok(Classifier {
            vetoes,
            malformed: Table::of(phrases::MALFORMED)?,
            output_caps: Table::of(phrases::OUTPUT_CAPS)?,
            context: pattern(phrases::CONTEXT)?,
            sum: pattern(phrases::SUM)?,
            own_overflows: Table::own(&own_overflows)?,
            overflows: Table::of(phrases::OVERFLOWS)?,
            words: Table::of(phrases::WORDS)?,
            hints: Table::of(phrases::HINTS)?,
            vague_words: Table::of(phrases::VAGUE_WORDS)?,
            of_tokens: pattern(phrases::OF_TOKENS)?,
            of_a_limit: pattern(phrases::OF_A_LIMIT)?,
            no_hint: pattern(phrases::NO_HINT)?,
            habits: pattern(phrases::HABITS)?,
            sentence_end: pattern(phrases::SENTENCE_END)?,
            bodyless: pattern(phrases::BODYLESS)?,
            counts: Counts::new(phrases::CEILING)?,
        })
    }

    /// The classifier of a provider, built once for all that have no phrases of their own.
    ///
    /// # Errors
    ///
    /// As [`with_extra`](Self::with_extra).
    pub fn shared(extra: &[ExtraPhrase]) -> Result<Arc<Classifier>, BadPhrase> {
        static KNOWN: LazyLock<Result<Arc<Classifier>, BadPhrase>> =
            LazyLock::new(|| Classifier::with_extra(&[]).map(Arc::new));
        match extra {
            [] => KNOWN.clone(),
            extra => Classifier::with_extra(extra).map(Arc::new),
        }
    }

    /// What a refusal of some provider means.
    pub fn classify(&self, refusal: &Refusal) -> Classified {
        self.classify_of("", refusal)
    }

    /// What a refusal of this provider means; a few of them have habits of their own.
    pub fn classify_of(&self, provider: &str, refusal: &Refusal) -> Classified {
        let said = Said::of(refusal);
        if let Some(sizes) = self.ceiling(&said) {
            let overflow = Classified::of(Reason::ContextOverflow).sized(sizes);
            return Classified { is_ceiling: true, ..overflow };
        }
        let classified = Classified::of(self.reason(provider, &said));
        match classified.reason {
            // What was asked for as output is no size of a request.
            Reason::OutputLimit => {
                Classified { limit_tokens: self.counts.output_cap(said.message), ..classified }
            }
            _ => classified.sized(self.counts.in_text(said.message)),
        }
    }

    /// The sizes of a request that alone takes more than a minute allows.
    fn ceiling(&self, said: &Said<'_>) -> Option<Sizes> {
        let may_be = said.status.is_none_or(|status| matches!(status, 400 | 413 | 429));
        may_be.then(|| self.counts.ceiling(said.message)).flatten()
    }

    /// Whether a text speaks of an overflow, whatever its status.
    pub(super) fn speaks_of_overflow(&self, text: &str) -> bool {
        let refusal = Refusal { message: text.to_owned(), ..Refusal::default() };
        self.classify(&refusal).reason == Reason::ContextOverflow
    }

    fn reason(&self, provider: &str, said: &Said<'_>) -> Reason {
        let text = said.message;
        said.code_in(phrases::FIRST_CODES)
            .or_else(|| self.vetoes.find(text))
            .or_else(|| said.code_in(phrases::VETO_CODES))
            .or_else(|| (said.status == Some(429)).then_some(Reason::RateLimit))
            .or_else(|| self.malformed.find(text))
            .or_else(|| self.output_cap(text))
            .or_else(|| self.overflow(provider, said))
            .or_else(|| said.code_in(phrases::CODES))
            .or_else(|| self.words.find(text))
            .or_else(|| self.hint(said))
            .or_else(|| said.clear_status())
            .or_else(|| self.vague_words.find(text))
            .or_else(|| said.vague_status())
            .unwrap_or(Reason::Unclassified)
    }

    /// A longer answer was asked for than the model gives. A text that speaks of the context as well is of
    /// an overflow, which may be mended by a shorter answer.
    fn output_cap(&self, text: &str) -> Option<Reason> {
        let is_of_context = || self.context.is_match(text) || self.sum.is_match(text);
        self.output_caps.find(text).filter(|_| !is_of_context())
    }

    fn overflow(&self, provider: &str, said: &Said<'_>) -> Option<Reason> {
        // The person knows their provider: their own phrases need no fitting status.
        let is_overflow = self.own_overflows.find(said.message).is_some()
            || said.has_overflow_code()
            || self.is_bodyless_overflow(provider, said)
            || said.has_status_of(phrases::OVERFLOW_STATUSES)
                && (self.overflows.find(said.message).is_some() || self.counts_too_much(said));
        is_overflow.then_some(Reason::ContextOverflow)
    }

    /// Whether it counts more tokens than it allows, whatever its words are: no phrase of any provider need
    /// be known for that.
    fn counts_too_much(&self, said: &Said<'_>) -> bool {
        let text = self.habits.replace_all(said.message, "");
        self.counts.in_text(&text).is_over()
            && self.of_tokens.is_match(&text)
            && self.of_a_limit.is_match(&text)
            && !self.no_hint.is_match(&text)
    }

    /// Whether one sentence of it sounds like an overflow.
    fn hint(&self, said: &Said<'_>) -> Option<Reason> {
        if !said.has_status_of(phrases::HINT_STATUSES) {
            return None;
        }
        let text = self.habits.replace_all(said.message, "");
        let sentences = self.sentence_end.split(&text);
        let sentences = sentences.filter(|sentence| !self.no_hint.is_match(sentence));
        sentences.into_iter().find_map(|sentence| self.hints.find(sentence))
    }

    fn is_bodyless_overflow(&self, provider: &str, said: &Said<'_>) -> bool {
        let has_habit = |name: &&str| provider.eq_ignore_ascii_case(name);
        said.status == Some(400)
            && phrases::BODYLESS_OVERFLOW_PROVIDERS.iter().any(has_habit)
            && self.bodyless.is_match(said.message)
    }
}

/// What was said, as the tables want it.
struct Said<'a> {
    status: Option<u16>,
    code: &'a str,
    message: &'a str,
}

impl<'a> Said<'a> {
    fn of(refusal: &'a Refusal) -> Said<'a> {
        Said {
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

    fn code_in(&self, table: &[Rows]) -> Option<Reason> {
        let names_it =
            |codes: &[&str]| codes.iter().any(|code| self.code.eq_ignore_ascii_case(code));
        table.iter().find(|(_, codes)| names_it(codes)).map(|(reason, _)| *reason)
    }

    fn clear_status(&self) -> Option<Reason> {
        let status = self.status?;
        phrases::CLEAR_STATUSES.iter().find(|(clear, _)| *clear == status).map(|(_, why)| *why)
    }

    fn vague_status(&self) -> Option<Reason> {
        match self.status? {
            400..=499 => Some(Reason::Format),
            500..=599 => Some(Reason::ServerError),
            _ => None,
        }
    }
}

/// The status with which SDKs begin a message: `400 context_length_exceeded`.
fn leading_status(message: &str) -> Option<u16> {
    let rest = message.trim_start().trim_start_matches("HTTP ").trim_start_matches("Error: ");
    let (digits, after) = rest.split_at_checked(3)?;
    let stands_alone = !after.starts_with(|c: char| c.is_alphanumeric() || c == '.' || c == ',');
    let status = digits.parse().ok().filter(|status| (400..600).contains(status));
    status.filter(|_| stands_alone)
}

/// Rows of patterns with their reasons.
#[derive(Debug)]
struct Table {
    rows: Vec<(Regex, Reason)>,
}

impl Table {
    fn of(rows: &[Rows]) -> Result<Table, BadPhrase> {
        let each = rows.iter().flat_map(|(reason, of)| of.iter().map(|of| (*of, *reason)));
        Table::from_rows(each)
    }

    fn own(phrases: &[&ExtraPhrase]) -> Result<Table, BadPhrase> {
        Table::from_rows(phrases.iter().map(|phrase| (phrase.pattern.as_str(), phrase.reason)))
    }

    fn from_rows<'a>(rows: impl Iterator<Item = (&'a str, Reason)>) -> Result<Table, BadPhrase> {
        let rows = rows.map(|(of, reason)| Ok((pattern(of)?, reason)));
        Ok(Table { rows: rows.collect::<Result<_, BadPhrase>>()? })
    }

    fn find(&self, text: &str) -> Option<Reason> {
        self.rows.iter().find(|(pattern, _)| pattern.is_match(text)).map(|(_, reason)| *reason)
    }
}

/// A pattern, matched without regard to case, over line breaks.
pub(super) fn pattern(of: &str) -> Result<Regex, BadPhrase> {
    let built = RegexBuilder::new(of).case_insensitive(true).dot_matches_new_line(true).build();
    built.map_err(|problem| BadPhrase { pattern: of.to_owned(), problem: problem.to_string() })
}
