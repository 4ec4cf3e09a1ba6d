//! The overview of `ctxhost --help`: commands in groups, by what the user wants to do.

use clap::Command;

/// Each group with its commands, in the order of the overview.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "See what engines do with a session",
        &["doctor", "replay", "bench", "context", "diff", "bisect", "statusline"],
    ),
    ("Run an agent, or the agent you have", &["chat", "run", "serve", "ui"]),
    (
        "Work with sessions",
        &[
            "sessions", "compact", "undo", "restore", "branch", "export", "fetch", "fsck", "gc",
            "store",
        ],
    ),
    ("Choose an engine", &["engines", "use", "slot", "shadow", "install", "uninstall", "sync"]),
    ("Write an engine", &["new", "dev", "check"]),
    ("Set up", &["config", "completions", "man"]),
];

const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

/// The command line with a grouped overview in place of clap's flat list.
pub(super) fn with_groups(command: Command) -> Command {
    let mut overview = String::new();
    for (title, names) in GROUPS {
        overview.push_str(&format!("{title}:\n"));
        for name in names {
            let about =
                command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            overview.push_str(&format!("  {name:<12} {}\n", about.unwrap_or_default()));
        }
        overview.push('\n');
    }
    let hint = "`ctxhost COMMAND --help` describes a command; `ctxhost` alone runs doctor.";
    command.before_help(overview).after_help(hint).help_template(TEMPLATE)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::CliArgs;

    #[test]
    fn every_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = CliArgs::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        for name in visible.map(Command::get_name) {
            let count = grouped.iter().filter(|grouped| **grouped == name).count();
            assert_eq!(count, 1, "{name} is in {count} groups");
        }
        for name in grouped {
            assert!(command.find_subcommand(name).is_some(), "{name} is not a command");
        }
    }
}
