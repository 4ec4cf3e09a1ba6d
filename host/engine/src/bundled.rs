//! The engines linked into the host. No other file names their crates.

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::settings::Setting;

/// The engine that answers where no other can.
pub const LEGACY: &str = "legacy";

/// The ids of all bundled engines, in the order of listings.
pub const BUNDLED: [&str; 7] = [LEGACY, "window", "mask", "boundary", "head-tail", "recall", "dag"];

/// The factory of a bundled engine; `None` for any other id.
pub fn bundled(id: &str) -> Option<EngineFactory> {
    match id {
        "legacy" => Some(EngineFactory::linked::<ctxhost_engine_legacy::LegacyEngine>()),
        "window" => Some(EngineFactory::linked::<ctxhost_engine_window::WindowEngine>()),
        "mask" => Some(EngineFactory::linked::<ctxhost_engine_mask::MaskEngine>()),
        "boundary" => Some(EngineFactory::linked::<ctxhost_engine_boundary::BoundaryEngine>()),
        "head-tail" => Some(EngineFactory::linked::<ctxhost_engine_head_tail::HeadTailEngine>()),
        "recall" => Some(EngineFactory::linked::<ctxhost_engine_recall::RecallEngine>()),
        "dag" => Some(EngineFactory::linked::<ctxhost_engine_dag::DagEngine>()),
        _ => None,
    }
}

/// The settings of a bundled engine, `[plugins.entries.<id>.config]`; none for any other id.
pub fn bundled_settings(id: &str) -> &'static [Setting] {
    match id {
        "legacy" => ctxhost_engine_legacy::settings::Settings::SETTINGS,
        "window" => ctxhost_engine_window::Settings::SETTINGS,
        "mask" => ctxhost_engine_mask::Settings::SETTINGS,
        "boundary" => ctxhost_engine_boundary::Settings::SETTINGS,
        "head-tail" => ctxhost_engine_head_tail::settings::Settings::SETTINGS,
        "recall" => ctxhost_engine_recall::Settings::SETTINGS,
        "dag" => ctxhost_engine_dag::Settings::SETTINGS,
        _ => &[],
    }
}
