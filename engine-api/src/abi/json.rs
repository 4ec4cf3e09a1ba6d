//! Conversion of requests and replies to their ABI types: JSON for rare calls, structs for frequent ones.

use abi_stable::std_types::RString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{EngineError, ErrorKind, Result};

/// Serialises a request or reply. The types of this crate cannot fail to serialise.
pub(crate) fn to_json(value: &impl Serialize) -> RString {
    // Serialisation fails only for maps with non-string keys, which these types do not have.
    serde_json::to_string(value).unwrap_or_default().into()
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        EngineError::new(ErrorKind::Protocol, format!("the other side sent invalid JSON: {error}"))
    })
}

/// A request or reply that is passed as an `Abi`.
pub(crate) trait AbiCodec<Abi>: Sized {
    fn encode(self) -> Abi;
    fn decode(abi: Abi) -> Result<Self>;
}

/// Serde types are passed as JSON where the ABI type is a string.
impl<T: Serialize + DeserializeOwned> AbiCodec<RString> for T {
    fn encode(self) -> RString {
        to_json(&self)
    }

    fn decode(json: RString) -> Result<T> {
        from_json(json.as_str())
    }
}

impl AbiCodec<()> for () {
    fn encode(self) {}

    fn decode((): ()) -> Result<()> {
        Ok(())
    }
}
