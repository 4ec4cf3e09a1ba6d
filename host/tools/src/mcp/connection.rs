//! One connection to a server: the handshake, the list of tools, calls that can be taken back.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientCapabilities, ClientInfo, ClientRequest, Implementation, PaginatedRequestParams,
    RequestId, ServerResult, Tool as RemoteTool,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::ListedTool;
use super::child_process::ServerProcess;
use super::settings::{McpSettings, McpTransport, SecretValues};
use crate::error::ToolError;

/// Pages of one list of tools: a server that never ends its list is ended by us.
const PAGES_MAX: usize = 100;

/// How long the far end of an address may take to be told that we leave.
const LEAVE: Duration = Duration::from_secs(2);

/// A server that answered the handshake.
#[derive(Debug)]
pub(super) struct McpConnection {
    server: String,
    connect_timeout: Duration,
    call_timeout: Duration,
    peer: Peer<RoleClient>,
    running: Mutex<RunningService<RoleClient, ClientInfo>>,
    // Dropped after the service, whose pipes are its input.
    process: Option<ServerProcess>,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum McpCallError {
    /// It never left.
    NotSent(String),
    /// It left, and the server went away.
    Lost(String),
    /// Its time was up.
    TimedOut(Duration),
    /// The server said no.
    Refused(String),
}

impl McpCallError {
    /// The error of the room, for a tool of a server.
    pub(super) fn into_tool_error(self, server: &str, tool: &str) -> ToolError {
        let server = server.to_owned();
        match self {
            McpCallError::NotSent(cause) => ToolError::Unreachable { server, cause },
            McpCallError::Lost(cause) => ToolError::ServerDied { server, cause },
            McpCallError::Refused(cause) => ToolError::Refused { server, cause },
            McpCallError::TimedOut(timeout) => ToolError::TimedOut {
                tool: format!("{server}/{tool}"),
                timeout_ms: timeout.as_millis(),
            },
        }
    }
}

impl McpConnection {
    /// Starts or reaches a server and shakes hands.
    pub(super) async fn open(
        server: &str,
        settings: &McpSettings,
    ) -> Result<McpConnection, ToolError> {
        let connect_timeout = Duration::from_millis(settings.connect_timeout_ms);
        let (running, process) = match &settings.transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                let (process, pipes) =
                    ServerProcess::start(server, command, args, env, cwd.as_deref())?;
                (timeout(connect_timeout, client().serve(pipes)).await, Some(process))
            }
            McpTransport::Http { url, headers } => {
                // The client takes the cryptography of the process; an embedder may have chosen another one before.
                _ = rustls::crypto::ring::default_provider().install_default();
                let transport =
                    StreamableHttpClientTransport::from_config(http(server, url, headers)?);
                (timeout(connect_timeout, client().serve(transport)).await, None)
            }
        };
        let running = match running {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(unreachable(server, error_chain(&error))),
            Err(_) => return Err(timed_out(server, connect_timeout)),
        };
        Ok(McpConnection {
            server: server.to_owned(),
            connect_timeout,
            call_timeout: Duration::from_millis(settings.timeout_ms),
            peer: running.peer().clone(),
            running: Mutex::new(running),
            process,
        })
    }

    /// Whether calls can still be made.
    pub(super) fn is_open(&self) -> bool {
        let has_ended = self.process.as_ref().is_some_and(ServerProcess::has_ended);
        !has_ended && !self.peer.is_transport_closed()
    }

    /// Waits until the process of the server has ended; for ever where it is none of ours.
    async fn wait_for_exit(&self) {
        match &self.process {
            Some(process) => process.wait_for_exit().await,
            None => std::future::pending().await,
        }
    }

    /// All tools of the server, page by page.
    pub(super) async fn list_tools(&self) -> Result<Vec<ListedTool>, ToolError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = match timeout(self.connect_timeout, self.peer.list_tools(Some(page))).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(unreachable(&self.server, error_chain(&error))),
                Err(_) => return Err(timed_out(&self.server, self.connect_timeout)),
            };
            tools.extend(page.tools.into_iter().map(listed_tool));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(unreachable(&self.server, format!("its list of tools has more than {PAGES_MAX} pages")))
    }

    /// Calls a tool. Dropping the future tells the server that nobody waits any more.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        longest: Duration,
    ) -> Result<CallToolResult, McpCallError> {
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let options = PeerRequestOptions::with_timeout(self.call_timeout.min(longest))
            .reset_timeout_on_progress()
            .with_max_total_timeout(longest);
        let not_sent = |error: ServiceError| McpCallError::NotSent(error_chain(&error));
        let handle =
            self.peer.send_cancellable_request(request, options).await.map_err(not_sent)?;
        let mut takes_back = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = tokio::select! {
            answer = handle.await_response() => answer,
            () = self.wait_for_exit() => Err(ServiceError::TransportClosed),
        };
        takes_back.id = None;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(result),
            Ok(_) => Err(McpCallError::Refused("its answer is no result of a tool".into())),
            Err(ServiceError::McpError(error)) => Err(McpCallError::Refused(error.message.into())),
            Err(ServiceError::Timeout { timeout }) => Err(McpCallError::TimedOut(timeout)),
            Err(error @ ServiceError::TransportSend(_)) => Err(not_sent(error)),
            Err(error) => Err(McpCallError::Lost(error_chain(&error))),
        }
    }

    /// Takes leave, and waits until the server has ended.
    pub(super) async fn shut_down(&self) {
        // Whatever it says to that: the connection is dropped next.
        let _ = self.running.lock().await.close_with_timeout(LEAVE).await;
        if let Some(process) = &self.process {
            process.shut_down().await;
        }
    }
}

/// Tells the server, when dropped in the middle of a call, that nobody waits for it any more.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(request_id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the call was cancelled".to_owned());
            let cancelled = CancelledNotificationParam { request_id, reason };
            // A server that is gone needs no telling.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}

fn client() -> ClientInfo {
    let ourselves = Implementation::new("ctxhost", env!("CARGO_PKG_VERSION"));
    ClientInfo::new(ClientCapabilities::default(), ourselves)
}

fn http(
    server: &str,
    url: &str,
    headers: &SecretValues,
) -> Result<StreamableHttpClientTransportConfig, ToolError> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    for (name, value) in headers.expand(server)? {
        // The value may be a secret, so that it is not told.
        let bad = || ToolError::BadServer {
            server: server.to_owned(),
            complaint: format!("`{name}` is no header, or its value none"),
        };
        let (Ok(header), Ok(value)) = (name.parse(), value.parse()) else { return Err(bad()) };
        config.custom_headers.insert(header, value);
    }
    Ok(config)
}

fn listed_tool(tool: RemoteTool) -> ListedTool {
    ListedTool {
        name: tool.name.into_owned(),
        description: tool
            .description
            .or(tool.title.map(Into::into))
            .unwrap_or_default()
            .into_owned(),
        input_schema: Value::Object(Map::clone(&tool.input_schema)),
    }
}

fn unreachable(server: &str, cause: String) -> ToolError {
    ToolError::Unreachable { server: server.to_owned(), cause }
}

fn timed_out(server: &str, timeout: Duration) -> ToolError {
    unreachable(server, format!("no answer within {} ms", timeout.as_millis()))
}

/// An error with its causes: the SDK's outermost word alone says little.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_words = inner.to_string();
        if !words.contains(&inner_words) {
            words.push_str(": ");
            words.push_str(&inner_words);
        }
        cause = inner.source();
    }
    words
}
