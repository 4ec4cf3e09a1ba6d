//! The recent counts and the window of a model as a record of the session, so that a restart does not forget them.
//!
//! Without the counts the budget of a restarted session would be smaller, and a conversation that fitted would be compacted.
//! Without the window the compactions made for it would not count, and the next request would be refused as too large.

use serde_json::{Value, json};

use super::counts::{RecentCounts, TokenSample};
use super::{LearnedWindow, ModelAccount, TokenAccounting};
use ctxhost_config::AccountingSettings;
use ctxhost_models::ModelName;
use ctxhost_session::{RecordBody, Session};

/// The custom type of the records.
const CUSTOM_TYPE: &str = "ctxhost.tokens";

/// Relative change of a typical size from which counts are stored again: far below the error of an estimate, and a few records
/// for each session.
const STORED_CHANGE: f64 = 0.02;

/// The size of a request of which an old record has only the factor.
const OLD_SAMPLE_TOKENS: u64 = 10_000;

impl TokenAccounting {
    /// Takes over what the session's records store; the last one of each model counts.
    pub(crate) fn restore(&mut self, session: &Session) {
        for (_, data) in session.host_records(CUSTOM_TYPE) {
            let text = |field: &str| data.get(field).and_then(Value::as_str);
            let (Some(provider), Some(id)) = (text("provider"), text("model")) else { continue };
            let mut known = ModelAccount::default();
            for sample in stored_samples(&data) {
                known.counts.record(sample, &self.settings);
            }
            known.stored_limit = Some(known.counts.rates(&self.settings).0);
            known.window = data.get("window").and_then(read_window);
            known.stored_window = known.window;
            self.models.insert(ModelName::new(provider, id), known);
        }
    }

    /// A record of what is known of a model, if it differs from what is stored.
    pub(crate) fn unstored_record(&self, model: &ModelName) -> Option<RecordBody> {
        let known = self.models.get(model)?;
        if !known.has_other_rates(&self.settings) && known.stated_window() == known.stored_window {
            return None;
        }
        let counts: Vec<[u64; 3]> = known.counts.recent().map(numbers_of).collect();
        let data = json!({
            "provider": model.provider,
            "model": model.id,
            "counts": counts,
            "window": known.stated_window().map(|window| {
                json!({ "tokens": window.tokens, "knownTokens": window.known_tokens })
            }),
        });
        Some(RecordBody::custom(CUSTOM_TYPE, &data))
    }

    /// Records that the session stores what is known of a model.
    pub(crate) fn mark_stored(&mut self, model: &ModelName) {
        if let Some(known) = self.models.get_mut(model) {
            known.stored_limit = Some(known.counts.rates(&self.settings).0);
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

    /// Whether the rates for limits differ from what is stored.
    fn has_other_rates(&self, settings: &AccountingSettings) -> bool {
        let unknown = || RecentCounts::default().rates(settings).0;
        let stored = self.stored_limit.unwrap_or_else(unknown);
        let limit = self.counts.rates(settings).0;
        self.counts.is_trusted(settings) && !limit.is_close_to(&stored, STORED_CHANGE)
    }
}

/// A sample as it is stored.
fn numbers_of(sample: TokenSample) -> [u64; 3] {
    [sample.text_tokens, sample.attachment_tokens, sample.counted_tokens]
}

/// The samples of a record. Older ones have only the factors between counts and estimates.
fn stored_samples(data: &Value) -> Vec<TokenSample> {
    let values = |field: &str| data.get(field).and_then(Value::as_array).into_iter().flatten();
    let sample = |value: &Value| {
        let [text_tokens, attachment_tokens, counted_tokens] =
            serde_json::from_value::<[u64; 3]>(value.clone()).ok()?;
        let is_plausible = text_tokens.checked_add(attachment_tokens)? > 0 && counted_tokens > 0;
        is_plausible.then_some(TokenSample { text_tokens, attachment_tokens, counted_tokens })
    };
    let of_factor = |factor: f64| TokenSample {
        text_tokens: OLD_SAMPLE_TOKENS,
        attachment_tokens: 0,
        counted_tokens: (OLD_SAMPLE_TOKENS as f64 * factor) as u64,
    };
    let old = values("factors").filter_map(Value::as_f64).map(of_factor);
    values("counts").filter_map(sample).chain(old).collect()
}

fn read_window(data: &Value) -> Option<LearnedWindow> {
    let tokens = |field: &str| data.get(field).and_then(Value::as_u64).filter(|tokens| *tokens > 0);
    let (tokens, known_tokens) = (tokens("tokens")?, tokens("knownTokens")?);
    Some(LearnedWindow { tokens, is_stated: true, known_tokens })
}
