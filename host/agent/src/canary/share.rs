//! A share of new sessions, written like `10%`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A share of new sessions, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionShare(u32);

/// 100%.
const ALL: u32 = 10_000;

/// An invalid share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid share of new sessions {0:?}; write a percentage from 0.01% to 100%, such as \"10%\""
)]
pub struct SessionShareError(String);

impl SessionShare {
    /// The share of the current engine.
    #[must_use]
    pub fn complement(self) -> SessionShare {
        SessionShare(ALL.saturating_sub(self.0))
    }

    /// Whether a uniformly distributed number is in the share.
    pub(super) fn includes(self, number: u64) -> bool {
        number % u64::from(ALL) < u64::from(self.0)
    }
}

impl FromStr for SessionShare {
    type Err = SessionShareError;

    fn from_str(text: &str) -> Result<SessionShare, SessionShareError> {
        let percent =
            text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        // Rounded: 0.29 * 100 is below 29 in floating point.
        let hundredths = percent.map(|percent| (percent * 100.0).round());
        match hundredths {
            Some(hundredths) if (1.0..=f64::from(ALL)).contains(&hundredths) => {
                Ok(SessionShare(hundredths as u32))
            }
            _ => Err(SessionShareError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for SessionShare {
    type Error = SessionShareError;

    fn try_from(text: String) -> Result<SessionShare, SessionShareError> {
        text.parse()
    }
}

impl From<SessionShare> for String {
    fn from(share: SessionShare) -> String {
        share.to_string()
    }
}

impl std::fmt::Display for SessionShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_trip() {
        for (text, written, rest) in
            [("10%", "10%", "90%"), (" 0.5 % ", "0.5%", "99.5%"), ("100%", "100%", "0%")]
        {
            let share: SessionShare = text.parse().unwrap();
            assert_eq!(
                (share.to_string(), share.complement().to_string()),
                (written.into(), rest.into())
            );
        }
        for wrong in ["10", "0%", "101%", "-1%", "ten%", "NaN%", "0.001%", ""] {
            assert_eq!(
                wrong.parse::<SessionShare>(),
                Err(SessionShareError(wrong.into())),
                "{wrong}"
            );
        }
    }
}
