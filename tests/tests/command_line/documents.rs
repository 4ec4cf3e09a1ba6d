//! The console blocks of README.md and docs: each command is run as it is written, or listed with a reason.
//!
//! A block runs in a home of its own, with a gateway and a scripted provider on the loopback. Output in a block is compared
//! with what the command prints: `…` matches anything, a number any number, and a run of spaces any other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer};
use ctxhost_tests::workplace::ConfigText;
use ctxhost_tests::{ctxhost, keep_ends_library, root};
use regex::Regex;

const BUILDS: &str =
    "compiles; CI runs the tests, and engines::check builds a crate of `ctxhost new`";
const NETWORK: &str = "downloads";
const NOT_COMPILED: &str = "needs the crate of `ctxhost new`, which is not compiled";
const COVERED: &str = "takes minutes; a test binary of its own covers it";

/// Beginnings of commands that are not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo install ", NETWORK),
    ("tests/clients/run.py ", NETWORK),
    ("cargo test", BUILDS),
    ("cargo run --release -- replay ", BUILDS),
    ("cargo build ", BUILDS),
    (".ci/run", BUILDS),
    ("ctxhost dev", BUILDS),
    ("cargo run -p ctxhost-tests --bin redteam ", COVERED),
    ("cargo run -p ctxhost-tests --bin crashtest ", COVERED),
    ("ctxhost store migrate", "needs a PostgreSQL server: sessions::store"),
    ("ctxhost check ", "takes a minute in a debug build: cli/check.trycmd"),
    ("minisign ", "a program of others"),
    ("set -g status-right", "a line of a tmux config"),
    ("PROMPT_COMMAND=", "a line of a bash profile"),
    ("ctxhost use keep-errors", NOT_COMPILED),
    ("ctxhost install target/release/libkeep_errors.so", NOT_COMPILED),
    ("ctxhost replay demo:coding --engines legacy,target/", NOT_COMPILED),
    ("ctxhost doctor", "there are no recordings in a new home"),
    ("ctxhost sync", "needs a lock that names a library: cli::sync"),
];

/// A block of a document.
struct ConsoleBlock {
    document: String,
    line: usize,
    commands: Vec<ShownCommand>,
}

/// A command, and the output that the document shows.
struct ShownCommand {
    text: String,
    output: Vec<String>,
}

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

fn blocks() -> Vec<ConsoleBlock> {
    let mut paths = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    documents(&root().join("docs"), &mut paths);
    paths.iter().flat_map(|path| blocks_of(path)).collect()
}

fn blocks_of(path: &Path) -> Vec<ConsoleBlock> {
    let text = fs::read_to_string(path).unwrap();
    let document = path.strip_prefix(root()).unwrap().display().to_string();
    let mut blocks = Vec::new();
    let mut open: Option<(ConsoleBlock, bool)> = None;
    for (index, line) in text.lines().enumerate() {
        let language = line.strip_prefix("```");
        if let Some((mut block, is_script)) = open.take() {
            if language.is_some() {
                blocks.push(block);
                continue;
            }
            let command = if is_script { Some(line) } else { line.strip_prefix("$ ") };
            if let Some(text) = command {
                if !(is_script && text.starts_with('#')) {
                    let (text, output) = (text.to_owned(), Vec::new());
                    block.commands.push(ShownCommand { text, output });
                }
            } else {
                let last = block.commands.last_mut();
                let last = last.unwrap_or_else(|| panic!("{document}:{}: output first", index + 1));
                last.output.push(line.to_owned());
            }
            open = Some((block, is_script));
        } else if let Some(language) = language {
            let is_script = ["sh", "bash"].contains(&language);
            if language == "console" || is_script {
                let (line, commands) = (index + 1, Vec::new());
                open =
                    Some((ConsoleBlock { document: document.clone(), line, commands }, is_script));
            }
        }
    }
    blocks
}

/// A home with what the documents name: sessions, a config, engines, agents and a provider.
struct Sandbox {
    home: tempfile::TempDir,
    server: ScriptedServer,
}

