//! Shared setup of commands that shape requests: config, model window, engines.

use std::path::Path;
use std::sync::Arc;

use super::clock::now_ms;
use super::config::{find_config_file, relative_to_cwd};
use super::engine_open::{self, open_error};
use super::error::CliError;
use super::locked;
use super::output::Output;
use super::render::format::group_digits;
use ctxhost_agent::engine_options::{embedder, summariser};
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_agent::replay::report::ReplayWindow;
use ctxhost_agent::workspace::WorkspaceRules;
use ctxhost_agent::{OfflineOptions, preview_session};
use ctxhost_config::{Config, WindowHints};
use ctxhost_context::{Budget, CompactionPolicy, ContextError, LiveSession, PromptPreview, Target};
use ctxhost_engine::{EngineSpec, SlotError, split_ids};
use ctxhost_models::ModelName;
use ctxhost_provider::{Completer, ConnectError, Embedder, EmbedderError};
use ctxhost_session::Session;

/// The options of a run for a model, with the window that was given or that the config has.
pub(super) fn run_options(
    config: &Config,
    registry: &EngineRegistry,
    model: Option<(String, String)>,
    window: Option<u64>,
    recorded_tokens: Option<u64>,
) -> Result<(OfflineOptions, ReplayWindow), CliError> {
    let window = model_window(config, model.as_ref(), window, recorded_tokens);
    let (provider, id) = model.unwrap_or_default();
    let ReplayWindow { window_tokens, reserve_tokens, budget_tokens, .. } = window;
    let target = Target {
        model: ModelName::new(provider, id),
        window_tokens,
        // Tool results that a live host would add do not occur in a recording.
        budget: Some(Budget { tokens: budget_tokens, reserve_tokens, spare_tokens: 0 }),
        ..Target::default()
    };
    let mut options = OfflineOptions::new(config, registry.legacy(config), target);
    options.engines.completer = open_completer(config)?;
    options.engines.embedder = open_embedder(config)?;
    Ok((options, window))
}

/// The window of a model and its budget. --window comes first, then the common lookup;
/// `recorded_tokens` is the window in the recording.
pub(super) fn model_window(
    config: &Config,
    model: Option<&(String, String)>,
    window: Option<u64>,
    recorded_tokens: Option<u64>,
) -> ReplayWindow {
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
    ReplayWindow { window_tokens, source, reserve_tokens, budget_tokens }
}

/// Below this an engine may need a larger window; `legacy` needs 16,000 by default.
const SMALL_WINDOW_TOKENS: u64 = 32_000;

/// Whether an engine of the chain may refuse a window of this size: a small one, or if the config limits it.
fn may_be_refused(config: &Config, name: &str, window_tokens: u64) -> bool {
    let has_limits = |id: &str| config.engine_config(id).get("window").is_some();
    window_tokens < SMALL_WINDOW_TOKENS || split_ids(name).into_iter().any(has_limits)
}

/// What the next request of a session would be, for a model with this window. Nothing is sent and nothing recorded. If the
/// engine fails, it is the whole history, with the error.
pub(super) fn preview(
    config: &Config,
    session: Session,
    window: &ReplayWindow,
) -> (PromptPreview, Option<CliError>) {
    let name = config.slot().engine;
    let (provider, id) = session.model().unwrap_or_default();
    // Compactions for a much smaller window do not count.
    let mut live = LiveSession::new(session);
    live.show_history_for(Some(window.window_tokens));
    let budget = Budget {
        tokens: window.budget_tokens,
        reserve_tokens: window.reserve_tokens,
        spare_tokens: 0,
    };
    let history = PromptPreview::of_history(live.view(), name.clone(), budget);
    // Most sessions fit, and then no engine has to be opened, unless it may refuse the window.
    if !history.needs_compaction && !may_be_refused(config, &name, window.window_tokens) {
        return (history, None);
    }
    let target = Target {
        model: ModelName::new(provider, id),
        window_tokens: window.window_tokens,
        overhead_tokens: config.budget.overhead_tokens,
        compaction: CompactionPolicy::for_request(&config.compaction, false),
        ..Target::default()
    };
    let shaped = || {
        let registry = EngineRegistry::load(config);
        let specs = registry.chain(config, &name);
        let specs = specs.map_err(|error| engine_open::registry_error(config, &name, error))?;
        // Without a model for summaries: a preview costs nothing.
        let options = OfflineOptions::new(config, registry.legacy(config), target);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let preview = preview_session(live.into_session(), &specs, &options, now_ms());
        runtime.block_on(preview).map_err(|error| run_error(config, &name, window, error))
    };
    match shaped() {
        Ok(preview) => (preview, None),
        Err(error) => (history, Some(error)),
    }
}

