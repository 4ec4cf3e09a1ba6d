//! What commands that shape requests need: the config that applies, and a setup made from it.

use std::path::Path;
use std::sync::Arc;

use super::config::{from_here, nearest};
use super::failure::Failure;
use super::opening::{self, unopened};
use super::output::Output;
use super::render::phrase::grouped;
use ctxhost_config::{Config, WindowHints};
use ctxhost_context::{Budget, ContextError, Target};
use ctxhost_engine::{EngineSpec, SlotError};
use ctxhost_models::ModelName;
use ctxhost_provider::{Completer, ConnectError};
use ctxhost_runtime::OfflineOptions;
use ctxhost_runtime::engine_options::summariser;
use ctxhost_runtime::replay::report::WindowFacts;
use ctxhost_runtime::roster::Roster;
use ctxhost_runtime::workspace::WorkspaceRules;
use ctxhost_session::Session;

/// The options of a run for a model, against the window that was asked for or that the config knows.
pub(super) fn of(
    config: &Config,
    roster: &Roster,
    model: Option<(String, String)>,
    window: Option<u64>,
    recorded_tokens: Option<u64>,
) -> Result<(OfflineOptions, WindowFacts), Failure> {
    let window = window_of(config, model.as_ref(), window, recorded_tokens);
    let (provider, id) = model.unwrap_or_default();
    let WindowFacts { window_tokens, reserve_tokens, budget_tokens, .. } = window;
    let target = Target {
        model: ModelName::new(provider, id),
        window_tokens,
        budget: Some(Budget { tokens: budget_tokens, reserve_tokens, spare_tokens: 0 }),
        ..Target::default()
    };
    let mut options = OfflineOptions::new(config, roster.legacy(config), target);
    options.engines.completer = completer(config)?;
    Ok((options, window))
}

/// The window of a model, the one that was asked for before the one that the common lookup finds, and what
/// of it requests may take. `recorded_tokens` is what the recording of the session says.
pub(super) fn window_of(
    config: &Config,
    model: Option<&(String, String)>,
    window: Option<u64>,
    recorded_tokens: Option<u64>,
) -> WindowFacts {
    let (provider, id) = model.map_or(("", ""), |(provider, id)| (provider, id));
    let (window_tokens, source) = match window {
        Some(window) => (window, "--window".to_owned()),
        None => {
            let hints = WindowHints { recorded_tokens, ..WindowHints::default() };
            let window = config.window(provider, id, hints);
            (window.tokens, window.source.to_string())
        }
    };
    let overhead = config.budget.overhead_tokens;
    let (reserve_tokens, budget_tokens) = config.budget.budget(window_tokens, overhead);
    WindowFacts { window_tokens, source, reserve_tokens, budget_tokens }
}

/// Gives engines, and the one that stands in for them, the rules of the session's workspace, and says
/// so where they are used.
pub(super) fn give_rules(
    session: &Session,
    specs: &mut [EngineSpec],
    options: &mut OfflineOptions,
    output: &mut Output,
) {
    let Some(rules) = WorkspaceRules::near(session.header().cwd()) else { return };
    rules.give(&mut options.engines.legacy);
    let given = specs.iter_mut().map(|spec| rules.give(spec)).fold(false, |any, it| any | it);
    if given {
        output.remark(&format!("workspace rules {}", rules.path.display()));
    }
}

/// The config of this folder, else that of the session's, so that a folder of recordings can bring
/// its own.
pub(super) fn find_config(
    given: Option<&Path>,
    session: &Path,
    output: &mut Output,
) -> Result<Config, Failure> {
    if let Some(path) = given {
        return Ok(Config::load(path)?);
    }
    let beside = || Config::discover(session.canonicalize().ok()?.parent()?).map(from_here);
    match nearest().or_else(beside) {
        Some(path) => {
            output.remark(&format!("config {}", path.display()));
            Ok(Config::load(path)?)
        }
        None => Ok(Config::default()),
    }
}

/// The engine that was named, once it is known that it may serve; else that of the slot, and why it is
/// another than the config says.
pub(super) fn engine_or_slot(
    named: Option<&str>,
    config: &Config,
    output: &mut Output,
) -> Result<String, Failure> {
    if let Some(name) = named {
        opening::find_all(config, name)?;
        return Ok(name.to_owned());
    }
    let slot = config.slot();
    if let Some(reason) = &slot.reason {
        output.remark(&format!("the slot says {:?}, but {reason}", slot.configured));
    }
    Ok(slot.engine)
}

/// Why a run ended early: with which engine, and where its window came from.
pub(super) fn broken_off(
    config: &Config,
    name: &str,
    window: &WindowFacts,
    error: ContextError,
) -> Failure {
    let failure = match error {
        ContextError::Slot(SlotError::Open(error)) => return unopened(config, name, error),
        other => Failure::from(other),
    };
    let WindowFacts { window_tokens, source, .. } = window;
    failure.hint(format!(
        "while running engine {name} against a window of {} tokens ({source})",
        grouped(*window_tokens)
    ))
}

fn completer(config: &Config) -> Result<Option<Arc<dyn Completer>>, Failure> {
    let name = config.summariser_provider().map(|(name, _)| name).unwrap_or_default();
    summariser(config, None).map_err(|error| unconnected(config, &name, &error))
}

/// A provider that cannot be reached as the config says, with the place that says so.
fn unconnected(config: &Config, name: &str, error: &ConnectError) -> Failure {
    let setting = match error {
        ConnectError::KeyNotSet { .. } => "api_key_env",
        ConnectError::TwoKeys { .. } => "api_key_command",
        ConnectError::Setting { setting, .. } => setting,
    };
    let failure = Failure::caller(error.to_string());
    let keys = [format!("providers.\"{name}\".{setting}"), format!("summariser.{setting}")];
    match keys.iter().find_map(|key| opening::place(config, key)) {
        Some(place) => failure.hint(format!("{place} says so")),
        None => failure.hint("set the variable, or name another one with api_key_env"),
    }
}
