//! Guards of a canary: conditions on its metrics, such as `retention.paths >= 0.95`.
//!
//! ```text
//! guard  = metric operator number
//! metric = name [ "." name ]        p99_ms, violations, retention.paths
//! number = decimal [ "%" ]          95% is 0.95
//! ```

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use ctxhost_config::new_metric_name;

use super::metrics::{MetricName, MetricTotals};

/// A condition on a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CanaryGuard {
    metric: MetricName,
    operator: GuardOperator,
    limit: f64,
}

/// A comparison of a metric with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardOperator {
    Equal,
    Unequal,
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// All operators, longer ones first, since `>` is a prefix of `>=`.
const OPERATORS: [(&str, GuardOperator); 6] = [
    ("==", GuardOperator::Equal),
    ("!=", GuardOperator::Unequal),
    (">=", GuardOperator::AtLeast),
    ("<=", GuardOperator::AtMost),
    (">", GuardOperator::Above),
    ("<", GuardOperator::Below),
];

/// A syntax error in a guard, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid guard {text:?}, at character {column}: {problem}; example: \"retention.paths >= 0.95\""
)]
pub struct GuardError {
    pub text: String,
    /// The position of the error, in characters from 1.
    pub column: usize,
    /// The error.
    pub problem: String,
}

/// The result of a guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GuardVerdict {
    /// It holds for this value.
    Holds(f64),
    /// It is broken by this value.
    Broken(f64),
    /// Measurements are missing or too few.
    Undecided,
}

impl CanaryGuard {
    /// The metric.
    pub fn metric(&self) -> MetricName {
        self.metric
    }

    /// Checks totals. A percentile of fewer than `min_requests` requests is undecided.
    pub fn check(&self, totals: &MetricTotals, min_requests: u64) -> GuardVerdict {
        let has_too_few = self.metric.is_percentile() && totals.sum.requests() < min_requests;
        let Some(value) = totals.value(self.metric).filter(|_| !has_too_few) else {
            return GuardVerdict::Undecided;
        };
        if self.operator.holds(value, self.limit) {
            GuardVerdict::Holds(value)
        } else {
            GuardVerdict::Broken(value)
        }
    }
}

impl GuardOperator {
    fn holds(self, value: f64, limit: f64) -> bool {
        // Limits are decimal fractions and values are ratios of counts, so exact equality would fail.
        let is_equal = (value - limit).abs() < 1e-9;
        match self {
            GuardOperator::Equal => is_equal,
            GuardOperator::Unequal => !is_equal,
            GuardOperator::AtLeast => value >= limit || is_equal,
            GuardOperator::AtMost => value <= limit || is_equal,
            GuardOperator::Above => value > limit && !is_equal,
            GuardOperator::Below => value < limit && !is_equal,
        }
    }

    fn sign(self) -> &'static str {
        let is_self = |(_, operator): &&(&str, GuardOperator)| *operator == self;
        OPERATORS.iter().find(is_self).map_or("", |(sign, _)| sign)
    }
}

impl FromStr for CanaryGuard {
    type Err = GuardError;

    fn from_str(text: &str) -> Result<CanaryGuard, GuardError> {
        GuardParser { text, at: 0, reads_old_names: false }.guard()
    }
}

impl TryFrom<String> for CanaryGuard {
    type Error = GuardError;

    fn try_from(text: String) -> Result<CanaryGuard, GuardError> {
        // The state of a canary that an earlier version started has the names of that version.
        GuardParser { text: &text, at: 0, reads_old_names: true }.guard()
    }
}

impl From<CanaryGuard> for String {
    fn from(guard: CanaryGuard) -> String {
        guard.to_string()
    }
}

impl std::fmt::Display for CanaryGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The shortest text that parses to the same number, so guards round-trip.
        write!(f, "{} {} {}", self.metric, self.operator.sign(), self.limit)
    }
}

/// A parser of guards.
struct GuardParser<'a> {
    text: &'a str,
    /// In bytes.
    at: usize,
    /// Whether names of earlier versions are read; otherwise they are errors that give the new name.
    reads_old_names: bool,
}

impl<'a> GuardParser<'a> {
    fn guard(mut self) -> Result<CanaryGuard, GuardError> {
        let metric = self.metric()?;
        let operator = self.operator()?;
        let limit = self.number()?;
        self.end()?;
        Ok(CanaryGuard { metric, operator, limit })
    }

    fn metric(&mut self) -> Result<MetricName, GuardError> {
        self.skip_spaces();
        let start = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if name.is_empty() {
            return Err(self.error_at(start, "a metric name is missing".into()));
        }
        let renamed = new_metric_name(name);
        if let Some(new) = renamed.as_ref().filter(|_| !self.reads_old_names) {
            return Err(self.error_at(start, format!("`{name}` was renamed to `{new}`")));
        }
        renamed.as_deref().unwrap_or(name).parse().map_err(|()| {
            let near = MetricName::all().map(|metric| metric.to_string());
            // Any distance: there are few metrics, and the hint is only a question.
            let near = near.min_by_key(|known| strsim::damerau_levenshtein(known, name));
            let near = near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
            self.error_at(start, format!("unknown metric `{name}`{near}"))
        })
    }

    fn operator(&mut self) -> Result<GuardOperator, GuardError> {
        self.skip_spaces();
        let found = OPERATORS.iter().find(|(sign, _)| self.remaining().starts_with(sign));
        let Some((sign, operator)) = found else {
            return Err(self.error_at(self.at, "one of == != >= <= > < is missing".into()));
        };
        self.at += sign.len();
        Ok(*operator)
    }

