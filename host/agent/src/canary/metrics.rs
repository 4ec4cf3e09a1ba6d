//! What was measured of an engine's turns, summed up, and the names of the figures.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use ctxhost_retention::{Category, Shares};

/// What one turn measured of the engine that it was served by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnMetrics {
    /// The canary that was on.
    pub run: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The session.
    pub session: String,
    /// Turns that ended: 1, or 0 for what the host does between two turns.
    pub turns: u64,
    /// Those of them that ended without an answer.
    pub failed_turns: u64,
    /// Time inside the engine of each request, without compactions, in microseconds.
    pub engine_us: Vec<u64>,
    /// Plans that the law refused.
    pub illegal: u64,
    /// Calls of the engine that failed.
    pub failures: u64,
    /// Repairs that the law made to plans.
    pub repairs: u64,
    /// Requests that something else than the engine shaped.
    pub fallbacks: u64,
    /// Compactions that were applied.
    pub compactions: u64,
    /// Compactions that were rejected.
    pub rejected: u64,
    /// What the applied ones kept, in sum.
    pub survival: Shares,
}

/// What was measured over many turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricTotals {
    /// Turns.
    pub turns: u64,
    /// Sessions that had any.
    pub sessions: BTreeSet<String>,
    /// Turns that ended without an answer.
    pub failed_turns: u64,
    /// Requests that were shaped.
    pub requests: u64,
    /// Their times inside the engine, in microseconds, sorted.
    pub engine_us: Vec<u64>,
    /// As in [`TurnMetrics`].
    pub illegal: u64,
    /// As in [`TurnMetrics`].
    pub failures: u64,
    /// As in [`TurnMetrics`].
    pub repairs: u64,
    /// As in [`TurnMetrics`].
    pub fallbacks: u64,
    /// As in [`TurnMetrics`].
    pub compactions: u64,
    /// As in [`TurnMetrics`].
    pub rejected: u64,
    /// As in [`TurnMetrics`].
    pub survival: Shares,
}

impl TurnMetrics {
    /// Whether there is nothing in it to be kept.
    pub(crate) fn is_empty(&self) -> bool {
        let tried = self.compactions + self.rejected;
        self.turns + tried + self.illegal + self.failures == 0 && self.engine_us.is_empty()
    }
}

impl MetricTotals {
    /// The sum of turns.
    pub fn from_turns(turns: impl IntoIterator<Item = TurnMetrics>) -> MetricTotals {
        let mut sum = MetricTotals::default();
        for turn in turns {
            sum.turns += turn.turns;
            sum.failed_turns += turn.failed_turns;
            sum.requests += turn.engine_us.len() as u64;
            sum.illegal += turn.illegal;
            sum.failures += turn.failures;
            sum.repairs += turn.repairs;
            sum.fallbacks += turn.fallbacks;
            sum.compactions += turn.compactions;
            sum.rejected += turn.rejected;
            sum.survival.add(&turn.survival);
            sum.engine_us.extend(turn.engine_us);
            sum.sessions.insert(turn.session);
        }
        sum.engine_us.sort_unstable();
        sum
    }

    /// One of them; `None` where nothing was measured that it could be made of.
    pub fn value(&self, metric: MetricName) -> Option<f64> {
        let count = |count: u64| (self.turns > 0 || count > 0).then_some(count as f64);
        match metric {
            MetricName::Count(count_of) => count(count_of.value(self)),
            MetricName::Survival(None) => (self.compactions > 0).then(|| self.survival.mean()),
            MetricName::Survival(Some(category)) => {
                let share = self.survival.of(category);
                (share.total > 0).then(|| share.ratio())
            }
            MetricName::Percentile(percent) => self.percentile_ms(percent),
            MetricName::MaxMs => self.engine_us.last().map(|us| *us as f64 / 1_000.0),
        }
    }

    /// The nearest rank.
    fn percentile_ms(&self, percent: u64) -> Option<f64> {
        let rank = (self.engine_us.len() as u64 * percent).div_ceil(100).max(1);
        let index = usize::try_from(rank - 1).ok()?;
        self.engine_us.get(index).map(|us| *us as f64 / 1_000.0)
    }
}

