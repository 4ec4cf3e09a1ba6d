//! `ctxhost engines list`: all engines, their trust state, and the active one.

mod effective_engine;

pub(crate) use self::effective_engine::{
    EffectiveEngine, chain_unavailable_reason, ended_quarantines,
};

use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use serde::Serialize;

use super::duplicate_notes;
use crate::error::CliError;
use crate::output::Output;
use crate::render::grid::{Grid, GridColumn};
use crate::render::style::Tone;
use ctxhost_agent::canary::{Canary, CanaryError, CanaryFolder};
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::engine_registry::{EngineRegistry, RegisteredEngine};
use ctxhost_config::Config;
use ctxhost_engine::{EngineSource, FailureLog, FailureRecord, split_ids, state_folder};

/// Options of the list.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineListArgs {
    /// Load the active engine to see whether it works, as a session would.
    #[arg(long)]
    check: bool,
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

/// The whole list.
#[derive(Serialize)]
struct EngineListing {
    slot: EffectiveEngine,
    canary: Option<CanaryLine>,
    engines: Vec<EngineLine>,
    /// Why configured shadow engines do not run.
    #[serde(skip)]
    shadows: Vec<String>,
    /// Libraries of one id.
    #[serde(skip)]
    duplicates: Vec<String>,
}

/// The canary and its share of new sessions.
#[derive(Serialize)]
struct CanaryLine {
    engine: String,
    share: String,
}

#[derive(Serialize)]
struct EngineLine {
    id: String,
    /// Position in the active chain, from 1, and the length of the chain; `None` outside of it.
    position: Option<(usize, usize)>,
    /// Whether it is a shadow engine.
    shadow: bool,
    /// Its share of new sessions, as a canary or part of a canary chain.
    canary: Option<String>,
    version: String,
    source: String,
    /// Target of the path, if that is a symbolic link.
    real_path: Option<String>,
    trust: &'static str,
    sha256: Option<String>,
    pinned_sha256: Option<String>,
    signer: Option<String>,
    conformance: Option<String>,
    problem: Option<String>,
    quarantined: bool,
    /// Failures of this build.
    failures: Option<FailureRecord>,
}

