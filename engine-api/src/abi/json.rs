//! JSON of cold requests and answers.

use abi_stable::std_types::RString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{EngineError, ErrorKind, Result};

/// The JSON of a cold request or answer. Our own types always have one.
pub(crate) fn to_json(value: &impl Serialize) -> RString {
    serde_json::to_string(value).unwrap_or_default().into()
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        EngineError::new(ErrorKind::Protocol, format!("the other side sent bad JSON: {error}"))
    })
}
