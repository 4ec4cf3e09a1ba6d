//! The contract suite: what every engine keeps to, linked or loaded, asked through its door.
//!
//! It asks the engine alone. What the host's law repairs or refuses in a plan is the law's own test.

mod assemble;
mod cases;
mod compact;
mod creation;
mod faults;
mod lifecycle;
mod report;
mod session;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};

pub use faults::plan_fault;
pub use report::{CheckOutcome, ContractCheck, ContractReport};

use crate::abi::guard::catch;
use crate::border::EngineFactory;

/// What the suite must know of an engine to run it.
#[derive(Clone, Debug)]
pub struct ContractOptions {
    /// The config the engine is created with; `{}` unless it cannot be created without settings.
    pub config: Value,
    /// What the model answers each time; `None` for a host without a model.
    pub completion: Option<String>,
    /// How long one call may take before it counts as hanging. 60 s, because the suite also runs
    /// unoptimised, on busy machines, over five megabytes.
    pub call_limit: Duration,
    /// Told the name of each check before it begins, for whoever must know where a process died.
    pub on_check: fn(&str),
}

impl Default for ContractOptions {
    fn default() -> Self {
        ContractOptions {
            config: json!({}),
            completion: None,
            call_limit: Duration::from_secs(60),
            on_check: |_| {},
        }
    }
}

/// Runs the whole suite on the engine behind `door`.
pub fn contract(door: EngineFactory, options: &ContractOptions) -> ContractReport {
    let mut suite = ContractSuite { door, options, checks: Vec::new() };
    creation::run(&mut suite);
    assemble::run(&mut suite);
    compact::run(&mut suite);
    lifecycle::run(&mut suite);
    ContractReport { checks: suite.checks }
}

/// `Err` says what is wrong.
type ContractVerdict = Result<(), String>;

struct ContractSuite<'a> {
    door: EngineFactory,
    options: &'a ContractOptions,
    checks: Vec<ContractCheck>,
}

impl ContractSuite<'_> {
    /// Runs one check. What panics past the engine's own guards has failed, too.
    fn check(
        &mut self,
        name: impl Into<String>,
        rule: &'static str,
        body: impl FnOnce(EngineFactory, &ContractOptions) -> ContractVerdict,
    ) {
        let name = name.into();
        (self.options.on_check)(&name);
        let verdict = catch(|| body(self.door, self.options));
        let outcome = match verdict.unwrap_or_else(|panicked| Err(panicked.message)) {
            Ok(()) => CheckOutcome::Ok,
            Err(message) => CheckOutcome::Failed(message),
        };
        self.checks.push(ContractCheck { name, rule, outcome });
    }
}
