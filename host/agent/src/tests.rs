//! Tests of a chain of engines, by itself and in a runtime.

mod chain;
