//! Canaries: another engine for a share of new sessions, until it is promoted or breaks a guard.
//!
//! ```text
//!  slot set mask --canary 10% ─► state file ─► every host that watches the config opens mask
//!                                                   │
//!  a new session ─► hash of its id below 10%? ─ no ─► the current engine ─► metrics
//!                          │ yes                                         (for comparison)
//!                          ▼
//!                        mask ─► metrics ─► guards ─► all hold: serves until `slot promote`
//!                                             └─ one broken: state file, every host drains mask
//! ```

mod error;
mod folder;
pub mod guard;
pub mod metrics;
mod share;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::error::CanaryError;
pub use self::folder::CanaryFolder;
pub use self::share::{SessionShare, SessionShareError};

use self::guard::{CanaryGuard, GuardVerdict};
use self::metrics::MetricTotals;

/// An engine on a share of new sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// The id of this run; a second canary of the same engine has another one.
    pub run: String,
    pub engine: String,
    /// Its share of new sessions.
    pub share: SessionShare,
    /// The guards that must hold.
    pub guards: Vec<CanaryGuard>,
    /// When it started, in milliseconds since 1970. Only later sessions are in its share.
    pub began_ms: i64,
    /// The recommended observation time before a promotion, in milliseconds.
    pub bake_ms: u64,
}

/// The canary state of a slot, as stored in the state folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotState {
    /// The version of the format.
    pub version: u32,
    pub canary: Option<Canary>,
    /// How the previous canary ended.
    pub ended: Option<CanaryEnd>,
    /// The engine of the slot before the last promotion.
    pub previous: Option<String>,
}

/// How a canary ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryEnd {
    /// The id of the run.
    pub run: String,
    pub engine: String,
    /// Whether it was promoted; otherwise it was rolled back.
    pub promoted: bool,
    pub why: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
}

/// The session that decides whether a canary serves: a sub-agent's session has that of its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionLineage {
    /// The id of the session.
    pub(super) id: String,
    /// When it was created, in milliseconds since 1970.
    pub(super) began_ms: i64,
}

impl Canary {
    /// A canary that starts now.
    pub fn start(
        engine: &str,
        share: SessionShare,
        guards: Vec<CanaryGuard>,
        bake_ms: u64,
        now_ms: i64,
    ) -> Canary {
        // Random digits: two hosts may start one in the same millisecond.
        let run = format!("{now_ms:x}-{:08x}", fastrand::u32(..));
        Canary { run, engine: engine.into(), share, guards, began_ms: now_ms, bake_ms }
    }

    /// Whether a session is in the canary's share.
    pub(super) fn includes(&self, lineage: &SessionLineage) -> bool {
        // An engine change within a session would mix the metrics of both.
        if lineage.began_ms < self.began_ms {
            return false;
        }
        // A hash instead of a random number: the same result on every host and after a restart.
        let digest = Sha256::new().chain_update(&self.run).chain_update(&lineage.id).finalize();
        let number = digest.iter().take(8).fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        self.share.includes(number)
    }

    /// The rest of the observation time, in milliseconds.
    pub fn remaining_ms(&self, now_ms: i64) -> u64 {
        let since_ms = u64::try_from(now_ms.saturating_sub(self.began_ms)).unwrap_or(0);
        self.bake_ms.saturating_sub(since_ms)
    }

    /// Describes the first broken guard.
    pub fn broken_guard(&self, totals: &MetricTotals, min_requests: u64) -> Option<String> {
        self.guards.iter().find_map(|guard| match guard.check(totals, min_requests) {
            GuardVerdict::Broken(figure) => {
                Some(format!("guard {guard} is broken: {}", format_metric(figure)))
            }
            GuardVerdict::Holds(_) | GuardVerdict::Undecided => None,
        })
    }
}

impl SlotState {
    /// Ends the canary if it is still this run; returns whether it was.
    pub fn end(&mut self, run: &str, promoted: bool, why: &str, at_ms: i64) -> bool {
        // Another process may have ended this run and started another.
        let Some(canary) = self.canary.take_if(|canary| canary.run == run) else { return false };
        let (run, engine, why) = (canary.run, canary.engine, why.to_owned());
        self.ended = Some(CanaryEnd { run, engine, promoted, why, at_ms });
        true
    }