impl Sandbox {
    fn new(block: &ConsoleBlock) -> Sandbox {
        let server = ScriptedServer::start(Wire::Anthropic, Model::new(200_000));
        let home = tempfile::tempdir().unwrap();
        let sandbox = Sandbox { home, server };
        for folder in ["bin", "work/target/release", ".openclaw", ".hermes"] {
            fs::create_dir_all(sandbox.path(folder)).unwrap();
        }
        let url = sandbox.server.url();
        let upstreams = format!(
            "[plugins.slots]\nshadow = [\"mask\", \"window\"]\n\n[gateway]\nlisten = \"127.0.0.1:0\"\n\n[gateway.upstreams]\nanthropic = \"{url}\"\nopenai = \"{url}\"\n"
        );
        let config = ConfigText::new().provider("anthropic", Wire::Anthropic, &url, 200_000);
        sandbox.write("work/ctxhost.toml", &config.tables(&upstreams).to_string());
        sandbox.write(
            ".openclaw/openclaw.json",
            r#"{ "agents": { "defaults": { "contextTokens": 64000 } } }"#,
        );
        sandbox.write(".hermes/config.yaml", "compression:\n  enabled: true\n");
        let session =
            fs::read_to_string(root().join("tests/cli/history.in/session.jsonl")).unwrap();
        let session = session
            .replace("taken in 32 bits", "taken from port 5433")
            .replace("a0000003", "a1b2c3d4");
        for name in ["work/session.jsonl", "work/s.jsonl"] {
            sandbox.write(name, &session);
        }
        sandbox.write(
            "work/long.json",
            r#"{"model":"claude-opus-4-1","messages":[{"role":"user","content":"Hello."}]}"#,
        );
        sandbox.write("work/newest.c", &first_c_block("docs/engines/c.md"));
        std::os::unix::fs::symlink(root().join("engine-api"), sandbox.path("work/engine-api"))
            .unwrap();
        std::os::unix::fs::symlink(root().join("examples"), sandbox.path("work/examples")).unwrap();
        if block.commands.iter().any(|command| command.text.contains("libkeep_ends.so")) {
            let library = sandbox.path("work/target/release/libkeep_ends.so");
            fs::copy(keep_ends_library(), library).unwrap();
        }
        sandbox.agents();
        sandbox.state();
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Stand-ins for agents; `claude` sends one request to the address in its environment.
    fn agents(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        let ask = r#"curl -sf "${ANTHROPIC_BASE_URL:-$OPENAI_BASE_URL}/v1/messages" -H 'anthropic-version: 2023-06-01' -d '{"model":"claude-opus-4-1","max_tokens":100,"messages":[{"role":"user","content":"Hello."}]}' >/dev/null"#;
        for (name, script) in [("claude", ask), ("codex", "true"), ("python", "true")] {
            let path = self.path("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// A state folder with sessions, blobs and shadow figures of today.
    fn state(&self) {
        let state = self.path(".local/state/ctxhost");
        copy_folder(&root().join("tests/cli/media.in/state"), &state);
        let now_ms = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let shadow =
            fs::read_to_string(root().join("tests/cli/shadow.in/state/shadow.jsonl")).unwrap();
        let times = Regex::new(r#""at_ms":\d+"#).unwrap();
        let config = self.path("work/ctxhost.toml").canonicalize().unwrap();
        let now = format!("\"at_ms\":{},\"config\":{config:?}", now_ms - 60_000);
        let is_whole = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        let lines = shadow
            .lines()
            .filter(is_whole)
            .map(|line| times.replace(line, &now).into_owned() + "\n");
        fs::write(state.join("shadow.jsonl"), lines.collect::<String>()).unwrap();
    }

    /// Runs a block as one script. The output of each command with its exit code, in order.
    fn run(&self, block: &ConsoleBlock) -> Vec<(String, i32)> {
        let mut script = String::from("exec 2>&1\n");
        script.push_str(
            "gateway() { : >~/serve.out; ctxhost serve >~/serve.out 2>&1 & trap \"kill $!\" EXIT\n",
        );
        script.push_str(
            "for n in $(seq 200); do grep -q dashboard ~/serve.out && break; sleep 0.05; done\n",
        );
        script.push_str("ADDRESS=$(grep -o '127.0.0.1:[0-9]*' ~/serve.out | head -1); grep -v '^config ' ~/serve.out; }\n");
        let texts = || block.commands.iter().map(|command| command.text.as_str());
        if texts().any(|text| text.contains("127.0.0.1:8787")) && !texts().any(is_serve) {
            script.push_str("gateway >/dev/null\n");
        }
        if texts().any(|text| text.starts_with("ctxhost statusline")) {
            script.push_str("ctxhost chat -p Hello. >/dev/null 2>&1\n");
        }
        for command in &block.commands {
            let text = command.text.replace("127.0.0.1:8787", "$ADDRESS");
            if is_serve(&text) {
                script.push_str("gateway\n");
            } else if not_run(&text).is_none() {
                script.push_str(&text);
                script.push('\n');
            }
            script.push_str("echo \"\u{1}$?\u{1}\"\n");
        }
        let binary = PathBuf::from(ctxhost().get_program());
        let path = format!(
            "{}:{}:{}",
            self.path("bin").display(),
            binary.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let token = texts().any(|text| text.contains("CTXHOST_TOKEN"));
        let token = token.then_some(("CTXHOST_TOKEN", "a-token-of-this-test"));
        // A command that waits for input or never ends must not stop the tests.
        let child = Command::new("timeout")
            .args(["300", "bash", "-c"])
            .arg(script)
            .current_dir(self.path("work"))
            .env_clear()
            .envs([("PATH", path), ("HOME", self.home.path().display().to_string())])
            .envs([("NO_COLOR", "1"), ("COLUMNS", "140"), ("TZ", "UTC")])
            .envs(token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout)
            .replace(&self.home.path().display().to_string(), "~");
        let mut parts = printed.split('\u{1}');
        let mut results = Vec::new();
        while let (Some(printed), Some(code)) = (parts.next(), parts.next()) {
            // Which config was found depends on the sandbox.
            let lines = printed
                .trim_start_matches('\n')
                .lines()
                .filter(|line| !line.starts_with("config "));
            let printed: String = lines.flat_map(|line| [line, "\n"]).collect();
            results.push((printed, code.parse().unwrap()));
        }
        results
    }
}

/// The first C program of a document.
fn first_c_block(document: &str) -> String {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let (_, program) = text.split_once("```c\n").unwrap();
    program.split_once("```").unwrap().0.to_owned()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn is_serve(text: &str) -> bool {
    text.starts_with("ctxhost serve")
}

fn not_run(text: &str) -> Option<usize> {
    NOT_RUN.iter().position(|(beginning, _)| text.starts_with(beginning))
}

/// The pattern of shown output.
fn pattern(output: &[String]) -> Regex {
    let lines = output.iter().map(|line| {
        if line.trim() == "…" {
            return r"(?:.*\n)*?".to_owned();
        }
        let words = line.split_whitespace().map(|word| {
            let escaped = regex::escape(word).replace('…', ".*");
            let numbers = Regex::new(r"\d[\d,]*(\\\.\d+)?").unwrap();
            let dashes = Regex::new("─+").unwrap();
            let escaped = numbers.replace_all(&escaped, r"\d[\d,]*(\.\d+)?");
            dashes.replace_all(&escaped, "─+").into_owned()
        });
        format!("[ ]*{}[ ]*\n", words.collect::<Vec<_>>().join("[ ]+"))
    });
    Regex::new(&format!("^{}", lines.collect::<String>())).unwrap()
}

#[test]
fn every_console_block_works_as_written() {
    let (mut faults, mut used) = (Vec::new(), vec![false; NOT_RUN.len()]);
    for block in blocks() {
        let place = format!("{}:{}", block.document, block.line);
        let skipped: Vec<_> = block.commands.iter().map(|command| not_run(&command.text)).collect();
        skipped.iter().flatten().for_each(|index| used[*index] = true);
        if skipped.iter().all(Option::is_some) {
            continue;
        }
        let results = Sandbox::new(&block).run(&block);
        for (index, command) in block.commands.iter().enumerate() {
            let text = &command.text;
            let Some((printed, code)) = results.get(index) else {
                faults.push(format!("{place}: `{text}` was not reached"));
                continue;
            };
            if skipped[index].is_some() {
                continue;
            }
            if *code != 0 {
                faults.push(format!("{place}: `{text}` ended with {code}:\n{printed}"));
            } else if !command.output.is_empty() && !pattern(&command.output).is_match(printed) {
                let shown = command.output.join("\n");
                faults.push(format!(
                    "{place}: `{text}` printed\n{printed}\nbut the document shows\n{shown}"
                ));
            }
        }
    }
    for (is_used, (beginning, _)) in used.iter().zip(NOT_RUN) {
        if !is_used {
            faults.push(format!("NOT_RUN lists `{beginning}`, which no document has"));
        }
    }
    assert!(faults.is_empty(), "{} faults\n\n{}", faults.len(), faults.join("\n\n"));
}
