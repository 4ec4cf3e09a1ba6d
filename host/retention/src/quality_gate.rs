//! The quality gate: the least that a compaction must retain to be applied.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Category, CategoryShare, RetentionReport};

/// The number of lost facts that a refusal names.
const NAMED_LOSSES: usize = 3;

/// Rules that must all hold. Without rules every compaction passes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct QualityGate {
    rules: Vec<GateRule>,
}

/// The least share of a category: `paths >= 0.95`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateRule {
    category: Category,
    least: f64,
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateRuleError {
    /// It is malformed.
    #[error("{rule:?} is not a rule; write it like \"paths >= 0.95\"")]
    Form {
        /// The text.
        rule: String,
    },
    /// The category does not exist.
    #[error("{name:?} is not a category of facts")]
    Category {
        /// The name.
        name: String,
    },
    /// The least is not a share.
    #[error("{least:?} is not a share; write a number from 0 to 1")]
    Least {
        /// The text.
        least: String,
    },
}

/// A rule that a compaction violates, with what it lost.
#[derive(Clone, Debug, PartialEq)]
pub struct GateFailure {
    rule: GateRule,
    share: CategoryShare,
    lost: Vec<String>,
}

impl QualityGate {
    /// Checks a compaction.
    ///
    /// # Errors
    ///
    /// The first rule that it violates.
    pub fn check(&self, report: &RetentionReport) -> Result<(), GateFailure> {
        let breaks = |rule: &&GateRule| report.shares.of(rule.category).ratio() < rule.least;
        let Some(rule) = self.rules.iter().find(breaks) else { return Ok(()) };
        let lost = report.lost.iter().filter(|lost| lost.category == rule.category);
        let lost = lost.take(NAMED_LOSSES).map(|lost| lost.text.clone()).collect();
        Err(GateFailure { rule: *rule, share: report.shares.of(rule.category), lost })
    }
}

impl TryFrom<Vec<String>> for QualityGate {
    type Error = GateRuleError;

    fn try_from(rules: Vec<String>) -> Result<QualityGate, GateRuleError> {
        let rules = rules.iter().map(|rule| rule.parse()).collect::<Result<_, _>>()?;
        Ok(QualityGate { rules })
    }
}

impl From<QualityGate> for Vec<String> {
    fn from(gate: QualityGate) -> Vec<String> {
        gate.rules.iter().map(GateRule::to_string).collect()
    }
}

impl FromStr for GateRule {
    type Err = GateRuleError;

    fn from_str(text: &str) -> Result<GateRule, GateRuleError> {
        let form = || GateRuleError::Form { rule: text.to_owned() };
        let (name, least) = text.split_once(">=").ok_or_else(form)?;
        let (name, least) = (name.trim(), least.trim());
        let unknown = || GateRuleError::Category { name: name.to_owned() };
        let category = Category::from_name(name).ok_or_else(unknown)?;
        // `contains` also refuses NaN, which every comparison with a share would pass.
        let share = least.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let least = share.ok_or_else(|| GateRuleError::Least { least: least.to_owned() })?;
        Ok(GateRule { category, least })
    }
}

impl std::fmt::Display for GateRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} >= {:?}", self.category.name(), self.least)
    }
}

impl std::fmt::Display for GateFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GateFailure { rule, share, lost } = self;
        let (name, least) = (rule.category.name(), rule.least);
        let (CategoryShare { kept, total }, ratio) = (share, share.ratio());
        write!(f, "it keeps {kept} of {total} {name} ({ratio:.2}) and the gate wants {least:.2}")?;
        match lost.as_slice() {
            [] => Ok(()),
            lost => write!(f, "; lost: {}", lost.join(" | ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LostFact, Shares};
    use super::*;

    fn gate(rules: &[&str]) -> Result<QualityGate, GateRuleError> {
        QualityGate::try_from(rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn rules_survive_parsing_and_printing() {
        let rules = gate(&["paths>=0.95", " asks  >= 1"]).unwrap();
        assert_eq!(Vec::from(rules), ["paths >= 0.95", "asks >= 1.0"]);
        let category = GateRuleError::Category { name: "path".into() };
        assert_eq!(gate(&["path >= 0.9"]), Err(category));
        for (wrong, least) in [("ids >= 95", "95"), ("ids >= nan", "nan"), ("ids >= ", "")] {
            assert_eq!(
                gate(&[wrong]),
                Err(GateRuleError::Least { least: least.into() }),
                "{wrong}"
            );
        }
        assert!(matches!(gate(&["ids > 1"]), Err(GateRuleError::Form { .. })));
    }

    #[test]
    fn the_first_broken_rule_is_named_with_what_was_lost() {
        let shares = Shares { paths: CategoryShare { kept: 1, total: 3 }, ..Shares::default() };
        let mut report = RetentionReport { shares, ..RetentionReport::default() };
        for text in ["a/b.rs", "c/d.rs"] {
            let (category, text) = (Category::Paths, text.into());
            report.lost.push(LostFact { category, text, entry: "e".into() });
        }
        let judged = |rules: &[&str]| {
            gate(rules).unwrap().check(&report).map_err(|breach| breach.to_string())
        };
        assert_eq!(judged(&[]), Ok(()));
        assert_eq!(judged(&["paths >= 0.33", "asks >= 1.0"]), Ok(()), "nothing asked, none lost");
        assert_eq!(
            judged(&["paths >= 0.95"]).unwrap_err(),
            "it keeps 1 of 3 paths (0.33) and the gate wants 0.95; lost: a/b.rs | c/d.rs"
        );
    }
}
