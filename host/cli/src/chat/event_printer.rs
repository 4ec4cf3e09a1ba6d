//! Prints events on the terminal: answers on standard output, everything else on standard error.

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::output::write_stdout;
use crate::render::format::{format_count, group_digits};
use crate::render::retention;
use crate::render::sanitize::sanitize;
use crate::render::style::{TextStyle, Tone};
use ctxhost_agent::Runtime;
use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_context::{CompactionOutcome, CompactionVerdict};
use ctxhost_engine_api::Trigger;
use ctxhost_provider::RetryWait;
use ctxhost_retention::Shares;

/// Prints events until it is stopped.
pub(super) struct EventPrinter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl EventPrinter {
    /// Starts printing the events of a runtime.
    ///
    /// `shown_fallback` is a fallback reason that was printed already.
    pub(super) fn start(
        runtime: &Runtime,
        style: TextStyle,
        shown_fallback: Option<String>,
    ) -> EventPrinter {
        let mut events = runtime.subscribe();
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut screen = TerminalView {
                style,
                in_line: false,
                held: (!std::io::stdout().is_terminal()).then(String::new),
                children: HashSet::new(),
                shown_fallback,
                written: Ok(()),
            };
            loop {
                let event = tokio::select! {
                    // Events first: on stop, everything that has happened is still printed.
                    biased;
                    event = events.recv() => event,
                    _ = &mut stopped => return screen.written,
                };
                match event {
                    Ok(event) => screen.print_event(&event),
                    // The channel drops old events if a terminal is slower than the model; the
                    // session itself loses nothing.
                    Err(RecvError::Lagged(missed)) => {
                        screen.note(&format!("({missed} events missed)"))
                    }
                    Err(RecvError::Closed) => return screen.written,
                }
            }
        });
        EventPrinter { stop, task }
    }

    /// Prints the events so far, and ends.
    ///
    /// # Errors
    ///
    /// The first error of standard output.
    pub(super) async fn finish(self) -> std::io::Result<()> {
        let _ = self.stop.send(());
        self.task.await.unwrap_or(Ok(()))
    }
}

/// Shorter pauses pass before a person wonders.
const UNREPORTED_WAIT: Duration = Duration::from_secs(2);

struct TerminalView {
    style: TextStyle,
    /// Whether the cursor is behind answer text.
    in_line: bool,
    /// The text of the answer so far where no person watches it: an attempt that fails halfway is followed by another,
    /// and a script gets the text of that one only. `None` on a terminal.
    held: Option<String>,
    /// Sub-agent sessions, whose text is for their parents and not printed.
    children: HashSet<String>,
    /// The last fallback reason, which is printed once.
    shown_fallback: Option<String>,
    /// The first error of standard output, after which nothing more is written to it.
    written: std::io::Result<()>,
}

