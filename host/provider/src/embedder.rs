//! Computes vectors of texts: by an endpoint like OpenAI's `/v1/embeddings`, or by a model in a folder.

mod answer;
#[cfg(feature = "model2vec")]
mod folder;
#[cfg(feature = "model2vec")]
mod tensors;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctxhost_dialects::DialectName;
use ctxhost_dialects::openai_chat::{Compat, OpenAiChat};
use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{EmbedRequest, Embeddings, EngineError, ErrorKind, Result};
use serde_json::json;
use tokio::runtime::Handle;

use crate::completer::failure;
use crate::connect::resolve_key;
use crate::http::HttpClient;
use crate::runtime_task;
use crate::settings::{ConnectError, ProviderSettings};
use answer::EmbeddingsAnswer;

/// The path below the base URL.
const PATH: &str = "/v1/embeddings";

/// The name of the endpoint in messages.
const NAME: &str = "embedder";

/// Computes vectors of texts by one model.
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// The vectors of a request's texts, within `limit`; else one of the `Model…` kinds.
    fn embed(
        &self,
        request: EmbedRequest,
        limit: Option<Duration>,
    ) -> BoxFuture<Result<Embeddings>>;
}

/// Why there is no embedder.
#[derive(Debug, thiserror::Error)]
pub enum EmbedderError {
    /// The endpoint's settings are unusable.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Models in folders are not part of this program.
    #[error(
        "embedder.path needs a ctxhost with the feature model2vec, which this one lacks; build one with \
         `cargo install --locked --path host --features model2vec`, or set embedder.url"
    )]
    NotBuilt,
    /// A file of the model is unusable.
    #[error("the embedder's {} is unusable: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
}

/// Opens the model2vec model in a folder: reads its files, of at most `max_bytes` each, once.
///
/// # Errors
///
/// [`EmbedderError::NotBuilt`] without the feature `model2vec`, else [`EmbedderError::File`].
#[cfg(feature = "model2vec")]
pub fn open_model_folder(
    folder: &Path,
    max_bytes: u64,
    runtime: Handle,
) -> std::result::Result<Arc<dyn Embedder>, EmbedderError> {
    Ok(Arc::new(folder::FolderEmbedder::open(folder, max_bytes, runtime)?))
}

/// Opens the model2vec model in a folder.
///
/// # Errors
///
/// [`EmbedderError::NotBuilt`].
#[cfg(not(feature = "model2vec"))]
pub fn open_model_folder(
    _: &Path,
    _: u64,
    _: Handle,
) -> std::result::Result<Arc<dyn Embedder>, EmbedderError> {
    Err(EmbedderError::NotBuilt)
}

/// An endpoint, its model, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSettings {
    /// The base URL of the API, with or without `/v1` or `/v1/embeddings`.
    pub url: String,
    /// The model's name there.
    pub model: String,
    /// The environment variable that holds the key; `None` for none.
    pub api_key_env: Option<String>,
    /// The timeout of a call with its retries, in milliseconds.
    pub timeout_ms: u64,
    /// The maximum number of texts of one request.
    pub batch_texts: usize,
    /// Retries of a request that failed for now.
    pub retries: u64,
}

/// A model behind an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointEmbedder {
    http: Arc<HttpClient>,
    model: String,
    timeout: Duration,
    batch_texts: usize,
    runtime: Handle,
}

impl EndpointEmbedder {
    /// An embedder whose connections run on `runtime`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] for an invalid address or a missing key.
    pub fn new(
        settings: EndpointSettings,
        runtime: Handle,
    ) -> std::result::Result<EndpointEmbedder, ConnectError> {
        let base_url = settings.url.trim_end_matches('/').trim_end_matches("/embeddings");
        let provider = ProviderSettings {
            base_url: Some(base_url.to_owned()),
            api_key_env: settings.api_key_env,
            retries: settings.retries,
            // A longer wait would exceed the timeout in any case.
            retry_pause_ms: (settings.timeout_ms / 10).max(1),
            retry_after_max_ms: settings.timeout_ms,
            ..ProviderSettings::new(DialectName::OpenAiCompletions)
        };
        let dialect = OpenAiChat::new(Compat::new(&provider.compat, provider.base_url()));
        let key = resolve_key(NAME, &provider)?;
        Ok(EndpointEmbedder {
            http: Arc::new(HttpClient::new(NAME, Box::new(dialect), key, &provider)?),
            model: settings.model,
            timeout: Duration::from_millis(settings.timeout_ms),
            batch_texts: settings.batch_texts.max(1),
            runtime,
        })
    }

    async fn answer(self, texts: Vec<String>, timeout: Duration) -> Result<Embeddings> {
        match tokio::time::timeout(timeout, self.embed_batches(&texts)).await {
            Ok(answer) => answer,
            Err(_) => {
                let message =
                    format!("the embedder exceeded the timeout of {} ms", timeout.as_millis());
                Err(EngineError::new(ErrorKind::ModelTimeout, message))
            }
        }
    }

    async fn embed_batches(&self, texts: &[String]) -> Result<Embeddings> {
        let mut found = Embeddings { model: self.model.clone(), ..Embeddings::default() };
        for batch in texts.chunks(self.batch_texts) {
            let body = json!({ "model": self.model, "input": batch, "encoding_format": "float" });
            let answer = self.http.post_json(&self.model, PATH, &body).await.map_err(failure)?;
            let answer = EmbeddingsAnswer::parse(answer)?;
            answer.append_to(&mut found, batch.len())?;
        }
        Ok(found)
    }
}

impl Embedder for EndpointEmbedder {
    fn embed(
        &self,
        request: EmbedRequest,
        limit: Option<Duration>,
    ) -> BoxFuture<Result<Embeddings>> {
        let timeout = limit.map_or(self.timeout, |limit| limit.min(self.timeout));
        runtime_task::run(&self.runtime, self.clone().answer(request.texts, timeout))
    }
}

#[cfg(test)]
mod tests;