/// Passes the workspace rules of the session to the engines and the fallback engine, and prints a
/// note if one uses them.
pub(super) fn add_workspace_rules(
    session: &Session,
    specs: &mut [EngineSpec],
    options: &mut OfflineOptions,
    output: &mut Output,
) {
    let Some(rules) = WorkspaceRules::find(session.header().cwd()) else { return };
    rules.apply_to(&mut options.engines.legacy);
    // `fold` instead of `any`: every engine must receive the rules.
    let given = specs.iter_mut().map(|spec| rules.apply_to(spec)).fold(false, |any, it| any | it);
    if given {
        output.note(&format!("workspace rules {}", rules.path.display()));
    }
}

/// [`find_session_config`] for a command that runs engines.
pub(super) fn find_config(
    given: Option<&Path>,
    session: &Path,
    output: &mut Output,
) -> Result<Config, CliError> {
    let config = find_session_config(given, session, output)?;
    locked::check_engines(&config)?;
    Ok(config)
}

/// Finds the config of the current folder, and says so if there is another one beside the session.
pub(super) fn find_session_config(
    given: Option<&Path>,
    session: &Path,
    output: &mut Output,
) -> Result<Config, CliError> {
    if let Some(path) = given {
        return Ok(locked::with_lock(Config::load(path)?));
    }
    if let Some(path) = find_config_file()? {
        // Printed because the file may be in a folder far above.
        output.note(&format!("config {}", path.display()));
        return Ok(locked::with_lock(Config::load(path)?));
    }
    // A config runs programs and sends texts. Beside a session that someone else has written, it is not the user's
    // choice.
    let beside = || Config::discover(session.canonicalize().ok()?.parent()?).map(relative_to_cwd);
    if let Some(path) = beside() {
        let path = path.display();
        output.note(&format!("{path}, beside the session, is not used; --config {path} uses it"));
    }
    // No config is normal: the defaults are a working host.
    Ok(locked::with_lock(Config::default()))
}

/// The engine that was named, checked; else the active engine, with a note if it is not the
/// configured one.
pub(super) fn named_engine_or_slot(
    named: Option<&str>,
    config: &Config,
    output: &mut Output,
) -> Result<String, CliError> {
    if let Some(name) = named {
        engine_open::inspect_chain(config, name)?;
        return Ok(name.to_owned());
    }
    let slot = config.slot();
    if let Some(reason) = &slot.reason {
        output.note(&format!("the slot names {:?}, but {reason}", slot.configured));
    }
    Ok(slot.engine)
}

/// The error of a run, with its engine and the source of its window.
pub(super) fn run_error(
    config: &Config,
    name: &str,
    window: &ReplayWindow,
    error: ContextError,
) -> CliError {
    let error = match error {
        ContextError::Slot(SlotError::Open(error)) => return open_error(config, name, error),
        other => CliError::from(other),
    };
    let ReplayWindow { window_tokens, source, .. } = window;
    error.hint(format!(
        "while running engine {name} against a window of {} tokens ({source})",
        group_digits(*window_tokens)
    ))
}

/// The model for summaries that the config names.
pub(super) fn open_completer(config: &Config) -> Result<Option<Arc<dyn Completer>>, CliError> {
    let name = config.summariser_provider().map(|(name, _)| name).unwrap_or_default();
    summariser(config, None).map_err(|error| connect_error(config, &name, &error))
}

/// The model for vectors that the config names.
pub(super) fn open_embedder(config: &Config) -> Result<Option<Arc<dyn Embedder>>, CliError> {
    embedder(config).map_err(|error| match error {
        EmbedderError::Connect(error) => connect_error(config, "embedder", &error),
        other => {
            let at = engine_open::setting_location(config, "embedder.path");
            let error = CliError::user(other.to_string());
            at.into_iter().fold(error, |error, location| error.hint(format!("see {location}")))
        }
    })
}

/// The error of a provider that cannot be connected, with the line of the setting at fault.
fn connect_error(config: &Config, name: &str, error: &ConnectError) -> CliError {
    let setting = match error {
        ConnectError::KeyNotSet { .. } => "api_key_env",
        ConnectError::TwoKeys { .. } => "api_key_command",
        ConnectError::Setting { setting, .. } => setting,
    };
    let error = CliError::user(error.to_string());
    // A summariser with its own address has no provider table, so both places are tried.
    let keys = [
        format!("providers.\"{name}\".{setting}"),
        format!("summariser.{setting}"),
        format!("embedder.{setting}"),
    ];
    match keys.iter().find_map(|key| engine_open::setting_location(config, key)) {
        Some(location) => error.hint(format!("see {location}")),
        None => error.hint("set the variable, or name another one with api_key_env"),
    }
}
