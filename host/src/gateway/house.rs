//! What every request needs: the settings, the exchange, upstreams, whoever looks on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::access::Access;
use super::exchange::Exchange;
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
    /// The models that the config knows.
    pub(super) models: BTreeMap<String, ModelSettings>,
    /// Who looks on.
    pub(super) watch: Watch,
}

impl House {
    /// Whether it takes requests.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_closing.load(Ordering::Relaxed) && self.places.available_permits() > 0
    }
}
