//! Which model a request asks for, where it matters who answers.

use std::borrow::Cow;

use serde::Deserialize;

use super::exchange::Door;

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
}

/// The model: of the path, else of the body.
pub(super) fn model_of(door: &Door, body: &[u8]) -> Option<String> {
    match door {
        Door::Generate { model, .. } | Door::GenerateCount { model } => Some(model.clone()),
        _ => serde_json::from_slice::<Named<'_>>(body).ok()?.model.map(Cow::into_owned),
    }
}
