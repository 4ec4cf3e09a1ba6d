//! A connection to an MCP server: handshake, tool list, cancellable calls.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientCapabilities, ClientInfo, ClientRequest, Implementation, ListToolsRequest,
    PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::child_process::ServerProcess;
use super::message::UNREADABLE;
use super::settings::{McpSettings, McpTransport, SecretValues};
use super::tool_list::{ListedTool, ToolPage, read_page};
use crate::error::ToolError;

/// The most pages of a tool list, against a server whose list never ends.
const PAGES_MAX: usize = 100;

/// The largest tool list, in bytes of names, descriptions and schemas: more than any window holds.
const LIST_MAX_BYTES: usize = 4 * 1024 * 1024;

/// How long the shutdown of a connection may take.
const LEAVE: Duration = Duration::from_secs(2);

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct McpConnection {
    server: String,
    connect_timeout: Duration,
    call_timeout: Duration,
    peer: Peer<RoleClient>,
    running: Mutex<RunningService<RoleClient, ClientInfo>>,
    // Dropped after the service, which uses its pipes.
    process: Option<ServerProcess>,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum McpCallError {
    /// It was not sent.
    NotSent(String),
    /// It was sent, and the connection was lost.
    Lost(String),
    /// It timed out.
    TimedOut(Duration),
    /// The server rejected it.
    Refused(String),
    /// The server responded with something that cannot be read.
    Unreadable(String),
}

impl McpCallError {
    /// Converts to the error of a tool.
    pub(super) fn into_tool_error(self, server: &str, tool: &str) -> ToolError {
        let server = server.to_owned();
        match self {
            McpCallError::NotSent(cause) => ToolError::Unreachable { server, cause },
            McpCallError::Lost(cause) => ToolError::ServerDied { server, cause },
            McpCallError::Refused(cause) => ToolError::Refused { server, cause },
            McpCallError::Unreadable(cause) => ToolError::UnreadableResponse { server, cause },
            McpCallError::TimedOut(timeout) => ToolError::TimedOut {
                tool: format!("{server}/{tool}"),
                timeout_ms: timeout.as_millis(),
            },
        }
    }
}

impl McpConnection {
    /// Starts or connects to a server, and does the handshake.
    pub(super) async fn open(
        server: &str,
        settings: &McpSettings,
    ) -> Result<McpConnection, ToolError> {
        let connect_timeout = Duration::from_millis(settings.connect_timeout_ms);
        let (running, process) = match &settings.transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                let (process, transport) =
                    ServerProcess::start(server, command, args, env, cwd.as_deref())?;
                (timeout(connect_timeout, client().serve(transport)).await, Some(process))
            }
            McpTransport::Http { url, headers } => {
                // The SDK's HTTP client uses the process-wide crypto provider. An embedder may have
                // installed another one.
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

    /// Whether calls are possible.
    pub(super) fn is_open(&self) -> bool {
        let has_ended = self.process.as_ref().is_some_and(ServerProcess::has_ended);
        !has_ended && !self.peer.is_transport_closed()
    }

    /// Waits until the server's process has ended; forever if it is not a child.
    async fn wait_for_exit(&self) {
        match &self.process {
            Some(process) => process.wait_for_exit().await,
            None => std::future::pending().await,
        }
    }

    /// All tools of the server, page by page, and what is wrong with those that are left out.
    pub(super) async fn list_tools(&self) -> Result<(Vec<ListedTool>, Vec<String>), ToolError> {
        let mut tools = Vec::new();
        let mut faults = Vec::new();
        let mut list_bytes = 0;
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = match timeout(self.connect_timeout, self.list_page(page)).await {
                Ok(page) => page?,
                Err(_) => return Err(timed_out(&self.server, self.connect_timeout)),
            };
            faults.extend(page.faults);
            for tool in page.tools {
                list_bytes += tool.size_bytes();
                if list_bytes > LIST_MAX_BYTES {
                    let cause = format!("its tool list has more than {LIST_MAX_BYTES} bytes");
                    return Err(unreachable(&self.server, cause));
                }
                tools.push(tool);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok((tools, faults));
            }
        }
        Err(unreachable(&self.server, format!("its tool list has more than {PAGES_MAX} pages")))
    }

    async fn list_page(&self, page: PaginatedRequestParams) -> Result<ToolPage, ToolError> {
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
        let page = match self.peer.send_request(request).await {
            Ok(ServerResult::ListToolsResult(page)) => Some(page.into()),
            // The SDK reads all tools or none.
            Ok(ServerResult::CustomResult(page)) => read_page(&page.0),
            Ok(_) => None,
            Err(error) => return Err(unreachable(&self.server, cause_of(&error))),
        };
        let bad = || unreachable(&self.server, "its response to tools/list has no tools".into());
        page.ok_or_else(bad)
    }

    /// Calls a tool. Dropping the future sends a cancellation.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        longest: Duration,
    ) -> Result<CallToolResult, McpCallError> {
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let options = PeerRequestOptions::with_timeout(self.call_timeout.min(longest))
            // A server that reports progress forever still ends at the total timeout.
            .reset_timeout_on_progress()
            .with_max_total_timeout(longest);
        let not_sent = |error: ServiceError| McpCallError::NotSent(error_chain(&error));
        let handle =
            self.peer.send_cancellable_request(request, options).await.map_err(not_sent)?;
        let mut takes_back = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = tokio::select! {
            answer = handle.await_response() => answer,
            // The transport does not notice the end of a server whose child keeps the pipes open.
            () = self.wait_for_exit() => Err(ServiceError::TransportClosed),
        };
        takes_back.id = None;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(result),
            Ok(_) => Err(McpCallError::Refused("its response is not a tool result".into())),
            Err(ServiceError::McpError(error)) if error.code == UNREADABLE => {
                Err(McpCallError::Unreadable(error.message.into()))
            }
            Err(ServiceError::McpError(error)) => Err(McpCallError::Refused(error.message.into())),
            Err(ServiceError::Timeout { timeout }) => Err(McpCallError::TimedOut(timeout)),
            Err(error @ ServiceError::TransportSend(_)) => Err(not_sent(error)),
            Err(error) => Err(McpCallError::Lost(error_chain(&error))),
        }
    }

    /// Closes the connection and waits until the server has exited.
    pub(super) async fn shut_down(&self) {
        // The result does not matter: the connection is dropped.
        let _ = self.running.lock().await.close_with_timeout(LEAVE).await;
        if let Some(process) = &self.process {
            process.shut_down().await;
        }
    }
}

/// Sends a cancellation if dropped during a call.
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
            // A failed notification means that the server is gone.
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
        // Without the value, which may be a secret.
        let bad = || ToolError::BadServer {
            server: server.to_owned(),
            complaint: format!("invalid header `{name}` or value"),
        };
        let (Ok(header), Ok(value)) = (name.parse(), value.parse()) else { return Err(bad()) };
        config.custom_headers.insert(header, value);
    }
    Ok(config)
}

fn unreachable(server: &str, cause: String) -> ToolError {
    ToolError::Unreachable { server: server.to_owned(), cause }
}

fn timed_out(server: &str, timeout: Duration) -> ToolError {
    unreachable(server, format!("no response within {} ms", timeout.as_millis()))
}

/// The cause of a failed request.
fn cause_of(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) if error.code == UNREADABLE => {
            format!("its response cannot be read: {}", error.message)
        }
        error => error_chain(error),
    }
}

/// An error with its causes. The SDK's outermost message alone is not helpful.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_message = inner.to_string();
        if !message.contains(&inner_message) {
            message.push_str(": ");
            message.push_str(&inner_message);
        }
        cause = inner.source();
    }
    message
}
