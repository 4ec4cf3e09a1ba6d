//! Errors of building a runtime.

use crate::engine_registry::EngineRegistryError;
use ctxhost_engine::SlotError;
use ctxhost_provider::{ConnectError, EmbedderError};
use ctxhost_tools::ToolError;

/// Why a runtime could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A model name is malformed.
    #[error("{name:?} is not a model name; write it as `provider/id`")]
    InvalidModel { name: String },
    /// A model's provider is not configured.
    #[error(
        "no provider {provider:?} is configured for the model {model}; add a table [providers.{provider}] to ctxhost.toml"
    )]
    NoProvider { provider: String, model: String },
    /// A provider's client could not be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The embedder could not be made.
    #[error(transparent)]
    Embedder(#[from] EmbedderError),
    /// The engine is unknown or not allowed.
    #[error(transparent)]
    Registry(#[from] EngineRegistryError),
    /// The engine could not be opened.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The memory slot names an unknown memory.
    #[error(
        "no memory {id:?} exists; write memory = \"notes\" or \"none\" under [plugins.slots] in ctxhost.toml"
    )]
    UnknownMemory {
        /// The name in the slot.
        id: String,
    },
    /// The thread of the shadow engines could not be started.
    #[error("cannot start the thread of the shadow engines: {source}")]
    Shadows { source: std::io::Error },
    /// A tool of the program was rejected.
    #[error(transparent)]
    Tool(#[from] ToolError),
}
