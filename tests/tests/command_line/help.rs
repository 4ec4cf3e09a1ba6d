//! The help of every command, in a terminal of 80 columns.

use std::fs;

use ctxhost_tests::{ctxhost, root};

const COLUMNS: usize = 80;

/// Appends the help of a command and of those below it.
fn append_help(command: &[String], text: &mut String) {
    let output =
        ctxhost().args(command).arg("--help").env("COLUMNS", COLUMNS.to_string()).output().unwrap();
    assert!(output.status.success(), "{command:?} --help failed");
    let help = String::from_utf8(output.stdout).unwrap();
    let name = [&["ctxhost".to_owned()], command].concat().join(" ");
    text.push_str(&format!("$ {name} --help\n{}\n\n", help.trim_end()));
    for subcommand in subcommands(&help) {
        append_help(&[command, &[subcommand]].concat(), text);
    }
}

/// The names in the sections of commands: rows of two spaces, a name and what it does. Options begin with a hyphen, and
/// descriptions that go on are indented further.
fn subcommands(help: &str) -> Vec<String> {
    let section = help
        .lines()
        .skip_while(|line| *line != "Commands:" && !line.starts_with("See what engines do"));
    let rows = section.take_while(|line| *line != "Options:" && *line != "Arguments:");
    let names = rows.filter(|row| row.starts_with("  ") && !row.starts_with("   "));
    names
        .filter_map(|row| row.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// `CTXHOST_UPDATE_DOCUMENTS=1 cargo test -p ctxhost-tests --test command_line help` writes the file anew.
#[test]
fn every_help_text_is_written_down() {
    let path = root().join("tests/cli/help.txt");
    let mut text = String::new();
    append_help(&[], &mut text);
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "wider than {COLUMNS} columns: {line}");
    }
    if std::env::var_os("CTXHOST_UPDATE_DOCUMENTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap();
    for (line, (now, before)) in text.lines().zip(known.lines()).enumerate() {
        assert_eq!(now, before, "{}:{}", path.display(), line + 1);
    }
    assert_eq!(
        text.lines().count(),
        known.lines().count(),
        "{} is longer or shorter than it was",
        path.display()
    );
}
