//! `[embedder]`: the model for `Host::embed`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Config;
use super::error::ConfigDiagnostic;

ctxhost_engine_api::settings! {
    /// `[embedder]`: the model for `Host::embed`. Off unless `url` or `path` is set.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct EmbedderSettings {
        /// Base URL of an API with OpenAI's /v1/embeddings, such as http://127.0.0.1:11434; instead
        /// of path. Engines then send it texts of sessions, with secrets redacted.
        pub url: Option<String> = None, Url;
        /// Model name at that url.
        pub model: Option<String> = None, Text;
        /// Environment variable with the key for that url, so that no key is in a file; unset for
        /// local servers.
        pub api_key_env: Option<String> = None, Variable;
        /// Limit of one call to that url with its retries: a request waits for it, and the engine
        /// then ranks by words alone.
        pub timeout_ms: u64 = 1_500, Whole(1), "ms";
        /// Most texts of one HTTP request: small servers reject or time out on more.
        pub batch_texts: u64 = 64, Whole(1), "texts";
        /// Retries of a request that was throttled or met a failing server, within timeout_ms.
        pub retries: u64 = 1, Whole(0), "retries";
        /// Folder with a model2vec model: model.safetensors, tokenizer.json, config.json; instead of
        /// url. Nothing is sent then. Needs a ctxhost built with the feature `model2vec`.
        pub path: Option<PathBuf> = None, Text;
        /// Largest file of that folder, read into memory once: four times a large model.
        pub file_mib: u64 = 1_024, Whole(1), "MiB";
    }
}

/// The embedder that a config names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedderChoice<'a> {
    /// The URL of an endpoint, and the name of a model there.
    Endpoint(&'a str, &'a str),
    /// A folder with a model.
    Folder(&'a Path),
}

impl EmbedderSettings {
    /// The configured embedder; `None` if it is off.
    pub fn choice(&self) -> Option<EmbedderChoice<'_>> {
        match (&self.url, &self.path) {
            (Some(url), _) => {
                Some(EmbedderChoice::Endpoint(url, self.model.as_deref().unwrap_or_default()))
            }
            (None, Some(path)) => Some(EmbedderChoice::Folder(path)),
            (None, None) => None,
        }
    }

    /// The same table with its path relative to `folder`.
    pub(super) fn with_paths_from(mut self, folder: &Path) -> EmbedderSettings {
        self.path = self.path.map(|path| folder.join(path));
        self
    }
}

/// Checks rules that involve two settings.
pub(super) fn check_embedder(config: &Config) -> Option<ConfigDiagnostic> {
    let EmbedderSettings { url, model, api_key_env, path, .. } = &config.embedder;
    let fail = |key: &str, message: &str, help: &str| {
        Some(ConfigDiagnostic::conflict(config, &[key], message.to_owned(), help))
    };
    if url.is_some() && path.is_some() {
        return fail("embedder.path", "[embedder] sets both url and path", "keep one of them");
    }
    if url.is_some() && model.is_none() {
        return fail(
            "embedder.url",
            "[embedder] sets url without model",
            "add model = \"<its name at that url>\"",
        );
    }
    if url.is_none() && (model.is_some() || api_key_env.is_some()) {
        let key = if model.is_some() { "embedder.model" } else { "embedder.api_key_env" };
        return fail(
            key,
            "[embedder] sets model or api_key_env without url",
            "add url = \"<base URL of an API with /v1/embeddings>\"",
        );
    }
    None
}
