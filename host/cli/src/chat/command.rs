//! What a person may ask of the host in a conversation: lines that begin with a slash.

use crate::engine_open::registry_error;
use crate::error::CliError;
use crate::render::context_usage::{self, WindowBudget};
use crate::render::format::group_digits;
use crate::render::style::TextStyle;
use crate::session_arg::parse_compaction;
use ctxhost_agent::context_usage::ContextUsage;
use ctxhost_agent::{ReloadError, Runtime, SessionId, WindowOccupancy};
use ctxhost_config::Config;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// Compact now; the summary looks after the focus.
    Compact { focus: Option<String> },
    /// What the window is filled with.
    Context,
    /// Take a compaction back, by its number or the newest.
    Undo { number: Option<i64> },
    /// Another engine, from the next turn on.
    Engine { name: String },
    /// What there is.
    Help,
    /// The end.
    Quit,
}

const HELP: &str = "/compact [focus]  fold the history now; the summary looks after the focus
/context          what the window is filled with
/undo [@n]        take the newest compaction back, or the n-th and all newer ones
/engine ID        another engine from the next turn on
/quit             end (so does the end of the input)";

impl ChatCommand {
    /// The command of a line; `None` for a line that is said to the model.
    pub(super) fn parse(line: &str) -> Option<Result<ChatCommand, String>> {
        let rest = line.trim().strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
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
            "engine" => return Some(Err("name an engine: /engine mask".into())),
            "help" => ChatCommand::Help,
            "quit" | "exit" => ChatCommand::Quit,
            _ => return Some(Err(format!("no command /{name}; /help lists them"))),
        }))
    }
}

/// Does it and says what came of it; nothing where events say all of it.
pub(super) async fn run(
    command: ChatCommand,
    runtime: &Runtime,
    session: &SessionId,
    config: &Config,
) -> Result<String, CliError> {
    match command {
        ChatCommand::Compact { focus } => {
            // The outcomes themselves are shown as the events they are.
            let outcomes = runtime.compact(session, focus.as_deref()).await?;
            Ok(format!("{} tried", outcomes.len()))
        }
        ChatCommand::Context => {
            Ok(describe_context(&runtime.occupancy(session).await?, TextStyle::default()))
        }
        ChatCommand::Undo { number: Some(number) } => {
            let undone = runtime.undo_at(session, number).await?;
            Ok(format!("taken back {}", undone.compaction))
        }
        ChatCommand::Undo { number: None } => Ok(match runtime.undo(session).await? {
            true => "the newest compaction is taken back".into(),
            false => "there is no compaction to take back".into(),
        }),
        ChatCommand::Engine { name } => {
            // An engine may have been named there since the chat began.
            let now = (!config.name().is_empty()).then(|| Config::load(config.name()));
            let config = &now.transpose()?.unwrap_or_else(|| config.clone());
            let swapped = runtime.replace_engine_by_name(config, &name).await;
            // The swap itself is shown as the event it is.
            swapped.map(|_| String::new()).map_err(|error| match error {
                ReloadError::Registry(error) => registry_error(config, &name, error),
                other => CliError::user(other.to_string()),
            })
        }
        ChatCommand::Help => Ok(HELP.into()),
        ChatCommand::Quit => Ok(String::new()),
    }
}

fn describe_context(occupancy: &WindowOccupancy, style: TextStyle) -> String {
    let WindowOccupancy { view, budget_tokens, window_tokens, reserve_tokens, .. } = occupancy;
    let filling = ContextUsage::from_transcript(view);
    let window = WindowBudget {
        window_tokens: *window_tokens,
        reserve_tokens: *reserve_tokens,
        budget_tokens: *budget_tokens,
    };
    format!(
        "{}, window {} tokens, engine {}\n{}",
        occupancy.model,
        group_digits(*window_tokens),
        occupancy.engine,
        context_usage::render(&filling, window, style).trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_begins_a_command_and_nothing_else_does() {
        let check = |line: &str, expected| assert_eq!(ChatCommand::parse(line), expected, "{line}");
        check("hello", None);
        check("what is /etc?", None);
        check("/compact", Some(Ok(ChatCommand::Compact { focus: None })));
        check(
            "/compact the tests",
            Some(Ok(ChatCommand::Compact { focus: Some("the tests".into()) })),
        );
        check(" /engine mask ", Some(Ok(ChatCommand::Engine { name: "mask".into() })));
        check("/engine", Some(Err("name an engine: /engine mask".into())));
        check("/cmpact", Some(Err("no command /cmpact; /help lists them".into())));
        check("/undo", Some(Ok(ChatCommand::Undo { number: None })));
        check("/undo @2", Some(Ok(ChatCommand::Undo { number: Some(2) })));
        assert!(matches!(ChatCommand::parse("/undo two"), Some(Err(_))));
        check("/exit", Some(Ok(ChatCommand::Quit)));
    }
}
