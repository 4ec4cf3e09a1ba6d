//! `ctxhost slot`: sets the active engine, and starts, shows and ends canaries.

mod slot_config;
mod status;

pub(super) use self::slot_config::SlotConfig;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use self::slot_config::is_same_chain;
use super::duration::{format_duration, parse_duration};
use super::engine_open;
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::use_engine::{HOSTS_RELOAD, UseArgs, refuse_path};
use ctxhost_agent::canary::guard::CanaryGuard;
use ctxhost_agent::canary::{Canary, CanaryError, SessionShare};
use ctxhost_config::set_slot_spec;
use ctxhost_engine::state_folder;
use ctxhost_gateway::{dashboard_folder, running_gateways};

/// The slot that supports canaries.
const CONTEXT_ENGINE: &str = "context_engine";

/// The memory slot, which has neither canaries nor reload.
const MEMORY: &str = "memory";

/// Show or change the active engine and its canary.
#[derive(Debug, clap::Subcommand)]
pub(super) enum SlotCommand {
    /// Set the active engine; with --canary, try an engine on a share of new sessions.
    Set(SlotSetArgs),
    /// Show the shares, the figures of each engine, and the state of the guards.
    Status(SlotNameArg),
    /// Make the canary the active engine.
    Promote(SlotNameArg),
    /// End the canary; without one, undo the last promotion.
    Rollback(SlotNameArg),
}

/// The slot argument.
#[derive(Debug, clap::Args)]
pub(super) struct SlotNameArg {
    /// Slot; only this one supports canaries.
    #[arg(default_value = CONTEXT_ENGINE, value_parser = [CONTEXT_ENGINE])]
    slot: String,
}

/// Set the active engine, or start a canary.
#[derive(Debug, clap::Args)]
pub(super) struct SlotSetArgs {
    /// Engine id, or a chain as mask+legacy; optionally after the slot name.
    #[arg(required = true, num_args = 1..=2, value_name = "[SLOT] ENGINE")]
    engine: Vec<String>,
    /// Share of new sessions for the canary, such as 10%.
    #[arg(long, value_name = "SHARE")]
    canary: Option<SessionShare>,
    /// Condition such as 'violations==0'; the canary is rolled back when it fails. Can be repeated.
    #[arg(long = "guard", value_name = "GUARD", requires = "canary")]
    guards: Vec<CanaryGuard>,
    /// How long to watch the canary, such as 30m. It is not promoted automatically.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    bake: Duration,
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
            // Without --canary the command is `ctxhost use`, so that both report and check the
            // same.
            return UseArgs { engine }.run(config_path, output);
        };
        let slot = SlotConfig::locate(config_path)?;
        refuse_path(&engine, &slot.path)?;
        let serving = slot.effective_engine();
        if serving.is_none() {
            serving.note_reason(output);
            let error =
                CliError::user("no engine is active, so a canary has nothing to be compared with");
            return Err(error.hint("set one with `ctxhost use ID`"));
        }
        // Compared with the effective engine: a canary that is the fallback would be compared with
        // itself.
        if is_same_chain(&engine, serving.active()) {
            serving.note_reason(output);
            return Err(CliError::user(format!("{engine:?} is already active in every session")));
        }
        // The configured engine may be unavailable at the moment, but becomes active again by
        // itself.
        if is_same_chain(&engine, &slot.engine()) {
            let message = format!("{engine:?} is already in the slot");
            return Err(CliError::user(message));
        }
        engine_open::inspect_chain(&slot.config, &engine)?;
        // Loading it shows that a host can load it with these settings.
        engine_open::open_chain(&slot.config, &engine)?;
        let bake_ms = u64::try_from(self.bake.as_millis()).unwrap_or(u64::MAX);
        let canary = Canary::start(&engine, share, self.guards, bake_ms, slot.now_ms);
        slot.start_canary(&canary)?;
        let bake = format_duration(self.bake);
        output.print(&format!(
            "canary: {engine} on {share} of new sessions, {} on the rest; bake time {bake}\n",
            serving.active(),
        ))?;
        serving.note_reason(output);
        note_without_gateway(output);
        // A note, not an error: watching a canary by eye is a legitimate way to use it.
        if canary.guards.is_empty() {
            output.note("no --guard: the canary is not rolled back automatically");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The engine is the last argument; a slot name may precede it.
    fn engine(&self) -> Result<String, CliError> {
        match self.engine.as_slice() {
            [engine] => Ok(engine.clone()),
            [slot, engine] if slot == CONTEXT_ENGINE => Ok(engine.clone()),
            [slot, ..] if slot == MEMORY => {
                let message = format!("only {CONTEXT_ENGINE} can be set with this command");
                Err(CliError::user(message)
                    .hint("set the memory engine in ctxhost.toml: [plugins.slots] memory"))
            }
            [slot, ..] => {
                let message = format!("unknown slot {slot:?}; use {CONTEXT_ENGINE}");
                Err(CliError::user(message).hint("write a chain as one word: mask+legacy"))
            }
            [] => {
                Err(CliError::user("missing engine; write its id, such as `ctxhost slot set mask`"))
            }
        }
    }
}

