//! The corpus of recorded error bodies: reasons and numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::CLASSIFIER;
use crate::failure::{Classification, FailureReason, ProviderRefusal, parse_refusal};

/// One body with its reason and source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    provider: String,
    dialect: String,
    /// The HTTP status; none for an error inside a stream or in a text alone.
    status: Option<u16>,
    /// JSON as it is sent; a string is the text as it is sent.
    body: Value,
    expect: Expected,
    /// Another acceptable reason, if the difference has no effect.
    #[serde(default)]
    also: Vec<Expected>,
    /// The limit that the text names, in tokens.
    limit: Option<u64>,
    /// The size that the text names, in tokens.
    used: Option<u64>,
    /// The answer's budget by the text's numbers, in tokens.
    room: Option<u64>,
    source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Expected {
    Overflow,
    RequestCeiling,
    OutputLimit,
    RateLimit,
    Quota,
    Auth,
    AuthPermanent,
    Invalid,
    MalformedHistory,
    ModelNotFound,
    Overloaded,
    ServerError,
    SessionExpired,
    Timeout,
    Other,
}

impl Expected {
    fn of(classified: &Classification) -> Expected {
        match classified.reason {
            FailureReason::ContextOverflow if classified.is_ceiling => Expected::RequestCeiling,
            FailureReason::ContextOverflow => Expected::Overflow,
            FailureReason::OutputLimit => Expected::OutputLimit,
            FailureReason::RateLimit => Expected::RateLimit,
            FailureReason::Billing => Expected::Quota,
            FailureReason::Auth => Expected::Auth,
            FailureReason::AuthPermanent => Expected::AuthPermanent,
            FailureReason::Format | FailureReason::Unclassified => Expected::Invalid,
            FailureReason::MalformedHistory => Expected::MalformedHistory,
            FailureReason::ModelNotFound => Expected::ModelNotFound,
            FailureReason::Overloaded => Expected::Overloaded,
            FailureReason::ServerError => Expected::ServerError,
            FailureReason::SessionExpired => Expected::SessionExpired,
            FailureReason::Timeout => Expected::Timeout,
            _ => Expected::Other,
        }
    }
}

impl Row {
    fn text(&self) -> String {
        match &self.body {
            Value::String(text) => text.clone(),
            body => body.to_string(),
        }
    }

    fn refusal(&self) -> ProviderRefusal {
        parse_refusal(self.status, &self.text())
    }

    fn classified(&self) -> Classification {
        CLASSIFIER.classify_for(&self.provider, &self.refusal())
    }
}

/// The messages of all bodies.
pub(super) fn messages() -> Vec<String> {
    corpus().iter().map(|row| row.refusal().message).collect()
}

fn corpus() -> Vec<Row> {
    let lines = include_str!("../corpus.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The table of expected and found reasons, one line per pair.
fn confusion(rows: &[Row]) -> String {
    let mut pairs: BTreeMap<(Expected, Expected), usize> = BTreeMap::new();
    for row in rows {
        *pairs.entry((row.expect, Expected::of(&row.classified()))).or_default() += 1;
    }
    let lines = pairs.iter().map(|((expected, found), times)| {
        format!("{:<18} found as {:<18} {times:>4}", format!("{expected:?}"), format!("{found:?}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
#[allow(clippy::print_stdout)]
fn every_body_is_what_it_is() {
    let rows = corpus();
    println!("{}", confusion(&rows));
    let wrong = rows.iter().filter(|row| {
        let found = Expected::of(&row.classified());
        found != row.expect && !row.also.contains(&found)
    });
    let wrong: Vec<_> = wrong.map(|row| (row, row.refusal(), row.classified())).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), rows.len());
}

#[test]
fn the_numbers_of_a_text_are_found() {
    let wrong: Vec<_> = corpus()
        .into_iter()
        .filter(|row| row.limit.is_some() || row.used.is_some() || row.room.is_some())
        .filter_map(|row| {
            let found = row.classified();
            let refusal = row.refusal();
            let error = found.into_error(&row.provider, "m", refusal, None);
            let sizes = (error.limit_tokens, error.observed_tokens, error.answer_budget_tokens());
            let named = (row.limit, row.used, row.room);
            (sizes != named).then(|| format!("{sizes:?} for {named:?}: {error}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

/// Variants of one text with other numbers count once, and every row names its source.
#[test]
fn the_corpus_is_wide() {
    let rows = corpus();
    let overflows = rows.iter().filter(|row| row.expect == Expected::Overflow).count();
    assert!(overflows >= 150, "{overflows} overflows");
    assert!(rows.len() - overflows >= 150, "{} others", rows.len() - overflows);
    let providers: BTreeSet<&str> = rows.iter().map(|row| row.provider.as_str()).collect();
    assert!(providers.len() >= 20, "{providers:?}");
    let mut shapes = BTreeSet::new();
    for row in &rows {
        assert!(!row.source.is_empty() && !row.dialect.is_empty(), "{row:?}");
        let shape: String = row.text().chars().filter(|c| !c.is_ascii_digit()).collect();
        let is_new = shapes.insert((row.provider.clone(), row.dialect.clone(), shape));
        assert!(is_new, "twice: {row:?}");
    }
}
