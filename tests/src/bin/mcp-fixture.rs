//! A real MCP server for the tests: over its standard input and output, or with `--http ADDRESS`
//! over streamable HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, Content, ErrorData, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, RawResource, ResourceContents,
    ServerCapabilities, ServerInfo, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Tools on one page of the list: few, so that there are several pages.
const PAGE_TOOLS: usize = 3;

/// Each tool, and what it does.
const TOOLS: &[(&str, &str)] = &[
    ("echo", "Says the text again"),
    ("blocks", "Answers with blocks of every kind"),
    ("structured", "Answers with structured content alone"),
    ("fail", "Says that it failed"),
    ("refuse", "Refuses the call"),
    ("five_megabytes", "Says very much"),
    ("env", "Tells its environment"),
    ("header", "Tells the header x-test-key"),
    ("slow", "Takes half a minute; writes to a file when it is cancelled"),
    ("progress", "Takes a second and shows progress meanwhile"),
    ("die", "Ends the server in the middle of the call"),
    ("grandchild", "Starts a process that would run for an hour"),
    ("dotted.name", "Has a name that providers refuse"),
];

/// How often each description is repeated.
#[derive(Clone)]
struct Fixture(usize);

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let start = cursor.map_or(0, |cursor| cursor.parse::<usize>().unwrap());
        let page = TOOLS.iter().skip(start).take(PAGE_TOOLS);
        let next = start + PAGE_TOOLS;
        Ok(ListToolsResult {
            tools: page.map(|(name, about)| tool(name, about.repeat(self.0))).collect(),
            next_cursor: (next < TOOLS.len()).then(|| next.to_string()),
            meta: None,
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let text = request.arguments.as_ref().and_then(|map| map.get("text"));
        let text = text.and_then(Value::as_str).unwrap_or_default().to_owned();
        let said = |text: String| CallToolResult::success(vec![Content::text(text)]);
        Ok(match &*request.name {
            "echo" => said(text),
            "blocks" => CallToolResult::success(blocks()),
            "structured" => {
                let mut result = CallToolResult::structured(json!({"answer": 42}));
                result.content.clear();
                result
            }
            "fail" => CallToolResult::error(vec![Content::text("it rained")]),
            "refuse" => return Err(ErrorData::invalid_params("not on a Sunday", None)),
            "five_megabytes" => said("0123456789\n".repeat(500_000)),
            "env" => {
                let mut names = std::env::vars().map(|(name, value)| format!("{name}={value}"));
                said(names.by_ref().collect::<Vec<_>>().join("\n"))
            }
            "header" => said(header(&context)),
            "slow" => slow(&text, &context).await,
            "progress" => {
                progress(&context).await;
                said("done".into())
            }
            "die" => {
                eprintln!("the fixture dies");
                std::process::exit(7)
            }
            "grandchild" => {
                let child = tokio::process::Command::new("sleep").arg("3600").spawn().unwrap();
                said(format!("{} {}", std::process::id(), child.id().unwrap()))
            }
            name => said(format!("{name} was called")),
        })
    }
}

fn tool(name: &'static str, about: String) -> Tool {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    Tool::new(name, about, schema.as_object().unwrap().clone())
}

fn blocks() -> Vec<Content> {
    let blob = |mime_type: &str| ResourceContents::BlobResourceContents {
        uri: "test://blob".into(),
        mime_type: Some(mime_type.into()),
        blob: "AAAA".into(),
        meta: None,
    };
    vec![
        Content::text("text"),
        Content::image("iVBO", "image/png"),
        Content::resource(ResourceContents::text("words", "test://words")),
        Content::resource(blob("image/gif")),
        Content::resource(blob("application/zip")),
        Content::resource_link(RawResource::new("test://link", "a link")),
    ]
}

fn header(context: &RequestContext<RoleServer>) -> String {
    let parts = context.extensions.get::<Parts>();
    let value = parts.and_then(|parts| parts.headers.get("x-test-key"));
    value.map_or("none".into(), |value| value.to_str().unwrap().to_owned())
}

async fn slow(path: &str, context: &RequestContext<RoleServer>) -> CallToolResult {
    tokio::select! {
        () = sleep(Duration::from_secs(30)) => {}
        () = context.ct.cancelled() => std::fs::write(path, "cancelled").unwrap(),
    }
    CallToolResult::success(vec![Content::text("at last")])
}

async fn progress(context: &RequestContext<RoleServer>) {
    let token = context.meta.get_progress_token().unwrap();
    for step in 0..10 {
        sleep(Duration::from_millis(100)).await;
        let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
        context.peer.notify_progress(progress).await.unwrap();
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        None => serve(Fixture(1)).await,
        Some("--long") => serve(Fixture(50_000)).await,
        Some("--http") => http(&arguments.next().expect("an address follows --http")).await,
        Some("--silent") => sleep(Duration::from_secs(3600)).await,
        Some(other) => panic!("unknown argument {other}"),
    }
}

async fn serve(fixture: Fixture) {
    eprintln!("the fixture serves");
    let running = fixture.serve(stdio()).await.unwrap();
    running.waiting().await.unwrap();
}

async fn http(address: &str) {
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Fixture(1)), sessions, config);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    axum::serve(listener, axum::Router::new().fallback_service(service)).await.unwrap();
}
