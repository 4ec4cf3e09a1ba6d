//! A model2vec model in a folder: a table with one vector per token. A text's vector is the mean of its tokens'.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{EmbedRequest, Embeddings, EngineError, ErrorKind, Result};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokenizers::Tokenizer;
use tokio::runtime::Handle;

use super::tensors::TokenTable;
use super::{Embedder, EmbedderError};
use crate::runtime_task;

/// The files of a model.
const CONFIG: &str = "config.json";
const TENSORS: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";

/// The tokens of a text that count, as model2vec does by default.
const MAX_TOKENS: usize = 512;

/// Hex digits of the files' hash in the model's name.
const NAME_DIGITS: usize = 12;

/// A model in memory. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct FolderEmbedder {
    model: Arc<StaticModel>,
    runtime: Handle,
}

#[derive(Debug)]
struct StaticModel {
    name: String,
    tokenizer: Tokenizer,
    unknown_token: Option<u32>,
    table: TokenTable,
    normalizes: bool,
}

/// `config.json`; other fields are for training.
#[derive(Deserialize)]
struct ModelConfig {
    #[serde(default = "normalizes_by_default")]
    normalize: bool,
}

fn normalizes_by_default() -> bool {
    true
}

/// The part of `tokenizer.json` that names the token of unknown words.
#[derive(Deserialize)]
struct TokenizerHead {
    model: TokenizerModel,
}

#[derive(Deserialize)]
struct TokenizerModel {
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

impl FolderEmbedder {
    /// Reads a model's files, of at most `max_bytes` each. Later changes of the files have no effect.
    pub(super) fn open(
        folder: &Path,
        max_bytes: u64,
        runtime: Handle,
    ) -> std::result::Result<FolderEmbedder, EmbedderError> {
        let read = |name: &str| {
            let problem = |error: std::io::Error| problem_of(folder, name, &error);
            ctxhost_files::read(&folder.join(name), max_bytes).map_err(problem)
        };
        let (config, tensors, tokenizer) = (read(CONFIG)?, read(TENSORS)?, read(TOKENIZER)?);
        let config: ModelConfig =
            serde_json::from_slice(&config).map_err(|error| problem_of(folder, CONFIG, &error))?;
        let table =
            TokenTable::parse(&tensors).map_err(|error| problem_of(folder, TENSORS, &error))?;
        let digest = Sha256::new().chain_update(&tensors).chain_update(&tokenizer).finalize();
        let (tokenizer, unknown_token) =
            parse_tokenizer(&tokenizer).map_err(|error| problem_of(folder, TOKENIZER, &error))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        // With the hash: vectors that an engine stored must not be compared with those of another model that came
        // into the same folder.
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{name}@{}", digest.get(..NAME_DIGITS).unwrap_or(&digest));
        let model =
            StaticModel { name, tokenizer, unknown_token, table, normalizes: config.normalize };
        Ok(FolderEmbedder { model: Arc::new(model), runtime })
    }
}

impl Embedder for FolderEmbedder {
    fn embed(&self, request: EmbedRequest, _: Option<Duration>) -> BoxFuture<Result<Embeddings>> {
        // Without the limit: the work is bounded by that of a request, and a limit would make two replays differ.
        let model = self.model.clone();
        let work = tokio::task::spawn_blocking;
        runtime_task::run(&self.runtime, async move {
            let task = work(move || model.embed(&request.texts));
            let failed = |error| {
                let message = format!("the model in the folder failed: {error}");
                EngineError::new(ErrorKind::ModelFailed, message)
            };
            task.await.map_err(failed)?
        })
    }
}

impl StaticModel {
    fn embed(&self, texts: &[String]) -> Result<Embeddings> {
        let dimensions = self.table.dimensions();
        let mut values = Vec::with_capacity(texts.len() * dimensions);
        for text in texts {
            values.extend(self.embed_text(text)?);
        }
        Ok(Embeddings { model: self.name.clone(), dimensions, values })
    }

    fn embed_text(&self, text: &str) -> Result<Vec<f32>> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| {
            EngineError::new(ErrorKind::ModelFailed, format!("cannot split a text: {error}"))
        })?;
        let known = encoding.get_ids().iter().copied();
        let known = known.filter(|id| Some(*id) != self.unknown_token).take(MAX_TOKENS);
        let mut vector = self.table.mean(known);
        if self.normalizes {
            let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            if norm > 0.0 {
                vector.iter_mut().for_each(|value| *value /= norm);
            }
        }
        Ok(vector)
    }
}

fn parse_tokenizer(bytes: &[u8]) -> std::result::Result<(Tokenizer, Option<u32>), String> {
    let head: TokenizerHead = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    // Of the model's training; every text is split alone here.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
    let named = head.model.unk_token.and_then(|token| tokenizer.token_to_id(&token));
    Ok((tokenizer, named.or(head.model.unk_id)))
}

fn problem_of(folder: &Path, name: &str, problem: &dyn std::fmt::Display) -> EmbedderError {
    EmbedderError::File { path: folder.join(name), problem: problem.to_string() }
}

#[cfg(test)]
mod tests;
