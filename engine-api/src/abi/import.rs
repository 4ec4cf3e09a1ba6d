//! The host's half of the ABI: creates linked and loaded engines and calls them.

use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use super::c::validate::{EngineTable, load_table};
use super::engine::{AbiEngineObj, EngineModuleRef};
use super::guard::{catch_panic, guard_panics};
use super::host::from_abi;
use super::json::{AbiCodec, from_json, to_json};
use super::services::{HostServices, RevocableServices};
use super::validate::{ValidateError, root_module};
use crate::calls::{DisposeRequest, EngineCall, EngineReply, StatusRequest};
use crate::engine::{ContextEngine, EngineInfo};
use crate::error::Result;
use crate::plan::{Compaction, Plan};
use crate::request::*;
use crate::transcript::Transcript;

/// Creates an engine that is linked into the host or loaded from a library.
#[derive(Clone, Copy)]
pub struct EngineFactory {
    source: FactorySource,
}

/// The module of a Rust engine or the table of a C engine.
#[derive(Clone, Copy)]
enum FactorySource {
    Rust(EngineModuleRef),
    C(&'static EngineTable),
}

impl EngineFactory {
    /// A factory for an engine that is linked into the host. It runs the same code as for a loaded one.
    pub fn linked<E: ContextEngine>() -> EngineFactory {
        EngineFactory { source: FactorySource::Rust(super::export::module::<E>()) }
    }

    /// Checks the header at `symbol`.
    ///
    /// Layouts are compared in both directions: an engine may be older or newer than the host by
    /// any minor, as long as one layout extends the other.
    ///
    /// # Errors
    ///
    /// [`ValidateError`]. No code of the engine has run then, except its library's constructors.
    ///
    /// # Safety
    ///
    /// `symbol` is the address of [`ROOT_SYMBOL`](crate::border::ROOT_SYMBOL) in a library that is never unloaded,
    /// and the library was built by `export_engine!` or is not an engine library.
    pub unsafe fn from_symbol(symbol: *const ()) -> Result<EngineFactory, ValidateError> {
        // SAFETY: the caller promises what `root_module` requires.
        let module = unsafe { root_module(symbol)? };
        Ok(EngineFactory { source: FactorySource::Rust(module) })
    }

    /// Calls the function at `symbol` and checks the table it returns.
    ///
    /// # Errors
    ///
    /// [`ValidateError`]. No code of the engine has run then, except its library's constructors and the
    /// function itself.
    ///
    /// # Safety
    ///
    /// `symbol` is the address of [`C_ROOT_SYMBOL`](crate::border::C_ROOT_SYMBOL) in a library that is
    /// never unloaded, and the library keeps the rules of `ctxhost_engine.h`.
    pub unsafe fn from_c_symbol(symbol: *const ()) -> Result<EngineFactory, ValidateError> {
        // SAFETY: the caller promises what `load_table` requires.
        let checked = unsafe { load_table(symbol)? };
        Ok(EngineFactory { source: FactorySource::C(checked) })
    }

    /// The engine's id, name, version and requirements.
    pub fn info(&self) -> Result<EngineInfo> {
        match self.source {
            FactorySource::Rust(module) => {
                let info = module.info();
                // Called each time instead of cached: the contract suite checks that it is
                // constant.
                from_json(catch_panic(|| info())?.as_str())
            }
            FactorySource::C(checked) => Ok(checked.info().clone()),
        }
    }

    /// Creates the engine.
    ///
    /// # Errors
    ///
    /// The error of the engine's `create`, or [`ErrorKind::Panicked`](crate::ErrorKind).
    pub fn create(&self, services: Arc<dyn HostServices>, config: &Value) -> Result<EngineHandle> {
        let leash = RevocableServices::new(services);
        let config = to_json(config);
        let engine = match self.source {
            FactorySource::Rust(module) => {
                let (object, create) = (leash.clone().into_object().0, module.create());
                from_abi(catch_panic(|| create(object, config))?)?
            }
            FactorySource::C(checked) => {
                super::c::engine::create(checked, leash.clone(), config.as_str())?
            }
        };
        // The handle keeps the services to revoke them while the engine may still hold the object.
        Ok(EngineHandle { engine: Arc::new(engine), services: leash })
    }
}

impl std::fmt::Debug for EngineFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineFactory")
    }
}

