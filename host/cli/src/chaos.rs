//! `ctxhost chaos`: an agent at work is killed again and again; nothing it promised may be lost.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;
use serde_json::json;

use super::failure::Failure;
use super::output::Output;
use super::render::phrase::grouped;
use ctxhost_chaos::{self as chaos, Campaign, ChaosError, Orders, Tally};

/// Experiments that try to lose something.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Chaos {
    Kill(Kill),
    #[command(hide = true)]
    Child(ChildOrders),
}

/// Kill an agent at work, again and again, and hold its sessions against all it had promised.
///
/// Children of this program run turns, tools, compactions and undos in sessions of their own and say what
/// is kept. Each is killed at a moment of chance; then its session is read, opened for writing and
/// checked. The first thing that is lost, doubled or half-written ends the run with exit code 1, and the
/// sessions are kept.
#[derive(Debug, clap::Args)]
pub(super) struct Kill {
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

/// What a child is told by its keeper.
#[derive(Debug, clap::Args)]
pub(super) struct ChildOrders {
    #[arg(long)]
    session: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    points: Option<u64>,
    #[arg(long)]
    compaction_points: Option<u64>,
    #[arg(long)]
    file_bytes: Option<u64>,
    #[arg(long)]
    lies: bool,
}

impl Chaos {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        match self {
            Chaos::Kill(kill) => kill.run(output),
            Chaos::Child(orders) => {
                chaos::live(&orders.into(), Box::new(std::io::stdout()))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl From<ChildOrders> for Orders {
    fn from(told: ChildOrders) -> Orders {
        let ChildOrders { session, seed, points, compaction_points, file_bytes, lies } = told;
        Orders { session, seed, points, compaction_points, file_bytes, lies }
    }
}

impl Kill {
    fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let seed = self.seed.unwrap_or_else(seed_of_now);
        let temporary = tempfile::Builder::new().prefix("ctxhost-chaos-").tempdir()?;
        let folder = match &self.keep {
            Some(folder) => empty(folder)?,
            None => temporary.path().to_owned(),
        };
        let campaign = Campaign {
            times: self.times,
            seed,
            at_once: self.at_once.max(1),
            folder,
            program: std::env::current_exe()?,
            lies: self.lies,
        };
        let began = Instant::now();
        let bar =
            if output.watched() { ProgressBar::new(self.times) } else { ProgressBar::hidden() };
        let outcome = campaign.run(&|_| bar.inc(1));
        bar.finish_and_clear();
        match outcome {
            Ok(tally) => {
                let seconds = began.elapsed().as_secs_f64();
                output.print(&if self.json {
                    as_json(&tally, seed, seconds)
                } else {
                    told(&tally)
                })?;
                if !self.json {
                    output.remark(&remark(&tally, seed, seconds));
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                let kept = temporary.keep();
                let kept = self.keep.unwrap_or(kept);
                let failure = Failure::from(error);
                Err(failure.hint(format!("seed {seed}, sessions kept in {}", kept.display())))
            }
        }
    }
}

fn told(tally: &Tally) -> String {
    format!(
        "{} kills: {} sessions intact, 0 messages lost, 0 half-written, {} compactions redone, {} \
         discarded\n",
        tally.kills, tally.intact, tally.redone, tally.discarded
    )
}

/// How much there was to lose.
fn remark(tally: &Tally, seed: u64, seconds: f64) -> String {
    format!(
        "{} promises kept; {} kills left a torn line; {} sessions, {} compactions and {} undos in them; \
         seed {seed}, {seconds:.0} s",
        grouped(tally.promises),
        tally.torn,
        tally.sessions,
        tally.compactions,
        tally.undos,
    )
}

fn as_json(tally: &Tally, seed: u64, seconds: f64) -> String {
    let mut answer = json!(tally);
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("lost".into(), json!(0));
        fields.insert("half_written".into(), json!(0));
        fields.insert("seed".into(), json!(seed));
        fields.insert("seconds".into(), json!(seconds));
    }
    format!("{answer}\n")
}

fn empty(folder: &std::path::Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder)?;
    match std::fs::read_dir(folder)?.next() {
        None => Ok(folder.to_owned()),
        Some(_) => {
            Err(Failure::caller(format!("{} is not empty; give a new folder", folder.display())))
        }
    }
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

impl From<ChaosError> for Failure {
    fn from(error: ChaosError) -> Self {
        let failure = Failure::internal(error.to_string());
        match error {
            ChaosError::Harm { way, session, .. } => failure
                .hint(format!("its writer was killed {way}"))
                .hint(format!("session {}", session.display())),
            _ => failure,
        }
    }
}
