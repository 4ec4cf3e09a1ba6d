//! The learned factors and window of a model as a record of the session, so that a restart does not forget them.
//!
//! Without the factors the budget of a restarted session would be smaller, and a conversation that fitted would be compacted.
//! Without the window the compactions made for it would not count, and the next request would be refused as too large.

use serde_json::{Value, json};

use super::{LearnedWindow, ModelAccount, TokenAccounting};
use ctxhost_config::AccountingSettings;
use ctxhost_models::ModelName;
use ctxhost_session::{RecordBody, Session};

/// The custom type of the records.
const CUSTOM_TYPE: &str = "ctxhost.tokens";

/// Relative change of the factor for limits from which it is stored again: far below the error of an estimate, and a few records
/// for each session.
const STORED_CHANGE: f64 = 0.02;

impl TokenAccounting {
    /// Takes over what the session's records store; the last one of each model counts.
    pub(crate) fn restore(&mut self, session: &Session) {
        for (_, data) in session.host_records(CUSTOM_TYPE) {
            let text = |field: &str| data.get(field).and_then(Value::as_str);
            let (Some(provider), Some(id)) = (text("provider"), text("model")) else { continue };
            let factors = data.get("factors").and_then(Value::as_array);
            let factors = factors.into_iter().flatten().filter_map(Value::as_f64);
            let mut known = ModelAccount::default();
            factors.for_each(|factor| known.factor.record(factor, &self.settings));
            known.stored_limit = Some(known.factor.upper_bound(&self.settings));
            known.window = data.get("window").and_then(read_window);
            known.stored_window = known.window;
            self.models.insert(ModelName::new(provider, id), known);
        }
    }

    /// A record of what is known of a model, if it differs from what is stored.
    pub(crate) fn unstored_record(&self, model: &ModelName) -> Option<RecordBody> {
        let known = self.models.get(model)?;
        if !known.is_other_factor(&self.settings) && known.stated_window() == known.stored_window {
            return None;
        }
        let factors: Vec<f64> = known.factor.recent().collect();
        let data = json!({
            "provider": model.provider,
            "model": model.id,
            "factors": factors,
            "window": known.stated_window().map(|window| {
                json!({ "tokens": window.tokens, "knownTokens": window.known_tokens })
            }),
        });
        Some(RecordBody::custom(CUSTOM_TYPE, &data))
    }

    /// Records that the session stores what is known of a model.
    pub(crate) fn mark_stored(&mut self, model: &ModelName) {
        if let Some(known) = self.models.get_mut(model) {
            known.stored_limit = Some(known.factor.upper_bound(&self.settings));
            known.stored_window = known.stated_window();
        }
    }

    /// Records that no session stores it yet.
    pub(crate) fn mark_unstored(&mut self) {
        for known in self.models.values_mut() {
            (known.stored_limit, known.stored_window) = (None, None);
        }
    }
}

impl ModelAccount {
    /// The learned window, if its provider stated it: an estimate is stored nowhere.
    fn stated_window(&self) -> Option<LearnedWindow> {
        self.window.filter(|window| window.is_stated)
    }

    /// Whether the factor for limits differs from what is stored.
    fn is_other_factor(&self, settings: &AccountingSettings) -> bool {
        let stored = self.stored_limit.unwrap_or(settings.unknown_factor);
        let change = self.factor.upper_bound(settings) / stored - 1.0;
        self.factor.is_trusted(settings) && change.abs() >= STORED_CHANGE
    }
}

fn read_window(data: &Value) -> Option<LearnedWindow> {
    let tokens = |field: &str| data.get(field).and_then(Value::as_u64).filter(|tokens| *tokens > 0);
    let (tokens, known_tokens) = (tokens("tokens")?, tokens("knownTokens")?);
    Some(LearnedWindow { tokens, is_stated: true, known_tokens })
}
