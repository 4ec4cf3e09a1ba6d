//! Every command of the transcripts and of the help, in a terminal of 80 columns.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ctxhost_tests::{ctxhost, root};
use nix::pty::{Winsize, openpty};

const COLUMNS: u16 = 80;

/// Output of a command in a terminal, without escape sequences, and its exit code.
struct Screen {
    text: String,
    code: Option<i32>,
}

/// Runs a line of a shell in a terminal.
fn run_in_terminal(line: &str, folder: &Path, columns: u16) -> Screen {
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let product = PathBuf::from(ctxhost().get_program()).parent().unwrap().to_owned();
    let path = format!("{}:{}", product.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).env("PATH", path);
    command.env("XDG_STATE_HOME", folder.join("state-home")).env("XDG_DATA_HOME", folder);
    command.env("NO_COLOR", "1").env("CTXHOST_LOG", "error").env_remove("COLUMNS");
    let slave = File::from(terminal.slave);
    command.stdin(Stdio::null()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    // The terminal ends when nobody has it open any more, this process included.
    drop(command);
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    let mut master = File::from(terminal.master);
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    let text = without_escapes(&String::from_utf8_lossy(&bytes));
    Screen { text, code: child.wait().unwrap().code() }
}

/// Without the sequences that move the cursor of a progress bar; a carriage return ends a line, too.
fn without_escapes(text: &str) -> String {
    let csi = regex::Regex::new("\u{1b}\\[[0-9;?]*[A-Za-z]").unwrap();
    csi.replace_all(text, "").replace("\r\n", "\n").replace('\r', "\n")
}

fn width(line: &str) -> usize {
    let wide = |char: char| ('\u{2e80}'..='\u{ffef}').contains(&char);
    line.chars().map(|char| if wide(char) { 2 } else { 1 }).sum()
}

/// The first line that is too wide. A word without a blank, such as a path, cannot be broken.
fn overlong_line(text: &str, columns: u16) -> Option<&str> {
    let is_word = |line: &str| !line.trim().contains(' ');
    text.lines().find(|line| width(line.trim_end()) > columns.into() && !is_word(line))
}

/// Data is never wrapped: JSON, Markdown, scripts, what was recorded, one line for a status bar.
fn prints_data(line: &str) -> bool {
    [
        "--json",
        "--markdown",
        "schema",
        " export ",
        " fetch ",
        "completions",
        "statusline",
        "config import",
    ]
    .iter()
    .any(|word| line.contains(word))
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            fs::copy(&path, copy).unwrap();
        }
    }
}

#[test]
fn no_line_of_the_transcripts_is_wider_than_the_terminal() {
    let transcripts = root().join("tests/cli");
    let mut count = 0;
    for entry in fs::read_dir(&transcripts).unwrap() {
        let path = entry.unwrap().path();
        // These take minutes, and print the same report as the others.
        if path.extension().is_none_or(|end| end != "trycmd") || path.ends_with("check.trycmd") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let inputs = path.with_extension("in");
        if inputs.is_dir() {
            copy_folder(&inputs, folder.path());
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
        for line in lines.filter(|line| line.contains("ctxhost ")) {
            let screen = run_in_terminal(line, folder.path(), COLUMNS);
            count += 1;
            if !prints_data(line) {
                let wide = overlong_line(&screen.text, COLUMNS);
                assert_eq!(wide, None, "{line}:\n{}", screen.text);
            }
        }
    }
    assert!(count > 100, "only {count} commands were found");
}

#[test]
fn the_widest_reports_fit_terminals_of_all_sizes() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("examples/sessions/mixed.jsonl"), folder.path().join("s.jsonl")).unwrap();
    for columns in [40, 60, 80, 120, 200] {
        for line in [
            "ctxhost replay s.jsonl --window 24k",
            "ctxhost replay s.jsonl --window 24k --engines legacy,mask,window,mask+legacy",
            "ctxhost config explain",
            "ctxhost context s.jsonl",
            "ctxhost engines list",
        ] {
            let screen = run_in_terminal(line, folder.path(), columns);
            let wide = overlong_line(&screen.text, columns);
            assert_eq!(wide, None, "{columns} columns, {line}:\n{}", screen.text);
            assert_eq!(screen.code, Some(0), "{line}:\n{}", screen.text);
        }
    }
}

#[test]
fn no_progress_bar_is_drawn_without_a_terminal() {
    let output = ctxhost().args(["replay", "demo:mixed"]).output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(!notes.contains("requests") && !notes.contains('\u{1b}'), "{notes:?}");
}

/// The examples at the end of the help of every command.
fn examples() -> Vec<String> {
    let help = fs::read_to_string(root().join("tests/cli/help.txt")).unwrap();
    let mut found = Vec::new();
    let mut is_example = false;
    for line in help.lines() {
        is_example = line == "Examples:" || is_example && line.starts_with("  ");
        found.extend(line.strip_prefix("  ").filter(|_| is_example).map(str::to_owned));
    }
    found
}

/// Examples that need a model, a server, a compiler, a terminal, or a library of the user: only their
/// arguments are checked.
const NEEDS_MORE: &[&str] = &[
    "ctxhost chat",
    "ctxhost run",
    "ctxhost serve",
    "ctxhost dev",
    "ctxhost check",
    "ctxhost install",
    "ctxhost uninstall",
    "ctxhost store",
    "ctxhost engines path",
    "ctxhost completions",
    "ctxhost bench",
    "ctxhost doctor",
    "ctxhost sync",
    "ctxhost new",
];

#[test]
fn the_examples_of_the_help_run() {
    // A session with a compaction, a config, a canary: what the examples name.
    let prepared = tempfile::tempdir().unwrap();
    let at = |name: &str| prepared.path().join(name);
    fs::copy(root().join("examples/sessions/coding.jsonl"), at("session.jsonl")).unwrap();
    fs::write(at("ctxhost.toml"), "[plugins.slots]\ncontext_engine = \"legacy\"\n").unwrap();
    fs::write(at("other.toml"), "").unwrap();
    fs::write(at("openclaw.json"), "{}").unwrap();
    let compacted =
        run_in_terminal("ctxhost compact session.jsonl --window 64k", prepared.path(), COLUMNS);
    assert_eq!(compacted.code, Some(0), "{}", compacted.text);
    let examples = examples();
    assert!(examples.len() > 40, "{examples:?}");
    for line in examples {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(prepared.path(), folder.path());
        let needs_more = NEEDS_MORE.iter().any(|name| line.starts_with(name));
        if line.contains("slot promote") || line.contains("slot rollback") {
            let canary =
                run_in_terminal("ctxhost slot set mask --canary 10%", folder.path(), COLUMNS);
            assert_eq!(canary.code, Some(0), "{}", canary.text);
        }
        let words = match line.split(" > ").next().unwrap_or_default() {
            // What follows is the agent's.
            words if words.starts_with("ctxhost run") => "ctxhost run",
            words => words,
        };
        let run = if needs_more { format!("{words} --help") } else { line.clone() };
        let screen = run_in_terminal(&run, folder.path(), COLUMNS);
        assert_eq!(screen.code, Some(0), "{run}:\n{}", screen.text);
    }
}
