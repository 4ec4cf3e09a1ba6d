//! The access log: one line per request at level info, when its response ends.

use std::time::Instant;

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;

use crate::proxy::ShapingReport;

/// A request in progress. The line is logged when this is dropped.
#[derive(Debug)]
pub(super) struct AccessLine {
    method: Method,
    /// Without the query, which may contain a key.
    path: String,
    began: Instant,
    status: Option<u16>,
    report: Option<ShapingReport>,
}

impl AccessLine {
    /// Starts measuring; `None` if the level is disabled.
    pub(super) fn start(request: &Request) -> Option<AccessLine> {
        tracing::enabled!(tracing::Level::INFO).then(|| AccessLine {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            began: Instant::now(),
            status: None,
            report: None,
        })
    }

    /// Records the response head.
    pub(super) fn record_head(&mut self, response: &Response) {
        self.status = Some(response.status().as_u16());
        self.report = response.extensions().get::<ShapingReport>().cloned();
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let report = self.report.take().unwrap_or_default();
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (conversation, engine) = (text(&report.session), text(&report.engine));
        let compaction = text(report.compaction);
        tracing::info!(
            parent: Option::<tracing::span::Id>::None,
            method = %self.method,
            path = ?self.path,
            status = self.status,
            conversation,
            tokens_before = report.before_tokens,
            tokens_after = report.tokens,
            max_tokens = report.max_tokens,
            compaction,
            engine,
            ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "request"
        );
    }
}
