#![forbid(unsafe_code)]
//! The bundled engine as a library that a host loads.

ctxhost_engine_api::export_engine!(ctxhost_engine_legacy::LegacyEngine);
