//! What an engine may ask of models: within its calls, as often as its quota allows, of models that the config names.

use std::sync::Arc;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{CallId, EngineError, ErrorKind, Result};
use serde_json::Value;

use super::calls::{CallTable, ModelCallRefusal};
use super::spec::EngineSpec;

/// The model calls of one engine.
pub(super) struct ModelCallQuota {
    calls: Arc<CallTable>,
    /// The most in one call of the engine.
    most: u64,
    config: Value,
}

impl ModelCallQuota {
    pub(super) fn new(spec: &EngineSpec, calls: Arc<CallTable>) -> ModelCallQuota {
        ModelCallQuota { calls, most: spec.quotas.model_calls, config: spec.config.clone() }
    }

    /// Starts the work of a model within a call, whose end cancels it.
    pub(super) fn run<T: Send + 'static>(
        &self,
        call: CallId,
        start: impl FnOnce() -> Result<BoxFuture<Result<T>>>,
    ) -> BoxFuture<Result<T>> {
        let counted = self.calls.count_model_call(call, self.most);
        let started = counted.map_err(|refusal| self.refusal_error(refusal));
        match started.and_then(|ended| Ok((ended, start()?))) {
            Ok((ended, work)) => Box::pin(async move {
                let cancelled = || EngineError::new(ErrorKind::Cancelled, "the call has ended");
                ended.run_until_cancelled(work).await.unwrap_or_else(|| Err(cancelled()))
            }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn refusal_error(&self, refusal: ModelCallRefusal) -> EngineError {
        match refusal {
            ModelCallRefusal::Ended => EngineError::failed(
                "no call of the engine with this id is running; models are called within calls",
            ),
            ModelCallRefusal::Spent => {
                let most = group_thousands(self.most);
                let message = format!(
                    "this call has called models {most} times, the limit is {most} (plugins.quotas.model_calls)"
                );
                EngineError::new(ErrorKind::ModelRateLimited, message)
            }
        }
    }

    /// Checks the model that a request names. The user pays for it, so the user names it, in the engine's config.
    pub(super) fn check_model(&self, model: &str) -> Result<()> {
        if model.is_empty() || contains_text(&self.config, model) {
            return Ok(());
        }
        let message = "the engine asks for a model that its config does not name; it may use that of [summariser]";
        Err(EngineError::new(ErrorKind::ModelMissing, message))
    }
}

/// Whether a text is a value in a config.
fn contains_text(config: &Value, text: &str) -> bool {
    match config {
        Value::String(value) => value == text,
        Value::Array(values) => values.iter().any(|value| contains_text(value, text)),
        Value::Object(fields) => fields.values().any(|value| contains_text(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::calls::CallLimit;
    use crate::quotas::Quotas;

    fn quota(most: u64, config: Value) -> ModelCallQuota {
        let quotas = Quotas { model_calls: most, ..Quotas::default() };
        let spec = EngineSpec { quotas, ..EngineSpec::bundled("demo", config) };
        ModelCallQuota::new(&spec, Arc::default())
    }

    fn answer() -> Result<BoxFuture<Result<u8>>> {
        Ok(Box::pin(async { Ok(7) }))
    }

    #[tokio::test]
    async fn each_call_has_a_number_of_model_calls() {
        let quota = quota(2, Value::Null);
        for _ in 0..2 {
            let call = quota.calls.begin(CallLimit::fixed(Duration::from_secs(60)), None);
            for _ in 0..2 {
                assert_eq!(quota.run(call.id, answer).await.unwrap(), 7);
            }
            let error = quota.run(call.id, answer).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::ModelRateLimited);
            assert!(
                error.message.contains("the limit is 2 (plugins.quotas.model_calls)"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn a_call_that_ended_has_none_and_ends_those_that_run() {
        let quota = quota(2, Value::Null);
        let call = quota.calls.begin(CallLimit::fixed(Duration::from_secs(60)), None);
        let id = call.id;
        let running = quota.run::<u8>(id, || Ok(Box::pin(std::future::pending())));
        drop(call);
        assert_eq!(running.await.unwrap_err().kind, ErrorKind::Cancelled);
        assert!(quota.run(id, answer).await.is_err());
    }

    #[test]
    fn only_models_of_the_config_are_called() {
        let config = json!({ "compaction": { "model": "small" }, "others": ["large"], "n": 1 });
        let quota = quota(2, config);
        for allowed in ["", "small", "large"] {
            quota.check_model(allowed).unwrap();
        }
        for refused in ["most-expensive", "smal", "model", "1"] {
            assert_eq!(quota.check_model(refused).unwrap_err().kind, ErrorKind::ModelMissing);
        }
    }
}
