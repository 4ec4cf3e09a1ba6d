//! The engine @id@. The strategy is in `choice`.

#![forbid(unsafe_code)]

mod choice;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::*;

/// The display name. The id is the name of the crate.
const NAME: &str = "@name@";

/// Old tool results up to this size are kept: 50 tokens are two or three lines.
const SHORT_RESULT_TOKENS: u64 = 50;

/// The engine. It is stateless.
#[derive(Debug)]
pub struct Engine {
    short_result_tokens: u64,
}

impl ContextEngine for Engine {
    /// `owning_compaction`: every plan fits its budget, so the host does not request compactions.
    const INFO: Info =
        Info::new(env!("CARGO_PKG_NAME"), NAME, env!("CARGO_PKG_VERSION")).owning_compaction();

    /// `config` is the table `[plugins.entries.@id@.config]` with the setting `short_result_tokens`.
    fn create(_host: Host, config: Value) -> Result<Self> {
        let settings = config.as_object().ok_or_else(|| invalid("", "config must be a table"))?;
        let mut short_result_tokens = SHORT_RESULT_TOKENS;
        for (key, value) in settings {
            match (key.as_str(), value.as_u64()) {
                ("short_result_tokens", Some(tokens)) => short_result_tokens = tokens,
                ("short_result_tokens", None) => return Err(invalid(key, "not a whole number")),
                _ => return Err(invalid(key, "unknown setting")),
            }
        }
        Ok(Engine { short_result_tokens })
    }

    /// Selects what the model reads in the next request.
    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        Ok(choice::choose(&transcript, request.budget, self.short_result_tokens))
    }

    /// Delegates manual compactions and those after a provider's overflow to the bundled engine.
    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

/// An error of a setting. The host reports its line in the config.
fn invalid(key: &str, what: &str) -> EngineError {
    EngineError::config(key, what)
}

export_engine!(Engine);
