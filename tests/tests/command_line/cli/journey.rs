//! The commands of the guide in order: from a new engine to one in use.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ctxhost_tests::{FIXTURE_PROFILE, build, ctxhost, fixtures_target, root};

/// A step that has not come by now comes no more. A build on a busy machine takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(300);

/// An author at work on one engine, in a folder of their own.
struct Author {
    home: PathBuf,
    id: &'static str,
}

/// What a command said, and how it ended.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Author {
    /// Goes to work. The folder is always the same, so that what cargo has built is not built again.
    fn begin(id: &'static str) -> Author {
        let home = fixtures_target().join("journey").join(id);
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        Author { home, id }
    }

    /// The same, with an engine written by `ctxhost new`.
    fn with_engine(id: &'static str) -> Author {
        let author = Author::begin(id);
        let said = author.run(&["new", id]);
        assert_eq!(said.code, Some(0), "{said:?}");
        author.seed_lock();
        author
    }

    /// The repository's lock is the seed, so that nothing is asked of the network; cargo cuts it down.
    fn seed_lock(&self) {
        fs::copy(root().join("Cargo.lock"), self.engine().join("Cargo.lock")).unwrap();
    }

    /// The folder of the engine.
    fn engine(&self) -> PathBuf {
        self.home.join(self.id)
    }

    /// The library, once it is built.
    fn library(&self) -> String {
        let name = format!("lib{}.so", self.id.replace('-', "_"));
        fixtures_target().join("debug").join(name).display().to_string()
    }

    fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = ctxhost();
        command.current_dir(folder).args(arguments);
        command.env("CARGO_TARGET_DIR", fixtures_target()).env("CARGO_NET_OFFLINE", "true");
        command.envs(FIXTURE_PROFILE);
        command.env("CTXHOST_STATE_DIR", self.home.join("state"));
        command
    }

    /// Runs `ctxhost` in the folder above the engine.
    fn run(&self, arguments: &[&str]) -> Said {
        Said::of(&mut self.command(&self.home, arguments))
    }

    /// Runs `ctxhost` in the folder of the engine.
    fn run_inside(&self, arguments: &[&str]) -> Said {
        Said::of(&mut self.command(&self.engine(), arguments))
    }

    /// Replaces a piece of a source, as an editor saves it: beside, then over.
    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.engine().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        let beside = path.with_extension("new");
        fs::write(&beside, text.replace(from, to)).unwrap();
        fs::rename(&beside, &path).unwrap();
    }
}

impl Said {
    fn of(command: &mut Command) -> Said {
        let output = command.output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
        Said { code: output.status.code(), out, err }
    }
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {:?}\n{}\n{}", self.code, self.out, self.err)
    }
}

/// Where the scaffold's plans end, and the same with a cut inside of a pair.
const WHOLE_FRAMES: &str = "plan.keep(recent..transcript.len() as u64);";
const CUT_PAIRS: &str = "plan.keep(recent + 1..transcript.len() as u64);";

