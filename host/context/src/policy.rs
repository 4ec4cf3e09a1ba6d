//! When the host may compact by itself on the way to a prompt.

use ctxhost_config::{CompactionSettings, CompactionTiming};

/// When the host may compact by itself on the way to a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionPolicy {
    /// Where the prompt does not fit, and where its engine would like to.
    #[default]
    WhenWanted,
    /// Only where the prompt does not fit.
    WhenNeeded,
    /// Never: a prompt that does not fit is an error, and a person compacts by hand.
    Never,
}

impl CompactionPolicy {
    /// The policy that a config's timing means for one request; `mid_turn` says that tools have run already.
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
    fn what_is_only_liked_waits_for_its_time() {
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