impl TerminalView {
    fn print_event(&mut self, event: &RuntimeEvent) {
        match &event.kind {
            EventKind::SubagentSpawned { child, task, .. } => {
                self.children.insert(child.clone());
                self.note(&format!("> sub-agent: {}", truncate(task)));
            }
            EventKind::SubagentEnded { failure: Some(why), .. } => self.note(&format!("< {why}")),
            EventKind::SubagentEnded { .. } => self.note("< the sub-agent has finished"),
            // Text of parallel sub-agents would interleave on the screen.
            _ if self.children.contains(&*event.session) => {}
            EventKind::Text(text) => match &mut self.held {
                Some(held) => held.push_str(text),
                None => self.text(text),
            },
            EventKind::Answered { .. } => {
                let held = self.held.as_mut().map(std::mem::take).unwrap_or_default();
                if !held.is_empty() {
                    self.text(&held);
                }
                self.end_line();
            }
            EventKind::AnswerIncomplete { why } => self.note(&format!("! {why}")),
            EventKind::Waiting { model, wait } if wait.pause > UNREPORTED_WAIT => {
                self.note(&describe_wait(model, wait));
            }
            EventKind::MessageQueued => self.note(
                "! the message is not in the session; it stays queued, and the next message sends it first",
            ),
            EventKind::ToolCalled { tool, arguments, .. } => {
                self.note(&format!("* {tool} {}", truncate(&arguments.to_string())));
            }
            EventKind::ToolEnded { tool, is_error: true, .. } => {
                self.note(&format!("* {tool} failed"))
            }
            EventKind::Assembled { engine, fallback: Some(why), .. }
                if !self.is_already_shown(why) =>
            {
                // The same reason comes with every request while a fallback lasts.
                self.note(&format!("! fallback to {engine}: {why}"));
                self.shown_fallback = Some(why.clone());
            }
            EventKind::Assembled { fallback: None, .. } => self.shown_fallback = None,
            EventKind::NotesSaved { chars, .. } if *chars > 0 => self.note("~ notes saved"),
            EventKind::NotesFailed { why, .. } => self.note(&format!("! notes not saved: {why}")),
            // The answer to `/compact` has these reasons, each once.
            EventKind::Compaction(outcome)
                if outcome.trigger == Trigger::Manual
                    && outcome.verdict != CompactionVerdict::Applied => {}
            EventKind::Compaction(outcome) => self.note(&describe_compaction(outcome)),
            EventKind::CompactionRecommended => {
                self.note("! the session is nearly full; /compact makes room");
            }
            EventKind::Recovering { reason, action, provider_message } => {
                self.held.iter_mut().for_each(String::clear);
                self.note(&format!("! {}: {action}", reason.describe()));
                if !provider_message.is_empty() {
                    self.note(&format!("  provider: {provider_message}"));
                }
            }
            EventKind::SessionFileRecreated { path } => self.note(&format!(
                "! {} was deleted or replaced; the whole session was written again",
                path.display()
            )),
            EventKind::SessionFileMissing { path, why } => self.note(&format!(
                "! {} was deleted or replaced and cannot be written again: {why}",
                path.display()
            )),
            EventKind::ModelChanged { model, why } => {
                self.note(&format!("! switched to {model}: {why}"))
            }
            EventKind::SilentTruncation { message } => self.note(&format!("! {message}")),
            EventKind::EngineChanged { engine, previous, .. } => {
                self.note(&format!("engine {engine} from the next turn on (was {previous})"));
            }
            EventKind::EngineRolledBack { engine, serving, why } => {
                self.note(&format!("! {engine} was rolled back to {serving}: {why}"));
            }
            EventKind::ReloadRejected { why, serving } => {
                self.note(&format!(
                    "! the changed config was not applied, {serving} stays active: {why}"
                ));
            }
            EventKind::RestartAdvised { libraries, mib } => self.note(&format!(
                "! {libraries} engine libraries are loaded ({mib} MiB) and cannot be unloaded; \
                 restart this process"
            )),
            EventKind::CanaryStarted { engine, share } => {
                self.note(&format!("canary: {engine} is active in {share} of new sessions"));
            }
            EventKind::CanaryEnded { engine, why } => {
                self.note(&format!("! canary {engine} ended: {why}"));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.written.is_ok() {
            self.written = write_stdout(sanitize(text, false).as_bytes());
        }
        self.in_line = !text.ends_with('\n');
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.in_line) {
            self.text("\n");
        }
    }

    fn is_already_shown(&self, why: &str) -> bool {
        // A substring: the startup note and the event wrap the same reason in different sentences.
        self.shown_fallback.as_ref().is_some_and(|shown| why.contains(shown.as_str()))
    }

    fn note(&mut self, line: &str) {
        self.end_line();
        let line = sanitize(line, false);
        let line = self.style.paint(Tone::Quiet, &line);
        let _ = writeln!(std::io::stderr(), "{}", sanitize(&line, self.style.color));
    }
}

/// One line about a pause before a request is repeated.
fn describe_wait(model: &str, wait: &RetryWait) -> String {
    let RetryWait { reason, pause, retry, retries } = wait;
    // Rounded up, so that it does not end later.
    let seconds = group_digits(pause.as_millis().div_ceil(1_000) as u64);
    format!("waiting {seconds} s for {model}: {} (retry {retry} of {retries})", reason.describe())
}

/// One line about a compaction.
pub(super) fn describe_compaction(outcome: &CompactionOutcome) -> String {
    let (before, after) = (group_digits(outcome.before_tokens), group_digits(outcome.after_tokens));
    let engine = &outcome.engine;
    match &outcome.verdict {
        CompactionVerdict::Applied => format!(
            "~ {engine} compacted {before} → {after} tokens, {} folded{}",
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
    format!(", retention {}", retention::format_mean(shares))
}

/// Truncates long arguments.
fn truncate(text: &str) -> String {
    const MOST_CHARS: usize = 100;
    let mut short: String = text.chars().take(MOST_CHARS).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_dialects::FailureReason;

    #[test]
    fn a_wait_names_model_cause_and_number() {
        let wait = RetryWait {
            reason: FailureReason::RateLimit,
            pause: Duration::from_millis(5_200),
            retry: 1,
            retries: 4,
        };
        assert_eq!(describe_wait("p/m", &wait), "waiting 6 s for p/m: rate limit (retry 1 of 4)");
    }
}
