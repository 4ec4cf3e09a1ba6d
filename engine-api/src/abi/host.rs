//! ABI types of the host's services and of errors.

use abi_stable::StableAbi;
use abi_stable::sabi_trait;
use abi_stable::std_types::{RArc, ROption, RResult, RStr, RString, RVec};
use async_ffi::{FfiFuture, FutureExt as _};
use serde_json::Value;

use super::json::AbiCodec;
use super::plan::AbiPlan;
use crate::embedding::Embeddings;
use crate::error::{EngineError, ErrorKind, Result};

/// The ABI of [`EngineError`]. Frozen within the major version.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiError {
    pub(crate) code: u32,
    pub(crate) message: RString,
    pub(crate) detail_json: RString,
}

/// The ABI of [`Embeddings`]. Frozen within the major version.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiEmbeddings {
    model: RString,
    dimensions: u64,
    values: RVec<f32>,
    /// For fields of later minors; empty for none.
    ext_json: RString,
}

/// The result of an asynchronous call.
pub(crate) type AbiFuture<T> = FfiFuture<RResult<T, AbiError>>;

/// The ABI of the host's services. Methods after the marker were added in later minors.
#[sabi_trait]
pub trait AbiHost: Send + Sync + 'static {
    fn host_info(&self) -> RString;
    fn log(&self, level: u8, target: RStr<'_>, message: RStr<'_>, fields_json: RStr<'_>);
    fn now_ms(&self) -> i64;
    fn monotonic_ns(&self) -> u64;
    fn count_tokens(&self, model: RStr<'_>, text: RStr<'_>) -> u64;
    fn is_cancelled(&self, call: u64) -> bool;
    /// Negative for a call without a deadline.
    fn remaining_ms(&self, call: u64) -> i64;
    fn progress(&self, call: u64, permille: u32, note: RStr<'_>);
    fn complete(&self, call: u64, request_json: RString) -> AbiFuture<RString>;
    fn kv_get(&self, key: RString) -> AbiFuture<ROption<RString>>;
    fn kv_put(&self, key: RString, value: RString) -> AbiFuture<()>;
    fn kv_delete(&self, key: RString) -> AbiFuture<()>;
    fn kv_list(&self, prefix: RString) -> AbiFuture<RVec<RString>>;
    fn blob_put(&self, bytes: RVec<u8>) -> AbiFuture<RString>;
    fn blob_get(&self, handle: RString) -> AbiFuture<ROption<RVec<u8>>>;
    fn sleep(&self, milliseconds: u64) -> FfiFuture<()>;
    fn history(&self, request_json: RString) -> AbiFuture<RString>;
    fn prompt_cache(&self, session_id: RString) -> RString;
    fn delegate_compact(&self, call: u64, request_json: RString) -> AbiFuture<AbiPlan>;
    #[sabi(last_prefix_field)]
    fn spawn(&self, session_id: RString, task: FfiFuture<()>);
    /// Since 1.1.
    fn embed(&self, call: u64, request_json: RString) -> AbiFuture<AbiEmbeddings> {
        // Runs in a library whose host is older.
        let _ = (call, request_json);
        std::future::ready(to_abi(Err(embedder_missing()))).into_ffi()
    }
    // ABI growth: a service of a later minor goes here, with a default body that degrades safely.
}

/// A shared handle to the services.
pub(crate) struct HostObj(pub(crate) AbiHost_TO<RArc<()>>);

impl Clone for HostObj {
    fn clone(&self) -> Self {
        HostObj(AbiHost_TO::from_sabi(self.0.obj.shallow_clone()))
    }
}

impl From<EngineError> for AbiError {
    fn from(error: EngineError) -> Self {
        let detail = &error.detail;
        AbiError {
            code: error.kind.code(),
            message: error.message.into(),
            detail_json: if detail.is_null() { RString::new() } else { detail.to_string().into() },
        }
    }
}

impl From<AbiError> for EngineError {
    fn from(error: AbiError) -> Self {
        EngineError {
            kind: ErrorKind::from_code(error.code),
            message: error.message.into_string(),
            detail: serde_json::from_str(error.detail_json.as_str()).unwrap_or(Value::Null),
        }
    }
}

impl AbiCodec<AbiEmbeddings> for Embeddings {
    fn encode(self) -> AbiEmbeddings {
        AbiEmbeddings {
            model: self.model.into(),
            dimensions: self.dimensions as u64,
            values: self.values.into(),
            ext_json: RString::new(),
        }
    }

    fn decode(abi: AbiEmbeddings) -> Result<Embeddings> {
        let values = abi.values.into_vec();
        let dimensions = usize::try_from(abi.dimensions).unwrap_or(usize::MAX);
        let is_whole = values.len().checked_rem(dimensions).unwrap_or(values.len()) == 0;
        if !is_whole {
            let message =
                format!("the host sent {} numbers as vectors of {dimensions}", values.len());
            return Err(EngineError::new(ErrorKind::Protocol, message));
        }
        Ok(Embeddings { model: abi.model.into_string(), dimensions, values })
    }
}

/// The error of a host without an embedder.
pub(crate) fn embedder_missing() -> EngineError {
    EngineError::new(ErrorKind::ModelMissing, "this host offers no embedder")
}

pub(crate) fn to_abi<T>(result: Result<T>) -> RResult<T, AbiError> {
    match result {
        Ok(value) => RResult::ROk(value),
        Err(error) => RResult::RErr(error.into()),
    }
}

pub(crate) fn from_abi<T>(result: RResult<T, AbiError>) -> Result<T> {
    result.into_result().map_err(EngineError::from)
}
