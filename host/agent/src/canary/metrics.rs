//! The metrics of an engine's turns, their totals and names.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use ctxhost_retention::{Category, Shares};

/// The metrics of one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
// Lines of older versions lack newer fields.
#[serde(default)]
pub struct TurnMetrics {
    /// The run of the active canary.
    pub run: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    pub session: String,
    /// Ended turns: 1, or 0 for work between two turns.
    pub turns: u64,
    /// Ended turns without an answer.
    pub failed_turns: u64,
    /// The time inside the engine per request, without compactions, in microseconds.
    pub engine_us: Vec<u64>,
    /// Plans that the invariants rejected.
    // The key of earlier versions; the file outlives an update.
    #[serde(alias = "illegal")]
    pub violations: u64,
    pub failures: u64,
    pub repairs: u64,
    /// Requests that the fallback engine or the emergency trim shaped.
    pub fallbacks: u64,
    pub compactions: u64,
    pub rejected: u64,
    /// What the applied compactions retained, in sum.
    #[serde(alias = "survival")]
    pub retention: Shares,
}

/// The totals of many turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricTotals {
    /// The sums of their numbers; the times are sorted.
    pub sum: TurnMetrics,
    /// Sessions with a turn.
    pub sessions: BTreeSet<String>,
}

impl TurnMetrics {
    /// Whether there is nothing to record.
    pub(crate) fn is_empty(&self) -> bool {
        let tried = self.compactions + self.rejected;
        self.turns + tried + self.violations + self.failures == 0 && self.engine_us.is_empty()
    }

    fn add(&mut self, turn: TurnMetrics) {
        self.turns += turn.turns;
        self.failed_turns += turn.failed_turns;
        self.engine_us.extend(turn.engine_us);
        self.violations += turn.violations;
        self.failures += turn.failures;
        self.repairs += turn.repairs;
        self.fallbacks += turn.fallbacks;
        self.compactions += turn.compactions;
        self.rejected += turn.rejected;
        self.retention.add(&turn.retention);
    }

    /// The number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.engine_us.len() as u64
    }
}

impl MetricTotals {
    /// Adds up the metrics of turns.
    pub fn from_turns(turns: impl IntoIterator<Item = TurnMetrics>) -> MetricTotals {
        let mut totals = MetricTotals::default();
        for mut turn in turns {
            totals.sessions.insert(std::mem::take(&mut turn.session));
            totals.sum.add(turn);
        }
        // Sorted once, since percentiles index into it.
        totals.sum.engine_us.sort_unstable();
        totals
    }

    /// The value of a metric; `None` without measurements.
    pub fn value(&self, metric: MetricName) -> Option<f64> {
        // Without any turn a count of 0 is not a measurement.
        let sum = &self.sum;
        let count = |count: u64| (sum.turns > 0 || count > 0).then_some(count as f64);
        match metric {
            MetricName::Count(name) => {
                let (_, read) = COUNTERS.iter().find(|(counter, _)| *counter == name)?;
                count(read(sum))
            }
            MetricName::Retention(None) => (sum.compactions > 0).then(|| sum.retention.mean()),
            MetricName::Retention(Some(category)) => {
                let share = sum.retention.of(category);
                (share.total > 0).then(|| share.ratio())
            }
            MetricName::Percentile(percent) => self.percentile_ms(percent),
            MetricName::MaxMs => sum.engine_us.last().map(|us| *us as f64 / 1_000.0),
        }
    }

    fn percentile_ms(&self, percent: u64) -> Option<f64> {
        // Nearest rank: a measured value, not an interpolated one.
        let rank = (self.sum.requests() * percent).div_ceil(100).max(1);
        let index = usize::try_from(rank - 1).ok()?;
        self.sum.engine_us.get(index).map(|us| *us as f64 / 1_000.0)
    }
}

/// The name of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricName {
    /// A counter.
    Count(&'static str),
    /// What compactions retained: of a category, or the mean of all.
    Retention(Option<Category>),
    /// A percentile of the time inside the engine per request, in milliseconds.
    Percentile(u64),
    /// The maximum of that time.
    MaxMs,
}

type CounterValue = fn(&TurnMetrics) -> u64;

/// The counters.
const COUNTERS: [(&str, CounterValue); 9] = [
    ("violations", |sum| sum.violations),
    ("failures", |sum| sum.failures),
    ("failed_turns", |sum| sum.failed_turns),
    ("repairs", |sum| sum.repairs),
    ("fallbacks", |sum| sum.fallbacks),
    ("turns", |sum| sum.turns),
    ("requests", TurnMetrics::requests),
    ("compactions", |sum| sum.compactions),
    ("rejected", |sum| sum.rejected),
];

const PERCENTILES: [u64; 3] = [50, 95, 99];

impl MetricName {
    /// All metrics.
    pub fn all() -> impl Iterator<Item = MetricName> {
        let counts = COUNTERS.into_iter().map(|(name, _)| MetricName::Count(name));
        let shares =
            Category::ALL.into_iter().map(|category| MetricName::Retention(Some(category)));
        let times = PERCENTILES.into_iter().map(MetricName::Percentile);
        let rest = [MetricName::Retention(None), MetricName::MaxMs];
        counts.chain(shares).chain(times).chain(rest)
    }

    /// Whether it needs a minimum number of requests.
    pub(super) fn is_percentile(self) -> bool {
        matches!(self, MetricName::Percentile(_))
    }
}

impl std::fmt::Display for MetricName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MetricName::Count(name) => f.write_str(name),
            MetricName::Retention(None) => f.write_str("retention"),
            MetricName::Retention(Some(category)) => write!(f, "retention.{}", category.name()),
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
    fn turns_are_added_up() {
        let turn = |session: &str, engine_us: Vec<u64>| TurnMetrics {
            session: session.into(),
            turns: 1,
            engine_us,
            compactions: 1,
            retention: Shares { paths: CategoryShare { kept: 1, total: 2 }, ..Shares::default() },
            ..TurnMetrics::default()
        };
        let totals =
            MetricTotals::from_turns([turn("a", vec![3_000, 1_000]), turn("a", vec![2_000])]);
        let of = |name: &str| totals.value(name.parse().unwrap());
        assert_eq!((totals.sessions.len(), of("turns"), of("requests")), (1, Some(2.0), Some(3.0)));
        assert_eq!(of("retention.paths"), Some(0.5));
        assert_eq!(of("retention"), Some(0.5));
        assert_eq!(of("retention.asks"), None, "nothing was asked");
        assert_eq!((of("p50_ms"), of("p99_ms"), of("max_ms")), (Some(2.0), Some(3.0), Some(3.0)));
        assert_eq!(of("violations"), Some(0.0));
        assert_eq!(MetricTotals::default().value(MetricName::Count("violations")), None);
    }

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let line =
            r#"{"turns":1,"illegal":2,"compactions":1,"survival":{"paths":{"kept":1,"total":2}}}"#;
        let totals = MetricTotals::from_turns([serde_json::from_str(line).unwrap()]);
        let of = |name: &str| totals.value(name.parse().unwrap());
        assert_eq!((of("violations"), of("retention.paths")), (Some(2.0), Some(0.5)));
    }

    #[test]
    fn every_metric_has_a_unique_name() {
        for metric in MetricName::all() {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        assert_eq!("p98_ms".parse::<MetricName>(), Err(()));
    }
}
