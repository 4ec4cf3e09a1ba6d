//! Test support for engines and hosts: a scripted host, transcript builders, the contract suite.
//!
//! ```no_run
//! # use ctxhost_engine_api::{border::EngineFactory, ContextEngine};
//! # fn check<MyEngine: ContextEngine>() {
//! use ctxhost_engine_api::testing::{ContractOptions, contract};
//!
//! let report = contract(EngineFactory::linked::<MyEngine>(), &ContractOptions::default());
//! assert!(report.passed(), "{report}");
//! # }
//! ```

pub mod builder;
pub mod generate;

mod contract;
mod host;

pub use builder::TranscriptBuilder;
pub use contract::{
    CheckOutcome, ContractCheck, ContractOptions, ContractReport, contract, plan_fault,
};
pub use host::{LogLine, ScriptedHost};

/// The version of proptest that the strategies of [`generate`] use, re-exported so that engines need no
/// dependency of their own.
pub use proptest;

pub use crate::abi::wait::{block_on, block_on_within};
