//! Serves the host calls of a sandboxed engine with the services of an engine in this process.

use ctxhost_engine_api::border::HostServices;
use ctxhost_engine_api::{CallId, Result};

use super::wire::{Base64Bytes, HostCall, HostReply};

/// Answers a host call.
pub(super) async fn serve_host_call(
    services: &dyn HostServices,
    request: HostCall,
) -> Result<HostReply> {
    Ok(match request {
        HostCall::NowMs => HostReply::Time(services.now_ms()),
        HostCall::PromptCache(session) => HostReply::Cache(services.prompt_cache(&session)),
        HostCall::Complete { call, request } => {
            HostReply::Completion(services.complete(CallId(call), request).await?)
        }
        HostCall::Embed { call, request } => {
            HostReply::Vectors(services.embed(CallId(call), request).await?.into())
        }
        HostCall::KvGet { key } => HostReply::Value(services.kv_get(key).await?),
        HostCall::KvPut { key, value } => {
            services.kv_put(key, value).await?;
            HostReply::Nothing
        }
        HostCall::KvDelete { key } => {
            services.kv_delete(key).await?;
            HostReply::Nothing
        }
        HostCall::KvList { prefix } => HostReply::Keys(services.kv_list(prefix).await?),
        HostCall::BlobPut(Base64Bytes(bytes)) => HostReply::Handle(services.blob_put(bytes).await?),
        HostCall::BlobGet { handle } => {
            HostReply::Bytes(services.blob_get(handle).await?.map(Base64Bytes))
        }
        HostCall::History(request) => HostReply::Page(services.history(request).await?),
        HostCall::DelegateCompact { call, request } => {
            HostReply::Compaction(services.delegate_compact(CallId(call), request).await?)
        }
    })
}

/// Whether a host call may take as long as a model.
pub(super) const fn is_model_call(request: &HostCall) -> bool {
    matches!(
        request,
        HostCall::Complete { .. } | HostCall::Embed { .. } | HostCall::DelegateCompact { .. }
    )
}
