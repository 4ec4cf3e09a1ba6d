//! `shell`: runs a command and returns its output and exit code.

mod capture;

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ctxhost_engine_api::ToolSpec;
use ctxhost_platform::processes::{OutputReader, async_reader, signal_of};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use self::capture::OutputCapture;
use crate::error::ToolError;
use crate::names::NamePattern;
use crate::output::ToolOutput;
use crate::process::ProcessGroup;
use crate::settings::ToolSettings;
use crate::{CallContext, Tool, arguments};

const NAME: &str = "shell";

/// How long the pipe is drained after the command has ended. Only a process that has left the group can keep the
/// pipe open.
const DRAIN: Duration = Duration::from_millis(200);

/// The capacity of a pipe on Linux.
const CHUNK_BYTES: usize = 64 * 1024;

/// The `shell` tool.
#[derive(Debug)]
pub(super) struct ShellTool {
    timeout: Duration,
    hidden_env: Vec<NamePattern>,
}

#[derive(Debug, Deserialize)]
struct ShellArguments {
    command: String,
    timeout_ms: Option<u64>,
}

/// How a command ended.
enum CommandEnd {
    Exited(ExitStatus),
    TimedOut,
}

impl ShellTool {
    /// Creates the tool.
    pub(super) fn new(settings: &ToolSettings) -> ShellTool {
        ShellTool {
            timeout: Duration::from_millis(settings.shell_timeout_ms),
            hidden_env: settings.shell_hidden_env.clone(),
        }
    }

    async fn run(&self, raw: &Value, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let arguments: ShellArguments = arguments::read(NAME, &schema(), raw)?;
        // The model may ask for less or more than the default, but not for more than the agent allows.
        let own = arguments.timeout_ms.map_or(self.timeout, Duration::from_millis);
        let timeout = own.min(context.timeout);
        let not_started = |cause| ToolError::ShellNotStarted { cwd: context.cwd.clone(), cause };
        let (mut group, output) =
            self.start(&arguments.command, &context.cwd).map_err(not_started)?;
        let mut capture = OutputCapture::default();
        let ending =
            capture_output(&mut group, output, &mut capture, timeout).await.map_err(not_started)?;
        Ok(render_output(capture.finish().await, ending, timeout))
    }

    /// Starts a shell with stdout and stderr in one pipe, which keeps their order.
    fn start(&self, command: &str, cwd: &Path) -> io::Result<(ProcessGroup, OutputReader)> {
        let (output, input) = io::pipe()?;
        let mut shell = Command::new("sh");
        // stdin is closed: a command that reads it would wait until the timeout.
        shell.arg("-c").arg(command).current_dir(cwd).stdin(Stdio::null());
        shell.stdout(input.try_clone()?).stderr(input);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| self.hides(name)) {
                shell.env_remove(name);
            }
        }
        // No interactive pager, no credential prompts of git.
        shell.envs([("TERM", "dumb"), ("PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")]);
        let group = ProcessGroup::spawn(shell)?;
        Ok((group, async_reader(output)?))
    }

    fn hides(&self, variable: &str) -> bool {
        self.hidden_env.iter().any(|pattern| pattern.matches(variable))
    }
}

impl Tool for ShellTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description: format!(
                "Runs a command with `sh -c` in the working folder and answers with what it printed and \
                 its exit code. Of long output the end is shown, and all of it is kept in a file. Ends \
                 after {} ms unless timeout_ms asks for more. Processes in the background end with the \
                 command, unless they are started with `setsid` and their output goes to a file.",
                self.timeout.as_millis()
            ),
            input_schema: schema(),
        }
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.into() })
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "description": "The command." },
            "timeout_ms": { "type": "integer", "minimum": 1, "description": "How long it may take." },
        },
        "required": ["command"],
        "additionalProperties": false,
    })
}

/// Captures output until the command or its time ends.
async fn capture_output(
    group: &mut ProcessGroup,
    mut output: OutputReader,
    capture: &mut OutputCapture,
    timeout: Duration,
) -> io::Result<CommandEnd> {
    let mut deadline = Instant::now() + timeout;
    let mut ending = None;
    let mut is_open = true;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        tokio::select! {
            // The deadline is polled first: endless output must not starve it.
            biased;
            () = sleep_until(deadline) => {
                group.kill();
                return Ok(ending.unwrap_or(CommandEnd::TimedOut));
            }
            read = output.read(&mut chunk), if is_open => match read? {
                0 => is_open = false,
                count => capture.push(chunk.get(..count).unwrap_or_default()).await,
            },
            status = group.wait(), if ending.is_none() => {
                ending = Some(CommandEnd::Exited(status?));
                deadline = Instant::now() + DRAIN;
            }
        }
        if !is_open && let Some(ending) = ending.take() {
            return Ok(ending);
        }
    }
}

fn render_output(output: String, ending: CommandEnd, timeout: Duration) -> ToolOutput {
    let (note, is_error) = match ending {
        CommandEnd::Exited(status) if status.success() => (String::new(), false),
        CommandEnd::Exited(status) => match (status.code(), signal_of(status)) {
            (Some(code), _) => (format!("[exit code {code}]"), true),
            (None, Some(signal)) => (format!("[killed by signal {signal}]"), true),
            (None, None) => ("[ended without an exit code]".into(), true),
        },
        CommandEnd::TimedOut => {
            let ms = timeout.as_millis();
            (format!("[ended after {ms} ms, with all that it had started]"), true)
        }
    };
    let break_line = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    let text = match (output.is_empty(), note.is_empty()) {
        (true, true) => "(no output)".into(),
        (_, true) => output,
        _ => format!("{output}{break_line}{note}"),
    };
    ToolOutput { is_error, ..ToolOutput::text(text) }
}
