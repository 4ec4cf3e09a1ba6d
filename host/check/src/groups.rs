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

use super::CheckGroup::{self, *};
use super::fault::CaseOutcome;
use super::harness::CaseHarness;
use super::history::CaseHistory;
use super::provider::ProviderFamily;
use super::settings::HISTORIES;
use histories::{key_per_family, key_rotating};

/// A case with a name.
type NamedCase = (&'static str, fn(&CaseHarness<'_>) -> CaseOutcome);

/// The cases of a group, numbered from 1.
enum GroupCases {
    Named(&'static [NamedCase]),
    Numbered {
        count: u64,
        describe: fn(u64) -> String,
        run: fn(u64, &CaseHarness<'_>) -> CaseOutcome,
    },
}

impl CheckGroup {
    fn cases(self) -> GroupCases {
        use GroupCases::{Named, Numbered};
        match self {
            Load => Named(&load::CASES),
            Contract => Named(&contract::CASES),
            Transcript => Numbered {
                count: histories::CASES,
                describe: |case| histories::describe(key_per_family(case)),
                run: |case, harness| transcript::run(key_per_family(case), harness),
            },
            Progress => Numbered {
                count: progress::CASES,
                describe: |case| histories::describe(key_rotating(case)),
                run: |case, harness| progress::run(key_rotating(case), harness),
            },
            Determinism => Numbered {
                count: determinism::CASES,
                describe: |case| histories::describe(key_rotating(case)),
                run: |case, harness| determinism::run(key_rotating(case), harness),
            },
            Restart => {
                Numbered { count: restart::CASES, describe: restart::name, run: restart::run }
            }
            Limits => Named(&limits::CASES),
            Cancellation => Numbered {
                count: cancellation::CASES,
                describe: cancellation::name,
                run: cancellation::run,
            },
            Services => {
                Numbered { count: services::CASES, describe: services::name, run: services::run }
            }
            Isolation => Named(&isolation::CASES),
            Resources => Named(&resources::CASES),
            Security => Named(&security::CASES),
        }
    }

    pub(super) fn case_count(self) -> u64 {
        match self.cases() {
            GroupCases::Named(cases) => cases.len() as u64,
            GroupCases::Numbered { count, .. } => count,
        }
    }

    /// The description of a case for the report.
    pub(super) fn describe_case(self, case: u64) -> String {
        match self.cases() {
            GroupCases::Named(cases) => named(cases, case).map_or("", |(name, _)| name).to_owned(),
            GroupCases::Numbered { describe, .. } => describe(case),
        }
    }

    /// Runs a case. Called in a child.
    pub(super) fn run(self, case: u64, harness: &CaseHarness<'_>) -> CaseOutcome {
        match self.cases() {
            // The parent validates case numbers, so there is always a case.
            GroupCases::Named(cases) => {
                named(cases, case).map_or_else(|| Ok(Default::default()), |(_, run)| run(harness))
            }
            GroupCases::Numbered { run, .. } => run(case, harness),
        }
    }

    /// How many cases share a child.
    pub(super) fn cases_per_child(self) -> usize {
        match self {
            // Starting a child is slower than a case of these groups. In other groups a case could
            // affect the next one.
            Transcript | Progress => 24,
            Determinism | Restart => 6,
            _ => 1,
        }
    }

    /// Whether the cases run in a second process whose replies must be equal.
    pub(super) fn runs_twice(self) -> bool {
        self == Determinism
    }

    /// Whether its children run one at a time, because they measure time and memory.
    pub(super) fn runs_alone(self) -> bool {
        self == Resources
    }

    /// The history of a case, if it can be shrunk.
    pub(super) fn history(self, case: u64) -> Option<CaseHistory> {
        match self {
            // Only groups whose cases depend on nothing but their history can be shrunk.
            Transcript => Some(generated(key_per_family(case))),
            Progress | Determinism | Restart => Some(generated(key_rotating(case))),
            _ => None,
        }
    }

    /// The line of the group in a report, with the notes of its cases.
    pub(super) fn summary<'a>(self, notes: impl Iterator<Item = &'a str>) -> String {
        let notes: Vec<&str> = notes.collect();
        let all = || notes.join("; ");
        match self {
            Load => all(),
            Contract => {
                "ingest, assemble, compact, after_turn; unknown fields; idempotent commit".into()
            }
            Transcript => format!(
                "{} generated histories x dialects {}",
                HISTORIES,
                ProviderFamily::ALL.map(ProviderFamily::name).join(", ")
            ),
            Progress => {
                let summary = "never larger; a no-op is reported as a no-op";
                [summary].into_iter().chain(notes).collect::<Vec<_>>().join("; ")
            }
            Determinism => {
                format!("same input, same bytes; stable prefix between turns: {}", all())
            }
            Restart => "ingested again, restarted with and without stored values".into(),
            Limits => limits::COVERED.into(),
            Cancellation => "every call cancelled at every await of the host".into(),
            Services => {
                "services that fail, time out, lose data, return garbage or too much".into()
            }
            Isolation => "every call in a process of its own; panic, hang, abort".into(),
            Resources => all(),
            Security => "secrets, injection markers, path-like session ids".into(),
        }
    }
}

fn generated((number, family): histories::HistoryKey) -> CaseHistory {
    CaseHistory::generate(number, family)
}

fn named(cases: &'static [NamedCase], case: u64) -> Option<&'static NamedCase> {
    cases.get(usize::try_from(case.checked_sub(1)?).ok()?)
}