impl EngineListArgs {
    pub(super) fn run(&self, config: &Config, output: &mut Output) -> Result<ExitCode, CliError> {
        let book = failure_log(config, &state_folder());
        // A broken state file must not hide the list, which is where a user looks for the cause.
        let records = book.records().unwrap_or_else(|error| {
            output.note(&format!("cannot read the quarantine state: {error}"));
            Vec::new()
        });
        let canary = canary(config).unwrap_or_else(|why| {
            output.note(&format!("cannot read the canary state: {why}"));
            None
        });
        let mut engines = engine_lines(config, &book, &records);
        let canary = canary.map(|canary| CanaryLine::from_canary(&canary, &mut engines));
        let slot = EffectiveEngine::resolve(config, &engines, self.check);
        let shadows = unavailable_shadows(config, &engines);
        let duplicates = duplicate_notes(config, None);
        let listing = EngineListing { slot, canary, engines, shadows, duplicates };
        if self.json {
            output.print_json(&listing)?;
        } else {
            listing.show(output)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn engine_lines(config: &Config, book: &FailureLog, records: &[FailureRecord]) -> Vec<EngineLine> {
    let registry = EngineRegistry::load(config);
    let configured = config.slot().engine;
    let row = split_ids(&configured);
    let shadows = config.shadows();
    let line = |engine: &RegisteredEngine| {
        let position = row.iter().position(|id| *id == engine.id);
        EngineLine {
            position: position.map(|index| (index + 1, row.len())),
            shadow: shadows.iter().any(|name| split_ids(name).contains(&engine.id.as_str())),
            ..EngineLine::from_installed(engine, book, records)
        }
    };
    registry.engines().map(line).collect()
}

fn canary(config: &Config) -> Result<Option<Canary>, CanaryError> {
    // A canary belongs to a config file; without one there is none.
    if config.name().is_empty() {
        return Ok(None);
    }
    Ok(CanaryFolder::for_config(&state_folder(), Path::new(config.name())).read()?.canary)
}

impl CanaryLine {
    fn from_canary(canary: &Canary, engines: &mut [EngineLine]) -> CanaryLine {
        let (engine, share) = (canary.engine.clone(), canary.share.to_string());
        for id in split_ids(&engine) {
            let line = engines.iter_mut().find(|line| line.id == id);
            line.into_iter().for_each(|line| line.canary = Some(share.clone()));
        }
        CanaryLine { engine, share }
    }
}

/// Why configured shadow engines do not run.
fn unavailable_shadows(config: &Config, engines: &[EngineLine]) -> Vec<String> {
    let why_not = |name: &str| {
        let ids = split_ids(name).into_iter();
        let reasons: Vec<String> =
            ids.filter_map(|id| effective_engine::unavailable_reason(id, engines)).collect();
        let reasons = reasons.join("; ");
        (!reasons.is_empty()).then(|| format!("shadow {name:?} does not run: {reasons}"))
    };
    config.plugins.slots.shadow.iter().filter_map(|name| why_not(name)).collect()
}

impl EngineLine {
    fn from_installed(
        engine: &RegisteredEngine,
        book: &FailureLog,
        records: &[FailureRecord],
    ) -> EngineLine {
        // Bundled engines have no file; their failures are recorded by version.
        let bytes = engine.sha256.clone().unwrap_or_else(|| format!("bundled {}", engine.version));
        let record = records.iter().find(|record| record.id == engine.id && record.bytes == bytes);
        let standing = &engine.standing;
        EngineLine {
            id: engine.id.clone(),
            position: None,
            shadow: false,
            canary: None,
            version: engine.version.clone(),
            source: engine.source.to_string(),
            real_path: match &engine.source {
                EngineSource::File(path) => real_path(path),
                EngineSource::Bundled | EngineSource::Linked(_) => None,
            },
            trust: standing.state.label(),
            sha256: engine.sha256.clone(),
            pinned_sha256: standing.sha256.clone(),
            signer: standing.signer.clone(),
            conformance: standing.conformance.clone(),
            problem: engine.problem.clone(),
            quarantined: record.is_some_and(|record| book.is_held(record)),
            failures: record.cloned(),
        }
    }

    /// Trust state and signer.
    fn trust(&self) -> String {
        match &self.signer {
            Some(key) => format!("{}, signed by {key}", self.trust),
            // Every bundled engine would repeat the word that the source column has already.
            None if self.trust == "bundled" => String::new(),
            None => self.trust.to_owned(),
        }
    }

    /// A short state; the details follow below the table.
    fn state(&self, active: bool) -> String {
        let serves = match self.position {
            _ if !active => None,
            Some((position, of)) if of > 1 => Some(format!("active, {position} of {of}")),
            _ => Some("active".to_owned()),
        };
        let canary = self.canary.as_ref().map(|share| format!("canary {share}"));
        let shadow = self.shadow.then(|| "shadow".to_owned());
        let refused = self.problem.as_ref().map(|_| "unavailable".to_owned());
        let held = self.failures.as_ref().map(|record| match (self.quarantined, record.held) {
            (true, false) => format!("quarantined until {}", format_minute(record.held_until_ms)),
            (true, true) => format!("quarantined since {}", format_minute(record.failed_at_ms)),
            (false, _) => format!("failed {}", format_minute(record.failed_at_ms)),
        });
        [serves, canary, shadow, refused, held].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// When its quarantine ended and why it was quarantined; `None` if it is quarantined, or never was.
    fn ended_quarantine(&self) -> Option<String> {
        let record = self.failures.as_ref().filter(|_| !self.quarantined)?;
        // Crashes alone do not set the time.
        let until = Some(record.held_until_ms).filter(|until| *until > record.failed_at_ms)?;
        let id = &self.id;
        Some(format!(
            "{id}: its quarantine ended {} ({}); a running host in which it failed uses it again after \
             `ctxhost engines release {id}`",
            format_minute(until),
            record.summary()
        ))
    }

    /// The file name of its source.
    fn file(&self) -> &str {
        let name = Path::new(&self.source).file_name().and_then(|name| name.to_str());
        name.unwrap_or(&self.source)
    }

    /// Detail lines: real path, problem, failures.
    fn details(&self) -> impl Iterator<Item = String> {
        let id = &self.id;
        let place = match &self.real_path {
            Some(real) => Some(format!("{id}: {} → {real}\n", self.source)),
            // A problem with the file names it.
            None if self.problem.as_ref().is_some_and(|why| why.contains(&self.source)) => None,
            None => (self.file() != self.source).then(|| format!("{id}: {}\n", self.source)),
        };
        let story = self.failures.as_ref().map(FailureRecord::summary);
        let story = story.map(|story| {
            if self.quarantined {
                format!("{id}: {story}; `ctxhost engines release {id}` ends the quarantine\n")
            } else {
                let ended = self.ended_quarantine().map(|ended| ended + "\n");
                ended.unwrap_or_else(|| format!("{id}: {story}\n"))
            }
        });
        let problem = self.problem.as_ref().map(|problem| format!("{id}: {problem}\n"));
        place.into_iter().chain(problem).chain(story)
    }
}

impl EngineListing {
    fn show(&self, output: &mut Output) -> Result<(), CliError> {
        let mut columns = ["", "engine", "version", "source"].map(GridColumn::left).to_vec();
        columns.extend(["trust", "state"].map(|name| GridColumn::left(name).optional()));
        let mut grid = Grid::new(columns);
        for engine in &self.engines {
            let active = self.slot.serves(&engine.id);
            let mark = if active { "*" } else { " " };
            // Colour only repeats the state column.
            let bad = engine.problem.is_some() || engine.quarantined;
            let tone = if bad { Tone::Warning } else { Tone::Plain };
            let cells = [
                mark.to_owned(),
                engine.id.clone(),
                engine.version.clone(),
                engine.file().to_owned(),
                engine.trust(),
                engine.state(active),
            ];
            grid.row(cells.to_vec(), tone);
        }
        let table = grid.render(output.style());
        let stories: String = self.engines.iter().flat_map(EngineLine::details).collect();
        let canary = self.canary.as_ref().map(|CanaryLine { engine, share }| {
            format!("canary: {engine} on {share} of new sessions (ctxhost slot status)\n")
        });
        let canary = canary.unwrap_or_default();
        output.print(&format!("{table}{stories}{}{canary}", self.slot.to_line()))?;
        self.slot.note_reason(output);
        self.shadows.iter().chain(&self.duplicates).for_each(|remark| output.note(remark));
        Ok(())
    }
}

/// Target of a symbolic link; `None` for other files and broken links.
fn real_path(path: &Path) -> Option<String> {
    let is_link = path.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
    let real = if is_link { path.canonicalize().ok()? } else { return None };
    Some(real.display().to_string())
}

/// `2026-11-21 17:40 UTC`.
fn format_minute(timestamp_ms: i64) -> String {
    let time = Timestamp::from_millisecond(timestamp_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
