//! The name of a model.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A model of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelName {
    /// The provider's name in the config.
    pub provider: String,
    /// The model, as the provider writes it.
    pub id: String,
}

impl ModelName {
    /// The model `id` of `provider`.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> ModelName {
        ModelName { provider: provider.into(), id: id.into() }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.id)
    }
}
