//! The `dag` engine as a loadable library.

#![forbid(unsafe_code)]

ctxhost_engine_api::export_engine!(ctxhost_engine_dag::DagEngine);
