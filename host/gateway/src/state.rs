//! What every request needs: the settings, the exchange, upstreams, whoever looks on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::auth::Authenticator;
use super::body_budget::BodyBudget;
use super::limits::{self, ReadTimeouts};
use super::live_stats::GatewayStats;
use super::proxy::ProxyHandle;
use super::token_throttle::TokenThrottle;
use super::upstream::Upstreams;
use ctxhost_config::{GatewaySettings, ModelSettings};

/// What every request needs.
#[derive(Debug)]
pub(super) struct GatewayState {
    pub(super) settings: GatewaySettings,
    pub(super) proxy: Arc<ProxyHandle>,
    pub(super) upstreams: Upstreams,
    pub(super) auth: Authenticator,
    /// Who has shown wrong tokens.
    pub(super) token_throttle: TokenThrottle,
    /// Room for the bodies of requests.
    pub(super) body_budget: BodyBudget,
    /// Places for requests.
    pub(super) request_permits: Arc<Semaphore>,
    /// Whether no more requests are wanted.
    pub(super) is_closing: AtomicBool,
    /// The models that the config knows.
    pub(super) models: BTreeMap<String, ModelSettings>,
    /// Who looks on.
    pub(super) stats: GatewayStats,
}

impl GatewayState {
    /// The largest body that is read, in bytes.
    pub(super) fn max_body_bytes(&self) -> u64 {
        self.settings.max_body_bytes.min(self.body_budget.limit_bytes())
    }

    /// How long a client's body is waited for.
    pub(super) fn read_timeouts(&self) -> ReadTimeouts {
        ReadTimeouts {
            idle: limits::bounded_duration(self.settings.client_timeout_ms),
            min_bytes_per_s: self.settings.client_min_bytes_per_s,
        }
    }

    /// Whether it takes requests.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_closing.load(Ordering::Relaxed) && self.request_permits.available_permits() > 0
    }
}