    fn number(&mut self) -> Result<f64, GuardError> {
        self.skip_spaces();
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '.' || c == '-');
        let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
        let Some(number) = number else {
            return Err(self.error_at(start, "a number is missing".into()));
        };
        // `95%` and `0.95` are the same limit.
        let is_percent = self.remaining().starts_with('%');
        self.at += usize::from(is_percent);
        Ok(if is_percent { number / 100.0 } else { number })
    }

    fn end(&mut self) -> Result<(), GuardError> {
        self.skip_spaces();
        if self.remaining().is_empty() {
            return Ok(());
        }
        Err(self.error_at(self.at, format!("unexpected `{}`", self.remaining())))
    }

    fn remaining(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let left = self.remaining();
        let end = left.find(|c| !belongs(c)).unwrap_or(left.len());
        self.at += end;
        left.get(..end).unwrap_or_default()
    }

    fn error_at(&self, at: usize, problem: String) -> GuardError {
        let before = self.text.get(..at).unwrap_or_default();
        GuardError { text: self.text.into(), column: before.chars().count() + 1, problem }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::metrics::TurnMetrics;
    use super::*;

    fn mistake(text: &str) -> (usize, String) {
        let error = text.parse::<CanaryGuard>().unwrap_err();
        (error.column, error.problem)
    }

    #[test]
    fn guards_are_read_and_written() {
        let check = |text: &str, written: &str| {
            assert_eq!(text.parse::<CanaryGuard>().unwrap().to_string(), written, "{text}");
        };
        check("violations==0", "violations == 0");
        check("retention.paths>=0.95", "retention.paths >= 0.95");
        check(" retention >= 95% ", "retention >= 0.95");
        check("p99_ms<150", "p99_ms < 150");
        check("fallbacks != 1.5", "fallbacks != 1.5");
    }

    #[test]
    fn errors_have_a_position() {
        let check = |text, column, problem: &str| {
            assert_eq!(mistake(text), (column, problem.to_owned()), "{text}");
        };
        check("", 1, "a metric name is missing");
        check("  p99<150", 3, "unknown metric `p99` (did you mean `p99_ms`?)");
        check("violations=0", 11, "one of == != >= <= > < is missing");
        check("violations ==", 14, "a number is missing");
        check("violations == 1.2.3", 15, "a number is missing");
        check("p99_ms < 150 ms", 14, "unexpected `ms`");
        check("ü==1", 1, "a metric name is missing");
        check("illegal == 0", 1, "`illegal` was renamed to `violations`");
        check("survival.paths > 0", 1, "`survival.paths` was renamed to `retention.paths`");
    }

    #[test]
    fn stored_guards_of_earlier_versions_are_read() {
        let stored: Vec<CanaryGuard> =
            serde_json::from_str(r#"["illegal == 0", "survival.paths >= 0.9"]"#).unwrap();
        let written = stored.iter().map(CanaryGuard::to_string).collect::<Vec<_>>();
        assert_eq!(written, ["violations == 0", "retention.paths >= 0.9"]);
    }

    #[test]
    fn totals_are_checked() {
        let turn =
            TurnMetrics { violations: 1, engine_us: vec![2_000; 3], ..TurnMetrics::default() };
        let totals = MetricTotals::from_turns([turn]);
        let checked = |text: &str| text.parse::<CanaryGuard>().unwrap().check(&totals, 20);
        assert_eq!(checked("violations == 0"), GuardVerdict::Broken(1.0));
        assert_eq!(checked("violations <= 1"), GuardVerdict::Holds(1.0));
        assert_eq!(
            checked("retention.paths >= 0.95"),
            GuardVerdict::Undecided,
            "nothing was compacted"
        );
        assert_eq!(
            checked("p99_ms < 1"),
            GuardVerdict::Undecided,
            "three requests have no 99th percentile"
        );
        assert_eq!(checked("max_ms < 1"), GuardVerdict::Broken(2.0));
    }

    fn any_guard() -> impl Strategy<Value = CanaryGuard> {
        let metrics: Vec<MetricName> = MetricName::all().collect();
        let operators = OPERATORS.map(|(_, operator)| operator);
        let limit = (-1_000_000i64..1_000_000, 0u32..4);
        let limit = limit.prop_map(|(digits, places)| digits as f64 / f64::from(10u32.pow(places)));
        (proptest::sample::select(metrics), proptest::sample::select(operators.to_vec()), limit)
            .prop_map(|(metric, operator, limit)| CanaryGuard { metric, operator, limit })
    }

    proptest! {
        #[test]
        fn guards_round_trip(guard in any_guard(), spaces in " {0,3}") {
            let text = guard.to_string().replace(' ', &spaces);
            prop_assert_eq!(text.parse::<CanaryGuard>().unwrap(), guard);
        }

        #[test]
        fn any_text_parses_or_has_an_error_position(text in "[a-z0-9_.<>=!% ü-]{0,24}") {
            match text.parse::<CanaryGuard>() {
                Ok(guard) => prop_assert_eq!(guard.to_string().parse::<CanaryGuard>().unwrap(), guard),
                Err(error) => prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1),
            }
        }

        #[test]
        fn opposites_never_agree(value in -1e6f64..1e6, limit in -1e6f64..1e6) {
            for (one, other) in [
                (GuardOperator::Equal, GuardOperator::Unequal),
                (GuardOperator::AtLeast, GuardOperator::Below),
                (GuardOperator::AtMost, GuardOperator::Above),
            ] {
                prop_assert_ne!(one.holds(value, limit), other.holds(value, limit));
            }
        }
    }
}
