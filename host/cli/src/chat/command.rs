//! What a person may ask of the host in a conversation: lines that begin with a slash.

use crate::failure::Failure;
use crate::named::parse_compaction;
use crate::opening::unlisted;
use crate::render::filling::{self, Window};
use crate::render::paint::Style;
use crate::render::phrase::grouped;
use ctxhost_config::Config;
use ctxhost_runtime::filling::Filling;
use ctxhost_runtime::{Occupancy, Runtime, SessionId, SwapError};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
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

impl Command {
    /// The command of a line; `None` for a line that is said to the model.
    pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
        let rest = line.trim().strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let argument = argument.trim();
        Some(Ok(match name {
            "compact" => {
                Command::Compact { focus: Some(argument.to_owned()).filter(|f| !f.is_empty()) }
            }
            "context" => Command::Context,
            "undo" if argument.is_empty() => Command::Undo { number: None },
            "undo" => match parse_compaction(argument) {
                Ok(number) => Command::Undo { number: Some(number) },
                Err(mistake) => return Some(Err(mistake)),
            },
            "engine" if !argument.is_empty() => Command::Engine { name: argument.to_owned() },
            "engine" => return Some(Err("name an engine: /engine mask".into())),
            "help" => Command::Help,
            "quit" | "exit" => Command::Quit,
            _ => return Some(Err(format!("no command /{name}; /help lists them"))),
        }))
    }
}

/// Does it and says what came of it; nothing where events say all of it.
pub(super) async fn run(
    command: Command,
    runtime: &Runtime,
    session: &SessionId,
    config: &Config,
) -> Result<String, Failure> {
    match command {
        Command::Compact { focus } => {
            // The outcomes themselves are shown as the events they are.
            let outcomes = runtime.compact(session, focus.as_deref()).await?;
            Ok(format!("{} tried", outcomes.len()))
        }
        Command::Context => Ok(context(&runtime.occupancy(session).await?, Style::default())),
        Command::Undo { number: Some(number) } => {
            let undone = runtime.undo_at(session, number).await?;
            Ok(format!("taken back {}", undone.compaction))
        }
        Command::Undo { number: None } => Ok(match runtime.undo(session).await? {
            true => "the newest compaction is taken back".into(),
            false => "there is no compaction to take back".into(),
        }),
        Command::Engine { name } => {
            // An engine may have been named there since the chat began.
            let now = (!config.name().is_empty()).then(|| Config::load(config.name()));
            let config = &now.transpose()?.unwrap_or_else(|| config.clone());
            let swapped = runtime.swap_to(config, &name).await;
            // The swap itself is shown as the event it is.
            swapped.map(|_| String::new()).map_err(|error| match error {
                SwapError::Roster(error) => unlisted(config, &name, error),
                other => Failure::caller(other.to_string()),
            })
        }
        Command::Help => Ok(HELP.into()),
        Command::Quit => Ok(String::new()),
    }
}

fn context(occupancy: &Occupancy, style: Style) -> String {
    let Occupancy { view, budget_tokens, window_tokens, reserve_tokens, .. } = occupancy;
    let filling = Filling::of(view);
    let window = Window {
        window_tokens: *window_tokens,
        reserve_tokens: *reserve_tokens,
        budget_tokens: *budget_tokens,
    };
    format!(
        "{}, window {} tokens, engine {}\n{}",
        occupancy.model,
        grouped(*window_tokens),
        occupancy.engine,
        filling::render(&filling, window, style).trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_begins_a_command_and_nothing_else_does() {
        let check = |line: &str, expected| assert_eq!(Command::parse(line), expected, "{line}");
        check("hello", None);
        check("what is /etc?", None);
        check("/compact", Some(Ok(Command::Compact { focus: None })));
        check("/compact the tests", Some(Ok(Command::Compact { focus: Some("the tests".into()) })));
        check(" /engine mask ", Some(Ok(Command::Engine { name: "mask".into() })));
        check("/engine", Some(Err("name an engine: /engine mask".into())));
        check("/cmpact", Some(Err("no command /cmpact; /help lists them".into())));
        check("/undo", Some(Ok(Command::Undo { number: None })));
        check("/undo @2", Some(Ok(Command::Undo { number: Some(2) })));
        assert!(matches!(Command::parse("/undo two"), Some(Err(_))));
        check("/exit", Some(Ok(Command::Quit)));
    }
}
