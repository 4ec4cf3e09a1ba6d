//! `ctxhost config`: checks, explains and imports the config file.

mod import;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::engine_open;
use super::error::CliError;
use super::locked;
use super::output::Output;
use super::render::style::{TextStyle, Tone};
use ctxhost_agent::engine_registry;
use ctxhost_config::{
    Config as Settings, ExplainRow, FILE_NAME, explain, explain_key, json_schema,
};
use ctxhost_engine::{EngineFile, split_ids};
use ctxhost_platform::files::foreign_owner;
use ctxhost_trust::{LOCK_NAME, TrustLevel};

/// Check, explain or import the config file.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigCommand {
    /// Check every key and value, and open the active engine and the bundled ones with their
    /// settings. Other libraries are read, not loaded.
    Check,
    /// Show every setting with its value, source and reason; for one setting also its default and
    /// range.
    Explain {
        /// Setting or table, such as budget.safety_margin or plugins.
        key: Option<String>,
    },
    /// Print the JSON Schema of ctxhost.toml, for editors.
    Schema,
    Import(import::ImportArgs),
}

impl ConfigCommand {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        match self {
            ConfigCommand::Check => check(&load_config(config_path)?, output),
            ConfigCommand::Explain { key } => {
                show(&load_config(config_path)?, key.as_deref(), output)
            }
            ConfigCommand::Schema => print_schema(output),
            ConfigCommand::Import(command) => command.run(output),
        }
    }
}

/// The file that a running host watches: that of its config, else the one that `ctxhost use` would create here.
pub(super) fn watched_config(config: &Settings) -> PathBuf {
    match config.name() {
        "" => PathBuf::from(FILE_NAME),
        name => PathBuf::from(name),
    }
}

/// Loads the config that was given, else the nearest one, else the defaults.
pub(super) fn load_config(given: Option<&Path>) -> Result<Settings, CliError> {
    match given_or_found(given)? {
        Some(path) => Ok(locked::with_lock(Settings::load(path)?)),
        None => Ok(locked::with_lock(Settings::default())),
    }
}

/// The config that was given, else the nearest one.
pub(super) fn given_or_found(given: Option<&Path>) -> Result<Option<PathBuf>, CliError> {
    given.map_or_else(find_config_file, |path| Ok(Some(path.to_owned())))
}

/// Finds the nearest config, from the current folder upwards.
///
/// Fails for one that another user has put into a folder above, such as `/tmp`: a config runs programs and sends
/// texts.
pub(super) fn find_config_file() -> Result<Option<PathBuf>, CliError> {
    let Ok(cwd) = std::env::current_dir() else { return Ok(None) };
    let Some(path) = Settings::discover(&cwd) else { return Ok(None) };
    let is_above = path.parent() != Some(&cwd);
    let owner = path.metadata().ok().filter(|_| is_above).and_then(|file| foreign_owner(&file));
    if let Some(owner) = owner {
        let path = path.display();
        let message = format!("{path}, in a folder above, belongs to another user (uid {owner})");
        return Err(CliError::user(message).hint(format!(
            "use it with --config {path}, or start with a {FILE_NAME} of your own"
        )));
    }
    Ok(Some(relative_to_cwd(path)))
}

/// Makes a path below the current folder relative to it.
pub(super) fn relative_to_cwd(path: PathBuf) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    // Shorter and stable in transcripts; a path elsewhere stays absolute.
    path.strip_prefix(&here).map(Path::to_owned).unwrap_or(path)
}

