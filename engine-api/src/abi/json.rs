//! What crosses as something else than it is: cold requests and answers as JSON, hot ones as structs.

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

/// A request or an answer that crosses as an `Abi`.
pub(crate) trait Crosses<Abi>: Sized {
    fn encode(self) -> Abi;
    fn decode(abi: Abi) -> Result<Self>;
}

/// Whatever has JSON crosses as JSON, where the border asks for that.
impl<T: Serialize + DeserializeOwned> Crosses<RString> for T {
    fn encode(self) -> RString {
        to_json(&self)
    }

    fn decode(json: RString) -> Result<T> {
        from_json(json.as_str())
    }
}

impl Crosses<()> for () {
    fn encode(self) {}

    fn decode((): ()) -> Result<()> {
        Ok(())
    }
}
