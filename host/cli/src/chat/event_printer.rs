//! What happens, on the terminal: the answer on standard output, everything else beside it.

use std::collections::HashSet;
use std::io::Write as _;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::render::format::{format_count, group_digits};
use crate::render::retention;
use crate::render::sanitize::sanitize;
use crate::render::style::{TextStyle, Tone};
use ctxhost_agent::Runtime;
use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_context::{CompactionOutcome, CompactionVerdict};
use ctxhost_retention::Shares;

/// Shows events until it is told to stop.
pub(super) struct EventPrinter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl EventPrinter {
    /// Begins to show what happens in a runtime.
    ///
    /// `describe_compaction` is why another engine than the configured one serves, where that was said already.
    pub(super) fn start(runtime: &Runtime, style: TextStyle, told: Option<String>) -> EventPrinter {
        let mut events = runtime.subscribe();
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut screen = TerminalView { style, in_line: false, children: HashSet::new(), told };
            loop {
                let event = tokio::select! {
                    biased;
                    event = events.recv() => event,
                    _ = &mut stopped => return,
                };
                match event {
                    Ok(event) => screen.print_event(&event),
                    Err(RecvError::Lagged(missed)) => {
                        screen.note(&format!("({missed} events missed)"))
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        EventPrinter { stop, task }
    }

    /// Shows what has happened already, and ends.
    pub(super) async fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

struct TerminalView {
    style: TextStyle,
    /// Whether the cursor stands behind text of the answer.
    in_line: bool,
    /// The sessions of sub-agents: what they say is for their parents.
    children: HashSet<String>,
    /// Why another engine stands in, as it was said last: once is enough.
    told: Option<String>,
}

impl TerminalView {
    fn print_event(&mut self, event: &RuntimeEvent) {
        match &event.kind {
            EventKind::SubagentSpawned { child, task, .. } => {
                self.children.insert(child.clone());
                self.note(&format!("> sub-agent: {}", truncate(task)));
            }
            EventKind::SubagentEnded { failure: Some(why), .. } => self.note(&format!("< {why}")),
            EventKind::SubagentEnded { .. } => self.note("< the sub-agent has answered"),
            _ if self.children.contains(&*event.session) => {}
            EventKind::Text(text) => self.text(text),
            EventKind::Answered { .. } => self.end_line(),
            EventKind::ToolCalled { tool, arguments, .. } => {
                self.note(&format!("* {tool} {}", truncate(&arguments.to_string())));
            }
            EventKind::ToolEnded { tool, is_error: true, .. } => {
                self.note(&format!("* {tool} failed"))
            }
            EventKind::Assembled { engine, fallback: Some(why), .. } if !self.is_already_shown(why) => {
                self.note(&format!("! {engine} stands in: {why}"));
                self.told = Some(why.clone());
            }
            EventKind::Assembled { fallback: None, .. } => self.told = None,
            EventKind::NotesSaved { chars, .. } if *chars > 0 => self.note("~ notes saved"),
            EventKind::NotesFailed { why, .. } => self.note(&format!("! no notes saved: {why}")),
            EventKind::Compaction(outcome) => self.note(&describe_compaction(outcome)),
            EventKind::CompactionRecommended => {
                self.note("! the session is nearly full; /compact makes room");
            }
            EventKind::Recovering { reason, action, provider_message: said } => {
                self.note(&format!("! {}: {action}", reason.describe()));
                if !said.is_empty() {
                    self.note(&format!("  it says: {said}"));
                }
            }
            EventKind::SessionFileRecreated { path } => self.note(&format!(
                "! {} was deleted or replaced; it was made again with all that was said",
                path.display()
            )),
            EventKind::SessionFileMissing { path, why } => self.note(&format!(
                "! {} was deleted or replaced and cannot be made again: {why}",
                path.display()
            )),
            EventKind::ModelChanged { model, why } => self.note(&format!("! {model} goes on: {why}")),
            EventKind::SilentTruncation { message } => self.note(&format!("! {message}")),
            EventKind::EngineChanged { engine, previous: before, .. } => {
                self.note(&format!("engine {engine} from the next turn on (was {before})"));
            }
            EventKind::EngineRolledBack { engine, serving, why } => {
                self.note(&format!("! {engine} is rolled back, {serving} serves again: {why}"));
            }
            EventKind::ReloadRejected { why, serving } => {
                self.note(&format!("! the config has changed, {serving} goes on: {why}"));
            }
            EventKind::RestartAdvised { libraries, mib } => self.note(&format!(
                "! {libraries} libraries of engines were loaded ({mib} MiB) and none is ever unloaded; \
                 a restart is due"
            )),
            EventKind::CanaryStarted { engine, share } => {
                self.note(&format!("canary: {engine} serves {share} of new sessions"));
            }
            EventKind::CanaryEnded { engine, why } => {
                self.note(&format!("! canary: {engine} has ended: {why}"));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        // A reader that closed the pipe has had enough.
        let _ = stdout.write_all(sanitize(text, false).as_bytes()).and_then(|()| stdout.flush());
        self.in_line = !text.ends_with('\n');
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.in_line) {
            self.text("\n");
        }
    }

    fn is_already_shown(&self, why: &str) -> bool {
        self.told.as_ref().is_some_and(|told| why.contains(told.as_str()))
    }

    fn note(&mut self, line: &str) {
        self.end_line();
        let line = sanitize(line, false);
        let _ = writeln!(std::io::stderr(), "{}", self.style.paint(Tone::Quiet, &line));
    }
}

/// One line about a compaction.
pub(super) fn describe_compaction(outcome: &CompactionOutcome) -> String {
    let (before, after) = (group_digits(outcome.before_tokens), group_digits(outcome.after_tokens));
    let engine = &outcome.engine;
    match &outcome.verdict {
        CompactionVerdict::Applied => format!(
            "~ {engine} compacted {before} -> {after} tokens, {} folded{}",
            format_count(outcome.folded.len() as u64, "entry"),
            outcome.retention.as_ref().map(retention_suffix).unwrap_or_default(),
        ),
        CompactionVerdict::Rejected { reason } => {
            format!("~ {engine}: compaction rejected: {reason}")
        }
        CompactionVerdict::NotTried { reason } => format!("~ {engine}: not compacted: {reason}"),
    }
}

fn retention_suffix(shares: &Shares) -> String {
    format!(", survival {}", retention::format_mean(shares))
}

/// Long arguments, by their beginning.
fn truncate(text: &str) -> String {
    const MOST_CHARS: usize = 100;
    let mut short: String = text.chars().take(MOST_CHARS).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
