//! Implements [`AbiEngine`] for C engines.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RArc, RResult, RString};
use async_ffi::{FfiFuture, FutureExt as _};
use serde::Serialize;

use super::call::{BlockingCall, CallLock};
use super::instance::CInstance;
use super::services::CHost;
use super::tables::flag;
use super::validate::EngineTable;
use crate::abi::engine::*;
use crate::abi::guard::guard_panics;
use crate::abi::host::{AbiError, AbiFuture, to_abi};
use crate::abi::json::{AbiCodec, from_json, to_json};
use crate::abi::plan::AbiPlan;
use crate::abi::services::RevocableServices;
use crate::abi::view::TranscriptObj;
use crate::abi::wait::block_on_within;
use crate::error::{EngineError, ErrorKind, Result};
use crate::request::*;
use crate::transcript::Transcript;

/// Time limit of `tools` and `status`, which are synchronous. Below the host's limit of 2 s.
const SYNC_CALL_LIMIT: Duration = Duration::from_millis(1_500);

/// Creates the engine of a checked table.
pub(in crate::abi) fn create(
    checked: &'static EngineTable,
    services: RevocableServices,
    config_json: &str,
) -> Result<AbiEngineObj> {
    let instance = CInstance::create(checked, CHost::new(services), config_json)?;
    let is_thread_safe = checked.table.flags & flag::THREAD_SAFE != 0;
    let engine = CEngineAdapter {
        instance: Mutex::new(Some(Arc::new(instance))),
        // One lock for all sessions: C globals are the usual reason for an engine not to be thread-safe.
        call_lock: (!is_thread_safe).then(CallLock::default),
    };
    Ok(AbiEngine_TO::from_ptr(RArc::new(engine), TD_Opaque))
}

struct CEngineAdapter {
    /// Taken by `dispose`; running calls hold a clone.
    instance: Mutex<Option<Arc<CInstance>>>,
    call_lock: Option<CallLock>,
}

impl CEngineAdapter {
    fn instance(&self) -> Result<Arc<CInstance>> {
        let instance = self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone();
        instance.ok_or_else(|| EngineError::new(ErrorKind::Dead, "the engine was disposed of"))
    }

    /// Makes a call, which starts at the first poll.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CInstance) -> Result<T> + Send + 'static,
    ) -> AbiFuture<T> {
        let (instance, call_lock) = (self.instance(), self.call_lock.clone());
        let call = guard_panics(async move {
            let instance = instance?;
            // Inside the future, so that a call that is never polled does not start a thread.
            BlockingCall::start(call_lock, move || work(&instance)).await
        });
        async move { to_abi(call.await) }.into_ffi()
    }

    /// Makes a call and waits for it on this thread.
    fn call_sync<T: Serialize + Send + 'static>(
        &self,
        work: impl FnOnce(&CInstance) -> Result<T> + Send + 'static,
    ) -> RResult<RString, AbiError> {
        let answer = self.instance().and_then(|instance| {
            let call = BlockingCall::start(self.call_lock.clone(), move || work(&instance));
            block_on_within(SYNC_CALL_LIMIT, call).unwrap_or_else(|| {
                let message = format!("the engine was busy for {} ms", SYNC_CALL_LIMIT.as_millis());
                Err(EngineError::new(ErrorKind::Deadline, message))
            })
        });
        to_abi(answer.map(|answer| to_json(&answer)))
    }
}

fn view(raw: AbiView) -> Transcript {
    Transcript::new(TranscriptObj(raw))
}

/// The method of an asynchronous call; the others are written in the impl.
macro_rules! method {
(awaited $method:ident($request:ty) -> $reply:ty, ($abi:ty => $abi_reply:ty) $($session:ident)?) => {
        fn $method(
            &self,
            $(raw: when!($session AbiView),)?
            request: $abi,
        ) -> AbiFuture<$abi_reply> {
            self.call(move |engine| {
                let request = <$request as AbiCodec<$abi>>::decode(request)?;
                Ok(engine.$method($(when!($session view(raw)),)? &request)?.encode())
            })
        }
    };
    ($how:ident $($other:tt)*) => {};
}

macro_rules! methods {
    ([] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript[$($session:ident)?] crosses $abi:tt $rules:tt; )*) => {
        $( method! { $how $method($request) -> $reply, $abi $($session)? } )*
    };
}

impl AbiEngine for CEngineAdapter {
    engine_calls! { methods }

    method! { awaited ingest_batch(IngestRequest) -> Ingested, (AbiIngest => u64) session }

    fn tools(&self, session_json: RString) -> RResult<RString, AbiError> {
        self.call_sync(move |engine| engine.tools(&from_json(session_json.as_str())?))
    }

    fn status(&self) -> RResult<RString, AbiError> {
        self.call_sync(CInstance::status)
    }

    /// Drops the instance, which is freed with the last running call.
    fn dispose(&self) -> FfiFuture<()> {
        let instance = self.instance.lock().unwrap_or_else(PoisonError::into_inner).take();
        let call_lock = self.call_lock.clone();
        let disposal = guard_panics(async move {
            let Some(instance) = instance else { return Ok(()) };
            // On a thread of its own like every call, because the engine's `dispose` may block.
            let last_call = move || {
                drop(instance);
                Ok(())
            };
            BlockingCall::start(call_lock, last_call).await
        });
        async move {
            // `dispose` has no result in the ABI, and a failure cannot be recovered.
            let _ = disposal.await;
        }
        .into_ffi()
    }
}
