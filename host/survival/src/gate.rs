//! A gate: the least that a compaction has to keep, or it is not applied.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Category, Share, Survival};

/// What is lost is named in a refusal, but not all of it.
const NAMED_LOSSES: usize = 3;

/// Rules that all have to hold. Without any, every compaction passes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Gate {
    rules: Vec<Rule>,
}

/// The least that must be kept of a category: `paths >= 0.95`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    category: Category,
    least: f64,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// It is not made like one.
    #[error("{rule:?} is no rule of a gate; write it like \"paths >= 0.95\"")]
    Form {
        /// The text.
        rule: String,
    },
    /// Nothing is counted under this name.
    #[error("{name:?} is nothing that a compaction is measured by")]
    Category {
        /// The name.
        name: String,
    },
    /// The least is no share.
    #[error("{least:?} is no share; write a number from 0 to 1")]
    Least {
        /// What stands there.
        least: String,
    },
}

/// A rule that a compaction broke.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    rule: Rule,
    share: Share,
    lost: Vec<String>,
}

impl Gate {
    /// Whether a compaction passes.
    ///
    /// # Errors
    ///
    /// The first rule that it breaks.
    pub fn judge(&self, survival: &Survival) -> Result<(), Breach> {
        let breaks = |rule: &&Rule| survival.shares.of(rule.category).ratio() < rule.least;
        let Some(rule) = self.rules.iter().find(breaks) else { return Ok(()) };
        let lost = survival.lost.iter().filter(|lost| lost.category == rule.category);
        let lost = lost.take(NAMED_LOSSES).map(|lost| lost.text.clone()).collect();
        Err(Breach { rule: *rule, share: survival.shares.of(rule.category), lost })
    }
}

impl TryFrom<Vec<String>> for Gate {
    type Error = BadRule;

    fn try_from(rules: Vec<String>) -> Result<Gate, BadRule> {
        let rules = rules.iter().map(|rule| rule.parse()).collect::<Result<_, _>>()?;
        Ok(Gate { rules })
    }
}

impl From<Gate> for Vec<String> {
    fn from(gate: Gate) -> Vec<String> {
        gate.rules.iter().map(Rule::to_string).collect()
    }
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Rule, BadRule> {
        let form = || BadRule::Form { rule: text.to_owned() };
        let (name, least) = text.split_once(">=").ok_or_else(form)?;
        let (name, least) = (name.trim(), least.trim());
        let unknown = || BadRule::Category { name: name.to_owned() };
        let category = Category::from_name(name).ok_or_else(unknown)?;
        let share = least.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let least = share.ok_or_else(|| BadRule::Least { least: least.to_owned() })?;
        Ok(Rule { category, least })
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} >= {:?}", self.category.name(), self.least)
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Breach { rule, share, lost } = self;
        let (name, least) = (rule.category.name(), rule.least);
        let (Share { kept, total }, ratio) = (share, share.ratio());
        write!(f, "it keeps {kept} of {total} {name} ({ratio:.2}) and the gate wants {least:.2}")?;
        match lost.as_slice() {
            [] => Ok(()),
            lost => write!(f, "; lost: {}", lost.join(" | ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Lost, Shares};
    use super::*;

    fn gate(rules: &[&str]) -> Result<Gate, BadRule> {
        Gate::try_from(rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn rules_are_read_and_written() {
        let rules = gate(&["paths>=0.95", " asks  >= 1"]).unwrap();
        assert_eq!(Vec::from(rules), ["paths >= 0.95", "asks >= 1.0"]);
        let category = BadRule::Category { name: "path".into() };
        assert_eq!(gate(&["path >= 0.9"]), Err(category));
        for (wrong, least) in [("ids >= 95", "95"), ("ids >= nan", "nan"), ("ids >= ", "")] {
            assert_eq!(gate(&[wrong]), Err(BadRule::Least { least: least.into() }), "{wrong}");
        }
        assert!(matches!(gate(&["ids > 1"]), Err(BadRule::Form { .. })));
    }

    #[test]
    fn the_first_broken_rule_is_named_with_what_was_lost() {
        let mut survival = Survival {
            shares: Shares { paths: Share { kept: 1, total: 3 }, ..Shares::default() },
            lost: Vec::new(),
        };
        for text in ["a/b.rs", "c/d.rs"] {
            let (category, text) = (Category::Paths, text.into());
            survival.lost.push(Lost { category, text, entry: "e".into() });
        }
        let judged = |rules: &[&str]| {
            gate(rules).unwrap().judge(&survival).map_err(|breach| breach.to_string())
        };
        assert_eq!(judged(&[]), Ok(()));
        assert_eq!(judged(&["paths >= 0.33", "asks >= 1.0"]), Ok(()), "nothing asked, none lost");
        assert_eq!(
            judged(&["paths >= 0.95"]).unwrap_err(),
            "it keeps 1 of 3 paths (0.33) and the gate wants 0.95; lost: a/b.rs | c/d.rs"
        );
    }
}
