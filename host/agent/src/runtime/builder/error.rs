//! Why a runtime could not be put together.

use crate::engine_registry::EngineRegistryError;
use ctxhost_engine::SlotError;
use ctxhost_provider::ConnectError;
use ctxhost_tools::ToolError;

/// Why a runtime could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A model's name is none.
    #[error("{name:?} names no model; write it as `provider/id`")]
    InvalidModel {
        /// What was written.
        name: String,
    },
    /// Nobody serves a model.
    #[error(
        "no provider {provider:?} for the model {model}; begin one with a line [providers.{provider}] in ctxhost.toml"
    )]
    NoProvider {
        /// The provider.
        provider: String,
        /// The model.
        model: String,
    },
    /// A provider cannot be reached as the config says.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The engine is none that the config knows.
    #[error(transparent)]
    Registry(#[from] EngineRegistryError),
    /// The engine could not be opened.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The memory is none that there is.
    #[error(
        "there is no memory {id:?}; write memory = \"notes\" or \"none\" under [plugins.slots] in ctxhost.toml"
    )]
    UnknownMemory {
        /// What the slot names.
        id: String,
    },
    /// The system gave the engines in the shadow no thread.
    #[error("no thread for the engines in the shadow: {source}")]
    Shadows {
        /// What the system said.
        source: std::io::Error,
    },
    /// A tool of the program cannot be offered.
    #[error(transparent)]
    Tool(#[from] ToolError),
}
