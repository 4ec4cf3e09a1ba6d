//! Converts results of host functions to status codes and keeps the last error message of each thread.

use std::cell::RefCell;
use std::ffi::c_void;

use super::memory::give;
use super::structs::{ABSENT, CStatus, TextSink};
use crate::abi::guard::catch_panic;
use crate::error::{EngineError, Result};

/// The result of a host function that did not fail.
pub(super) enum SuccessStatus {
    /// Success.
    Ok,
    /// The requested value does not exist.
    Absent,
}

thread_local! {
    /// The message of the last failure on this thread.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a host function and returns its status. Panics do not unwind into C.
pub(super) fn status(work: impl FnOnce() -> Result<SuccessStatus>) -> CStatus {
    match catch_panic(work).and_then(|answer| answer) {
        Ok(SuccessStatus::Ok) => 0,
        Ok(SuccessStatus::Absent) => ABSENT,
        Err(error) => record_failure(&error),
    }
}

/// Runs a host function that returns a value, or `or` if it fails.
pub(super) fn value<T>(or: T, work: impl FnOnce() -> Result<T>) -> T {
    catch_panic(work).and_then(|answer| answer).unwrap_or_else(|error| {
        record_failure(&error);
        or
    })
}

pub(super) fn record_failure(error: &EngineError) -> CStatus {
    // `try_with`: thread-local storage is gone while a thread ends.
    let _ = LAST_ERROR.try_with(|last| error.message.clone_into(&mut last.borrow_mut()));
    error.kind.code()
}

pub(super) extern "C" fn last_error(sink: TextSink, into: *mut c_void) -> CStatus {
    // Copied first: the sink may call functions that fail and replace the message.
    let sentence = LAST_ERROR.try_with(|last| last.borrow().clone()).unwrap_or_default();
    if sentence.is_empty() {
        return ABSENT;
    }
    give(sink, into, sentence.as_bytes());
    0
}
