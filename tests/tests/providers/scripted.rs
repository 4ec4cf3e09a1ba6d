//! The scripted provider, tested by a plain client: dialects, faults, overflow, memory.

mod binary;
mod client;
mod dialects;
mod faults;
mod overflow;
mod wandering;
