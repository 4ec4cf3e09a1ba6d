//! Who answers a request: by the model that it asks for, where that matters, else by its dialect.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::exchange::Door;
use super::upstream::{Upstream, Upstreams};

/// Who answers.
pub(super) fn upstream(upstreams: &Upstreams, door: &Door, body: &[u8]) -> Option<Arc<Upstream>> {
    let model = upstreams.go_by_model().then(|| model_of(door, body)).flatten();
    upstreams.choose(door.dialect(), model.as_deref())
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
}

/// The model: of the path, else of the body.
fn model_of(door: &Door, body: &[u8]) -> Option<String> {
    match door {
        Door::Generate { model, .. } | Door::GenerateCount { model } => Some(model.clone()),
        _ => serde_json::from_slice::<Named<'_>>(body).ok()?.model.map(Cow::into_owned),
    }
}
