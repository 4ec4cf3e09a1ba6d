//! The contract suite, generated transcripts and a scripted host.

pub mod generate;
