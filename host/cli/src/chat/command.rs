//! Slash commands of the chat.

use super::event_printer::describe_compaction;
use crate::engine_open::registry_error;
use crate::error::CliError;
use crate::render::context_usage::{self, NextRequest};
use crate::render::format::{format_count, group_digits};
use crate::render::style::TextStyle;
use crate::session_arg::parse_compaction;
use ctxhost_agent::context_usage::ContextUsage;
use ctxhost_agent::{ReloadError, Runtime, SessionId, WindowOccupancy};
use ctxhost_config::Config;
use ctxhost_context::{CompactionOutcome, CompactionVerdict};

/// A slash command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// Compact now, with an optional focus for the summary.
    Compact { focus: Option<String> },
    /// Show what fills the window.
    Context,
    /// Undo a compaction, by number or the newest.
    Undo { number: Option<i64> },
    /// Change the engine from the next turn on.
    Engine { name: String },
    /// List the commands.
    Help,
    /// End the chat.
    Quit,
}

const HELP: &str = "/compact [focus]  compact now, with an optional focus for the summary
/context          show what fills the window
/undo [@n]        undo the newest compaction, or the n-th and all newer ones
/engine ID        change the engine from the next turn on
/quit             end the chat (also at the end of the input)";

impl ChatCommand {
    /// Parses a line; `None` if it is a message for the model.
    pub(super) fn parse(line: &str) -> Option<Result<ChatCommand, String>> {
        // Only a leading slash is a command, so that paths in a message are not taken for one.
        let rest = line.trim().strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        // A message may begin with a path: `/etc/hosts what is in it?`.
        if name.is_empty() || !name.chars().all(|c| c.is_alphabetic() || c == '-') {
            return None;
        }
        let argument = argument.trim();
        Some(Ok(match name {
            "compact" => {
                ChatCommand::Compact { focus: Some(argument.to_owned()).filter(|f| !f.is_empty()) }
            }
            "context" => ChatCommand::Context,
            "undo" if argument.is_empty() => ChatCommand::Undo { number: None },
            "undo" => match parse_compaction(argument) {
                Ok(number) => ChatCommand::Undo { number: Some(number) },
                Err(mistake) => return Some(Err(mistake)),
            },
            "engine" if !argument.is_empty() => ChatCommand::Engine { name: argument.to_owned() },
            "engine" => return Some(Err("missing engine, such as /engine mask".into())),
            "help" => ChatCommand::Help,
            "quit" | "exit" => ChatCommand::Quit,
            _ => {
                return Some(Err(format!(
                    "unknown command /{name}; see /help, or begin a message with another word"
                )));
            }
        }))
    }
}

/// Runs a command and returns its result; empty if events have already shown it.
pub(super) async fn run(
    command: ChatCommand,
    runtime: &Runtime,
    session: &SessionId,
    config: &Config,
) -> Result<String, CliError> {
    match command {
        ChatCommand::Compact { focus } => {
            Ok(describe_attempts(&runtime.compact(session, focus.as_deref()).await?))
        }
        ChatCommand::Context => {
            Ok(describe_context(&runtime.occupancy(session).await?, TextStyle::default()))
        }
        ChatCommand::Undo { number: Some(number) } => {
            let undone = runtime.undo_at(session, number).await?;
            Ok(format!("undone: {}", undone.compaction))
        }
        ChatCommand::Undo { number: None } => Ok(if runtime.undo(session).await? {
            "the newest compaction is undone".into()
        } else {
            "there is no compaction to undo".into()
        }),
        ChatCommand::Engine { name } => {
            // The config is read again: the engine may have been added since the chat started.
            let current = (!config.name().is_empty()).then(|| Config::load(config.name()));
            let config = &current.transpose()?.unwrap_or_else(|| config.clone());
            let replaced = runtime.replace_engine_by_name(config, &name).await;
            // The change is printed as an event.
            replaced.map(|_| String::new()).map_err(|error| match error {
                ReloadError::Registry(error) => registry_error(config, &name, error),
                other => CliError::user(other.to_string()),
            })
        }
        ChatCommand::Help => Ok(HELP.into()),
        ChatCommand::Quit => Ok(String::new()),
    }
}

/// The attempts that changed nothing, each reason once, and their number. An applied one is printed as an event.
fn describe_attempts(outcomes: &[CompactionOutcome]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for outcome in outcomes {
        let line = describe_compaction(outcome);
        if outcome.verdict != CompactionVerdict::Applied && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.push(format!("{} attempted", format_count(outcomes.len() as u64, "compaction")));
    lines.join("\n")
}

fn describe_context(occupancy: &WindowOccupancy, style: TextStyle) -> String {
    let WindowOccupancy { preview, compaction, window_tokens, model } = occupancy;
    let filling = ContextUsage::from_transcript(&preview.view);
    let next = NextRequest::new(preview, *compaction, *window_tokens);
    format!(
        "{}, window {} tokens, engine {}\n{}",
        model,
        group_digits(*window_tokens),
        preview.engine,
        context_usage::render(&filling, next, style).trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_a_slash_are_commands() {
        let check = |line: &str, expected| assert_eq!(ChatCommand::parse(line), expected, "{line}");
        check("hello", None);
        check("what is /etc?", None);
        check("/etc/hosts what is in this file?", None);
        check("/compact/notes.md", None);
        check("/a.txt is empty", None);
        check("/ is full", None);
        check("//", None);
        check("/compact", Some(Ok(ChatCommand::Compact { focus: None })));
        check(
            "/compact the tests",
            Some(Ok(ChatCommand::Compact { focus: Some("the tests".into()) })),
        );
        check(" /engine mask ", Some(Ok(ChatCommand::Engine { name: "mask".into() })));
        check("/engine", Some(Err("missing engine, such as /engine mask".into())));
        let unknown = "unknown command /cmpact; see /help, or begin a message with another word";
        check("/cmpact", Some(Err(unknown.into())));
        check("/undo", Some(Ok(ChatCommand::Undo { number: None })));
        check("/undo @2", Some(Ok(ChatCommand::Undo { number: Some(2) })));
        assert!(matches!(ChatCommand::parse("/undo two"), Some(Err(_))));
        check("/exit", Some(Ok(ChatCommand::Quit)));
    }
}
