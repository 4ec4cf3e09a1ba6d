//! Runs the contract suite on this engine.

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::testing::{ContractOptions, contract};

use @lib@::Engine;

#[test]
fn the_engine_keeps_the_contract() {
    let report = contract(EngineFactory::linked::<Engine>(), &ContractOptions::default());
    assert!(report.passed(), "{report}");
}
