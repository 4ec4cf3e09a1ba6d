//! The slot: a name in the config becomes a live engine.