/// The name of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricName {
    /// Something that is counted.
    Count(CounterName),
    /// What compactions kept: of a category, or the mean of all.
    Survival(Option<Category>),
    /// Time inside the engine for a request, in milliseconds.
    Percentile(u64),
    /// The longest of these times.
    MaxMs,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterName {
    /// Turns.
    Turns,
    /// Requests.
    Requests,
    /// Plans that the law refused.
    Illegal,
    /// Calls that failed.
    Failures,
    /// Turns that ended without an answer.
    FailedTurns,
    /// Repairs by the law.
    Repairs,
    /// Requests that something else shaped.
    Fallbacks,
    /// Compactions.
    Compactions,
    /// Compactions that were rejected.
    Rejected,
}

const COUNTS: [(&str, CounterName); 9] = [
    ("illegal", CounterName::Illegal),
    ("failures", CounterName::Failures),
    ("failed_turns", CounterName::FailedTurns),
    ("repairs", CounterName::Repairs),
    ("fallbacks", CounterName::Fallbacks),
    ("turns", CounterName::Turns),
    ("requests", CounterName::Requests),
    ("compactions", CounterName::Compactions),
    ("rejected", CounterName::Rejected),
];

const PERCENTILES: [u64; 3] = [50, 95, 99];

impl CounterName {
    fn value(self, figures: &MetricTotals) -> u64 {
        match self {
            CounterName::Turns => figures.turns,
            CounterName::Requests => figures.requests,
            CounterName::Illegal => figures.illegal,
            CounterName::Failures => figures.failures,
            CounterName::FailedTurns => figures.failed_turns,
            CounterName::Repairs => figures.repairs,
            CounterName::Fallbacks => figures.fallbacks,
            CounterName::Compactions => figures.compactions,
            CounterName::Rejected => figures.rejected,
        }
    }
}

impl MetricName {
    /// All of them.
    pub fn all() -> impl Iterator<Item = MetricName> {
        let counts = COUNTS.into_iter().map(|(_, count)| MetricName::Count(count));
        let shares = Category::ALL.into_iter().map(|category| MetricName::Survival(Some(category)));
        let times = PERCENTILES.into_iter().map(MetricName::Percentile);
        let rest = [MetricName::Survival(None), MetricName::MaxMs];
        counts.chain(shares).chain(times).chain(rest)
    }

    /// Whether few requests make it say nothing.
    pub(super) fn is_percentile(self) -> bool {
        matches!(self, MetricName::Percentile(_))
    }
}

impl std::fmt::Display for MetricName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MetricName::Count(count) => {
                let named = COUNTS.iter().find(|(_, it)| it == count);
                f.write_str(named.map_or("", |(name, _)| name))
            }
            MetricName::Survival(None) => f.write_str("survival"),
            MetricName::Survival(Some(category)) => write!(f, "survival.{}", category.name()),
            MetricName::Percentile(percent) => write!(f, "p{percent}_ms"),
            MetricName::MaxMs => f.write_str("max_ms"),
        }
    }
}

impl FromStr for MetricName {
    type Err = ();

    fn from_str(name: &str) -> Result<MetricName, ()> {
        MetricName::all().find(|metric| metric.to_string() == name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_retention::CategoryShare;

    #[test]
    fn turns_are_summed_up() {
        let turn = |session: &str, engine_us: Vec<u64>| TurnMetrics {
            session: session.into(),
            turns: 1,
            engine_us,
            compactions: 1,
            survival: Shares { paths: CategoryShare { kept: 1, total: 2 }, ..Shares::default() },
            ..TurnMetrics::default()
        };
        let figures =
            MetricTotals::from_turns([turn("a", vec![3_000, 1_000]), turn("a", vec![2_000])]);
        let of = |name: &str| figures.value(name.parse().unwrap());
        assert_eq!(
            (figures.sessions.len(), of("turns"), of("requests")),
            (1, Some(2.0), Some(3.0))
        );
        assert_eq!(of("survival.paths"), Some(0.5));
        assert_eq!(of("survival"), Some(0.5));
        assert_eq!(of("survival.asks"), None, "nothing was asked");
        assert_eq!((of("p50_ms"), of("p99_ms"), of("max_ms")), (Some(2.0), Some(3.0), Some(3.0)));
        assert_eq!(of("illegal"), Some(0.0));
        assert_eq!(MetricTotals::default().value(MetricName::Count(CounterName::Illegal)), None);
    }

    #[test]
    fn every_figure_has_a_name_of_its_own() {
        for metric in MetricName::all() {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        assert_eq!("p98_ms".parse::<MetricName>(), Err(()));
    }
}
