//! What the suite found: one line for each check.

use std::fmt;

/// One check and how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractCheck {
    /// What was tried: `assemble: fifty entries`.
    pub name: String,
    /// What the contract says about it.
    pub rule: &'static str,
    /// How it went.
    pub outcome: CheckOutcome,
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// As the contract says.
    Ok,
    /// Otherwise; the message says in what.
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

    /// Whether every check went as the contract says.
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
