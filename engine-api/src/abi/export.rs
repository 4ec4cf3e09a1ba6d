//! The engine's half: the author's trait behind the object that crosses, and `export_engine!`.

use std::sync::{Arc, OnceLock};

use abi_stable::library::RootModuleResult;
use abi_stable::prefix_type::WithMetadata;
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::sabi_types::StaticRef;
use abi_stable::std_types::{RArc, RResult, RString};
use async_ffi::{FfiFuture, FutureExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use abi_stable::library::LibHeader;

use super::engine::{
    AbiAssemble, AbiEngine, AbiEngine_TO, AbiEngineObj, AbiIngest, AbiServices, AbiView,
    EngineModule, EngineModuleRef,
};
use super::guard::{catch, guarded};
use super::host::{AbiError, AbiFuture, HostObj, to_abi};
use super::json::{from_json, to_json};
use super::plan::AbiPlan;
use super::view::TranscriptObj;
use crate::engine::{ContextEngine, EngineInfo};
use crate::error::{EngineError, Result};
use crate::host::Host;
use crate::transcript::Transcript;

/// The module of an engine: the same value for a linked engine and for a loaded one.
pub fn module<E: ContextEngine>() -> EngineModuleRef {
    EngineModuleRef(Module::<E>::STATIC.static_as_prefix())
}

/// The header of a library that exports `E`. Called by `export_engine!` alone.
pub const fn header<E: ContextEngine>() -> LibHeader {
    // SAFETY: `library_root::<E>` returns the prefix of an `EngineModuleRef`, as it must.
    unsafe {
        LibHeader::from_constructor::<EngineModuleRef>(
            library_root::<E>,
            abi_stable::library::CheckTypeLayout::Yes,
        )
    }
}

struct Module<E>(std::marker::PhantomData<E>);

impl<E: ContextEngine> Module<E> {
    const VALUE: EngineModule = EngineModule { info: info::<E>, create: create::<E> };
    const REF: &'static WithMetadata<EngineModule> = &WithMetadata::new(Self::VALUE);
    const STATIC: StaticRef<WithMetadata<EngineModule>> = StaticRef::new(Self::REF);
}

extern "C" fn library_root<E: ContextEngine>() -> RootModuleResult {
    LIBRARY.get_or_init(|| ());
    abi_stable::library::__call_root_module_loader(module::<E>)
}

/// Set when this copy of the code runs inside a loaded library. A linked engine shares the panic
/// hook and the tracing subscriber of its host and must not touch them.
static LIBRARY: OnceLock<()> = OnceLock::new();

extern "C" fn info<E: ContextEngine>() -> RString {
    to_json(&EngineInfo::from(E::INFO))
}

extern "C" fn create<E: ContextEngine>(
    services: AbiServices,
    config_json: RString,
) -> RResult<AbiEngineObj, AbiError> {
    let host = Host::new(HostObj(services));
    if LIBRARY.get().is_some() {
        speak_through(&host);
    }
    let built = catch(|| {
        let engine = E::create(host, from_json(config_json.as_str())?)?;
        Ok(AbiEngine_TO::from_ptr(RArc::new(Adapter::new(engine)), TD_Opaque))
    });
    to_abi(built.and_then(|engine| engine))
}

/// Each library has a panic hook and a tracing subscriber of its own. Without these two lines its
/// panics would print to the host's terminal and its events would vanish.
fn speak_through(host: &Host) {
    let log = host.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = catch(|| log.log(crate::LogLevel::Warn, &panic.to_string()));
    }));
    #[cfg(feature = "tracing")]
    super::forward::install(host.clone());
}

struct Adapter<E> {
    /// Taken out only in `drop`, so that the engine's own drop runs under guard.
    engine: Option<Arc<E>>,
}

impl<E: ContextEngine> Adapter<E> {
    fn new(engine: E) -> Self {
        Adapter { engine: Some(Arc::new(engine)) }
    }

