//! MCP servers as sources of tools: a real server as a child process and over HTTP.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ctxhost_dialects::ChatBlock;
use ctxhost_tools::mcp::{McpTransport, SecretValues};
use ctxhost_tools::{CallContext, McpServer, McpSettings, ToolOutput, ToolRegistry, ToolSettings};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const FIXTURE: &str = env!("CARGO_BIN_EXE_mcp-fixture");

fn stdio(args: &[&str], env: SecretValues) -> McpSettings {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    McpSettings::new(McpTransport::Stdio { command: FIXTURE.into(), args, env, cwd: None })
}

fn http(address: &str, headers: SecretValues) -> McpSettings {
    McpSettings::new(McpTransport::Http { url: format!("http://{address}/mcp"), headers })
}

async fn connected(settings: McpSettings) -> ToolRegistry {
    let mut toolbox = ToolRegistry::empty(ToolSettings::default());
    let errors = toolbox.connect(&BTreeMap::from([("fix".to_owned(), settings)])).await;
    assert!(errors.is_empty(), "{errors:?}");
    toolbox
}

async fn call(toolbox: &ToolRegistry, tool: &str, arguments: Value) -> ToolOutput {
    let context = CallContext {
        cwd: "/".into(),
        session_id: "session".into(),
        call_id: "call".into(),
        timeout: Duration::from_secs(20),
    };
    toolbox.call(&format!("fix__{tool}"), &arguments, &context).await
}

/// A fixture behind an address, ended with the test.
struct HttpFixture {
    child: Child,
    address: String,
}

