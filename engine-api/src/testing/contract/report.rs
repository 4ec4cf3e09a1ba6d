//! The report of the suite: one line for each check.

use std::fmt;

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractCheck {
    /// The name: `assemble: fifty entries`.
    pub name: String,
    /// The rule of the contract.
    pub rule: &'static str,
    /// The outcome.
    pub outcome: CheckOutcome,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The engine keeps the rule.
    Ok,
    /// The engine breaks the rule; the message has the details.
    Failed(String),
}

/// Every check of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractReport {
    /// The checks.
    pub checks: Vec<ContractCheck>,
}

impl ContractReport {
    /// The checks that failed.
    pub fn failures(&self) -> Vec<&ContractCheck> {
        self.checks.iter().filter(|check| check.outcome != CheckOutcome::Ok).collect()
    }

    /// Whether all checks passed.
    pub fn passed(&self) -> bool {
        self.failures().is_empty()
    }
}

impl fmt::Display for ContractReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for ContractCheck { name, rule, outcome } in &self.checks {
            match outcome {
                CheckOutcome::Ok => writeln!(f, "ok      {name:width$}  {rule}")?,
                CheckOutcome::Failed(message) => {
                    writeln!(f, "FAILED  {name:width$}  {rule}")?;
                    writeln!(f, "        {:width$}  {message}", "")?;
                }
            }
        }
        write!(f, "{} checks, {} failed", self.checks.len(), self.failures().len())
    }
}
