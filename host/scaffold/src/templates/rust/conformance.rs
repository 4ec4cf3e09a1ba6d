//! The contract suite: everything that a host relies on, asked of this engine through its door.

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::testing::{ContractOptions, contract};

use @lib@::Engine;

#[test]
fn the_engine_keeps_the_contract() {
    let report = contract(EngineFactory::linked::<Engine>(), &ContractOptions::default());
    assert!(report.passed(), "{report}");
}
