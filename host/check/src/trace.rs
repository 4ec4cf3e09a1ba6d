//! Where a child is: one small record that outlives it, and a watch over calls that never end.
//!
//! Before every call the child writes down which one it is. Whoever finds the child dead reads it there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The file in the child's folder.
const FILE: &str = "trace";

/// Bytes of the record: it is overwritten in place, so that it never grows.
const RECORD_BYTES: usize = 256;

/// How often the watch looks.
const GLANCE: Duration = Duration::from_millis(20);

/// Where a child is, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TraceRecord {
    /// The case; 0 before the first.
    pub(super) case: u64,
    /// The call of the engine that is under way; empty between two.
    pub(super) call: String,
    /// The service of the host that the call waits for; empty for none.
    pub(super) service: String,
}

impl TraceRecord {
    /// The place that a child wrote last.
    pub(super) fn read(folder: &Path) -> TraceRecord {
        let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        serde_json::from_str(text.trim_end()).unwrap_or_default()
    }
}

/// The writing side.
#[derive(Debug)]
pub(super) struct CallTrace {
    file: File,
    state: Mutex<TraceState>,
}

#[derive(Debug, Default)]
struct TraceState {
    place: TraceRecord,
    /// When the call that is under way began.
    began: Option<Instant>,
    /// How many times the limit it may take; 0 for once.
    calls: u32,
}

impl CallTrace {
    pub(super) fn create(folder: &Path) -> std::io::Result<Arc<CallTrace>> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).open(folder.join(FILE))?;
        Ok(Arc::new(CallTrace { file, state: Mutex::default() }))
    }

    pub(super) fn start_case(&self, case: u64) {
        let mut state = self.state();
        *state = TraceState {
            place: TraceRecord { case, ..TraceRecord::default() },
            ..TraceState::default()
        };
        self.write(&state.place);
    }

    /// A call begins; it ends when the answer is dropped.
    pub(super) fn start_call(self: &Arc<Self>, call: &str) -> CallScope {
        let mut state = self.state();
        state.place.call = call.to_owned();
        state.place.service.clear();
        state.began = Some(Instant::now());
        state.calls = 1;
        self.write(&state.place);
        drop(state);
        CallScope { trace: self.clone() }
    }

    /// A whole check of somebody else's suite begins, of so many calls; it ends when the next one does.
    pub(super) fn start_check(&self, check: &str, calls: u32) {
        let mut state = self.state();
        state.place.call = check.to_owned();
        state.began = Some(Instant::now());
        state.calls = calls;
        self.write(&state.place);
    }

    /// The call that is under way waits for a service that will not answer.
    pub(super) fn set_service(&self, service: &str) {
        let mut state = self.state();
        state.place.service = service.to_owned();
        self.write(&state.place);
    }

    /// Calls `late` once with the place where one call took longer than `limit`, and with what it was
    /// given; and `orphaned` when whoever started this process is gone.
    pub(super) fn watch(
        self: &Arc<Self>,
        limit: Duration,
        late: impl FnOnce(TraceRecord, Duration) + Send + 'static,
        orphaned: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let trace = self.clone();
        let parent = std::os::unix::process::parent_id();
        std::thread::Builder::new().name("watch".into()).spawn(move || {
            loop {
                std::thread::sleep(GLANCE);
                if std::os::unix::process::parent_id() != parent {
                    return orphaned();
                }
                let state = trace.state();
                let limit = limit * state.calls.max(1);
                if state.began.is_some_and(|began| began.elapsed() > limit) {
                    let place = state.place.clone();
                    drop(state);
                    return late(place, limit);
                }
            }
        })?;
        Ok(())
    }

    fn write(&self, place: &TraceRecord) {
        let mut record = serde_json::to_vec(place).unwrap_or_default();
        record.resize(RECORD_BYTES, b' ');
        // Without a trace a death is still a death; only its place is unknown.
        let _ = self.file.write_all_at(&record, 0);
    }

    fn state(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is under way.
pub(super) struct CallScope {
    trace: Arc<CallTrace>,
}

impl Drop for CallScope {
    fn drop(&mut self) {
        let mut state = self.trace.state();
        state.place.call.clear();
        state.place.service.clear();
        state.began = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_call_is_read_by_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        let trace = CallTrace::create(folder.path()).unwrap();
        trace.start_case(17);
        let calling = trace.start_call("compact");
        trace.set_service("kv_get");
        let place = TraceRecord { case: 17, call: "compact".into(), service: "kv_get".into() };
        assert_eq!(TraceRecord::read(folder.path()), place);
        drop(calling);
        let _next = trace.start_call("assemble");
        assert_eq!(TraceRecord::read(folder.path()).service, "");
        assert_eq!(TraceRecord::read(&folder.path().join("nobody")), TraceRecord::default());
    }
}
