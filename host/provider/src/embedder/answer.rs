//! Reads the answer of an embeddings endpoint.

use ctxhost_engine_api::{Embeddings, EngineError, ErrorKind, Result};
use serde::Deserialize;
use serde_json::Value;

/// What an endpoint answers. Other fields are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct EmbeddingsAnswer {
    data: Vec<EmbeddingRow>,
}

#[derive(Debug, Deserialize)]
struct EmbeddingRow {
    /// The position of the text; servers that keep the order may leave it out.
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl EmbeddingsAnswer {
    pub(super) fn parse(answer: Value) -> Result<EmbeddingsAnswer> {
        serde_json::from_value(answer).map_err(|error| invalid(format!("{error}")))
    }

    /// Appends the vectors of `texts` texts, in their order.
    pub(super) fn append_to(self, found: &mut Embeddings, texts: usize) -> Result<()> {
        let mut rows: Vec<Option<Vec<f32>>> = vec![None; texts];
        let count = self.data.len();
        for (at, row) in self.data.into_iter().enumerate() {
            let index = row.index.unwrap_or(at);
            match rows.get_mut(index) {
                Some(place) if place.is_none() => *place = Some(row.embedding),
                _ => return Err(invalid(format!("index {index} twice or beyond {texts} texts"))),
            }
        }
        for row in rows {
            let row = row.ok_or_else(|| invalid(format!("{count} vectors for {texts} texts")))?;
            let is_first = found.values.is_empty();
            if is_first {
                found.dimensions = row.len();
            }
            if row.len() != found.dimensions || row.is_empty() {
                let message =
                    format!("a vector of {} numbers after one of {}", row.len(), found.dimensions);
                return Err(invalid(message));
            }
            found.values.extend(row);
        }
        Ok(())
    }
}

fn invalid(problem: String) -> EngineError {
    let message = format!("the embedder's answer is invalid: {problem}");
    EngineError::new(ErrorKind::ModelFailed, message)
}
