//! `ctxhost slot`: a canary for the context-engine slot, how it goes, and how it ends.

mod place;
mod status;

pub(super) use self::place::Place;

use std::path::Path;
use std::process::ExitCode;

use self::place::is_same;
use super::failure::Failure;
use super::opening;
use super::output::Output;
use super::use_engine::{HOSTS_SWAP, Use, refuse_path};
use ctxhost_config::set_row;
use ctxhost_runtime::canary::guard::Guard;
use ctxhost_runtime::canary::{Canary, CanaryError, Share};

/// The name of the slot that canaries are for.
const CONTEXT_ENGINE: &str = "context_engine";

/// A slot that has no canaries, and no engine that could be swapped.
const MEMORY: &str = "memory";

/// The engine of the slot, and a canary beside it.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Slot {
    /// Put an engine into the slot; with --canary, on a share of new sessions alone.
    Set(Set),
    /// Who serves which share, what was measured, and whether the guards hold.
    Status(Named),
    /// Give the canary the whole slot.
    Promote(Named),
    /// Take the canary back; without one, the engine that was promoted last.
    Rollback(Named),
}

/// Which slot is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Named {
    /// The slot; there is one that engines can be tried in.
    #[arg(default_value = CONTEXT_ENGINE, value_parser = [CONTEXT_ENGINE])]
    slot: String,
}

/// Put an engine into the slot.
#[derive(Debug, clap::Args)]
pub(super) struct Set {
    /// The engine's id, or several in a row as mask+legacy; the name of the slot may stand before it.
    #[arg(required = true, num_args = 1..=2, value_name = "[SLOT] ENGINE")]
    engine: Vec<String>,
    /// The share of new sessions that it serves, such as 10%.
    #[arg(long, value_name = "SHARE")]
    canary: Option<Share>,
    /// What must hold of it, such as 'illegal==0'; it is rolled back when one is broken.
    #[arg(long = "guard", value_name = "GUARD", requires = "canary")]
    guards: Vec<Guard>,
    /// How long it should be watched before it is promoted, such as 30m.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_time)]
    bake: u64,
}

impl Slot {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        match self {
            Slot::Set(set) => return set.run(config_path, output),
            Slot::Status(_) => status::show(&Place::find(config_path)?, output)?,
            Slot::Promote(_) => promote(&Place::find(config_path)?, output)?,
            Slot::Rollback(_) => roll_back(&Place::find(config_path)?, output)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Set {
    fn run(self, config_path: Option<&Path>, output: &mut Output) -> Result<ExitCode, Failure> {
        let engine = self.engine()?;
        let Some(share) = self.canary else {
            return Use { engine }.run(config_path, output);
        };
        let place = Place::find(config_path)?;
        refuse_path(&engine, &place.path)?;
        let serving = place.serving();
        if serving.is_nobody() {
            serving.explained(output);
            let failure = Failure::caller("nobody serves in the slot, so there is no rest");
            return Err(failure.hint("`ctxhost use ID` puts an engine there first"));
        }
        if is_same(&engine, serving.effective()) {
            serving.explained(output);
            return Err(Failure::caller(format!("{engine:?} serves every session already")));
        }
        if is_same(&engine, &place.engine()) {
            let message = format!("{engine:?} is in the slot already");
            return Err(Failure::caller(message));
        }
        opening::find_all(&place.config, &engine)?;
        // Loading it proves that a host can, with its settings.
        opening::open_all(&place.config, &engine)?;
        let canary = Canary::begin(&engine, share, self.guards, self.bake, place.now_ms);
        place.begin(&canary)?;
        let bake = status::time(canary.bake_ms);
        output.print(&format!(
            "canary: {engine} on {share} of new sessions, {} on the rest; guard window {bake}\n",
            serving.effective(),
        ))?;
        serving.explained(output);
        if canary.guards.is_empty() {
            output.remark("no --guard: nothing rolls it back by itself");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The last word; the one before it must be the slot.
    fn engine(&self) -> Result<String, Failure> {
        match self.engine.as_slice() {
            [engine] => Ok(engine.clone()),
            [slot, engine] if slot == CONTEXT_ENGINE => Ok(engine.clone()),
            [slot, ..] if slot == MEMORY => {
                let message = format!("engines are put into {CONTEXT_ENGINE} alone");
                Err(Failure::caller(message)
                    .hint("who remembers is written in ctxhost.toml: [plugins.slots] memory"))
            }
            [slot, ..] => {
                let message = format!("{slot:?} is no slot; the one is {CONTEXT_ENGINE}");
                Err(Failure::caller(message)
                    .hint("several engines in a row are one word: mask+legacy"))
            }
            [] => Err(Failure::caller("name an engine")),
        }
    }
}

/// The config names the canary, and then it is none any more: a host that looks in between has both.
fn promote(place: &Place, output: &mut Output) -> Result<(), Failure> {
    let canary = place.canary()?.ok_or(CanaryError::NotRunning)?;
    let engine = &canary.engine;
    opening::find_all(&place.config, engine)?;
    opening::open_all(&place.config, engine)?;
    let figures = place.home.figures(engine, &canary.run);
    let was = place.serving();
    set_row(&place.path, engine)?;
    place.promoted(&canary, "it was promoted")?;
    let tried = match figures.turns {
        0 => String::new(),
        turns => {
            format!("; {} of {turns} turns failed while it was tried", figures.failed_turns)
        }
    };
    output.print(&format!("{engine} 100%  (was {}{tried})\n{HOSTS_SWAP}\n", was.effective()))?;
    if figures.turns == 0 {
        output.remark("nothing was measured of it: it served no turn while it was tried");
    }
    Ok(())
}

fn roll_back(place: &Place, output: &mut Output) -> Result<(), Failure> {
    let state = place.home.read()?;
    let serving = place.serving();
    if let Some(canary) = state.canary {
        let figures = place.home.figures(&canary.engine, &canary.run);
        place.home.change(|state| Ok(state.end(&canary.run, false, "by hand", place.now_ms)))?;
        output.print(&format!(
            "{} 100%  ({} sessions of {} keep their history)\n",
            serving.effective(),
            figures.sessions.len(),
            canary.engine,
        ))?;
        serving.explained(output);
        return Ok(());
    }
    let previous = state.previous.ok_or(CanaryError::NothingBefore)?;
    opening::find_all(&place.config, &previous)?;
    opening::open_all(&place.config, &previous)?;
    set_row(&place.path, &previous)?;
    place.home.change(|state| {
        state.demote(place.now_ms);
        Ok(())
    })?;
    output.print(&format!(
        "{previous} 100%  (was {}; all sessions keep their history)\n{HOSTS_SWAP}\n",
        serving.effective(),
    ))?;
    Ok(())
}

/// A time with a unit, in milliseconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; write one like 30m or 2h");
    let time: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    u64::try_from(time.as_millis()).ok().filter(|ms| *ms > 0).ok_or_else(wrong)
}