/// A handle to a running engine. Clones share it. Every future owns its arguments and is cancelled by
/// dropping it.
#[derive(Clone)]
pub struct EngineHandle {
    engine: Arc<AbiEngineObj>,
    services: RevocableServices,
}

impl EngineHandle {
    /// Calls [`ContextEngine::ingest_batch`].
    pub fn ingest_batch(
        &self,
        view: Transcript,
        request: IngestRequest,
    ) -> impl Future<Output = Result<IngestReply>> + Send + 'static {
        let engine = self.engine.clone();
        guard_panics(async move {
            let reply = engine.ingest_batch(view.into_object().0, request.encode());
            AbiCodec::decode(from_abi(reply.await)?)
        })
    }

    /// Calls [`ContextEngine::tools`].
    pub fn tools(&self, session: &SessionRef) -> Result<Vec<ToolSpec>> {
        let answer = catch_panic(|| self.engine.tools(to_json(session)))?;
        from_json(from_abi(answer)?.as_str())
    }

    /// Calls [`ContextEngine::status`].
    pub fn status(&self) -> Result<EngineStatus> {
        let answer = catch_panic(|| self.engine.status())?;
        from_json(from_abi(answer)?.as_str())
    }

    /// Calls [`ContextEngine::dispose`].
    pub fn dispose(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let engine = self.engine.clone();
        guard_panics(async move {
            engine.dispose().await;
            Ok(())
        })
    }

    /// Revokes the services: code of the engine that still runs can no longer reach the host.
    pub fn revoke(&self) {
        self.services.revoke();
    }
}

/// The typed method of an asynchronous call; the others are written above.
macro_rules! method {
    (awaited $method:ident($request:ident) -> $reply:ty, $($session:ident)?) => {
        #[doc = concat!("Calls [`ContextEngine::", stringify!($method), "`].")]
        pub fn $method(
            &self,
            $(view: when!($session Transcript),)?
            request: $request,
        ) -> impl Future<Output = Result<$reply>> + Send + 'static {
            let engine = self.engine.clone();
            // The call starts at the first poll: the engine must run on the thread that polls, and a
            // future that is never polled must not reach the engine.
            guard_panics(async move {
                let request = request.encode();
                let reply = engine.$method($(when!($session view.into_object().0),)? request);
                AbiCodec::decode(from_abi(reply.await)?)
            })
        }
    };
    ($how:ident $($other:tt)*) => {};
}

/// The reply of a typed method.
macro_rules! reply {
    (awaited $engine:ident.$method:ident($view:ident, $request:ident) $($session:ident)?) => {
        $engine.$method($(when!($session $view),)? $request).await?
    };
    (direct $engine:ident.tools($view:ident, $request:ident)) => {
        $engine.tools(&$request)?
    };
    ($how:ident $engine:ident.status($view:ident, $request:ident)) => {{
        let StatusRequest = $request;
        $engine.status()?
    }};
    (last $engine:ident.$method:ident($view:ident, $request:ident)) => {{
        let DisposeRequest = $request;
        $engine.$method().await?
    }};
}

macro_rules! calls {
    ([] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript[$($session:ident)?] crosses $abi:tt $rules:tt; )*) => {
        impl EngineHandle {
            $( method! { $how $method($request) -> $reply, $($session)? } )*

            /// Makes a call; an `ingest` of several entries becomes an `ingest_batch`.
            pub fn call(
                &self,
                view: Transcript,
                call: EngineCall,
            ) -> impl Future<Output = Result<EngineReply>> + Send + 'static {
                let engine = self.clone();
                async move {
                    Ok(match call {
                        EngineCall::Ingest(request) if request.entries.end > request.entries.start + 1 => {
                            EngineReply::Ingest(engine.ingest_batch(view, request).await?)
                        }
                        $( EngineCall::$variant(request) => {
                            EngineReply::$variant(reply!($how engine.$method(view, request) $($session)?))
                        } )*
                    })
                }
            }
        }
    };
}

engine_calls! { calls }

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineHandle")
    }
}
