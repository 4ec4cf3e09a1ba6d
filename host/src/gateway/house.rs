//! What every request needs: the settings, the exchange, upstreams, whoever looks on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::access::Access;
use super::exchange::Exchange;
use super::limits::{self, Patience};
use super::upstream::Upstreams;
use super::watch::Watch;
use crate::config::{GatewaySettings, ModelSettings};

/// What every request needs.
#[derive(Debug)]
pub(super) struct House {
    pub(super) settings: GatewaySettings,
    pub(super) exchange: Arc<Exchange>,
    pub(super) upstreams: Upstreams,
    pub(super) access: Access,
    /// Places for requests.
    pub(super) places: Arc<Semaphore>,
    /// Whether no more requests are wanted.
    pub(super) is_closing: AtomicBool,
    /// The windows that the config knows.
    pub(super) windows: BTreeMap<String, ModelSettings>,
    /// Who looks on.
    pub(super) watch: Watch,
}

impl House {
    /// How long a client's body is waited for.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            pause: limits::time(self.settings.client_timeout_ms),
            min_bytes_per_s: self.settings.client_min_bytes_per_s,
        }
    }

    /// Whether it takes requests.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_closing.load(Ordering::Relaxed) && self.places.available_permits() > 0
    }

    /// The window of a model, where anybody knows it.
    pub(super) fn window_of(&self, provider: &str, model: &str) -> Option<Window> {
        let whole = format!("{provider}/{model}");
        let of_any = || {
            let is_it = |name: &str| name.rsplit_once('/').is_some_and(|(_, last)| last == model);
            self.windows.iter().find(|(name, _)| is_it(name)).map(|(_, settings)| settings)
        };
        let settings = self.windows.get(&whole).or_else(|| self.windows.get(model)).or_else(of_any);
        match settings {
            Some(settings) => Some(Window { tokens: settings.window_tokens, is_certain: true }),
            None => {
                let guess = self.exchange.window(model);
                guess.map(|tokens| Window { tokens, is_certain: false })
            }
        }
    }
}

/// A window, in provider tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) tokens: u64,
    /// Whether the config says so: then the upstream's own word does not count.
    pub(super) is_certain: bool,
}