/// Says so if no gateway reads the state folder in which the change was recorded: one that runs as a service has a
/// folder of its own.
fn note_without_gateway(output: &mut Output) {
    let state = state_folder();
    if running_gateways(&dashboard_folder(&state)).is_empty() {
        output.note(&format!(
            "no gateway is running with the state folder {}; for one that uses another folder, such as a service, set \
             CTXHOST_STATE_DIR as it is set for that gateway",
            state.display()
        ));
    }
}

/// The config is written first: a host that reads both in between sees the engine in the slot and
/// as the canary, which is harmless.
fn promote(slot: &SlotConfig, output: &mut Output) -> Result<(), CliError> {
    let canary = slot.canary()?.ok_or(CanaryError::NotRunning)?;
    let engine = &canary.engine;
    engine_open::inspect_chain(&slot.config, engine)?;
    engine_open::open_chain(&slot.config, engine)?;
    // Read before the slot changes: hosts stop recording for the canary afterwards.
    let figures = slot.home.read_metrics(engine, &canary.run);
    let was = slot.effective_engine();
    set_slot_spec(&slot.path, engine)?;
    slot.record_promotion(&canary, "it was promoted")?;
    let tried = match figures.sum.turns {
        0 => String::new(),
        turns => {
            let turns = format_count(turns, "turn");
            format!(
                "; {} of {turns} failed during the trial",
                group_digits(figures.sum.failed_turns)
            )
        }
    };
    output.print(&format!("{engine} 100%  (was {}{tried})\n{HOSTS_RELOAD}\n", was.active()))?;
    if figures.sum.turns == 0 {
        output.note("nothing was measured: no turn of it has ended, which the next request of its conversation tells");
    }
    Ok(())
}

fn roll_back(slot: &SlotConfig, output: &mut Output) -> Result<(), CliError> {
    let state = slot.home.read()?;
    let serving = slot.effective_engine();
    if let Some(canary) = state.canary {
        let figures = slot.home.read_metrics(&canary.engine, &canary.run);
        slot.home.update(|state| Ok(state.end(&canary.run, false, "by hand", slot.now_ms)))?;
        output.print(&format!(
            "{} 100%  (history kept in {} of {})\n",
            serving.active(),
            format_count(figures.sessions.len() as u64, "session"),
            canary.engine,
        ))?;
        serving.note_reason(output);
        note_without_gateway(output);
        return Ok(());
    }
    // Without a canary, rolling back undoes the last promotion.
    let previous = state.previous.ok_or(CanaryError::NothingBefore)?;
    engine_open::inspect_chain(&slot.config, &previous)?;
    engine_open::open_chain(&slot.config, &previous)?;
    set_slot_spec(&slot.path, &previous)?;
    slot.home.update(|state| {
        state.demote(slot.now_ms);
        Ok(())
    })?;
    output.print(&format!(
        "{previous} 100%  (was {}; all sessions keep their history)\n{HOSTS_RELOAD}\n",
        serving.active(),
    ))?;
    Ok(())
}
