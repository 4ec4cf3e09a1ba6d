//! Who answers a request: by the model that it asks for, where that matters, else by its dialect.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::proxy::Endpoint;
use super::upstream::{Upstream, Upstreams};

/// Who answers.
pub(super) fn select_upstream(
    upstreams: &Upstreams,
    door: &Endpoint,
    body: &[u8],
) -> Option<Arc<Upstream>> {
    let model = upstreams.has_model_routes().then(|| model_of(door, body)).flatten();
    upstreams.select(door.dialect(), model.as_deref())
}

#[derive(Deserialize)]
struct WireModelField<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
}

/// The model: of the path, else of the body.
fn model_of(door: &Endpoint, body: &[u8]) -> Option<String> {
    match door {
        Endpoint::Generate { model, .. } | Endpoint::GenerateCountTokens { model } => {
            Some(model.clone())
        }
        _ => serde_json::from_slice::<WireModelField<'_>>(body).ok()?.model.map(Cow::into_owned),
    }
}
