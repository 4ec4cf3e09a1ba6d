//! The trace of a child: a record of its current call, which the parent reads if the child dies, and a
//! watchdog over calls that do not return.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ctxhost_platform::processes::parent_id;
use serde::{Deserialize, Serialize};

/// The file in the child's folder.
pub(super) const TRACE_FILE: &str = "trace";

/// Size of the record, which is overwritten in record.
const RECORD_BYTES: usize = 256;

/// Interval of the watchdog.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The current case, call and service of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TraceRecord {
    /// The case; 0 before the first.
    pub(super) case: u64,
    /// The current call of the engine; empty between calls.
    pub(super) call: String,
    /// The host service that the call waits for; empty for none.
    pub(super) service: String,
}

impl TraceRecord {
    /// The last record of a child.
    pub(super) fn parse(text: &str) -> TraceRecord {
        serde_json::from_str(text.trim_end()).unwrap_or_default()
    }
}

/// Writes the trace.
#[derive(Debug)]
pub(super) struct CallTrace {
    file: File,
    state: Mutex<TraceState>,
}

#[derive(Debug, Default)]
struct TraceState {
    record: TraceRecord,
    /// The start of the current call.
    start: Option<Instant>,
    /// The time limit of the current call, as a multiple of the call limit; 0 for one.
    calls: u32,
}

impl CallTrace {
    pub(super) fn create(folder: &Path) -> std::io::Result<Arc<CallTrace>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.join(TRACE_FILE))?;
        Ok(Arc::new(CallTrace { file, state: Mutex::default() }))
    }

    pub(super) fn start_case(&self, case: u64) {
        let mut state = self.state();
        *state = TraceState {
            record: TraceRecord { case, ..TraceRecord::default() },
            ..TraceState::default()
        };
        self.write(&state.record);
    }

    /// Records the start of a call, which ends when the returned guard is dropped.
    pub(super) fn start_call(self: &Arc<Self>, call: &str) -> CallScope {
        let mut state = self.state();
        state.record.call = call.to_owned();
        state.record.service.clear();
        state.start = Some(Instant::now());
        state.calls = 1;
        self.write(&state.record);
        drop(state);
        CallScope { trace: self.clone() }
    }

    /// Records the start of a check of the contract suite, with the time limit of `calls` calls.
    pub(super) fn start_check(&self, check: &str, calls: u32) {
        let mut state = self.state();
        state.record.call = check.to_owned();
        state.start = Some(Instant::now());
        state.calls = calls;
        self.write(&state.record);
    }

    /// Records that the current call waits for a service that never completes.
    pub(super) fn set_service(&self, service: &str) {
        let mut state = self.state();
        state.record.service = service.to_owned();
        self.write(&state.record);
    }

    /// Starts a watchdog that calls `late` once when a call exceeds `limit`, and `orphaned` when the parent
    /// process has died.
    pub(super) fn watch(
        self: &Arc<Self>,
        limit: Duration,
        late: impl FnOnce(TraceRecord, Duration) + Send + 'static,
        orphaned: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let trace = self.clone();
        let parent = parent_id();
        let started = Arc::new(Barrier::new(2));
        let has_started = started.clone();
        std::thread::Builder::new().name("watch".into()).spawn(move || {
            started.wait();
            loop {
                std::thread::sleep(POLL_INTERVAL);
                // A child that outlives its parent would run until its own time limit.
                if parent_id() != parent {
                    return orphaned();
                }
                let state = trace.state();
                let limit = limit * state.calls.max(1);
                if state.start.is_some_and(|start| start.elapsed() > limit) {
                    let record = state.record.clone();
                    drop(state);
                    return late(record, limit);
                }
            }
        })?;
        // A new thread takes the lock of the loader, which a constructor of a library holds for as long as it runs.
        has_started.wait();
        Ok(())
    }

    fn write(&self, record: &TraceRecord) {
        let mut record = serde_json::to_vec(record).unwrap_or_default();
        // Padded, so that a shorter record overwrites a longer one completely.
        record.resize(RECORD_BYTES, b' ');
        // By seeking, because a confined process may not write at a position on a kernel without landlock.
        // If this fails, the parent still detects a death, but not its position.
        let mut file = &self.file;
        let _ = file.rewind().and_then(|()| file.write_all(&record));
    }

    fn state(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The guard of a running call.
pub(super) struct CallScope {
    trace: Arc<CallTrace>,
}

impl Drop for CallScope {
    fn drop(&mut self) {
        let mut state = self.trace.state();
        state.record.call.clear();
        state.record.service.clear();
        // The file keeps the last call: between two calls a death is usually caused by it.
        state.start = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_call_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let trace = CallTrace::create(folder.path()).unwrap();
        trace.start_case(17);
        let scope = trace.start_call("compact");
        trace.set_service("kv_get");
        let read = || {
            let text = std::fs::read_to_string(folder.path().join(TRACE_FILE)).unwrap();
            TraceRecord::parse(&text)
        };
        let record = TraceRecord { case: 17, call: "compact".into(), service: "kv_get".into() };
        assert_eq!(read(), record);
        drop(scope);
        let _next = trace.start_call("assemble");
        assert_eq!(read().service, "");
        assert_eq!(TraceRecord::parse(""), TraceRecord::default());
    }
}
