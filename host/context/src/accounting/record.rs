//! The learned factors of a model as a record of the session, so that a restart does not forget them.
//!
//! Without them the budget of a restarted session would be smaller, and a conversation that fitted would be compacted.

use serde_json::{Value, json};

use super::{ModelAccount, TokenAccounting};
use ctxhost_models::ModelName;
use ctxhost_session::{RecordBody, Session};

/// The custom type of the records.
const CUSTOM_TYPE: &str = "ctxhost.tokens";

/// Relative change of the factor for limits from which it is stored again: far below the error of an estimate, and a few records
/// for each session.
const STORED_CHANGE: f64 = 0.02;

impl TokenAccounting {
    /// Takes over the factors that the session's records store; the last one of each model counts. Windows are not stored: one
    /// that was learned by mistake would bound the session for ever.
    pub(crate) fn restore(&mut self, session: &Session) {
        for (_, data) in session.host_records(CUSTOM_TYPE) {
            let text = |field: &str| data.get(field).and_then(Value::as_str);
            let (Some(provider), Some(id)) = (text("provider"), text("model")) else { continue };
            let factors = data.get("factors").and_then(Value::as_array);
            let factors = factors.into_iter().flatten().filter_map(Value::as_f64);
            let mut known = ModelAccount::default();
            factors.for_each(|factor| known.factor.record(factor, &self.settings));
            known.stored_limit = Some(known.factor.upper_bound(&self.settings));
            self.models.insert(ModelName::new(provider, id), known);
        }
    }

    /// A record of a model's factors, if they differ from what is stored.
    pub(crate) fn unstored_record(&self, model: &ModelName) -> Option<RecordBody> {
        let known = self.models.get(model)?;
        if !known.factor.is_trusted(&self.settings) {
            return None;
        }
        let limit = known.factor.upper_bound(&self.settings);
        let stored = known.stored_limit.unwrap_or(self.settings.unknown_factor);
        if (limit / stored - 1.0).abs() < STORED_CHANGE {
            return None;
        }
        let factors: Vec<f64> = known.factor.recent().collect();
        let data = json!({ "provider": model.provider, "model": model.id, "factors": factors });
        Some(RecordBody::custom(CUSTOM_TYPE, &data))
    }

    /// Records that the session stores the factors of a model.
    pub(crate) fn mark_stored(&mut self, model: &ModelName) {
        if let Some(known) = self.models.get_mut(model) {
            known.stored_limit = Some(known.factor.upper_bound(&self.settings));
        }
    }

    /// Records that no session stores them yet.
    pub(crate) fn mark_unstored(&mut self) {
        self.models.values_mut().for_each(|known| known.stored_limit = None);
    }
}
