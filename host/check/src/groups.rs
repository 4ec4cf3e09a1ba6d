//! Dispatches the cases of each group.

mod cancellation;
mod contract;
mod determinism;
mod histories;
mod isolation;
mod limits;
mod load;
mod progress;
mod resources;
mod restart;
mod security;
mod services;
mod transcript;

use super::CheckGroup;
use super::fault::CaseOutcome;
use super::harness::CaseHarness;
use super::history::CaseHistory;

/// A case with a name.
type NamedCase = (&'static str, fn(&CaseHarness<'_>) -> CaseOutcome);

impl CheckGroup {
    /// The number of cases; they are numbered from 1.
    pub(super) fn case_count(self) -> u64 {
        match self {
            CheckGroup::Load => load::CASES.len() as u64,
            CheckGroup::Contract => contract::CASES.len() as u64,
            CheckGroup::Transcript => histories::CASES,
            CheckGroup::Progress => progress::CASES,
            CheckGroup::Determinism => determinism::CASES,
            CheckGroup::Restart => restart::CASES,
            CheckGroup::Limits => limits::CASES.len() as u64,
            CheckGroup::Cancellation => cancellation::CASES,
            CheckGroup::Services => services::CASES,
            CheckGroup::Isolation => isolation::CASES.len() as u64,
            CheckGroup::Resources => resources::CASES.len() as u64,
            CheckGroup::Security => security::CASES.len() as u64,
        }
    }

    /// How many cases share a child.
    pub(super) fn cases_per_child(self) -> usize {
        match self {
            CheckGroup::Transcript | CheckGroup::Progress => 24,
            CheckGroup::Determinism | CheckGroup::Restart => 6,
            _ => 1,
        }
    }

    /// Whether the cases run in a second process whose replies must be equal.
    pub(super) fn runs_twice(self) -> bool {
        self == CheckGroup::Determinism
    }

    /// Whether its children run one at a time, because they measure time and memory.
    pub(super) fn runs_alone(self) -> bool {
        self == CheckGroup::Resources
    }

    /// The history of a case, if it can be shrunk.
    pub(super) fn history(self, case: u64) -> Option<CaseHistory> {
        match self {
            CheckGroup::Transcript => Some(generated(histories::key_per_family(case))),
            CheckGroup::Progress | CheckGroup::Determinism | CheckGroup::Restart => {
                Some(generated(histories::key_rotating(case)))
            }
            _ => None,
        }
    }

    /// The description of a case for the report.
    pub(super) fn describe_case(self, case: u64) -> String {
        let named = |cases: &[NamedCase]| {
            let at = usize::try_from(case.saturating_sub(1)).unwrap_or(usize::MAX);
            cases.get(at).map_or("", |(name, _)| name).to_owned()
        };
        match self {
            CheckGroup::Load => named(&load::CASES),
            CheckGroup::Contract => named(&contract::CASES),
            CheckGroup::Transcript => histories::describe(histories::key_per_family(case)),
            CheckGroup::Progress | CheckGroup::Determinism => {
                histories::describe(histories::key_rotating(case))
            }
            CheckGroup::Restart => restart::name(case),
            CheckGroup::Limits => named(&limits::CASES),
            CheckGroup::Cancellation => cancellation::name(case),
            CheckGroup::Services => services::name(case),
            CheckGroup::Isolation => named(&isolation::CASES),
            CheckGroup::Resources => named(&resources::CASES),
            CheckGroup::Security => named(&security::CASES),
        }
    }

    /// Runs a case. Called in a child.
    pub(super) fn run(self, case: u64, harness: &CaseHarness<'_>) -> CaseOutcome {
        let named = |cases: &[NamedCase]| {
            let at = usize::try_from(case.saturating_sub(1)).unwrap_or(usize::MAX);
            cases.get(at).map_or_else(|| Ok(Default::default()), |(_, run)| run(harness))
        };
        match self {
            CheckGroup::Load => named(&load::CASES),
            CheckGroup::Contract => named(&contract::CASES),
            CheckGroup::Transcript => transcript::run(histories::key_per_family(case), harness),
            CheckGroup::Progress => progress::run(histories::key_rotating(case), harness),
            CheckGroup::Determinism => determinism::run(histories::key_rotating(case), harness),
            CheckGroup::Restart => restart::run(case, harness),
            CheckGroup::Limits => named(&limits::CASES),
            CheckGroup::Cancellation => cancellation::run(case, harness),
            CheckGroup::Services => services::run(case, harness),
            CheckGroup::Isolation => named(&isolation::CASES),
            CheckGroup::Resources => named(&resources::CASES),
            CheckGroup::Security => named(&security::CASES),
        }
    }

    /// The line of the group in a report, with the notes of its cases.
    pub(super) fn summary<'a>(self, notes: impl Iterator<Item = &'a str>) -> String {
        let notes: Vec<&str> = notes.collect();
        let all = || notes.join("; ");
        match self {
            CheckGroup::Load => all(),
            CheckGroup::Contract => {
                "ingest, assemble, compact, after_turn; unknown fields; idempotent commit".into()
            }
            CheckGroup::Transcript => format!(
                "{} generated histories x dialects {}",
                super::settings::HISTORIES,
                super::provider::ProviderFamily::ALL
                    .map(super::provider::ProviderFamily::name)
                    .join(", ")
            ),
            CheckGroup::Progress => {
                let summary = "never larger; a no-op is reported as a no-op";
                [summary].into_iter().chain(notes).collect::<Vec<_>>().join("; ")
            }
            CheckGroup::Determinism => {
                format!("same input, same bytes; stable prefix between turns: {}", all())
            }
            CheckGroup::Restart => {
                "ingested again, restarted with and without stored values".into()
            }
            CheckGroup::Limits => limits::COVERED.into(),
            CheckGroup::Cancellation => "every call cancelled at every await of the host".into(),
            CheckGroup::Services => {
                "services that fail, time out, lose data, return garbage or too much".into()
            }
            CheckGroup::Isolation => {
                "every call in a process of its own; panic, hang, abort".into()
            }
            CheckGroup::Resources => all(),
            CheckGroup::Security => "secrets, injection markers, path-like session ids".into(),
        }
    }
}

fn generated((number, family): histories::HistoryKey) -> CaseHistory {
    CaseHistory::generate(number, family)
}
