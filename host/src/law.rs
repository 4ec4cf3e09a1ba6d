//! The law: what holds for every request, whatever an engine answers.
