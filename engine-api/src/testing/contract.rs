//! The contract suite: tests the contract on any engine, linked or loaded.

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

use crate::abi::guard::catch_panic;
use crate::border::EngineFactory;

/// Parameters of the suite.
#[derive(Clone, Debug)]
pub struct ContractOptions {
    /// The config of the engine; `{}` unless it has required settings.
    pub config: Value,
    /// The text that the model returns; `None` for a host without a model.
    pub completion: Option<String>,
    /// Time limit of one call. 60 s: the suite also runs unoptimised, on busy machines, with a tool result
    /// of 5 MB.
    pub call_limit: Duration,
    /// Called with the name of each check before it starts, so that a caller knows where a process died.
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

/// Runs the suite on the engine of `factory`.
pub fn contract(factory: EngineFactory, options: &ContractOptions) -> ContractReport {
    let mut suite = ContractSuite { factory, options, checks: Vec::new() };
    // In the order of the lifecycle: a failure in an early group explains those in later ones.
    creation::run(&mut suite);
    assemble::run(&mut suite);
    compact::run(&mut suite);
    lifecycle::run(&mut suite);
    ContractReport { checks: suite.checks }
}

/// `Err` has the reason of the failure.
type ContractVerdict = Result<(), String>;

struct ContractSuite<'a> {
    factory: EngineFactory,
    options: &'a ContractOptions,
    checks: Vec<ContractCheck>,
}

impl ContractSuite<'_> {
    /// Runs one check. A panic fails it.
    fn check(
        &mut self,
        name: impl Into<String>,
        rule: &'static str,
        body: impl FnOnce(EngineFactory, &ContractOptions) -> ContractVerdict,
    ) {
        let name = name.into();
        (self.options.on_check)(&name);
        let verdict = catch_panic(|| body(self.factory, self.options));
        let outcome = match verdict.unwrap_or_else(|panicked| Err(panicked.message)) {
            Ok(()) => CheckOutcome::Ok,
            Err(message) => CheckOutcome::Failed(message),
        };
        self.checks.push(ContractCheck { name, rule, outcome });
    }
}