fn check(settings: &Settings, output: &mut Output) -> Result<ExitCode, CliError> {
    let slot = settings.slot();
    let mut text = match settings.name() {
        "" => format!("ok  config  defaults (no {FILE_NAME} in this folder or above)\n"),
        name => format!("ok  config  {name}\n"),
    };
    let shadows = settings.shadows();
    let mut used = split_ids(&slot.engine);
    for id in shadows.iter().flat_map(|name| split_ids(name)) {
        if !used.contains(&id) {
            used.push(id);
        }
    }
    let others = settings.plugins.entries.keys().filter(|id| !used.contains(&id.as_str()));
    // A disabled engine may be missing or broken on purpose.
    let others = others.filter(|id| settings.plugins.disabled_reason(id).is_none());
    let in_use: Vec<_> = used.iter().map(|id| opened_line(settings, id)).collect();
    // The engines of the slot come first.
    if in_use.iter().take(split_ids(&slot.engine).len()).all(Result::is_ok) {
        text += &format!("ok  slot    context_engine = {}", slot.configured);
        text += &match slot.reason {
            Some(reason) => format!(" ({reason}; using {})\n", slot.engine),
            None => "\n".to_owned(),
        };
    }
    text += &shadow_line(settings);
    text += &trust_line(settings);
    let beside = others.map(|id| match engine_open::inspect_engine(settings, id)? {
        None => opened_line(settings, id),
        Some(file) => Ok(inspected_line(&file)),
    });
    // Reports all unusable engines, not only the first.
    let (usable, failures): (Vec<_>, Vec<_>) =
        in_use.into_iter().chain(beside).partition(Result::is_ok);
    text.extend(usable.into_iter().flatten());
    output.print(&text)?;
    note_unset_variables(settings, output);
    let failures = failures.into_iter().filter_map(Result::err);
    match failures.chain(unknown_providers(settings)).reduce(CliError::with) {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Models of the agent whose name is not `provider/id`, or whose provider no table describes. No error of the file: a program that embeds the agent may
/// bring the provider.
fn unknown_providers(settings: &Settings) -> Vec<CliError> {
    let model = settings.agent.model.iter().map(|model| ("agent.model".to_owned(), model));
    let fallbacks = settings.agent.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.map(|(at, model)| (format!("agent.fallbacks.{at}"), model));
    let unknown = model.chain(fallbacks).filter_map(|(key, model)| {
        let error = match model.split_once('/') {
            Some((provider, id)) if !provider.is_empty() && !id.is_empty() => {
                if settings.provider(provider).is_some() {
                    return None;
                }
                let message =
                    format!("no provider {provider:?} is configured for the model {model}");
                CliError::user(message).hint(format!("add a table [providers.{provider}]"))
            }
            _ => CliError::user(format!("{key} = {model:?} is not a model name"))
                .hint("write it as `provider/id`, with a name from [providers]"),
        };
        Some(match engine_open::setting_location(settings, &key) {
            Some(location) => error.hint(format!("see {location}")),
            None => error,
        })
    });
    unknown.collect()
}

/// Notes variables that MCP servers need. No error: they may be set where the config is used.
fn note_unset_variables(settings: &Settings, output: &mut Output) {
    for (name, server) in &settings.mcp {
        for (key, variable) in server.unset_variables() {
            output.note(&format!(
                "mcp.{name}: {key} needs the variable {variable}, which is not set here; without it the server is not used"
            ));
        }
    }
}

/// The shadow engines, and why some of them do not run.
fn shadow_line(settings: &Settings) -> String {
    let refused = settings.plugins.slots.shadow.iter().filter_map(|name| {
        let reason = settings.plugins.shadow_disabled_reason(name)?;
        Some(format!("{name} does not run: {reason}"))
    });
    let (shadows, refused) = (settings.shadows(), refused.collect::<Vec<_>>());
    let names = if shadows.is_empty() { "none".to_owned() } else { shadows.join(", ") };
    match refused.as_slice() {
        [] if shadows.is_empty() => String::new(),
        [] => format!("ok  slot    shadow = {names}\n"),
        refused => format!("ok  slot    shadow = {names} ({})\n", refused.join("; ")),
    }
}

/// The trust policy for engine files; empty if any file is accepted.
fn trust_line(settings: &Settings) -> String {
    let policy = engine_registry::file_policy(settings);
    match (policy.trust(), policy.lock()) {
        (TrustLevel::Any, _) => String::new(),
        (TrustLevel::Pinned | TrustLevel::Locked, None) => {
            "ok  trust   pinned, but the lock file cannot be read\n".into()
        }
        (TrustLevel::Pinned, Some(lock)) => {
            format!("ok  trust   pinned, {} in {LOCK_NAME}\n", lock.pins().count())
        }
        (TrustLevel::Locked, Some(lock)) => {
            format!("ok  trust   locked, {} in {LOCK_NAME}\n", lock.pins().count())
        }
    }
}

fn opened_line(settings: &Settings, id: &str) -> Result<String, CliError> {
    let engine = engine_open::open_engine(settings, id)?;
    let info = engine.info();
    Ok(format!("ok  engine  {} {} ({})\n", info.id, info.version, engine.source()))
}

/// An engine that is not in use is not loaded: loading a library runs its code.
fn inspected_line(file: &EngineFile) -> String {
    let (meta, path) = (&file.meta, file.path.display());
    format!("ok  engine  {} {} ({path}) - read, not loaded\n", meta.id, meta.version)
}

fn show(settings: &Settings, key: Option<&str>, output: &mut Output) -> Result<ExitCode, CliError> {
    let rows = match key {
        None => explain(settings),
        Some(key) => explain_key(settings, key).map_err(|unknown| {
            let error = CliError::user(unknown.to_string());
            match unknown.suggestion {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("`ctxhost config explain` lists all settings"),
            }
        })?,
    };
    let style = output.style();
    let text: String = match rows.as_slice() {
        [row] if key.is_some() => describe_setting(row, style),
        rows => rows.iter().map(|row| summarize_setting(row, style)).collect(),
    };
    output.print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A setting in two lines; the first one can be found with grep.
fn summarize_setting(row: &ExplainRow, style: TextStyle) -> String {
    let ExplainRow { key, source, reason, .. } = row;
    let key = style.paint(Tone::Strong, key);
    format!("{key} = {} ({source})\n  {reason}\n", value_with_unit(row))
}

/// Everything about one setting.
fn describe_setting(row: &ExplainRow, style: TextStyle) -> String {
    let ExplainRow { key, source, reason, default, range, .. } = row;
    let facts = [
        ("value", value_with_unit(row)),
        ("from", source.clone()),
        ("default", if default.is_empty() { "none".to_owned() } else { default.clone() }),
        ("range", range.clone()),
        ("reason", reason.clone()),
    ];
    let facts = facts.iter().map(|(name, fact)| format!("  {name:<8} {fact}\n"));
    format!("{}\n{}", style.paint(Tone::Strong, key), facts.collect::<String>())
}

fn value_with_unit(row: &ExplainRow) -> String {
    format!("{} {}", row.value, row.unit).trim_end().to_owned()
}

fn print_schema(output: &mut Output) -> Result<ExitCode, CliError> {
    output.print_unwrapped(&format!("{:#}\n", json_schema()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_model_name_is_reported() {
        let text = "[agent]\nmodel = \"gpt\"\nfallbacks = [\"x/m\", \"m\", \"here/m\", \"here/\"]\n\
                    [providers.here]\ndialect = \"openai\"\n";
        let settings = Settings::parse("ctxhost.toml", text).unwrap();
        let found: Vec<String> =
            unknown_providers(&settings).iter().map(ToString::to_string).collect();
        let expected = [
            "agent.model = \"gpt\"",
            "[providers.x]",
            "fallbacks.1 = \"m\"",
            "fallbacks.3 = \"here/\"",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (error, part) in found.iter().zip(expected) {
            assert!(error.contains(part) && error.contains("see ctxhost.toml:"), "{error}");
        }
    }
}
