//! Services of the host for an engine that is elsewhere: each does what it does for one that is here.

use ctxhost_engine_api::border::HostServices;
use ctxhost_engine_api::{CallId, Result};

use super::wire::{Bytes, Given, Wanted};

/// Does what a worker's engine wants.
pub(super) async fn serve(services: &dyn HostServices, wanted: Wanted) -> Result<Given> {
    Ok(match wanted {
        Wanted::NowMs => Given::Time(services.now_ms()),
        Wanted::PromptCache(session) => Given::Cache(services.prompt_cache(&session)),
        Wanted::Complete { call, request } => {
            Given::Completion(services.complete(CallId(call), request).await?)
        }
        Wanted::KvGet { key } => Given::Value(services.kv_get(key).await?),
        Wanted::KvPut { key, value } => {
            services.kv_put(key, value).await?;
            Given::Nothing
        }
        Wanted::KvDelete { key } => {
            services.kv_delete(key).await?;
            Given::Nothing
        }
        Wanted::KvList { prefix } => Given::Keys(services.kv_list(prefix).await?),
        Wanted::BlobPut(Bytes(bytes)) => Given::Handle(services.blob_put(bytes).await?),
        Wanted::BlobGet { handle } => Given::Bytes(services.blob_get(handle).await?.map(Bytes)),
        Wanted::History(request) => Given::Page(services.history(request).await?),
        Wanted::DelegateCompact { call, request } => {
            Given::Compaction(services.delegate_compact(CallId(call), request).await?)
        }
    })
}
