//! When the host compacts by itself.

use serde::{Deserialize, Serialize};

use super::Origin;
use super::catalogue::quoted;
use super::check::nearest;
use super::error::{ConfigError, Mistake};
use super::places::Written;
use ctxhost_survival::{BadRule, Category, Gate, Rule};

/// `[compaction]`: when compactions happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompactionSettings {
    /// When a compaction that the engine would like is made. Default `between-turns`: the answer is
    /// there already and nobody waits.
    pub timing: Timing,
    /// Whether one that is only liked may also happen between two rounds of tools. Default false: it
    /// costs the prompt cache in the middle of a thought; one that is needed happens anyway.
    pub mid_turn: bool,
    /// With `idle`: how long a session must have been quiet, in milliseconds. Default 60,000: a minute
    /// without a word is a pause.
    pub idle_ms: u64,
    /// Share of the budget from which on a compaction is worked out ahead in the background; 0 for
    /// never. Default 0: it may be work for nothing.
    pub precompute_share: f64,
    /// The least that a compaction has to keep, as rules such as `paths >= 0.95`; one that keeps less is
    /// rejected. Default none: how much may go is for the person to say.
    pub gate: Gate,
    /// Whether the model is asked for notes before a compaction, which the memory keeps. Default false: it
    /// is one more request, and nothing is kept where the memory slot is empty.
    pub memory_flush: bool,
    /// Size of the live transcript, in bytes of its messages, above which a compaction is wanted; 0 for
    /// never. Default 0: tokens are what a window counts.
    pub max_live_bytes: u64,
    /// Share of the window above which a request that took too long is answered by a compaction.
    /// Default 0.65, as in OpenClaw: a smaller prompt was not the reason.
    pub timeout_share: f64,
    /// Compactions after such timeouts in one turn. Default 2.
    pub timeout_compactions: u32,
    /// How long a program that ends waits for a compaction that is under way, in milliseconds, counted
    /// anew with each sign of progress. Default 60,000.
    pub wait_ms: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        CompactionSettings {
            timing: Timing::default(),
            mid_turn: false,
            idle_ms: 60_000,
            precompute_share: 0.0,
            gate: Gate::default(),
            memory_flush: false,
            max_live_bytes: 0,
            timeout_share: 0.65,
            timeout_compactions: 2,
            wait_ms: 60_000,
        }
    }
}

/// When compactions happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
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
pub(super) fn rules(origin: &Origin) -> Result<(), ConfigError> {
    for place in origin.places.iter() {
        let [table, setting, _] = place.path.as_slice() else { continue };
        let Written::Text(rule) = &place.value else { continue };
        if table != "compaction" || setting != "gate" {
            continue;
        }
        let Err(bad) = rule.parse::<Rule>() else { continue };
        let message = format!("compaction.gate: {bad}");
        let mistake = Mistake::new(&origin.name, &origin.text, message);
        let mistake = mistake.at(place.value_span.clone(), "this rule").advising(way_out(&bad));
        return Err(Box::new(mistake).into());
    }
    Ok(())
}

fn way_out(bad: &BadRule) -> String {
    let names = Category::ALL.map(Category::name);
    match bad {
        BadRule::Category { name } => match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("counted are {}", quoted(&names)),
        },
        BadRule::Form { .. } => {
            format!("a name, >= and a share; counted are {}", quoted(&names))
        }
        BadRule::Least { .. } => "1.0 keeps all of them, 0.95 all but one in twenty".into(),
    }
}
