//! What each group does: how many cases, in which children, and where their room is.

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

use super::Group;
use super::bench::Bench;
use super::fault::Outcome;
use super::history::History;

/// A case with a name of its own.
type Named = (&'static str, fn(&Bench<'_>) -> Outcome);

impl Group {
    /// How many cases it has; they are numbered from 1.
    pub(super) fn cases(self) -> u64 {
        match self {
            Group::Load => load::CASES.len() as u64,
            Group::Contract => contract::CASES.len() as u64,
            Group::Transcript => histories::CASES,
            Group::Progress => progress::CASES,
            Group::Determinism => determinism::CASES,
            Group::Restart => restart::CASES,
            Group::Limits => limits::CASES.len() as u64,
            Group::Cancellation => cancellation::CASES,
            Group::Services => services::CASES,
            Group::Isolation => isolation::CASES.len() as u64,
            Group::Resources => resources::CASES.len() as u64,
            Group::Security => security::CASES.len() as u64,
        }
    }

    /// How many of them share a child. Where a case could spoil the next one, each has its own; where
    /// it is the same question of another history, a child asks many.
    pub(super) fn cases_per_child(self) -> usize {
        match self {
            Group::Transcript | Group::Progress => 24,
            Group::Determinism | Group::Restart => 6,
            _ => 1,
        }
    }

    /// Whether another process must give the same bytes.
    pub(super) fn runs_twice(self) -> bool {
        self == Group::Determinism
    }

    /// Whether its children run one at a time, because they measure.
    pub(super) fn runs_alone(self) -> bool {
        self == Group::Resources
    }

    /// The history of a case, where a smaller one may do.
    pub(super) fn history(self, case: u64) -> Option<History> {
        match self {
            Group::Transcript => Some(generated(histories::of_family(case))),
            Group::Progress | Group::Determinism | Group::Restart => {
                Some(generated(histories::of_any(case)))
            }
            _ => None,
        }
    }

    /// What a case tries, for people.
    pub(super) fn tried(self, case: u64) -> String {
        let named = |cases: &[Named]| {
            let at = usize::try_from(case.saturating_sub(1)).unwrap_or(usize::MAX);
            cases.get(at).map_or("", |(name, _)| name).to_owned()
        };
        match self {
            Group::Load => named(&load::CASES),
            Group::Contract => named(&contract::CASES),
            Group::Transcript => histories::name(histories::of_family(case)),
            Group::Progress | Group::Determinism => histories::name(histories::of_any(case)),
            Group::Restart => restart::name(case),
            Group::Limits => named(&limits::CASES),
            Group::Cancellation => cancellation::name(case),
            Group::Services => services::name(case),
            Group::Isolation => named(&isolation::CASES),
            Group::Resources => named(&resources::CASES),
            Group::Security => named(&security::CASES),
        }
    }

    /// Runs a case, in a child.
    pub(super) fn run(self, case: u64, bench: &Bench<'_>) -> Outcome {
        let named = |cases: &[Named]| {
            let at = usize::try_from(case.saturating_sub(1)).unwrap_or(usize::MAX);
            cases.get(at).map_or_else(|| Ok(Default::default()), |(_, run)| run(bench))
        };
        match self {
            Group::Load => named(&load::CASES),
            Group::Contract => named(&contract::CASES),
            Group::Transcript => transcript::run(histories::of_family(case), bench),
            Group::Progress => progress::run(histories::of_any(case), bench),
            Group::Determinism => determinism::run(histories::of_any(case), bench),
            Group::Restart => restart::run(case, bench),
            Group::Limits => named(&limits::CASES),
            Group::Cancellation => cancellation::run(case, bench),
            Group::Services => services::run(case, bench),
            Group::Isolation => named(&isolation::CASES),
            Group::Resources => named(&resources::CASES),
            Group::Security => named(&security::CASES),
        }
    }

    /// The line of the group in a report. `notes` are what its cases had to tell.
    pub(super) fn covered<'a>(self, notes: impl Iterator<Item = &'a str>) -> String {
        let told: Vec<&str> = notes.collect();
        let all = || told.join("; ");
        match self {
            Group::Load => all(),
            Group::Contract => {
                "ingest, assemble, compact, after_turn; unknown fields; idempotent commit".into()
            }
            Group::Transcript => format!(
                "{} generated histories x dialects {}",
                super::settings::HISTORIES,
                super::provider::Family::ALL.map(super::provider::Family::name).join(", ")
            ),
            Group::Progress => {
                let sound = "never larger; a no-op is reported as a no-op";
                [sound].into_iter().chain(told).collect::<Vec<_>>().join("; ")
            }
            Group::Determinism => {
                format!("same input, same bytes; stable prefix between turns: {}", all())
            }
            Group::Restart => "told again, restarted with its values and without them".into(),
            Group::Limits => limits::COVERED.into(),
            Group::Cancellation => "every call given up at every wait for the host".into(),
            Group::Services => {
                "services that fail, lie, forget, answer too late or too much".into()
            }
            Group::Isolation => "every call in a process of its own; panic, hang, abort".into(),
            Group::Resources => all(),
            Group::Security => "secrets, injection markers, path-like session ids".into(),
        }
    }
}

fn generated((number, family): histories::Key) -> History {
    History::generated(number, family)
}