#[test]
fn an_author_gets_from_nothing_to_an_engine_beside_others() {
    let author = Author::begin("keep-errors");
    let said = author.run(&["new", "keep-errors"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("created keep-errors/\n"), "{said:?}");
    assert!(said.out.ends_with("next: cd keep-errors && ctxhost dev\n"), "{said:?}");
    let again = author.run(&["new", "keep-errors"]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.err.contains("keep-errors exists already"), "{again:?}");

    author.seed_lock();
    build(&author.engine(), &["--offline"], &fixtures_target());

    let tried = author.run_inside(&["dev", "--once", "--debug"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.out.contains("loaded keep-errors@dev.1 (0.1.0, sha256 "), "{tried:?}");
    assert!(tried.out.contains("demo:coding · window 32,000 · 121 requests"), "{tried:?}");
    assert_eq!(figure(&tried.out, "repairs")[0], "0", "{tried:?}");
    assert_eq!(figure(&tried.out, "fallbacks")[0], "0", "{tried:?}");
    // Under pressure it stays within the budget, without a compaction.
    assert_eq!(figure(&tried.out, "compactions")[0], "0", "{tried:?}");

    let library = author.library();
    let engines = format!("legacy,mask,{library}");
    let table = ["replay", "demo:coding", "demo:mixed", "--engines", &engines, "--markdown"];
    let table = author.run(&[table.as_slice(), &["--no-timings"]].concat());
    assert_eq!(table.code, Some(0), "{table:?}");
    let rows: Vec<&str> = table.out.lines().skip(2).collect();
    assert_eq!(rows.len(), 6, "{table:?}");
    for (row, (session, engine)) in rows.iter().zip([
        ("demo:coding", "legacy"),
        ("demo:coding", "mask"),
        ("demo:coding", "keep-errors"),
        ("demo:mixed", "legacy"),
        ("demo:mixed", "mask"),
        ("demo:mixed", "keep-errors"),
    ]) {
        assert!(row.starts_with(&format!("| {session} | 32,000 | {engine} 0.1.0 |")), "{row}");
        assert!(row.ends_with(" | 0 | 0 |"), "no repair and no fallback: {row}");
    }
}

/// The registry is not asked: cargo takes the crate from this repository in its place.
#[test]
fn an_engine_that_names_the_published_version_builds() {
    let author = Author::begin("keep-version");
    let said = author.run(&["new", "keep-version", "--engine-api", "1.0"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let manifest = fs::read_to_string(author.engine().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("ctxhost-engine-api = { version = \"1.0\" }"), "{manifest}");
    author.seed_lock();
    let patch = format!("patch.crates-io.ctxhost-engine-api.path={:?}", root().join("engine-api"));
    build(&author.engine(), &["--offline", "--config", &patch], &fixtures_target());
    assert!(Path::new(&author.library()).is_file());
}

#[test]
fn what_new_writes_passes_its_own_tests() {
    let author = Author::with_engine("keep-tests");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline", "--quiet", "--target-dir"]).arg(fixtures_target());
    let tested = Said::of(cargo.envs(FIXTURE_PROFILE).current_dir(author.engine()));
    assert_eq!(tested.code, Some(0), "{tested:?}");
    let passed = tested.out.matches("test result: ok. ").count();
    assert!(passed >= 3 && tested.out.contains("4 passed"), "{tested:?}");
    // And the first step of its CI, where the tool is installed.
    let formatted =
        Said::of(Command::new(env!("CARGO")).args(["fmt", "--check"]).current_dir(author.engine()));
    let is_missing =
        formatted.err.contains("is not installed") || formatted.err.contains("no such command");
    assert!(formatted.code == Some(0) || is_missing, "{formatted:?}");
}

/// `ctxhost dev` at work, its lines as they come.
struct Loop {
    child: Child,
    lines: Receiver<String>,
}

impl Loop {
    fn begin(author: &Author, arguments: &[&str]) -> Loop {
        let mut command = author.command(&author.engine(), arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let out: Box<dyn std::io::Read + Send> = Box::new(child.stdout.take().unwrap());
        let err: Box<dyn std::io::Read + Send> = Box::new(child.stderr.take().unwrap());
        for stream in [out, err] {
            let send = send.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                lines.take_while(|line| send.send(line.clone()).is_ok()).for_each(drop);
            });
        }
        Loop { child, lines }
    }

    /// Waits for a line that holds these words, and for the loop to wait for the next change. The two come
    /// on different streams, so in any order.
    fn says(&self, words: &str) {
        let (mut received, mut is_there, mut is_waiting) = (Vec::new(), false, false);
        let end = Instant::now() + PATIENCE;
        while !(is_there && is_waiting) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("nobody said {words:?}:\n{}", received.join("\n"))
            };
            is_there |= line.contains(words);
            is_waiting |= line.starts_with("watching ");
            received.push(line);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_loop_outlives_whatever_an_engine_does() {
    let author = Author::with_engine("keep-going");
    let tiny = root().join("tests/cli/replay.in/tiny.jsonl").display().to_string();
    let round = Loop::begin(&author, &["dev", "--debug", "--session", &tiny]);
    round.says("loaded keep-going@dev.1 ");

    author.edit("src/choice.rs", "/// The layer that", "let it be; /// The layer that");
    round.says("error: cargo failed to build the engine");

    author.edit("src/choice.rs", "let it be; /// The layer that", "/// The layer that");
    round.says("the library is unchanged");

    author.edit(
        "src/lib.rs",
        "Ok(choice::choose",
        "if true { std::process::abort() }\n        Ok(choice::choose",
    );
    round.says("in quarantine: its sandbox was killed by signal 6 (SIGABRT)");

    author.edit("src/lib.rs", "std::process::abort()", "panic!(\"not today\")");
    round.says("in quarantine: panicked at src/lib.rs:");

    author.edit("src/lib.rs", "if true { panic!(\"not today\") }\n        ", "");
    // Not with the two that failed.
    round.says("vs keep-going@dev.1");
}

#[test]
fn once_ends_as_a_script_expects() {
    let author = Author::with_engine("keep-once");
    let nothing = author.run(&["dev", "--once"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.err.contains("has neither a Cargo.toml nor a Makefile"), "{nothing:?}");

    author.edit("src/choice.rs", WHOLE_FRAMES, CUT_PAIRS);
    let cut = author.run_inside(&["dev", "--once", "--debug"]);
    assert_eq!(cut.code, Some(0), "mended plans are served: {cut:?}");
    assert!(cut.out.contains("the host repaired "), "{cut:?}");
    assert!(cut.out.contains("details: ctxhost check "), "{cut:?}");
    assert_ne!(figure(&cut.out, "repairs")[0], "0", "{cut:?}");

    author.edit(
        "src/lib.rs",
        "Ok(choice::choose",
        "if true { panic!(\"not today\") }\n        Ok(choice::choose",
    );
    let panicked = author.run_inside(&["dev", "--once", "--debug"]);
    assert_eq!(panicked.code, Some(1), "{panicked:?}");
    assert!(panicked.out.contains("another engine shaped 121 of 121 requests"), "{panicked:?}");

    author.edit("src/lib.rs", "export_engine!(Engine);", "");
    let missing = author.run_inside(&["dev", "--once", "--debug", "--session", "missing.jsonl"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("no file missing.jsonl"), "{missing:?}");
    assert!(!missing.err.contains("Compiling"), "before anything is built: {missing:?}");

    let none = author.run_inside(&["dev", "--once", "--debug"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.err.contains("does it call export_engine!"), "{none:?}");
}

/// The cells of a figure in what `dev` shows: the generation's first.
fn figure<'t>(shown: &'t str, name: &str) -> Vec<&'t str> {
    let line = shown.lines().find(|line| line.starts_with(name));
    let cells = line.unwrap_or_else(|| panic!("no {name}:\n{shown}")).trim_start_matches(name);
    cells.split_whitespace().collect()
}

#[test]
fn an_engine_is_checked_installed_used_and_refused_when_it_was_tampered_with() {
    let author = Author::with_engine("keep-pinned");
    build(&author.engine(), &["--offline"], &fixtures_target());
    let library = author.library();

    let checked = author.run(&["check", &library]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.out.contains("\nCONFORMANT  "), "{checked:?}");
    assert!(author.home.join("conformance.json").is_file());

    let installed = author.run(&["install", "--yes", &library]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.out.contains("\nconformance conformant, "), "{installed:?}");
    assert!(installed.out.contains("pinned in ctxhost.lock"), "{installed:?}");
    let used = author.run(&["use", "keep-pinned"]);
    assert_eq!(used.code, Some(0), "{used:?}");
    assert!(used.out.contains("active engine: keep-pinned 0.1.0"), "{used:?}");

    // The next build is tried all the same: it is not what was pinned, and it is not what serves.
    let round = author.run_inside(&["dev", "--once", "--debug"]);
    assert_eq!(round.code, Some(0), "{round:?}");

    let path = author.run(&["engines", "path", "keep-pinned"]);
    assert_eq!(path.code, Some(0), "{path:?}");
    let installed_file = author.home.join(path.out.trim());
    let mut bytes = fs::read(&installed_file).unwrap();
    bytes.push(b'x');
    fs::remove_file(&installed_file).unwrap();
    fs::write(&installed_file, bytes).unwrap();
    let refused = author.run(&["use", "keep-pinned"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("ctxhost.lock"), "{refused:?}");
}

#[test]
fn a_broken_engine_is_not_conformant_and_the_check_says_why() {
    let author = Author::with_engine("keep-broken");
    author.edit("src/choice.rs", WHOLE_FRAMES, CUT_PAIRS);
    build(&author.engine(), &["--offline"], &fixtures_target());
    let checked = author.run(&["check", "--only", "transcript", &author.library()]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.out.contains("transcript") && checked.out.contains("FAIL"), "{checked:?}");
    assert!(checked.out.contains("repeat: ctxhost check "), "{checked:?}");
    assert!(checked.out.contains("NOT CONFORMANT"), "{checked:?}");
}

#[test]
fn an_engine_in_c_is_written_built_and_tried_the_same_way() {
    let author = Author::begin("keep-in-c");
    let said = author.run(&["new", "keep-in-c", "--lang", "c"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let tried = author.run_inside(&["dev", "--once"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.out.contains("loaded keep-in-c@dev.1 (0.1.0, sha256 "), "{tried:?}");
    assert_eq!(figure(&tried.out, "repairs")[0], "0", "{tried:?}");
    let checked = author.run_inside(&["check", "build/libkeep_in_c.so"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let installed = author.run_inside(&["install", "--yes", "."]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.out.contains("/build/libkeep_in_c.so\n"), "{installed:?}");
}
