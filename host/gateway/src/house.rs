//! What every request needs: the settings, the exchange, upstreams, whoever looks on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::access::Access;
use super::bodies::Bodies;
use super::exchange::Exchange;
use super::guesses::Guesses;
use super::limits::{self, Patience};
use super::upstream::Upstreams;
use super::watch::Watch;
use ctxhost_config::{GatewaySettings, ModelSettings};

/// What every request needs.
#[derive(Debug)]
pub(super) struct House {
    pub(super) settings: GatewaySettings,
    pub(super) exchange: Arc<Exchange>,
    pub(super) upstreams: Upstreams,
    pub(super) access: Access,
    /// Who has shown wrong tokens.
    pub(super) guesses: Guesses,
    /// Room for the bodies of requests.
    pub(super) bodies: Bodies,
    /// Places for requests.
    pub(super) places: Arc<Semaphore>,
    /// Whether no more requests are wanted.
    pub(super) is_closing: AtomicBool,
    /// The models that the config knows.
    pub(super) models: BTreeMap<String, ModelSettings>,
    /// Who looks on.
    pub(super) watch: Watch,
}

impl House {
    /// The largest body that is read, in bytes.
    pub(super) fn max_body_bytes(&self) -> u64 {
        self.settings.max_body_bytes.min(self.bodies.limit_bytes())
    }

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
}
