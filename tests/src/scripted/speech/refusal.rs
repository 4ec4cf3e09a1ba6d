//! The reason of a refusal, before a dialect renders it.

use serde_json::Value;

use super::OverflowForm;
use crate::rules::Broken;

/// Why.
#[derive(Clone, Debug)]
pub(in crate::scripted) enum Trouble {
    /// Too large, in tokens.
    Overflow {
        prompt: u64,
        output: u64,
        window: u64,
        form: OverflowForm,
    },
    /// A longer answer than the model gives, in tokens.
    OutputLimit {
        asked: u64,
        most: u64,
    },
    Malformed(Broken),
    RateLimited {
        retry_after_s: u64,
    },
    Overloaded,
    ServerError,
    Unauthorized,
    NoCredit,
    NoModel(String),
    NotFound,
}

/// What the client gets.
#[derive(Clone, Debug)]
pub(in crate::scripted) struct Refusal {
    pub(in crate::scripted) status: u16,
    pub(in crate::scripted) body: Value,
    pub(in crate::scripted) retry_after_s: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: u16, body: Value) -> Refusal {
        Refusal { status, body, retry_after_s: None }
    }

    pub(super) fn after(mut self, trouble: &Trouble) -> Refusal {
        if let Trouble::RateLimited { retry_after_s } = trouble {
            self.retry_after_s = Some(*retry_after_s);
        }
        self
    }
}
