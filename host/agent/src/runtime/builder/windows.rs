//! Looks up the windows of the configured models when a runtime is built.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::RuntimeBuilder;
use ctxhost_config::{MAX_WINDOW_TOKENS, ModelWindow, WindowHints, WindowSource};
use ctxhost_models::ModelName;
use ctxhost_provider::ProviderClient;

impl RuntimeBuilder {
    /// The windows of the models: the builder's override, else the lookup of the config.
    pub(super) async fn windows(
        &self,
        chain: &[ModelName],
        clients: &BTreeMap<String, Arc<dyn ProviderClient>>,
    ) -> HashMap<ModelName, u64> {
        if let Some(tokens) = self.window_tokens {
            let tokens = tokens.min(MAX_WINDOW_TOKENS);
            return chain.iter().map(|model| (model.clone(), tokens)).collect();
        }
        let lookups = chain.iter().map(async |model| {
            let window = self.window_of(model, clients.get(&model.provider)).await;
            let ModelWindow { tokens, source, .. } = window;
            tracing::info!(%model, window_tokens = tokens, %source, "context window");
            (model.clone(), tokens)
        });
        // Concurrently: each query may take the whole `model.window_query_ms`.
        join_all(lookups).await.into_iter().collect()
    }

    /// The window of a model. Queries the provider if the config does not set the window; a query that fails
    /// or times out falls back to the table.
    async fn window_of(
        &self,
        model: &ModelName,
        client: Option<&Arc<dyn ProviderClient>>,
    ) -> ModelWindow {
        let find = |hints| self.config.window(&model.provider, &model.id, hints);
        let known = find(WindowHints::default());
        let is_configured =
            matches!(known.source, WindowSource::Config | WindowSource::ConfigDefault);
        let wait_ms = self.config.model.window_query_ms;
        let client = client.filter(|_| self.query_windows && !is_configured && wait_ms > 0);
        let Some(client) = client else { return known };
        match tokio::time::timeout(Duration::from_millis(wait_ms), client.query_window(&model.id))
            .await
        {
            Ok(Ok(stated_tokens)) => find(WindowHints { stated_tokens, ..WindowHints::default() }),
            Ok(Err(error)) => {
                tracing::debug!(%model, %error, "window query failed");
                known
            }
            Err(_) => {
                tracing::debug!(%model, wait_ms, "window query timed out (model.window_query_ms)");
                known
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, ScriptedProvider, config};

    /// A provider that states a window; with 0 its query never returns.
    fn stating(window: Option<u64>) -> Arc<dyn ProviderClient> {
        ScriptedProvider::stating(window, |_| Answer::Refusal)
    }

    async fn found(text: &str, stated: Option<u64>) -> (u64, WindowSource) {
        let text = format!("[model]\nwindow_query_ms = 50\n{text}");
        let builder = RuntimeBuilder::from_config(&config(&text)).query_windows();
        let window =
            builder.window_of(&ModelName::new("here", "gpt-4"), Some(&stating(stated))).await;
        (window.tokens, window.source)
    }

    #[tokio::test]
    async fn a_provider_is_queried_if_the_config_sets_no_window() {
        assert_eq!(found("", Some(32_000)).await, (32_000, WindowSource::Provider));
        assert_eq!(found("", None).await, (8_192, WindowSource::Table));
        assert_eq!(found("", Some(0)).await, (8_192, WindowSource::Table), "not in time");
        let default = "default_window_tokens = 50000\n";
        assert_eq!(found(default, Some(32_000)).await, (50_000, WindowSource::ConfigDefault));
        let model = "[models.gpt-4]\nwindow_tokens = 9000\n";
        assert_eq!(found(model, Some(32_000)).await, (9_000, WindowSource::Config));
    }

    #[tokio::test]
    async fn a_provider_is_queried_only_on_request() {
        let client = stating(Some(32_000));
        let model = ModelName::new("here", "gpt-4");
        let builder = RuntimeBuilder::from_config(&config(""));
        assert_eq!(builder.window_of(&model, Some(&client)).await.tokens, 8_192);
        let asking = builder.query_windows();
        let chain = [model.clone()];
        let clients = BTreeMap::from([("here".to_owned(), client)]);
        assert_eq!(asking.windows(&chain, &clients).await[&model], 32_000);
        let given = asking.window_tokens(64_000);
        assert_eq!(given.windows(&chain, &clients).await[&model], 64_000);
    }
}
