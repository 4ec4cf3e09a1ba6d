//! Results of the host's functions as numbers, with the sentence kept for whoever asks for it.

use std::cell::RefCell;
use std::ffi::c_void;

use super::memory::give;
use super::structs::{ABSENT, Sink, Status};
use crate::abi::guard::catch;
use crate::error::{EngineError, Result};

/// What a function of the host that did not fail answers.
pub(super) enum SuccessStatus {
    /// It was done.
    Ok,
    /// What was asked for is not there.
    Absent,
}

thread_local! {
    /// Why the newest function that failed on this thread did.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a function of the host. Nothing unwinds out of it into C.
pub(super) fn status(work: impl FnOnce() -> Result<SuccessStatus>) -> Status {
    match catch(work).and_then(|answer| answer) {
        Ok(SuccessStatus::Ok) => 0,
        Ok(SuccessStatus::Absent) => ABSENT,
        Err(error) => record_failure(&error),
    }
}

/// Runs a function of the host that answers a value and has none when it fails.
pub(super) fn value<T>(or: T, work: impl FnOnce() -> Result<T>) -> T {
    catch(work).and_then(|answer| answer).unwrap_or_else(|error| {
        record_failure(&error);
        or
    })
}

pub(super) fn record_failure(error: &EngineError) -> Status {
    // A thread that is ending has no place for the sentence any more.
    let _ = LAST_ERROR.try_with(|last| error.message.clone_into(&mut last.borrow_mut()));
    error.kind.code()
}

pub(super) extern "C" fn last_error(sink: Sink, into: *mut c_void) -> Status {
    // Copied out first: the sink may call functions that fail.
    let sentence = LAST_ERROR.try_with(|last| last.borrow().clone()).unwrap_or_default();
    if sentence.is_empty() {
        return ABSENT;
    }
    give(sink, into, sentence.as_bytes());
    0
}