impl HttpFixture {
    fn start(address: &str) -> HttpFixture {
        let mut command = Command::new(FIXTURE);
        command.args(["--http", address]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        HttpFixture { child, address: address.trim().to_owned() }
    }
}

impl Drop for HttpFixture {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Whether a process is gone, or only waits to be collected, within a few seconds.
async fn dies(pid: &str) -> bool {
    let stat = Path::new("/proc").join(pid).join("stat");
    for _ in 0..100 {
        match std::fs::read_to_string(&stat) {
            Err(_) => return true,
            Ok(stat) if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) => {
                return true;
            }
            Ok(_) => sleep(Duration::from_millis(30)).await,
        }
    }
    false
}

/// What holds for either wire.
async fn serves(toolbox: &ToolRegistry) {
    let names = toolbox.names().collect::<Vec<_>>();
    assert_eq!(names.len(), 13, "pages are missing: {names:?}");
    assert!(names.is_sorted() && names.contains(&"fix__echo"), "{names:?}");
    let dotted = names.iter().find(|name| name.starts_with("fix__dotted_name_")).unwrap();
    let output = call(toolbox, dotted.strip_prefix("fix__").unwrap(), json!({})).await;
    assert_eq!(output, ToolOutput::text("dotted.name was called"));
    let echo = call(toolbox, "echo", json!({"text": "grüß dich"})).await;
    assert_eq!(echo, ToolOutput::text("grüß dich"));
    assert_eq!(call(toolbox, "fail", json!({})).await, ToolOutput::error("it rained"));
    let refused = call(toolbox, "refuse", json!({})).await;
    assert_eq!(refused, ToolOutput::error("MCP server `fix` rejected the call: not on a Sunday"));
    let structured = call(toolbox, "structured", json!({})).await;
    assert_eq!(structured, ToolOutput::text("{\"answer\":42}"));
    let text = |text: &str| ChatBlock::text(text);
    let image = |data: &str, mime_type: &str| ChatBlock::Image {
        data: data.into(),
        mime_type: mime_type.into(),
    };
    assert_eq!(
        call(toolbox, "blocks", json!({})).await.blocks,
        [
            text("text"),
            image("iVBO", "image/png"),
            text("[resource test://words]\nwords"),
            image("AAAA", "image/gif"),
            text("[resource test://blob, application/zip: binary, left out]"),
            text("[resource test://link (a link)]"),
        ]
    );
    let wrong = call(toolbox, "echo", json!({"text": 5})).await;
    assert!(wrong.joined_text().contains("`text` must be string"), "{wrong:?}");
}

#[tokio::test]
async fn a_child_process_serves() {
    serves(&connected(stdio(&[], SecretValues::default())).await).await;
}

#[tokio::test]
async fn an_address_serves_and_gets_the_headers() {
    let fixture = HttpFixture::start("127.0.0.1:0");
    let headers = SecretValues::new([("x-test-key", "key of ${CARGO_PKG_NAME}")]);
    let toolbox = connected(http(&fixture.address, headers)).await;
    serves(&toolbox).await;
    let header = call(&toolbox, "header", json!({})).await;
    assert_eq!(header, ToolOutput::text("key of ctxhost-tests"));
    toolbox.close().await;
}

#[tokio::test]
async fn a_long_answer_is_kept_in_a_file() {
    let toolbox = connected(stdio(&[], SecretValues::default())).await;
    let text = call(&toolbox, "five_megabytes", json!({})).await.joined_text();
    let (shown, notice) = text.rsplit_once("\n[cut: these are the first ").unwrap();
    assert!(shown.len() < 52_000 && shown.ends_with("0123456789"));
    let (numbers, path) = notice.split_once("; all of it is in ").unwrap();
    assert!(numbers.ends_with("of 5500000 bytes"), "{numbers}");
    let path = path.trim_end_matches(']');
    assert_eq!(std::fs::metadata(path).unwrap().len(), 5_500_000);
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_server_gets_a_clean_environment() {
    let env = SecretValues::new([("GIVEN", "<${CARGO_PKG_NAME}>")]);
    let toolbox = connected(stdio(&[], env)).await;
    let text = call(&toolbox, "env", json!({})).await.joined_text();
    assert!(text.contains("GIVEN=<ctxhost-tests>"), "{text}");
    assert!(text.contains("PATH="), "{text}");
    assert!(!text.contains("CARGO"), "{text}");
}

#[tokio::test]
async fn a_server_that_died_is_started_again_once() {
    let toolbox = connected(stdio(&[], SecretValues::default())).await;
    let died = call(&toolbox, "die", json!({})).await;
    assert!(died.is_error);
    assert!(died.joined_text().contains("`fix` disconnected before it responded"), "{died:?}");
    // Whether it did its work nobody knows, so that the call itself is not repeated.
    let echo = call(&toolbox, "echo", json!({"text": "again"})).await;
    assert_eq!(echo, ToolOutput::text("again"));
}

#[tokio::test]
async fn a_server_killed_between_calls_is_not_noticed() {
    let toolbox = connected(stdio(&[], SecretValues::default())).await;
    let pids = call(&toolbox, "grandchild", json!({})).await.joined_text();
    let (server, _) = pids.split_once(' ').unwrap();
    assert!(Command::new("kill").args(["-9", server]).status().unwrap().success());
    assert!(dies(server).await);
    // The end of its output still has to be read.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let echo = call(&toolbox, "echo", json!({"text": "again"})).await;
    assert_eq!(echo, ToolOutput::text("again"));
}

#[tokio::test]
async fn an_address_that_was_gone_for_a_while_serves_again() {
    let fixture = HttpFixture::start("127.0.0.1:0");
    let address = fixture.address.clone();
    let toolbox = connected(http(&address, SecretValues::default())).await;
    drop(fixture);
    let gone = call(&toolbox, "echo", json!({"text": "lost"})).await;
    assert!(gone.is_error && gone.joined_text().contains("MCP server `fix`"), "{gone:?}");
    let _fixture = HttpFixture::start(&address);
    let echo = call(&toolbox, "echo", json!({"text": "again"})).await;
    assert_eq!(echo, ToolOutput::text("again"));
}

#[tokio::test]
async fn a_call_has_its_time_and_progress_gives_it_more() {
    let mut settings = stdio(&[], SecretValues::default());
    settings.timeout_ms = 400;
    let toolbox = connected(settings).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cancelled");
    let started = Instant::now();
    let late = call(&toolbox, "slow", json!({"text": file})).await;
    assert!(late.joined_text().contains("timed out after 400 ms"), "{late:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(appears(&file).await, "the server was not told");
    assert_eq!(call(&toolbox, "progress", json!({})).await, ToolOutput::text("done"));
}

#[tokio::test]
async fn a_dropped_call_is_taken_back() {
    let toolbox = connected(stdio(&[], SecretValues::default())).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cancelled");
    let slow = call(&toolbox, "slow", json!({"text": file}));
    assert!(timeout(Duration::from_millis(300), slow).await.is_err());
    assert!(appears(&file).await, "the server was not told");
    let echo = call(&toolbox, "echo", json!({"text": "still here"})).await;
    assert_eq!(echo, ToolOutput::text("still here"));
}

async fn appears(file: &Path) -> bool {
    for _ in 0..100 {
        if file.exists() {
            return true;
        }
        sleep(Duration::from_millis(30)).await;
    }
    false
}

#[tokio::test]
async fn nothing_of_a_server_stays_behind() {
    for closes in [true, false] {
        let toolbox = connected(stdio(&[], SecretValues::default())).await;
        let pids = call(&toolbox, "grandchild", json!({})).await.joined_text();
        let (server, grandchild) = pids.split_once(' ').unwrap();
        if closes {
            toolbox.close().await;
        }
        drop(toolbox);
        assert!(dies(server).await, "the server stays; closed: {closes}");
        assert!(dies(grandchild).await, "what it started stays; closed: {closes}");
    }
}

#[test]
fn nothing_of_a_server_outlives_the_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let toolbox = runtime.block_on(connected(stdio(&[], SecretValues::default())));
    let pids = runtime.block_on(call(&toolbox, "grandchild", json!({}))).joined_text();
    runtime.shutdown_background();
    drop(toolbox);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for pid in pids.split(' ') {
        assert!(runtime.block_on(dies(pid)), "{pid} stays");
    }
}

#[tokio::test]
async fn servers_that_cannot_be_reached_are_named_and_the_others_serve() {
    let mut silent = stdio(&["--silent"], SecretValues::default());
    silent.connect_timeout_ms = 300;
    let program = |command: &str, args: &[&str]| {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let (command, env) = (command.into(), SecretValues::default());
        McpSettings::new(McpTransport::Stdio { command, args, env, cwd: None })
    };
    let servers = BTreeMap::from([
        ("fix".to_owned(), stdio(&[], SecretValues::default())),
        ("silent".to_owned(), silent),
        ("nothing".to_owned(), program("no-such-program", &[])),
        ("endless".to_owned(), program("sh", &["-c", "tr '\\0' x < /dev/zero"])),
        ("long".to_owned(), stdio(&["--long"], SecretValues::default())),
        ("nobody".to_owned(), http("127.0.0.1:9", SecretValues::default())),
        ("unset".to_owned(), stdio(&[], SecretValues::new([("KEY", "${NO_SUCH_VARIABLE}")]))),
    ]);
    let mut toolbox = ToolRegistry::empty(ToolSettings::default());
    let errors = toolbox.connect(&servers).await;
    let errors = errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    for words in [
        "`silent` is unreachable: no response within 300 ms",
        "`nothing`: cannot start `no-such-program`",
        "`nobody` is unreachable",
        "`endless` is unreachable",
        "`long` is unreachable: its tool list has more than 4194304 bytes",
        "`unset`: environment variable NO_SUCH_VARIABLE of `KEY` is not set",
    ] {
        assert!(errors.iter().any(|error| error.contains(words)), "{words}: {errors:#?}");
    }
    assert_eq!(errors.len(), 6);
    assert_eq!(call(&toolbox, "echo", json!({"text": "a"})).await, ToolOutput::text("a"));
}

#[tokio::test]
async fn denied_tools_of_a_server_are_not_offered_and_names_stay_single() {
    let server = McpServer::connect("fix", &stdio(&[], SecretValues::default())).await.unwrap();
    let settings = ToolSettings {
        deny: vec!["fix__*[e]*".to_owned().try_into().unwrap()],
        ..ToolSettings::default()
    };
    let mut toolbox = ToolRegistry::empty(settings);
    assert!(toolbox.add_server(server.clone()).is_empty());
    let names = toolbox.names().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names, ["fix__blocks", "fix__fail", "fix__grandchild", "fix__slow"]);
    let mut twice = ToolRegistry::empty(ToolSettings::default());
    assert!(twice.add_server(server.clone()).is_empty());
    // The second time its names are taken, and get their mark; the one that had it is told of.
    let errors = twice.add_server(server);
    assert!(errors.len() == 1 && errors[0].to_string().contains("fix__dotted_name_"), "{errors:?}");
    assert_eq!(twice.names().count(), 25);
}
