//! The engine @id@: what the host calls. What it keeps of a conversation is decided in `choice`.

#![forbid(unsafe_code)]

mod choice;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::*;

/// The name for people; the id is the name of the crate.
const NAME: &str = "@name@";

/// An old tool result of no more tokens stays as it is: 50 are two or three lines.
const SHORT_RESULT_TOKENS: u64 = 50;

/// The engine. It remembers nothing between calls, so nothing is lost at a restart.
#[derive(Debug)]
pub struct Engine {
    short_result_tokens: u64,
}

impl ContextEngine for Engine {
    /// `owning_compaction`: every plan fits its budget, so the host need not ask for compactions.
    const INFO: Info =
        Info::new(env!("CARGO_PKG_NAME"), NAME, env!("CARGO_PKG_VERSION")).owning_compaction();

    /// `config` is the table `[plugins.entries.@id@.config]`. Its one setting here is
    /// `short_result_tokens`.
    fn create(_host: Host, config: Value) -> Result<Self> {
        let settings = config.as_object().ok_or_else(|| wrong("", "the config is no table"))?;
        let mut short_result_tokens = SHORT_RESULT_TOKENS;
        for (key, value) in settings {
            match (key.as_str(), value.as_u64()) {
                ("short_result_tokens", Some(tokens)) => short_result_tokens = tokens,
                ("short_result_tokens", None) => return Err(wrong(key, "it is no whole number")),
                _ => return Err(wrong(key, "the only setting is short_result_tokens")),
            }
        }
        Ok(Engine { short_result_tokens })
    }

    /// What the model sees in the next request.
    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        Ok(choice::choose(&transcript, request.budget, self.short_result_tokens))
    }

    /// A person asked for a compaction, or a provider counts otherwise: the bundled engine does it.
    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

/// A wrong setting. The host shows its line in the config.
fn wrong(key: &str, what: &str) -> EngineError {
    EngineError::config(key, what)
}

export_engine!(Engine);