    /// Ends the canary as the new engine of the slot, whose previous engine was `before`.
    pub fn promote(&mut self, run: &str, before: &str, why: &str, at_ms: i64) {
        if self.end(run, true, why, at_ms) {
            // If the config names the canary already, the previous engine is unknown.
            let engine = self.ended.as_ref().map(|end| end.engine.as_str());
            self.previous = (engine != Some(before)).then(|| before.to_owned());
        }
    }

    /// Marks the last promotion as reverted.
    pub fn demote(&mut self, at_ms: i64) {
        self.previous = None;
        if let Some(ended) = self.ended.as_mut().filter(|ended| ended.promoted) {
            ended.promoted = false;
            ended.why = "by hand, after it was promoted".into();
            ended.at_ms = at_ms;
        }
    }
}

/// Formats a metric with up to three decimals.
pub fn format_metric(figure: f64) -> String {
    let text = format!("{figure:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(share: &str) -> Canary {
        Canary::start("mask", share.parse().unwrap(), Vec::new(), 1_000, 5_000)
    }

    fn session(id: usize, began_ms: i64) -> SessionLineage {
        SessionLineage { id: format!("session-{id}"), began_ms }
    }

    #[test]
    fn its_share_of_new_sessions_is_included() {
        let canary = canary("10%");
        let included = (0..2_000).filter(|id| canary.includes(&session(*id, 5_000))).count();
        assert!((120..300).contains(&included), "{included} of 2,000");
        assert!((0..2_000).all(|id| !canary.includes(&session(id, 4_999))));
        let reread: Canary =
            serde_json::from_str(&serde_json::to_string(&canary).unwrap()).unwrap();
        let of = |it: &Canary| {
            (0..500).filter(|id| it.includes(&session(*id, 6_000))).collect::<Vec<_>>()
        };
        assert_eq!(of(&reread), of(&canary), "a restart changes no session's engine");
    }

    #[test]
    fn a_full_share_includes_every_session() {
        assert!((0..500).all(|id| canary("100%").includes(&session(id, 5_000))));
    }

    #[test]
    fn it_ends_once() {
        let canary = canary("10%");
        let run = canary.run.clone();
        let mut state = SlotState { canary: Some(canary), ..SlotState::default() };
        assert!(!state.end("another", false, "", 0));
        assert!(state.end(&run, false, "guard", 7));
        assert!(!state.end(&run, true, "late", 8));
        let ended = state.ended.unwrap();
        assert_eq!((ended.why.as_str(), ended.at_ms, ended.promoted), ("guard", 7, false));
    }

    #[test]
    fn a_promotion_remembers_another_engine_and_can_be_taken_back() {
        let canary = canary("10%");
        let run = canary.run.clone();
        let on = SlotState { canary: Some(canary), ..SlotState::default() };
        let promoted = |before: &str| {
            let mut state = SlotState { previous: Some("older".into()), ..on.clone() };
            state.promote(&run, before, "it was promoted", 7);
            state
        };
        assert_eq!(promoted("mask").previous, None, "the previous engine is unknown");
        let mut state = promoted("legacy");
        assert_eq!(state.previous.as_deref(), Some("legacy"));
        assert!(state.ended.as_ref().unwrap().promoted);
        state.demote(9);
        let ended = state.ended.unwrap();
        assert_eq!((ended.promoted, ended.at_ms, state.previous), (false, 9, None));
        assert!(ended.why.contains("after it was promoted"), "{}", ended.why);
        let mut other = on.clone();
        other.promote("another", "legacy", "", 7);
        assert_eq!(other, on, "it has ended already");
    }

    #[test]
    fn its_time_runs_out() {
        let left = [4_000, 5_400, 6_000, 9_000].map(|now_ms| canary("1%").remaining_ms(now_ms));
        assert_eq!(left, [1_000, 600, 0, 0]);
    }
}
