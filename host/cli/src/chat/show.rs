//! What happens, on the terminal: the answer on standard output, everything else beside it.

use std::collections::HashSet;
use std::io::Write as _;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::render::harmless::harmless;
use crate::render::paint::{Style, Tone};
use crate::render::phrase::{counted, grouped};
use crate::render::survival;
use ctxhost_context::{CompactionOutcome, Verdict};
use ctxhost_runtime::Runtime;
use ctxhost_runtime::event::{Event, What};
use ctxhost_survival::Shares;

/// Shows events until it is told to stop.
pub(super) struct Show {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Show {
    /// Begins to show what happens in a runtime.
    ///
    /// `told` is why another engine than the configured one serves, where that was said already.
    pub(super) fn start(runtime: &Runtime, style: Style, told: Option<String>) -> Show {
        let mut events = runtime.subscribe();
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut screen = Screen { style, in_line: false, children: HashSet::new(), told };
            loop {
                let event = tokio::select! {
                    biased;
                    event = events.recv() => event,
                    _ = &mut stopped => return,
                };
                match event {
                    Ok(event) => screen.show(&event),
                    Err(RecvError::Lagged(missed)) => {
                        screen.remark(&format!("({missed} events missed)"))
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Show { stop, task }
    }

    /// Shows what has happened already, and ends.
    pub(super) async fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

struct Screen {
    style: Style,
    /// Whether the cursor stands behind text of the answer.
    in_line: bool,
    /// The sessions of sub-agents: what they say is for their parents.
    children: HashSet<String>,
    /// Why another engine stands in, as it was said last: once is enough.
    told: Option<String>,
}

impl Screen {
    fn show(&mut self, event: &Event) {
        match &event.what {
            What::SubagentSpawned { child, task, .. } => {
                self.children.insert(child.clone());
                self.remark(&format!("> sub-agent: {}", shortened(task)));
            }
            What::SubagentEnded { failure: Some(why), .. } => self.remark(&format!("< {why}")),
            What::SubagentEnded { .. } => self.remark("< the sub-agent has answered"),
            _ if self.children.contains(&*event.session) => {}
            What::Text(text) => self.text(text),
            What::Answered { .. } => self.end_line(),
            What::ToolCalled { tool, arguments, .. } => {
                self.remark(&format!("* {tool} {}", shortened(&arguments.to_string())));
            }
            What::ToolEnded { tool, is_error: true, .. } => {
                self.remark(&format!("* {tool} failed"))
            }
            What::Assembled { engine, fallback: Some(why), .. } if !self.was_told(why) => {
                self.remark(&format!("! {engine} stands in: {why}"));
                self.told = Some(why.clone());
            }
            What::Assembled { fallback: None, .. } => self.told = None,
            What::NotesSaved { chars, .. } if *chars > 0 => self.remark("~ notes saved"),
            What::NotesFailed { why, .. } => self.remark(&format!("! no notes saved: {why}")),
            What::Compaction(outcome) => self.remark(&told(outcome)),
            What::CompactionOwed => {
                self.remark("! the session is nearly full; /compact makes room");
            }
            What::Recovering { reason, action, said } => {
                self.remark(&format!("! {}: {action}", reason.in_words()));
                if !said.is_empty() {
                    self.remark(&format!("  it says: {said}"));
                }
            }
            What::SessionFileMadeAgain { path } => self.remark(&format!(
                "! {} was deleted or replaced; it was made again with all that was said",
                path.display()
            )),
            What::SessionFileGone { path, why } => self.remark(&format!(
                "! {} was deleted or replaced and cannot be made again: {why}",
                path.display()
            )),
            What::ModelChanged { model, why } => self.remark(&format!("! {model} goes on: {why}")),
            What::SilentTruncation { message } => self.remark(&format!("! {message}")),
            What::EngineChanged { engine, before, .. } => {
                self.remark(&format!("engine {engine} from the next turn on (was {before})"));
            }
            What::EngineRolledBack { engine, serving, why } => {
                self.remark(&format!("! {engine} is rolled back, {serving} serves again: {why}"));
            }
            What::SwapRefused { why, serving } => {
                self.remark(&format!("! the config has changed, {serving} goes on: {why}"));
            }
            What::RestartAdvised { libraries, mib } => self.remark(&format!(
                "! {libraries} libraries of engines were loaded ({mib} MiB) and none is ever unloaded; \
                 a restart is due"
            )),
            What::CanaryBegan { engine, share } => {
                self.remark(&format!("canary: {engine} serves {share} of new sessions"));
            }
            What::CanaryEnded { engine, why } => {
                self.remark(&format!("! canary: {engine} has ended: {why}"));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        // A reader that closed the pipe has had enough.
        let _ = stdout.write_all(harmless(text, false).as_bytes()).and_then(|()| stdout.flush());
        self.in_line = !text.ends_with('\n');
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.in_line) {
            self.text("\n");
        }
    }

    fn was_told(&self, why: &str) -> bool {
        self.told.as_ref().is_some_and(|told| why.contains(told.as_str()))
    }

    fn remark(&mut self, line: &str) {
        self.end_line();
        let line = harmless(line, false);
        let _ = writeln!(std::io::stderr(), "{}", self.style.paint(Tone::Quiet, &line));
    }
}

/// One line about a compaction.
pub(super) fn told(outcome: &CompactionOutcome) -> String {
    let (before, after) = (grouped(outcome.before_tokens), grouped(outcome.after_tokens));
    let engine = &outcome.engine;
    match &outcome.verdict {
        Verdict::Applied => format!(
            "~ {engine} compacted {before} -> {after} tokens, {} folded{}",
            counted(outcome.folded.len() as u64, "entry"),
            outcome.survival.as_ref().map(kept).unwrap_or_default(),
        ),
        Verdict::Rejected { reason } => format!("~ {engine}: compaction rejected: {reason}"),
        Verdict::NotTried { reason } => format!("~ {engine}: not compacted: {reason}"),
    }
}

fn kept(shares: &Shares) -> String {
    format!(", survival {}", survival::mean(shares))
}

/// Long arguments, by their beginning.
fn shortened(text: &str) -> String {
    const MOST_CHARS: usize = 100;
    let mut short: String = text.chars().take(MOST_CHARS).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
