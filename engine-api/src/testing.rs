//! What tests of engines and of hosts need: a scripted host, small transcripts, the contract suite.
//!
//! ```no_run
//! # use ctxhost_engine_api::{border::EngineDoor, ContextEngine};
//! # fn check<MyEngine: ContextEngine>() {
//! use ctxhost_engine_api::testing::{ContractOptions, contract};
//!
//! let report = contract(EngineDoor::linked::<MyEngine>(), &ContractOptions::default());
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

/// What [`generate`] is made of, in the version that its strategies belong to. An engine's property
/// tests take it from here and need no dependency of their own.
pub use proptest;

pub use crate::abi::wait::{block_on, block_on_within};
