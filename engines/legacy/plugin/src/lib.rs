#![forbid(unsafe_code)]
//! The `legacy` engine as a loadable library.

ctxhost_engine_api::export_engine!(ctxhost_engine_legacy::LegacyEngine);
