//! `ctxhost undo`: a compaction taken back.

use std::process::ExitCode;

use super::failure::Failure;
use super::named::{Named, parse_compaction};
use super::output::Output;
use super::render::phrase::counted;
use ctxhost_history::{self as history, Compacted, Measure, Undone};
use ctxhost_session::Session;

/// Take a compaction back: the model sees again what it had folded away, and all that was said since.
///
/// Nothing is removed from the session. Newer compactions go with it: they were made of what it had left.
/// Both digests are printed; where nothing was said since, they are the same.
#[derive(Debug, clap::Args)]
pub(super) struct Undo {
    /// The session, as `session.jsonl` or `session.jsonl@2`.
    #[arg(value_name = "SESSION[@N]")]
    session: Named,
    /// Which compaction of the branch: @1 is the first.
    #[arg(value_name = "@N", value_parser = parse_compaction, conflicts_with = "last")]
    number: Option<i64>,
    /// The last one, which is meant where none is named.
    #[arg(long)]
    last: bool,
}

impl Undo {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let number = match (self.number, self.session.number) {
            (Some(_), Some(_)) => {
                return Err(Failure::caller("the compaction is named twice; name it once"));
            }
            (_, Some(_)) if self.last => {
                return Err(Failure::caller("the compaction is named twice; leave --last out"));
            }
            (number, of_session) => number.or(of_session),
        };
        let mut session = Session::open(&self.session.path)?;
        let undone = history::undo(&mut session, number)?;
        output.print(&told(&undone))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn told(undone: &Undone) -> String {
    let Undone { compaction, newer, before, now } = undone;
    let taken: String = [compaction].into_iter().chain(newer).map(taken_back).collect();
    let note = match before.digest == now.digest {
        true => "the same: nothing was said since".to_owned(),
        false => format!("that, and {} said since", now.entries.saturating_sub(before.entries)),
    };
    format!(
        "{taken}before it  {}\nnow        {}\n           {note}\n\
         the next turn compacts again if this does not fit its window\n",
        measure(before),
        measure(now),
    )
}

fn taken_back(compaction: &Compacted) -> String {
    format!("taken back {compaction}\n")
}

fn measure(measure: &Measure) -> String {
    let Measure { digest, entries, tokens } = measure;
    let entries = counted(*entries as u64, "entry");
    format!("sha256 {digest}, {entries}, {}", counted(*tokens, "token"))
}
