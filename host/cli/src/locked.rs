//! `--locked`: engine files are those of ctxhost.lock, or the command fails.

use std::sync::atomic::{AtomicBool, Ordering};

use super::error::CliError;
use ctxhost_agent::engine_registry::{EngineRegistry, RegisteredEngine};
use ctxhost_config::Config;
use ctxhost_engine::{EngineSource, PinSource, split_ids};
use ctxhost_trust::{LOCK_NAME, PinState, TrustLevel};

/// Whether the flag was given. One for the process: it concerns every config that a command loads.
static REQUESTED: AtomicBool = AtomicBool::new(false);

pub(super) fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

pub(super) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The config as the flag wants it.
pub(super) fn with_lock(mut config: Config) -> Config {
    if is_requested() {
        config.plugins.trust = Some(TrustLevel::Locked);
    }
    config
}

/// Refuses a command that changes the lock file.
pub(super) fn refuse_change(command: &str) -> Result<(), CliError> {
    if !is_requested() {
        return Ok(());
    }
    let message = format!("--locked: `ctxhost {command}` changes {LOCK_NAME}");
    Err(CliError::user(message).hint("omit --locked"))
}

/// Fails where a locked config would use another engine than the one it names: the slot would fall
/// back, and a test of the wrong engine would pass.
pub(super) fn check_engines(config: &Config) -> Result<(), CliError> {
    if config.plugins.trust != Some(TrustLevel::Locked) {
        return Ok(());
    }
    let registry = EngineRegistry::load(config);
    let slot = config.slot().engine;
    let shadows = config.shadows();
    let named: Vec<&str> = split_ids(&slot)
        .into_iter()
        .chain(shadows.iter().flat_map(|name| split_ids(name)))
        .collect();
    let entered = config.plugins.entries.iter().filter(|(_, entry)| entry.path.is_some());
    let mut ids: Vec<&str> = entered.map(|(id, _)| id.as_str()).chain(named).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| config.plugins.disabled_reason(id).is_none());
    let refused = ids.into_iter().filter_map(|id| {
        let reason = match registry.engine(id) {
            Some(engine) => refusal(engine)?,
            None => format!("{LOCK_NAME} does not pin it, and no engine has this id"),
        };
        Some(CliError::untrusted(format!("locked: {id}: {reason}")))
    });
    refused.reduce(CliError::with).map_or(Ok(()), Err)
}

fn refusal(engine: &RegisteredEngine) -> Option<String> {
    // Bundled engines are part of the binary, which the lock does not cover.
    if !matches!(engine.source, EngineSource::File(_)) {
        return None;
    }
    match engine.standing.state {
        PinState::Missing => Some(match engine.standing.pin_source {
            PinSource::Lock { has_source: true } => {
                "its file is missing; run `ctxhost sync`".to_owned()
            }
            _ => engine.problem.clone().unwrap_or_else(|| "its file is missing".to_owned()),
        }),
        _ => engine.standing.refusal.clone().or_else(|| engine.problem.clone()),
    }
}
