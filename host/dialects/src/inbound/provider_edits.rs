//! What a provider may do to the prompt of a request before its model reads it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::optional::optional_text;

/// What a request lets its provider do to the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderEdits {
    /// Whether it may leave out a part, so that it counts less than was sent.
    pub may_shorten: bool,
    /// Whether it may replace the history with a summary of its own.
    pub may_compact: bool,
}

#[derive(Deserialize)]
struct WireEdit<'a> {
    #[serde(borrow, default, deserialize_with = "optional_text")]
    r#type: std::borrow::Cow<'a, str>,
}

impl ProviderEdits {
    /// What a list of edits permits.
    pub(crate) fn of_list(edits: Option<&RawValue>) -> ProviderEdits {
        let edits =
            edits.and_then(|edits| serde_json::from_str::<Vec<WireEdit<'_>>>(edits.get()).ok());
        let edits = edits.unwrap_or_default();
        // `compact_20260112` of Anthropic, `compaction` of OpenAI.
        let is_compaction = |edit: &WireEdit<'_>| edit.r#type.starts_with("compact");
        ProviderEdits {
            may_shorten: !edits.is_empty(),
            may_compact: edits.iter().any(is_compaction),
        }
    }
}
