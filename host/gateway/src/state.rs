//! The state that all requests share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::auth::Authenticator;
use super::body_budget::BodyBudget;
use super::limits::{self, ReadTimeouts};
use super::live_stats::GatewayStats;
use super::proxy::Proxy;
use super::token_throttle::TokenThrottle;
use super::upstream::Upstreams;
use ctxhost_config::{GatewaySettings, ModelSettings};

/// The state that all requests share.
#[derive(Debug)]
pub(super) struct GatewayState {
    pub(super) settings: GatewaySettings,
    pub(super) proxy: Arc<Proxy>,
    pub(super) upstreams: Upstreams,
    pub(super) auth: Authenticator,
    pub(super) token_throttle: TokenThrottle,
    pub(super) body_budget: BodyBudget,
    /// Permits for requests in flight.
    pub(super) request_permits: Arc<Semaphore>,
    /// Whether the gateway shuts down.
    pub(super) is_closing: AtomicBool,
    /// The models of the config.
    pub(super) models: BTreeMap<String, ModelSettings>,
    pub(super) stats: GatewayStats,
}

impl GatewayState {
    /// The largest body that is accepted, in bytes.
    pub(super) fn max_body_bytes(&self) -> u64 {
        // A body above the whole budget could never be read.
        self.settings.max_body_bytes.min(self.body_budget.limit_bytes())
    }

    /// The timeouts for a client's body.
    pub(super) fn read_timeouts(&self) -> ReadTimeouts {
        ReadTimeouts {
            idle: limits::bounded_duration(self.settings.client_timeout_ms),
            min_bytes_per_s: self.settings.client_min_bytes_per_s,
        }
    }

    /// Whether it accepts requests.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_closing.load(Ordering::Relaxed) && self.request_permits.available_permits() > 0
    }
}
