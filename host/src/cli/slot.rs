//! `ctxhost slot`: a canary for the context-engine slot, how it goes, and how it ends.

mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::nearest;
use super::failure::Failure;
use super::opening;
use super::output::Output;
use super::use_engine::{Use, refuse_path};
use crate::config::{Config, FILE_NAME, set_slot};
use crate::engine::{Clock, state_folder};
use crate::runtime::canary::guard::Guard;
use crate::runtime::canary::{Canary, CanaryError, CanaryHome, Share, SlotState};

/// The name of the slot that canaries are for.
const CONTEXT_ENGINE: &str = "context_engine";

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
    /// The engine's id; the name of the slot may stand before it.
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

/// A config and what is known of its slot.
struct Place {
    path: PathBuf,
    config: Config,
    home: CanaryHome,
    now_ms: i64,
}

impl Place {
    /// A canary is one of a config, since that is what hosts follow.
    fn find(config_path: Option<&Path>) -> Result<Place, Failure> {
        let missing = || {
            Failure::caller(format!("no {FILE_NAME} here or above"))
                .hint("`ctxhost use legacy` begins one")
        };
        let path = config_path.map(Path::to_owned).or_else(nearest).ok_or_else(missing)?;
        let config = Config::load(&path)?;
        let home = CanaryHome::of(&state_folder(), &path);
        Ok(Place { path, config, home, now_ms: Clock::default().now_ms() })
    }

    /// The canary that is on.
    fn canary(&self) -> Result<Option<Canary>, Failure> {
        Ok(self.home.read()?.canary)
    }

    fn end(&self, canary: &Canary, promoted: bool, why: &str) -> Result<(), Failure> {
        let before = self.config.slot().engine;
        let end = |state: &mut SlotState| {
            if state.end(&canary.run, promoted, why, self.now_ms) && promoted {
                state.previous = Some(before);
            }
            Ok(())
        };
        Ok(self.home.change(end)?)
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
        let serving = place.config.slot().engine;
        if engine == serving {
            let message = format!("{engine:?} is in the slot already, for every session");
            return Err(Failure::caller(message));
        }
        opening::find(&place.config, &engine)?;
        // Loading it proves that a host can, with its settings.
        opening::open(&place.config, &engine)?;
        let canary = Canary::begin(&engine, share, self.guards, self.bake, place.now_ms);
        place.home.change(|state| match &state.canary {
            Some(canary) => Err(CanaryError::Running { engine: canary.engine.clone() }),
            None => {
                state.canary = Some(canary.clone());
                Ok(())
            }
        })?;
        let bake = status::time(canary.bake_ms);
        output.print(&format!(
            "canary: {engine} on {share} of new sessions, {serving} on the rest; \
             guard window {bake}\n",
        ))?;
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
            [slot, ..] => {
                let message = format!("no canary for a slot {slot:?}; name {CONTEXT_ENGINE}");
                Err(Failure::caller(message))
            }
            [] => Err(Failure::caller("name an engine")),
        }
    }
}

/// The config names the canary, and then it is none any more: a host that looks in between has both.
fn promote(place: &Place, output: &mut Output) -> Result<(), Failure> {
    let canary = place.canary()?.ok_or(CanaryError::NotRunning)?;
    let figures = place.home.figures(&canary.engine, &canary.run);
    let before = place.config.slot().engine;
    set_slot(&place.path, &canary.engine)?;
    place.end(&canary, true, "it was promoted")?;
    output.print(&format!(
        "{} 100%  (was {before}; {} of {} turns failed while it was tried)\n",
        canary.engine, figures.failed_turns, figures.turns,
    ))?;
    Ok(())
}

fn roll_back(place: &Place, output: &mut Output) -> Result<(), Failure> {
    let state = place.home.read()?;
    let serving = place.config.slot().engine;
    if let Some(canary) = state.canary {
        let figures = place.home.figures(&canary.engine, &canary.run);
        place.end(&canary, false, "by hand")?;
        output.print(&format!(
            "{serving} 100%  ({} sessions of {} keep their history)\n",
            figures.sessions.len(),
            canary.engine,
        ))?;
        return Ok(());
    }
    let Some(previous) = state.previous else { return Err(CanaryError::NotRunning.into()) };
    opening::open(&place.config, &previous)?;
    set_slot(&place.path, &previous)?;
    place.home.change(|state| {
        state.previous = None;
        Ok(())
    })?;
    output
        .print(&format!("{previous} 100%  (was {serving}; all sessions keep their history)\n"))?;
    Ok(())
}

/// A time with a unit, in milliseconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; write one like 30m or 2h");
    let time: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    u64::try_from(time.as_millis()).ok().filter(|ms| *ms > 0).ok_or_else(wrong)
}
