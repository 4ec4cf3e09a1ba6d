//! What the timing of compactions means for a request.

use super::request::Compacting;
use ctxhost_config::{CompactionSettings, Timing};

/// What the host may do on the way to a request; `mid_turn` says that tools have run already.
pub(super) fn on_the_way(settings: &CompactionSettings, mid_turn: bool) -> Compacting {
    match settings.timing {
        Timing::Ask | Timing::Manual => Compacting::Never,
        Timing::BetweenTurns if !mid_turn || settings.mid_turn => Compacting::WhenWanted,
        Timing::BetweenTurns | Timing::Idle => Compacting::WhenNeeded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_liked_waits_for_its_time() {
        let check = |timing, mid_turn, expected| {
            let settings = CompactionSettings { timing, ..CompactionSettings::default() };
            assert_eq!(on_the_way(&settings, mid_turn), expected, "{timing:?} {mid_turn}");
        };
        check(Timing::BetweenTurns, false, Compacting::WhenWanted);
        check(Timing::BetweenTurns, true, Compacting::WhenNeeded);
        check(Timing::Idle, false, Compacting::WhenNeeded);
        check(Timing::Ask, false, Compacting::Never);
        check(Timing::Manual, true, Compacting::Never);
        let eager = CompactionSettings { mid_turn: true, ..CompactionSettings::default() };
        assert_eq!(on_the_way(&eager, true), Compacting::WhenWanted);
    }
}
