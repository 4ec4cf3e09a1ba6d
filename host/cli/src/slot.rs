//! `ctxhost slot`: a canary for the context-engine slot, how it goes, and how it ends.

mod slot_config;
mod status;

pub(super) use self::slot_config::SlotConfig;

use std::path::Path;
use std::process::ExitCode;

use self::slot_config::is_same_chain;
use super::engine_open;
use super::error::CliError;
use super::output::Output;
use super::use_engine::{HOSTS_RELOAD, UseArgs, refuse_path};
use ctxhost_agent::canary::guard::CanaryGuard;
use ctxhost_agent::canary::{Canary, CanaryError, SessionShare};
use ctxhost_config::set_slot_spec;

/// The name of the slot that canaries are for.
const CONTEXT_ENGINE: &str = "context_engine";

/// A slot that has no canaries, and no engine that could be swapped.
const MEMORY: &str = "memory";

/// The engine of the slot, and a canary beside it.
#[derive(Debug, clap::Subcommand)]
pub(super) enum SlotCommand {
    /// Put an engine into the slot; with --canary, on a share of new sessions alone.
    Set(SlotSetArgs),
    /// Who serves which share, what was measured, and whether the guards hold.
    Status(SlotNameArg),
    /// Give the canary the whole slot.
    Promote(SlotNameArg),
    /// Take the canary back; without one, the engine that was promoted last.
    Rollback(SlotNameArg),
}

/// Which slot is meant.
#[derive(Debug, clap::Args)]
pub(super) struct SlotNameArg {
    /// The slot; there is one that engines can be tried in.
    #[arg(default_value = CONTEXT_ENGINE, value_parser = [CONTEXT_ENGINE])]
    slot: String,
}

/// Put an engine into the slot.
#[derive(Debug, clap::Args)]
pub(super) struct SlotSetArgs {
    /// The engine's id, or several in a row as mask+legacy; the name of the slot may stand before it.
    #[arg(required = true, num_args = 1..=2, value_name = "[SLOT] ENGINE")]
    engine: Vec<String>,
    /// The share of new sessions that it serves, such as 10%.
    #[arg(long, value_name = "SHARE")]
    canary: Option<SessionShare>,
    /// What must hold of it, such as 'illegal==0'; it is rolled back when one is broken.
    #[arg(long = "guard", value_name = "GUARD", requires = "canary")]
    guards: Vec<CanaryGuard>,
    /// How long it should be watched before it is promoted, such as 30m.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_time)]
    bake: u64,
}

impl SlotCommand {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        match self {
            SlotCommand::Set(set) => return set.run(config_path, output),
            SlotCommand::Status(_) => status::show(&SlotConfig::locate(config_path)?, output)?,
            SlotCommand::Promote(_) => promote(&SlotConfig::locate(config_path)?, output)?,
            SlotCommand::Rollback(_) => roll_back(&SlotConfig::locate(config_path)?, output)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl SlotSetArgs {
    fn run(self, config_path: Option<&Path>, output: &mut Output) -> Result<ExitCode, CliError> {
        let engine = self.engine()?;
        let Some(share) = self.canary else {
            return UseArgs { engine }.run(config_path, output);
        };
        let place = SlotConfig::locate(config_path)?;
        refuse_path(&engine, &place.path)?;
        let serving = place.effective_engine();
        if serving.is_none() {
            serving.note_reason(output);
            let failure = CliError::user("nobody serves in the slot, so there is no rest");
            return Err(failure.hint("`ctxhost use ID` puts an engine there first"));
        }
        if is_same_chain(&engine, serving.effective()) {
            serving.note_reason(output);
            return Err(CliError::user(format!("{engine:?} serves every session already")));
        }
        if is_same_chain(&engine, &place.engine()) {
            let message = format!("{engine:?} is in the slot already");
            return Err(CliError::user(message));
        }
        engine_open::inspect_chain(&place.config, &engine)?;
        // Loading it proves that a host can, with its settings.
        engine_open::open_chain(&place.config, &engine)?;
        let canary = Canary::start(&engine, share, self.guards, self.bake, place.now_ms);
        place.start_canary(&canary)?;
        let bake = status::format_duration(canary.bake_ms);
        output.print(&format!(
            "canary: {engine} on {share} of new sessions, {} on the rest; guard window {bake}\n",
            serving.effective(),
        ))?;
        serving.note_reason(output);
        if canary.guards.is_empty() {
            output.note("no --guard: nothing rolls it back by itself");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The last word; the one before it must be the slot.
    fn engine(&self) -> Result<String, CliError> {
        match self.engine.as_slice() {
            [engine] => Ok(engine.clone()),
            [slot, engine] if slot == CONTEXT_ENGINE => Ok(engine.clone()),
            [slot, ..] if slot == MEMORY => {
                let message = format!("engines are put into {CONTEXT_ENGINE} alone");
                Err(CliError::user(message)
                    .hint("who remembers is written in ctxhost.toml: [plugins.slots] memory"))
            }
            [slot, ..] => {
                let message = format!("{slot:?} is no slot; the one is {CONTEXT_ENGINE}");
                Err(CliError::user(message)
                    .hint("several engines in a row are one word: mask+legacy"))
            }
            [] => Err(CliError::user("name an engine")),
        }
    }
}

/// The config names the canary, and then it is none any more: a host that looks in between has both.
fn promote(place: &SlotConfig, output: &mut Output) -> Result<(), CliError> {
    let canary = place.canary()?.ok_or(CanaryError::NotRunning)?;
    let engine = &canary.engine;
    engine_open::inspect_chain(&place.config, engine)?;
    engine_open::open_chain(&place.config, engine)?;
    let figures = place.home.read_metrics(engine, &canary.run);
    let was = place.effective_engine();
    set_slot_spec(&place.path, engine)?;
    place.record_promotion(&canary, "it was promoted")?;
    let tried = match figures.turns {
        0 => String::new(),
        turns => {
            format!("; {} of {turns} turns failed while it was tried", figures.failed_turns)
        }
    };
    output.print(&format!("{engine} 100%  (was {}{tried})\n{HOSTS_RELOAD}\n", was.effective()))?;
    if figures.turns == 0 {
        output.note("nothing was measured of it: it served no turn while it was tried");
    }
    Ok(())
}

fn roll_back(place: &SlotConfig, output: &mut Output) -> Result<(), CliError> {
    let state = place.home.read()?;
    let serving = place.effective_engine();
    if let Some(canary) = state.canary {
        let figures = place.home.read_metrics(&canary.engine, &canary.run);
        place.home.update(|state| Ok(state.end(&canary.run, false, "by hand", place.now_ms)))?;
        output.print(&format!(
            "{} 100%  ({} sessions of {} keep their history)\n",
            serving.effective(),
            figures.sessions.len(),
            canary.engine,
        ))?;
        serving.note_reason(output);
        return Ok(());
    }
    let previous = state.previous.ok_or(CanaryError::NothingBefore)?;
    engine_open::inspect_chain(&place.config, &previous)?;
    engine_open::open_chain(&place.config, &previous)?;
    set_slot_spec(&place.path, &previous)?;
    place.home.update(|state| {
        state.demote(place.now_ms);
        Ok(())
    })?;
    output.print(&format!(
        "{previous} 100%  (was {}; all sessions keep their history)\n{HOSTS_RELOAD}\n",
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
