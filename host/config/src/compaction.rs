//! When the host compacts by itself.

use serde::{Deserialize, Serialize};

use super::ConfigSource;
use super::all_settings::quote_list;
use super::check::closest_name;
use super::error::{ConfigDiagnostic, ConfigError};
use super::spans::TomlValueKind;
use ctxhost_retention::{Category, GateRule, GateRuleError, QualityGate};

ctxhost_engine_api::settings! {
    /// `[compaction]`: when compactions happen.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct CompactionSettings {
        /// When a compaction that would help is made: after a turn, after a pause, when a person
        /// agrees, or only by hand; between turns nobody waits for it.
        pub timing: CompactionTiming = CompactionTiming::default(), Word(&["between-turns", "idle", "ask", "manual"]);
        /// Whether one that would help may also come between two rounds of tools; it costs the
        /// prompt cache in the middle of a thought.
        pub mid_turn: bool = false, Flag;
        /// With `idle`: how long a session must be quiet; a minute without a word is a pause.
        pub idle_ms: u64 = 60_000, Whole(1), "ms";
        /// Share of the budget from which on a compaction is worked out ahead, in the background; 0
        /// for never, since it may be work for nothing.
        pub precompute_share: f64 = 0.0, Number(0.0, 1.0), "share";
        /// The least that a compaction has to keep, or it is rejected; none, because how much may
        /// go is for the person to say.
        pub gate: QualityGate = QualityGate::default(), Rules;
        /// Whether the model is asked for notes before a compaction, for the memory to keep; false,
        /// because it is one more request, and without a memory nobody keeps them.
        pub memory_flush: bool = false, Flag;
        /// A larger live transcript is compacted; 0 for never, since tokens are what a window
        /// counts.
        pub max_live_bytes: u64 = 0, Whole(0), "bytes";
        /// A request that took too long is answered by a compaction above this share of the window;
        /// below it, size was not the reason.
        pub timeout_share: f64 = 0.65, Number(0.1, 1.0), "share";
        /// After such timeouts, in one turn; a third would not help either.
        pub timeout_compactions: u32 = 2, Whole(0), "compactions";
        /// How long a program that ends waits for what it does in the background; a summary takes
        /// less.
        pub wait_ms: u64 = 60_000, Whole(0), "ms";
    }
}

/// When compactions happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompactionTiming {
    /// After a turn, when its answer is out; before a request only where it does not fit.
    #[default]
    BetweenTurns,
    /// When the session has been quiet for a while; before a request only where it does not fit.
    Idle,
    /// When a person says yes. A request that does not fit waits for it.
    Ask,
    /// When a person asks for it. A request that does not fit is an error.
    Manual,
}

/// Checks the rules of the gate, each at its own place.
pub(super) fn check_gate_rules(origin: &ConfigSource) -> Result<(), ConfigError> {
    for place in origin.places.iter() {
        let [table, setting, _] = place.path.as_slice() else { continue };
        let TomlValueKind::Text(rule) = &place.value else { continue };
        if table != "compaction" || setting != "gate" {
            continue;
        }
        let Err(bad) = rule.parse::<GateRule>() else { continue };
        let message = format!("compaction.gate: {bad}");
        let mistake = ConfigDiagnostic::new(&origin.name, &origin.text, message);
        let mistake =
            mistake.with_label(place.value_span.clone(), "this rule").with_help(rule_help(&bad));
        return Err(Box::new(mistake).into());
    }
    Ok(())
}

fn rule_help(bad: &GateRuleError) -> String {
    let names = Category::ALL.map(Category::name);
    match bad {
        GateRuleError::Category { name } => match closest_name(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("counted are {}", quote_list(&names)),
        },
        GateRuleError::Form { .. } => {
            format!("a name, >= and a share; counted are {}", quote_list(&names))
        }
        GateRuleError::Least { .. } => "1.0 keeps all of them, 0.95 all but one in twenty".into(),
    }
}
