//! Tools against real files and processes.

mod calling;
mod confinement;
mod editing;
mod files;
mod naming;
mod searching;
mod shell;
mod stage;
