//! `[compaction]`: when the host compacts, and what a compaction must keep.

use serde::{Deserialize, Serialize};

use super::ConfigSource;
use super::all_settings::quote_list;
use super::closest_name::closest_name;
use super::error::ConfigDiagnostic;
use super::spans::TomlValueKind;
use ctxhost_retention::{Category, GateRule, GateRuleError, QualityGate};

ctxhost_engine_api::settings! {
    /// `[compaction]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct CompactionSettings {
        /// When the host compacts ahead of need: after a turn, after a pause (idle), after the user
        /// confirms (ask), or on command (manual). Between turns, no request waits for it.
        pub timing: CompactionTiming = CompactionTiming::default(), Word(&["between-turns", "idle", "ask", "manual"]);
        /// Whether it may also compact between two tool rounds of a turn; false, because that
        /// invalidates the prompt cache in the middle of a task.
        pub mid_turn: bool = false, Flag;
        /// With `idle`: how long a session must be quiet.
        pub idle_ms: u64 = 60_000, Whole(1), "ms";
        /// Share of the budget above which a compaction is precomputed in the background; 0
        /// disables it, since the work may be wasted.
        pub precompute_share: f64 = 0.0, Number(0.0, 1.0), "share";
        /// Least shares that a compaction must keep, or it is rejected; none, because the user
        /// decides what may be lost.
        pub gate: QualityGate = QualityGate::default(), Rules;
        /// Whether the model writes notes for the memory slot before a compaction; false, because
        /// it costs a request and needs a memory.
        pub memory_flush: bool = false, Flag;
        /// Compact a live transcript that is larger; 0 disables it, since windows count tokens.
        pub max_live_bytes: u64 = 0, Whole(0), "bytes";
        /// A request that timed out is compacted and retried above this share of the window; below
        /// it, size was not the cause.
        pub timeout_share: f64 = 0.65, Number(0.1, 1.0), "share";
        /// Limit of such compactions in one turn; a third would not help either.
        pub timeout_compactions: u32 = 2, Whole(0), "compactions";
        /// How long a program waits at its end for background work; a summary takes less.
        pub wait_ms: u64 = 60_000, Whole(0), "ms";
    }
}

/// When the host compacts ahead of need: after a turn, after a pause (idle), after the user
/// confirms (ask), or on command (manual). Between turns, no request waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompactionTiming {
    /// After a turn, once its answer is complete; before a request only if it does not fit.
    #[default]
    BetweenTurns,
    /// After a quiet period; before a request only if it does not fit.
    Idle,
    /// After the user confirms. A request that does not fit waits for the confirmation.
    Ask,
    /// On command only. A request that does not fit is an error.
    Manual,
}

/// Checks the rules of the quality gate, each error at its rule.
pub(super) fn check_gate_rules(origin: &ConfigSource, found: &mut Vec<ConfigDiagnostic>) {
    for span in origin.spans.iter() {
        let [table, setting, _] = span.path.as_slice() else { continue };
        let TomlValueKind::Text(rule) = &span.value else { continue };
        if table != "compaction" || setting != "gate" {
            continue;
        }
        // Parsed again by serde later; here the error gets the position of its rule.
        let Err(bad) = rule.parse::<GateRule>() else { continue };
        let message = format!("compaction.gate: {bad}");
        let error = ConfigDiagnostic::new(&origin.name, &origin.text, message);
        let error = error.with_label(span.value_span.clone(), "this rule");
        found.push(error.with_help(rule_help(&bad)));
    }
}

fn rule_help(bad: &GateRuleError) -> String {
    let names = Category::ALL.map(Category::name);
    match bad {
        GateRuleError::Category { name } => match closest_name(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("categories: {}", quote_list(&names)),
        },
        GateRuleError::Form { .. } => {
            format!("write a category, >= and a share; categories: {}", quote_list(&names))
        }
        GateRuleError::Least { .. } => "1.0 keeps all of them, 0.95 all but one in twenty".into(),
    }
}
