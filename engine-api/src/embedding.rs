//! Vectors of texts: what an engine asks the host's embedder for, and what it gets.

use serde::{Deserialize, Serialize};

/// How the texts of a request are used. Some models embed queries and documents differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbedPurpose {
    /// Texts that are searched for, such as a prompt.
    Query,
    /// Texts that are found, such as entries.
    #[default]
    Document,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// A request for the vectors of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EmbedRequest {
    /// The texts, at most [`MAX_TEXTS`](Self::MAX_TEXTS) with [`MAX_BYTES`](Self::MAX_BYTES) in all.
    pub texts: Vec<String>,
    /// How they are used.
    pub purpose: EmbedPurpose,
}

impl EmbedRequest {
    /// The maximum number of texts.
    pub const MAX_TEXTS: usize = 256;
    /// The maximum size of all texts, in bytes.
    pub const MAX_BYTES: usize = 1024 * 1024;
}

/// The vectors of texts, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// The name of the model. Vectors of different models are not comparable.
    pub model: String,
    /// Numbers per vector.
    pub dimensions: usize,
    /// All vectors, one after the other. Every number is finite.
    pub values: Vec<f32>,
}

impl Embeddings {
    /// The vector of the text with this index; `None` past the last.
    pub fn vector(&self, index: usize) -> Option<&[f32]> {
        self.vectors().nth(index)
    }

    /// The vectors, in the order of the texts.
    pub fn vectors(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        // Without dimensions there are no values either.
        self.values.chunks_exact(self.dimensions.max(1))
    }
}
