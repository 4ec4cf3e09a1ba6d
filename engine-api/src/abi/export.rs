//! The engine's half of the ABI: wraps a [`ContextEngine`], and `export_engine!`.

use std::sync::{Arc, OnceLock};

use abi_stable::library::RootModuleResult;
use abi_stable::prefix_type::WithMetadata;
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::sabi_types::StaticRef;
use abi_stable::std_types::{RArc, RResult, RString};
use async_ffi::{FfiFuture, FutureExt as _};
use serde::Serialize;

pub use abi_stable::library::LibHeader;

use super::engine::{
    AbiAssemble, AbiEngine, AbiEngine_TO, AbiEngineObj, AbiIngest, AbiServices, AbiView,
    EngineModule, EngineModuleRef,
};
use super::guard::{catch_panic, guard_panics, record_panic_place};
use super::host::{AbiError, AbiFuture, HostObj, to_abi};
use super::json::{AbiCodec, from_json, to_json};
use super::plan::AbiPlan;
use super::view::TranscriptObj;
use crate::engine::{ContextEngine, EngineInfo};
use crate::error::{EngineError, Result};
use crate::host::Host;
use crate::request::*;
use crate::transcript::Transcript;

/// The module of an engine, used for linked and for loaded engines alike.
pub fn module<E: ContextEngine>() -> EngineModuleRef {
    EngineModuleRef(ModuleStatics::<E>::STATIC.static_as_prefix())
}

/// The header of a library that exports `E`. Called by `export_engine!` only.
pub const fn header<E: ContextEngine>() -> LibHeader {
    // SAFETY: `library_root::<E>` returns the prefix of an `EngineModuleRef`, as it must.
    unsafe {
        LibHeader::from_constructor::<EngineModuleRef>(
            library_root::<E>,
            abi_stable::library::CheckTypeLayout::Yes,
        )
    }
}

struct ModuleStatics<E>(std::marker::PhantomData<E>);

impl<E: ContextEngine> ModuleStatics<E> {
    const VALUE: EngineModule = EngineModule { info: info::<E>, create: create::<E> };
    const REF: &'static WithMetadata<EngineModule> = &WithMetadata::new(Self::VALUE);
    const STATIC: StaticRef<WithMetadata<EngineModule>> = StaticRef::new(Self::REF);
}

extern "C" fn library_root<E: ContextEngine>() -> RootModuleResult {
    // Only the loader of a library calls this function; linked engines use `module` directly.
    LIBRARY.get_or_init(|| ());
    abi_stable::library::__call_root_module_loader(module::<E>)
}

/// Set when this copy of the code runs inside a loaded library. A linked engine shares the panic hook
/// and the tracing subscriber of its host and must not replace them.
static LIBRARY: OnceLock<()> = OnceLock::new();

extern "C" fn info<E: ContextEngine>() -> RString {
    to_json(&EngineInfo::from(E::INFO))
}

extern "C" fn create<E: ContextEngine>(
    services: AbiServices,
    config_json: RString,
) -> RResult<AbiEngineObj, AbiError> {
    let host = Host::new(HostObj(services));
    // Before `create`, so that its panics are logged by the host as well.
    if LIBRARY.get().is_some() {
        install_log_hooks(&host);
    }
    let built = catch_panic(|| {
        let engine = E::create(host, from_json(config_json.as_str())?)?;
        Ok(AbiEngine_TO::from_ptr(RArc::new(EngineAdapter::new(engine)), TD_Opaque))
    });
    to_abi(built.and_then(|engine| engine))
}

/// Sends the panics and tracing events of this library to the host's log.
fn install_log_hooks(host: &Host) {
    let log = host.clone();
    // A cdylib links its own std and tracing. Without these hooks its panics would print to the host's
    // terminal and its events would be lost.
    std::panic::set_hook(Box::new(move |panic| {
        let _ = catch_panic(|| log.log(crate::LogLevel::Warn, &panic.to_string()));
        record_panic_place(panic);
    }));
    #[cfg(feature = "tracing")]
    // A feature of the engine's build: without it the library does not link tracing at all.
    super::logging::install_subscriber(host.clone());
}

struct EngineAdapter<E> {
    /// Taken in `drop` only, so that panics in the engine's own drop are caught.
    engine: Option<Arc<E>>,
}

impl<E: ContextEngine> EngineAdapter<E> {
    fn new(engine: E) -> Self {
        EngineAdapter { engine: Some(Arc::new(engine)) }
    }

    /// Runs an asynchronous call and catches its panics. The future owns a reference to the engine.
    fn call<T, F>(&self, work: impl FnOnce(Arc<E>) -> F + Send + 'static) -> AbiFuture<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send + 'static,
    {
        let engine = self.engine.clone();
        let call = guard_panics(async move {
            let engine = engine.ok_or_else(|| EngineError::failed("the engine is gone"))?;
            work(engine).await
        });
        async move { to_abi(call.await) }.into_ffi()
    }

    fn call_sync<T: Serialize>(
        &self,
        work: impl FnOnce(&E) -> Result<T>,
    ) -> RResult<RString, AbiError> {
        let reply = catch_panic(|| match &self.engine {
            Some(engine) => work(engine).map(|answer| to_json(&answer)),
            None => Err(EngineError::failed("the engine is gone")),
        });
        to_abi(reply.and_then(|answer| answer))
    }
}

impl<E> Drop for EngineAdapter<E> {
    fn drop(&mut self) {
        // Dropped inside the guard: destructors of engines may panic.
        let engine = self.engine.take();
        let _ = catch_panic(move || drop(engine));
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
            self.call(move |engine| async move {
                let request = <$request as AbiCodec<$abi>>::decode(request)?;
                Ok(engine.$method($(when!($session view(raw)),)? request).await?.encode())
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

impl<E: ContextEngine> AbiEngine for EngineAdapter<E> {
    engine_calls! { methods }

    method! { awaited ingest_batch(IngestRequest) -> Ingested, (AbiIngest => u64) session }

    fn tools(&self, session: RString) -> RResult<RString, AbiError> {
        self.call_sync(|engine| Ok(engine.tools(from_json(session.as_str())?)))
    }

    fn status(&self) -> RResult<RString, AbiError> {
        self.call_sync(|engine| Ok(engine.status()))
    }

    fn dispose(&self) -> FfiFuture<()> {
        let engine = self.engine.clone();
        let disposal = guard_panics(async move {
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

/// Makes a crate of type `cdylib` an engine library. Use it once per library.
///
/// Does not compile with `panic = "abort"`, because the host relies on catching panics.
#[macro_export]
macro_rules! export_engine {
    ($engine:ty) => {
        #[cfg(panic = "abort")]
        compile_error!("an engine needs `panic = \"unwind\"` in every profile");

        const _: () = {
            /// Read by hosts from the file before any code of it runs.
            // The linker would drop the block otherwise, because no code refers to it.
            #[used]
            #[unsafe(no_mangle)]
            static CONTEXT_ENGINE_META: [u8; $crate::__border::META_BYTES] =
                $crate::__border::encode_meta(
                    &<$engine as $crate::ContextEngine>::INFO,
                    if cfg!(panic = "unwind") { "unwind" } else { "abort" },
                );

            /// The root symbol of major version 1.
            #[unsafe(no_mangle)]
            static CONTEXT_ENGINE_ROOT_V1: $crate::__border::LibHeader =
                $crate::__border::header::<$engine>();
        };
    };
}
