//! The `recall` engine keeps the contract of engines, and its own word.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use ctxhost_engine_api::border::EngineDoor;
use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::{ContractOptions, contract};
use ctxhost_engine_recall::Recall;

#[test]
fn keeps_the_contract() {
    let tight = json!({ "slack_share": 0.0, "agent_tail_share": 0.05, "full_share": 0.05 });
    for config in [json!({}), tight, json!({ "leave_out_note": false, "tools": false })] {
        let options = ContractOptions { config, ..ContractOptions::default() };
        let report = contract(EngineDoor::linked::<Recall>(), &options);
        assert!(report.passed(), "{report}");
    }
}
