//! When a request is retried, and after which pause.

use std::future::Future;
use std::time::{Duration, SystemTime};

use backon::{ExponentialBuilder, Retryable};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::client::RetryWait;
use crate::settings::ProviderSettings;
use ctxhost_dialects::failure::{FailureReason, ProviderError};

/// The limits of retries.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryPolicy {
    retries: usize,
    pause: Duration,
    pause_max: Duration,
    retry_after_max_ms: u64,
}

impl RetryPolicy {
    pub(super) fn from_settings(settings: &ProviderSettings) -> RetryPolicy {
        RetryPolicy {
            retries: usize::try_from(settings.retries).unwrap_or(usize::MAX),
            pause: Duration::from_millis(settings.retry_pause_ms),
            pause_max: Duration::from_millis(settings.retry_pause_max_ms),
            retry_after_max_ms: settings.retry_after_max_ms,
        }
    }

    /// Repeats attempts until one succeeds or its error is permanent.
    pub(super) async fn run<T, Attempting>(
        self,
        attempt: impl FnMut() -> Attempting,
    ) -> Result<T, ProviderError>
    where
        Attempting: Future<Output = Result<T, ProviderError>>,
    {
        self.run_with_waits(attempt, &|_| ()).await
    }

    /// [`run`](Self::run) that reports each pause.
    pub(super) async fn run_with_waits<T, Attempting>(
        self,
        attempt: impl FnMut() -> Attempting,
        on_wait: &(dyn Fn(RetryWait) + Send + Sync),
    ) -> Result<T, ProviderError>
    where
        Attempting: Future<Output = Result<T, ProviderError>>,
    {
        let mut retry = 0;
        let report = |error: &ProviderError, pause: Duration| {
            log_retry(error, pause);
            retry += 1;
            on_wait(RetryWait { reason: error.reason, pause, retry, retries: self.retries as u64 });
        };
        let pauses = ExponentialBuilder::default()
            .with_min_delay(self.pause)
            .with_max_delay(self.pause_max)
            .with_max_times(self.retries)
            // Sessions that were refused together must not retry together.
            .with_jitter();
        attempt
            .retry(pauses)
            .when(is_retryable)
            .adjust(|error, pause| self.adjust_pause(error, pause))
            .notify(report)
            .await
    }

    /// The longer of our pause and the provider's; `None` if the provider asks for too long a wait.
    fn adjust_pause(&self, error: &ProviderError, pause: Option<Duration>) -> Option<Duration> {
        let pause = pause?;
        match error.retry_after_ms {
            Some(ms) if ms > self.retry_after_max_ms => None,
            Some(ms) => Some(pause.max(Duration::from_millis(ms))),
            None => Some(pause),
        }
    }
}

/// Whether an error may be temporary.
fn is_retryable(error: &ProviderError) -> bool {
    let is_temporary = match error.reason {
        FailureReason::RateLimit | FailureReason::Overloaded | FailureReason::ServerError => true,
        FailureReason::Connection | FailureReason::StreamCut => true,
        // Our own timeouts, unlike the provider's, were long already.
        FailureReason::Timeout => error.status.is_some(),
        _ => false,
    };
    is_temporary && !error.has_started
}

fn log_retry(error: &ProviderError, pause: Duration) {
    let ProviderError { provider, model, reason, status, .. } = error;
    tracing::info!(%provider, %model, ?reason, ?status, ?pause, "retrying after a pause");
}

/// The wait that a provider asks for, in milliseconds: `retry-after-ms`, or `retry-after` in
/// seconds or as a date.
pub(super) fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let whole = |ms: f64| (ms.is_finite() && ms >= 0.0).then_some(ms.ceil() as u64);
    // OpenAI's header, more precise than the standard one.
    let exact = text("retry-after-ms").and_then(|text| text.parse().ok()).and_then(whole);
    exact.or_else(|| {
        let written = text(RETRY_AFTER.as_str())?;
        match written.parse::<f64>() {
            Ok(seconds) => whole(seconds * 1_000.0),
            Err(_) => {
                let then = httpdate::parse_http_date(written).ok()?;
                let wait = then.duration_since(now).unwrap_or_default();
                u64::try_from(wait.as_millis()).ok()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn check(name: &'static str, value: &str, expected_ms: Option<u64>) {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after_ms(&headers, now), expected_ms, "{name}: {value}");
    }

    #[test]
    fn a_pause_is_read_in_every_form() {
        check("retry-after-ms", "250", Some(250));
        check("retry-after-ms", "12.5", Some(13));
        check("retry-after", "7", Some(7_000));
        check("retry-after", " 0.5 ", Some(500));
        check("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT", Some(10_000));
        check("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT", Some(0));
        check("retry-after", "-1", None);
        check("retry-after", "soon", None);
        check("retry-after", "NaN", None);
    }

    #[test]
    fn only_temporary_errors_before_the_first_part_are_retried() {
        let error = |reason, status, has_started| {
            let error = ProviderError::new(reason, "", "", String::new());
            is_retryable(&ProviderError { status, has_started, ..error })
        };
        for reason in
            [FailureReason::RateLimit, FailureReason::Overloaded, FailureReason::StreamCut]
        {
            assert!(error(reason, None, false), "{reason:?}");
            assert!(!error(reason, None, true), "{reason:?}");
        }
        assert!(error(FailureReason::Timeout, Some(504), false));
        assert!(!error(FailureReason::Timeout, None, false));
        for reason in [
            FailureReason::Auth,
            FailureReason::Billing,
            FailureReason::ContextOverflow,
            FailureReason::Format,
        ] {
            assert!(!error(reason, Some(429), false), "{reason:?}");
        }
    }
}
