//! The `recall` engine as a library that a host loads.

#![forbid(unsafe_code)]

ctxhost_engine_api::export_engine!(ctxhost_engine_recall::RecallEngine);
