//! How long a request waits for its answer.

use std::time::Duration;

use crate::settings::ProviderSettings;

/// The timeouts of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimeouts {
    /// Until the answer starts.
    pub(super) first_byte: Duration,
    /// Between two pieces of it.
    pub(super) idle: Duration,
}

impl RequestTimeouts {
    pub(super) fn from_settings(settings: &ProviderSettings) -> RequestTimeouts {
        RequestTimeouts {
            first_byte: Duration::from_millis(settings.first_byte_timeout_ms),
            idle: Duration::from_millis(settings.idle_timeout_ms),
        }
    }
}
