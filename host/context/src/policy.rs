//! When the host may compact while it prepares a prompt.

use ctxhost_config::{CompactionSettings, CompactionTiming};

/// When the host may compact while it prepares a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionPolicy {
    /// If the prompt does not fit or the engine recommends it.
    #[default]
    WhenWanted,
    /// Only if the prompt does not fit.
    WhenNeeded,
    /// Never: a prompt that does not fit is an error, and the user compacts manually.
    Never,
}

impl CompactionPolicy {
    /// The policy of a config for one request; `mid_turn` is true after the first tool call.
    pub fn for_request(settings: &CompactionSettings, mid_turn: bool) -> CompactionPolicy {
        match settings.timing {
            CompactionTiming::Ask | CompactionTiming::Manual => CompactionPolicy::Never,
            CompactionTiming::BetweenTurns if !mid_turn || settings.mid_turn => {
                CompactionPolicy::WhenWanted
            }
            CompactionTiming::BetweenTurns | CompactionTiming::Idle => CompactionPolicy::WhenNeeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recommended_compactions_wait_for_their_timing() {
        let check = |timing, mid_turn, expected| {
            let settings = CompactionSettings { timing, ..CompactionSettings::default() };
            let policy = CompactionPolicy::for_request(&settings, mid_turn);
            assert_eq!(policy, expected, "{timing:?} {mid_turn}");
        };
        check(CompactionTiming::BetweenTurns, false, CompactionPolicy::WhenWanted);
        check(CompactionTiming::BetweenTurns, true, CompactionPolicy::WhenNeeded);
        check(CompactionTiming::Idle, false, CompactionPolicy::WhenNeeded);
        check(CompactionTiming::Ask, false, CompactionPolicy::Never);
        check(CompactionTiming::Manual, true, CompactionPolicy::Never);
        let eager = CompactionSettings { mid_turn: true, ..CompactionSettings::default() };
        let policy = CompactionPolicy::for_request(&eager, true);
        assert_eq!(policy, CompactionPolicy::WhenWanted);
    }
}
