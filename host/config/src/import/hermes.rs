//! The mapping of Hermes Agent's `config.yaml`. Its built-in compressor is the engine `head-tail`.

use super::value_shape::MappedValue::Text;
use super::value_shape::ValueShape;
use super::{ImportedSetting, MappingRow, MappingTable, SettingsImport, none, to};

/// The slot, and the engine that matches Hermes' default.
const SLOT: [&str; 3] = ["plugins", "slots", "context_engine"];
const ENGINE: &str = "head-tail";

pub(super) const TABLE: MappingTable =
    MappingTable { rows: ROWS, scopes: &["compression", "context", "auxiliary.compression"] };

const MODEL: &str =
    "set [summariser] with base_url, model and api_key_env; keys are never imported";

#[rustfmt::skip]
const ROWS: &[MappingRow] = &[
    to("context.engine", "plugins.slots.context_engine", ValueShape::Word(&[("compressor", Text(ENGINE))])),
    none("compression.enabled", "compaction runs only when needed, and cannot be disabled"),
    to("compression.threshold", "plugins.entries.head-tail.config.threshold_share", ValueShape::Share),
    to("compression.target_ratio", "plugins.entries.head-tail.config.tail_share", ValueShape::ClampedShare(0.1, 0.8)),
    // Hermes itself clamps to 3..8 when tokens are short.
    to("compression.protect_last_n", "plugins.entries.head-tail.config.tail_messages", ValueShape::Clamped(3, 8)),
    to("compression.protect_first_n", "plugins.entries.head-tail.config.head_messages", ValueShape::Whole(0, u64::MAX)),
    none("compression.hygiene_hard_message_limit", "limits are in tokens, not in messages"),
    to("compression.abort_on_summary_failure", "plugins.entries.head-tail.config.abort_on_summary_failure", ValueShape::Flag),
    none("compression.in_place", "a compaction always continues the same session, which keeps every entry"),
    to("auxiliary.compression.model", "plugins.entries.head-tail.config.model", ValueShape::Text),
    to("auxiliary.compression.timeout", "timeouts.compact_ms", ValueShape::Seconds),
    none("auxiliary.compression.provider", MODEL),
    none("auxiliary.compression.base_url", MODEL),
    none("auxiliary.compression.api_key", MODEL),
];

/// Hermes falls back to its compressor for any other value, so its counterpart is the default.
pub(super) fn choose_engine(import: &mut SettingsImport) {
    if import.settings.iter().any(|setting| setting.path == SLOT) {
        return;
    }
    import.settings.insert(
        0,
        ImportedSetting {
            path: SLOT.map(str::to_owned).to_vec(),
            value: ENGINE.into(),
            from: "the default of Hermes, since context.engine is not set".into(),
            rank: 0,
        },
    );
}
