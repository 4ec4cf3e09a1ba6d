//! Random turns under everything at once: windows, faults, dropped turns, queued messages, shared folders.

mod dropped;
mod random;
mod together;
mod waiting;
