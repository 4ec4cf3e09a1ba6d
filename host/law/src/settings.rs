//! The numbers of the law, each with its unit, default and reason.

use serde::{Deserialize, Serialize};

/// What the law may be told. The rest of it is not negotiable.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LawSettings {
    /// Share of the budget by which a compaction must end below it. Default 0.05: with less, the
    /// next answer alone asks for the next compaction.
    pub progress_margin: Share,
    /// Compactions without progress in a row until no more are tried. Default 3, as in OpenClaw:
    /// one may be bad luck, three are a loop.
    pub breaker_failures: u32,
    /// How long no more are tried, in milliseconds. Default 600,000 (ten minutes): longer than a
    /// provider's usual bad spell, shorter than a work session.
    pub breaker_cooldown_ms: u64,
    /// Compactions without progress within one hour; 0 for no limit. Default 20: a runaway made 601.
    /// Those that make room are not counted, however fast an agent works.
    pub compactions_per_hour: u32,
    /// Share of the budget that text of an engine's own may take. Default 0.5: what the
    /// conversation itself said shall never be the smaller part.
    pub inserted_text_max_share: Share,
    /// Share of the budget up to which an entry that must stay is sent word for word. Default 0.5:
    /// an engine may shorten a pasted file that leaves no room for an answer, and nothing smaller.
    pub verbatim_max_share: Share,
    /// Share of the budget that a request holds at least after a compaction, an overflow or the last
    /// rung, where the session has as much. Default 0.3: less, and an agent forgets what there was
    /// room for; much more, and the next compaction comes at once.
    pub room_floor_share: Share,
    /// The same in tokens; the smaller of the two counts. Default 24,000: the recent turns (20,000) and
    /// the longest summary (16,000 characters) that the bundled engine keeps.
    pub room_floor_tokens: u64,
    /// Share of the budget within which the last rung keeps the person's requests word for word. Default
    /// 0.1: all of those of a long session in a small window.
    pub request_share: Share,
    /// Share of the budget that the last rung's ledger of commands and identifiers may take. Default
    /// 0.15: on a session of 484 requests more of it won little.
    pub ledger_share: Share,
}

impl LawSettings {
    /// What a request holds at least, where the session has as much, in tokens as entries count them.
    pub fn floor_tokens(&self, budget_tokens: u64) -> u64 {
        self.room_floor_share.of_tokens(budget_tokens).min(self.room_floor_tokens)
    }
}

impl Default for LawSettings {
    fn default() -> Self {
        LawSettings {
            progress_margin: Share(0.05),
            breaker_failures: 3,
            breaker_cooldown_ms: 600_000,
            compactions_per_hour: 20,
            inserted_text_max_share: Share(0.5),
            verbatim_max_share: Share(0.5),
            room_floor_share: Share(0.3),
            room_floor_tokens: 24_000,
            request_share: Share(0.1),
            ledger_share: Share(0.15),
        }
    }
}

/// A part of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

impl Share {
    /// This share of a number of tokens, rounded down.
    pub fn of_tokens(self, tokens: u64) -> u64 {
        (tokens as f64 * self.0) as u64
    }
}

/// A share that is no part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a share; write a number from 0 to 1")]
pub struct BadShare(pub f64);

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

impl TryFrom<f64> for Share {
    type Error = BadShare;

    fn try_from(share: f64) -> Result<Self, BadShare> {
        if (0.0..=1.0).contains(&share) { Ok(Share(share)) } else { Err(BadShare(share)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_is_the_default() {
        assert_eq!(toml::from_str::<LawSettings>("").unwrap(), LawSettings::default());
    }

    #[test]
    fn unknown_keys_and_impossible_shares_are_refused() {
        let parse = toml::from_str::<LawSettings>;
        for wrong in ["progres_margin = 0.1", "progress_margin = 1.5", "progress_margin = nan"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("progress_margin = 1.0").unwrap().progress_margin.of_tokens(7), 7);
    }
}
