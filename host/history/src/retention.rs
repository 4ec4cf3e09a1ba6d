//! Measures retention with the requests as their users wrote them.

use ctxhost_engine_api::{PlanItem, Transcript};
use ctxhost_retention::{RetentionReport, measure_retention_with};
use ctxhost_session::injected_text;

/// Counts the facts of `before` that `after` still states. Text that a client inserted in a message of the user is
/// not part of its request.
pub fn measure_retention(before: &Transcript, after: &[PlanItem<'_>]) -> RetentionReport {
    measure_retention_with(before, after, |entry| injected_text::request_text(&entry.message()))
}
