//! Tools against real files and processes.

mod calling;
mod confinement;
mod editing;
mod files;
#[cfg(feature = "mcp")]
mod mcp;
mod naming;
mod searching;
mod shell;
mod stage;
