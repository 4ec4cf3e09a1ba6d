//! The table of Hermes Agent's `config.yaml`. Its built-in compressor is the `head-tail` engine here.

use super::value_shape::MappedValue::Text;
use super::value_shape::ValueShape;
use super::{ImportedSetting, KeyMapping, MappingRow, MappingTable, SettingsImport};

/// The slot, and the engine that does what Hermes does without being told.
const SLOT: [&str; 3] = ["plugins", "slots", "context_engine"];
const ENGINE: &str = "head-tail";

pub(super) const TABLE: MappingTable =
    MappingTable { rows: ROWS, scopes: &["compression", "context", "auxiliary.compression"] };

const fn to(key: &'static str, path: &'static str, shape: ValueShape) -> MappingRow {
    MappingRow { key, mapping: KeyMapping::To(path, shape) }
}

const fn none(key: &'static str, reason: &'static str) -> MappingRow {
    MappingRow { key, mapping: KeyMapping::None(reason) }
}

const MODEL: &str = "write [summariser] with base_url, model and the name of the variable that holds the key; keys are never carried over";

#[rustfmt::skip]
const ROWS: &[MappingRow] = &[
    to("context.engine", "plugins.slots.context_engine", ValueShape::Word(&[("compressor", Text(ENGINE))])),
    none("compression.enabled", "a compaction comes only under pressure, and cannot be switched off"),
    to("compression.threshold", "plugins.entries.head-tail.config.threshold_share", ValueShape::Share),
    to("compression.target_ratio", "plugins.entries.head-tail.config.tail_share", ValueShape::ClampedShare(0.1, 0.8)),
    // Hermes itself protects at least 3 and at most 8 where tokens are short.
    to("compression.protect_last_n", "plugins.entries.head-tail.config.tail_messages", ValueShape::Clamped(3, 8)),
    to("compression.protect_first_n", "plugins.entries.head-tail.config.head_messages", ValueShape::Whole(0, u64::MAX)),
    none("compression.hygiene_hard_message_limit", "tokens are counted, messages are not"),
    to("compression.abort_on_summary_failure", "plugins.entries.head-tail.config.abort_on_summary_failure", ValueShape::Flag),
    none("compression.in_place", "the session is always the same, and keeps every entry"),
    to("auxiliary.compression.model", "plugins.entries.head-tail.config.model", ValueShape::Text),
    to("auxiliary.compression.timeout", "timeouts.compact_ms", ValueShape::Seconds),
    none("auxiliary.compression.provider", MODEL),
    none("auxiliary.compression.base_url", MODEL),
    none("auxiliary.compression.api_key", MODEL),
];

/// Hermes falls back to its compressor whatever is written, so its counterpart fills the slot.
pub(super) fn choose_engine(import: &mut SettingsImport) {
    if import.settings.iter().any(|setting| setting.path == SLOT) {
        return;
    }
    import.settings.insert(
        0,
        ImportedSetting {
            path: SLOT.map(str::to_owned).to_vec(),
            value: ENGINE.into(),
            from: "Hermes, where the built-in compressor runs unless context.engine names another"
                .into(),
            rank: 0,
        },
    );
}
