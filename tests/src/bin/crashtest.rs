//! Command line of the crash test: kills an agent at work and checks that no acknowledged record is lost.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use ctxhost_tests::crashtest::{Campaign, CrashtestError, Orders, Tally, live};
use serde_json::json;

/// Kill an agent at work, again and again, and hold its sessions against all it had promised.
///
/// Children of this program run turns, tools, compactions and undos in sessions of their own and say what
/// is kept. Each is killed at a moment of chance; then its session is read, opened for writing and
/// checked. The first thing that is lost, doubled or half-written ends the run with exit code 1, and the
/// sessions are kept.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    child: Option<Child>,
    /// How many kills.
    #[arg(long, default_value_t = 100)]
    times: u64,
    /// What chance begins with; by default the time.
    #[arg(long)]
    seed: Option<u64>,
    /// Work in this folder, which must be empty or not there, and leave it.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// How many children live at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    at_once: usize,
    /// Answer as JSON.
    #[arg(long)]
    json: bool,
    /// Children promise before they write: to see whether anybody notices.
    #[arg(long, hide = true)]
    lies: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Child {
    /// What a child is told by its supervisor.
    #[command(hide = true)]
    Child(Orders),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match &arguments.child {
        Some(Child::Child(orders)) => {
            live(orders, Box::new(io::stdout())).map_err(|error| error.to_string())
        }
        None => match folder(arguments.keep.as_deref()) {
            Ok(folder) => kill(&arguments, folder),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        },
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder that a person named, or one that goes where all was well.
enum Folder {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

fn folder(keep: Option<&Path>) -> io::Result<Folder> {
    let Some(keep) = keep else {
        let temporary = tempfile::Builder::new().prefix("ctxhost-crashtest-").tempdir()?;
        return Ok(Folder::Temporary(temporary));
    };
    std::fs::create_dir_all(keep)?;
    if std::fs::read_dir(keep)?.next().is_some() {
        let message = format!("{} is not empty; give a new folder", keep.display());
        return Err(io::Error::other(message));
    }
    Ok(Folder::Kept(keep.to_owned()))
}

fn kill(arguments: &Arguments, folder: Folder) -> Result<(), String> {
    let seed = arguments.seed.unwrap_or_else(seed_of_now);
    let path = match &folder {
        Folder::Kept(path) => path.clone(),
        Folder::Temporary(temporary) => temporary.path().to_owned(),
    };
    let campaign = Campaign {
        times: arguments.times,
        seed,
        at_once: arguments.at_once.max(1),
        folder: path.clone(),
        program: std::env::current_exe().map_err(|error| error.to_string())?,
        lies: arguments.lies,
    };
    let began = Instant::now();
    let tally = campaign.run().map_err(|error| {
        if let Folder::Temporary(temporary) = folder {
            let _ = temporary.keep();
        }
        format!("{}\nseed {seed}, sessions kept in {}", explained(&error), path.display())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    if arguments.json {
        println!("{}", as_json(&tally, seed, seconds));
    } else {
        println!("{}", as_text(&tally));
        eprintln!("{}", remark(&tally, seed, seconds));
    }
    Ok(())
}

fn explained(error: &CrashtestError) -> String {
    match error {
        CrashtestError::Violation { way, session, .. } => {
            format!("{error}\nits writer was killed {way}\nsession {}", session.display())
        }
        _ => error.to_string(),
    }
}

fn as_text(tally: &Tally) -> String {
    format!(
        "{} kills: {} sessions intact, 0 messages lost, 0 half-written, {} compactions redone, {} discarded",
        tally.kills, tally.intact, tally.redone, tally.discarded
    )
}

/// How much there was to lose.
fn remark(tally: &Tally, seed: u64, seconds: f64) -> String {
    let Tally { promises, torn, sessions, compactions, undos, .. } = tally;
    format!(
        "{promises} promises kept; {torn} kills left a torn line; {sessions} sessions, {compactions} compactions \
         and {undos} undos in them; seed {seed}, {seconds:.0} s",
    )
}

fn as_json(tally: &Tally, seed: u64, seconds: f64) -> serde_json::Value {
    let mut answer = json!({ "lost": 0, "half_written": 0, "seed": seed, "seconds": seconds });
    if let (Some(fields), serde_json::Value::Object(counted)) =
        (answer.as_object_mut(), json!(tally))
    {
        fields.extend(counted);
    }
    answer
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
