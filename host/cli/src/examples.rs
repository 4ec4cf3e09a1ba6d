//! Example lines below the help of each command. A test runs them.

use clap::Command;

/// Examples of each command, by its path.
const EXAMPLES: &[(&[&str], &[&str])] = &[
    (
        &["replay"],
        &[
            "ctxhost replay demo:coding --engines legacy,mask",
            "ctxhost replay session.jsonl --window 64k --engine mask+legacy",
        ],
    ),
    (&["chat"], &["ctxhost chat", "ctxhost chat -c -p 'Which tests failed?'"]),
    (&["run"], &["ctxhost run claude", "ctxhost run --ui codex"]),
    (
        &["serve"],
        &["ctxhost serve", "ctxhost serve --upstream anthropic-messages=https://api.anthropic.com"],
    ),
    (&["sessions", "list"], &["ctxhost sessions list --cwd ."]),
    (&["sessions", "show"], &["ctxhost sessions show session.jsonl"]),
    (&["sessions", "du"], &["ctxhost sessions du ."]),
    (
        &["compact"],
        &[
            "ctxhost compact --dry-run session.jsonl",
            "ctxhost compact session.jsonl --engine legacy --window 64k",
        ],
    ),
    (&["diff"], &["ctxhost diff session.jsonl", "ctxhost diff session.jsonl@-1 --all"]),
    (&["context"], &["ctxhost context session.jsonl --window 200k"]),
    (&["statusline"], &["ctxhost statusline session.jsonl"]),
    (&["fetch"], &["ctxhost fetch session.jsonl 1b2278d2"]),
    (&["fsck"], &["ctxhost fsck session.jsonl"]),
    (&["undo"], &["ctxhost undo session.jsonl", "ctxhost undo session.jsonl@1"]),
    (&["restore"], &["ctxhost restore session.jsonl --turn 1 --dry-run"]),
    (&["branch"], &["ctxhost branch session.jsonl --turn 1 --out branch.jsonl"]),
    (&["bisect"], &["ctxhost bisect session.jsonl 'engine API'"]),
    (&["export"], &["ctxhost export session.jsonl --redact --format markdown"]),
    (&["gc"], &["ctxhost gc --dry-run --older-than 30d"]),
    (&["engines", "list"], &["ctxhost engines list"]),
    (&["engines", "info"], &["ctxhost engines info mask"]),
    (&["engines", "path"], &["ctxhost engines path my-engine"]),
    (&["engines", "release"], &["ctxhost engines release mask"]),
    (&["install"], &["ctxhost install ./libmy_engine.so"]),
    (&["uninstall"], &["ctxhost uninstall my-engine"]),
    (&["config", "check"], &["ctxhost config check", "ctxhost --config other.toml config check"]),
    (
        &["config", "explain"],
        &["ctxhost config explain budget.safety_margin", "ctxhost config explain plugins"],
    ),
    (&["config", "schema"], &["ctxhost config schema"]),
    (&["config", "import"], &["ctxhost config import openclaw.json"]),
    (&["use"], &["ctxhost use mask", "ctxhost use mask+legacy"]),
    (&["slot", "set"], &["ctxhost slot set mask --canary 10% --guard 'violations==0' --bake 2h"]),
    (&["slot", "status"], &["ctxhost slot status"]),
    (&["slot", "promote"], &["ctxhost slot promote"]),
    (&["slot", "rollback"], &["ctxhost slot rollback"]),
    (&["shadow", "report"], &["ctxhost shadow report --since 7d"]),
    (&["new"], &["ctxhost new my-engine"]),
    (&["dev"], &["ctxhost dev --once --session demo:mixed"]),
    (&["check"], &["ctxhost check ./libmy_engine.so --call-limit 2m"]),
    (&["store", "migrate"], &["ctxhost store migrate --to postgres://localhost/ctxhost"]),
    (
        &["completions"],
        &["ctxhost completions bash > ~/.local/share/bash-completion/completions/ctxhost"],
    ),
    (&["man"], &["ctxhost man man1"]),
];

/// Adds the examples to the help of each command.
pub(super) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, lines)| add(command, path, lines))
}

fn add(command: Command, path: &[&str], lines: &[&str]) -> Command {
    match path {
        [] => {
            let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
            command.after_help(format!("Examples:{lines}"))
        }
        [name, below @ ..] => command.mut_subcommand(name, |inner| add(inner, below, lines)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::CliArgs;

    #[test]
    fn every_example_belongs_to_its_command() {
        let all = CliArgs::command();
        for (path, lines) in EXAMPLES {
            let mut command = &all;
            for name in *path {
                command = command.find_subcommand(name).unwrap_or_else(|| panic!("no {path:?}"));
            }
            assert!(command.get_subcommands().next().is_none(), "{path:?} is a group");
            let name = path.join(" ");
            for line in *lines {
                let is_of = line.contains(&name) && line.starts_with("ctxhost ");
                assert!(is_of && line.len() <= 78, "{line}");
                // `run` would take an unknown option for the agent, so parsing the line proves nothing.
                for option in line.split(' ').filter_map(|word| word.strip_prefix("--")) {
                    let is_known = |it: &clap::Arg| it.get_long() == Some(option);
                    let mut known = command.get_arguments().chain(all.get_arguments());
                    assert!(known.any(is_known), "{line}: --{option}");
                }
            }
        }
    }
}
