//! Tests of engine chains, alone and in a runtime.

mod chain;
