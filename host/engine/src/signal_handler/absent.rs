//! Systems without signals: the death of the process is not attributed to an engine.

use std::fs::File;
use std::marker::PhantomData;
use std::sync::Arc;

/// The prefix of a line about the death of a process.
pub(super) const DEATH_PREFIX: &str = "died:";

/// The id of an engine, which no handler needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedName;

impl FixedName {
    pub(super) fn new(_id: &str) -> FixedName {
        FixedName
    }
}

pub(super) fn install_signal_handlers() {}

pub(super) fn install_exit_handlers() {}

/// Attributes its thread to an engine until it is dropped.
#[derive(Debug)]
pub(super) struct EngineScope(PhantomData<*const ()>);

pub(super) fn enter_engine(_name: FixedName, _marker: Option<Arc<File>>) -> EngineScope {
    EngineScope(PhantomData)
}

pub(super) fn bind_thread(_name: FixedName, _marker: Option<&File>) {}

pub(super) fn unbind_thread() {}