    /// Runs one call under guard. The future owns its share of the engine.
    fn call<T, F>(&self, work: impl FnOnce(Arc<E>) -> F + Send + 'static) -> AbiFuture<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send + 'static,
    {
        let engine = self.engine.clone();
        let call = guarded(async move {
            let engine = engine.ok_or_else(|| EngineError::failed("the engine is gone"))?;
            work(engine).await
        });
        async move { to_abi(call.await) }.into_ffi()
    }

    /// Runs one cold call: its request parsed, its answer written as JSON.
    fn cold<Q, T, F>(
        &self,
        request_json: RString,
        work: impl FnOnce(Arc<E>, Q) -> F + Send + 'static,
    ) -> AbiFuture<RString>
    where
        Q: DeserializeOwned + Send,
        T: Serialize,
        F: Future<Output = Result<T>> + Send,
    {
        self.call(move |engine| async move {
            let request = from_json(request_json.as_str())?;
            Ok(to_json(&work(engine, request).await?))
        })
    }

    /// Runs one cold call that answers nothing.
    fn quiet<Q, F>(
        &self,
        request_json: RString,
        work: impl FnOnce(Arc<E>, Q) -> F + Send + 'static,
    ) -> AbiFuture<()>
    where
        Q: DeserializeOwned + Send,
        F: Future<Output = Result<()>> + Send,
    {
        self.call(
            move |engine| async move { work(engine, from_json(request_json.as_str())?).await },
        )
    }

    fn ask<T: Serialize>(&self, work: impl FnOnce(&E) -> Result<T>) -> RResult<RString, AbiError> {
        let asked = catch(|| match &self.engine {
            Some(engine) => work(engine).map(|answer| to_json(&answer)),
            None => Err(EngineError::failed("the engine is gone")),
        });
        to_abi(asked.and_then(|answer| answer))
    }
}

impl<E> Drop for Adapter<E> {
    fn drop(&mut self) {
        let engine = self.engine.take();
        let _ = catch(move || drop(engine));
    }
}

fn view(raw: AbiView) -> Transcript {
    Transcript::new(TranscriptObj(raw))
}

impl<E: ContextEngine> AbiEngine for Adapter<E> {
    fn bootstrap(&self, raw: AbiView, request: RString) -> AbiFuture<RString> {
        self.cold(request, |e, q| async move { e.bootstrap(view(raw), q).await })
    }

    fn ingest(&self, raw: AbiView, request: AbiIngest) -> AbiFuture<u64> {
        self.call(|e| async move { Ok(e.ingest(view(raw), request.into()).await?.entries) })
    }

    fn ingest_batch(&self, raw: AbiView, request: AbiIngest) -> AbiFuture<u64> {
        self.call(|e| async move { Ok(e.ingest_batch(view(raw), request.into()).await?.entries) })
    }

    fn assemble(&self, raw: AbiView, request: AbiAssemble) -> AbiFuture<AbiPlan> {
        self.call(|e| async move { Ok(e.assemble(view(raw), request.into()).await?.into()) })
    }

    fn compact(&self, raw: AbiView, request: RString) -> AbiFuture<AbiPlan> {
        self.call(move |e| async move {
            let request = from_json(request.as_str())?;
            Ok(e.compact(view(raw), request).await?.into())
        })
    }

    fn after_turn(&self, raw: AbiView, request: RString) -> AbiFuture<()> {
        self.quiet(request, |e, q| async move { e.after_turn(view(raw), q).await })
    }

    fn commit_turn(&self, raw: AbiView, request: RString) -> AbiFuture<RString> {
        self.cold(request, |e, q| async move { e.commit_turn(view(raw), q).await })
    }

    fn maintain(&self, raw: AbiView, request: RString) -> AbiFuture<RString> {
        self.cold(request, |e, q| async move { e.maintain(view(raw), q).await })
    }

    fn prepare_subagent_spawn(&self, raw: AbiView, request: RString) -> AbiFuture<RString> {
        self.cold(request, |e, q| async move { e.prepare_subagent_spawn(view(raw), q).await })
    }

    fn rollback_subagent_spawn(&self, request: RString) -> AbiFuture<()> {
        self.quiet(request, |e, q| async move { e.rollback_subagent_spawn(q).await })
    }

    fn on_subagent_ended(&self, request: RString) -> AbiFuture<()> {
        self.quiet(request, |e, q| async move { e.on_subagent_ended(q).await })
    }

    fn tools(&self, session: RString) -> RResult<RString, AbiError> {
        self.ask(|engine| Ok(engine.tools(from_json(session.as_str())?)))
    }

    fn call_tool(&self, raw: AbiView, request: RString) -> AbiFuture<RString> {
        self.cold(request, |e, q| async move { e.call_tool(view(raw), q).await })
    }

    fn status(&self) -> RResult<RString, AbiError> {
        self.ask(|engine| Ok(engine.status()))
    }

    fn dispose(&self) -> FfiFuture<()> {
        let engine = self.engine.clone();
        let disposal = guarded(async move {
            if let Some(engine) = engine {
                engine.dispose().await;
            }
            Ok(())
        });
        async move {
            let _ = disposal.await;
        }
        .into_ffi()
    }
}

/// Makes a crate of type `cdylib` an engine library: one line, once per library.
///
/// Refuses `panic = "abort"` at compile time, because panics must stop at the border.
#[macro_export]
macro_rules! export_engine {
    ($engine:ty) => {
        #[cfg(panic = "abort")]
        compile_error!("an engine needs `panic = \"unwind\"` in every profile");

        const _: () = {
            /// Read by hosts out of the file, before anything of it runs.
            #[used]
            #[unsafe(no_mangle)]
            static CONTEXT_ENGINE_META: [u8; $crate::__border::META_BYTES] =
                $crate::__border::encode_meta(
                    &<$engine as $crate::ContextEngine>::INFO,
                    if cfg!(panic = "unwind") { "unwind" } else { "abort" },
                );

            /// The door of major 1.
            #[unsafe(no_mangle)]
            static CONTEXT_ENGINE_ROOT_V1: $crate::__border::LibHeader =
                $crate::__border::header::<$engine>();
        };
    };
}
