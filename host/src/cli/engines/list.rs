//! `ctxhost engines list`: what is there, what may serve, and what really does.

use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::opening;
use crate::cli::output::Output;
use crate::cli::render::grid::{Column, Grid};
use crate::cli::render::paint::Tone;
use crate::config::Config;
use crate::engine::{
    FailureBook, KeptRecord, LEGACY, OnEngineError, Source, joined, stages, state_folder,
};
use crate::runtime::roster::{Installed, Roster};
use crate::runtime::setup::failure_book;

/// What stands where no engine serves.
const NOBODY: &str = "none";

/// How the list is made and shown.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Find the effective engine by loading it, as a session would.
    #[arg(long)]
    check: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// All that is known.
#[derive(Serialize)]
struct Listing {
    slot: SlotLine,
    engines: Vec<EngineLine>,
}

#[derive(Serialize)]
struct SlotLine {
    configured: String,
    /// `None` where no engine serves, because the operator wants failures.
    effective: Option<String>,
    /// Why another one than the configured.
    reason: Option<String>,
    /// `reading` or `loading`.
    found_by: &'static str,
}

#[derive(Serialize)]
struct EngineLine {
    id: String,
    /// Its place in the slot's row, from 1, and how long the row is; `None` outside of it.
    stage: Option<(usize, usize)>,
    /// Whether it is asked without effect.
    shadow: bool,
    version: String,
    source: String,
    /// Where the file really is, where that is another place.
    real_path: Option<String>,
    trust: &'static str,
    sha256: Option<String>,
    pinned_sha256: Option<String>,
    signer: Option<String>,
    conformance: Option<String>,
    problem: Option<String>,
    quarantined: bool,
    /// What is known against this build.
    failures: Option<KeptRecord>,
}

impl List {
    pub(super) fn run(&self, config: &Config, output: &mut Output) -> Result<ExitCode, Failure> {
        let book = failure_book(config, &state_folder());
        let records = book.records().unwrap_or_else(|error| {
            output.remark(&format!("what engines did is not known: {error}"));
            Vec::new()
        });
        let engines = lines(config, &book, &records);
        let slot = SlotLine::of(config, &engines, self.check);
        let listing = Listing { slot, engines };
        if self.json {
            let text = serde_json::to_string_pretty(&listing);
            let text = text.map_err(|error| Failure::internal(error.to_string()))?;
            output.print(&format!("{text}\n"))?;
        } else {
            listing.show(output)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Who serves a new process, by reading: `none` where the operator wants failures.
pub(in crate::cli) fn effective(config: &Config) -> String {
    let book = failure_book(config, &state_folder());
    let engines = lines(config, &book, &book.records().unwrap_or_default());
    SlotLine::of(config, &engines, false).effective.unwrap_or_else(|| NOBODY.into())
}

fn lines(config: &Config, book: &FailureBook, records: &[KeptRecord]) -> Vec<EngineLine> {
    let roster = Roster::of(config);
    let configured = config.slot().engine;
    let row = stages(&configured);
    let shadows = config.shadows();
    let line = |engine: &Installed| {
        let stage = row.iter().position(|id| *id == engine.id);
        EngineLine {
            stage: stage.map(|stage| (stage + 1, row.len())),
            shadow: shadows.iter().any(|name| stages(name).contains(&engine.id.as_str())),
            ..EngineLine::of(engine, book, records)
        }
    };
    roster.engines().map(line).collect()
}

impl SlotLine {
    fn of(config: &Config, engines: &[EngineLine], check: bool) -> SlotLine {
        let slot = config.slot();
        let row = stages(&slot.engine);
        let why_not = |id: &str| match check {
            true => opening::open(config, id).err().map(Failure::into_message),
            false => why_not(id, engines),
        };
        let (mut serving, mut reasons) = (Vec::new(), Vec::new());
        for id in &row {
            match why_not(id) {
                None => serving.push(*id),
                Some(why) if row.len() > 1 => reasons.push(format!("{id}: {why}")),
                Some(why) => reasons.push(why),
            }
        }
        let effective = match config.plugins.on_engine_error {
            OnEngineError::Fail if !reasons.is_empty() => None,
            // Where a stage of several is missing, the others go on without it.
            _ if serving.is_empty() => Some(LEGACY.to_owned()),
            _ => Some(joined(serving)),
        };
        SlotLine {
            effective,
            configured: slot.configured,
            reason: slot.reason.or_else(|| (!reasons.is_empty()).then(|| reasons.join("; "))),
            found_by: if check { "loading" } else { "reading" },
        }
    }
}

/// Why the engine of the slot does not serve, as far as reading tells.
fn why_not(id: &str, engines: &[EngineLine]) -> Option<String> {
    let Some(engine) = engines.iter().find(|engine| engine.id == id) else {
        return Some(format!("there is no engine {id:?}"));
    };
    let held = engine.failures.as_ref().filter(|_| engine.quarantined);
    held.map(|record| format!("it is in quarantine: {}", record.story()))
        .or_else(|| engine.problem.clone())
}

impl EngineLine {
    fn of(engine: &Installed, book: &FailureBook, records: &[KeptRecord]) -> EngineLine {
        let bytes = engine.sha256.clone().unwrap_or_else(|| format!("bundled {}", engine.version));
        let record = records.iter().find(|it| it.id == engine.id && it.bytes == bytes);
        let standing = &engine.standing;
        EngineLine {
            id: engine.id.clone(),
            stage: None,
            shadow: false,
            version: engine.version.clone(),
            source: engine.source.to_string(),
            real_path: match &engine.source {
                Source::File(path) => real_path(path),
                Source::Bundled | Source::Linked(_) => None,
            },
            trust: standing.state.word(),
            sha256: engine.sha256.clone(),
            pinned_sha256: standing.sha256.clone(),
            signer: standing.signer.clone(),
            conformance: standing.conformance.clone(),
            problem: engine.problem.clone(),
            quarantined: record.is_some_and(|record| book.holds(record)),
            failures: record.cloned(),
        }
    }

    /// The pins and the signature, in a cell.
    fn trust(&self) -> String {
        match &self.signer {
            Some(key) => format!("{}, signed by {key}", self.trust),
            None if self.trust == "bundled" => String::new(),
            None => self.trust.to_owned(),
        }
    }

    fn state(&self, effective: bool) -> String {
        let story = self.failures.as_ref().map(|record| {
            let since = minute(record.failed_at_ms);
            match (self.quarantined, record.held) {
                (true, false) => format!(
                    "quarantined until {}: {} (ctxhost engines release {})",
                    minute(record.held_until_ms),
                    record.story(),
                    self.id
                ),
                (true, true) => format!(
                    "quarantined since {since}: {} (ctxhost engines release {})",
                    record.story(),
                    self.id
                ),
                (false, _) => format!("{since}: {}", record.story()),
            }
        });
        let effective = match self.stage {
            _ if !effective => self.shadow.then(|| "in the shadow".to_owned()),
            Some((stage, of)) if of > 1 => Some(format!("effective, stage {stage} of {of}")),
            _ => Some("effective".to_owned()),
        };
        let parts = [effective, self.problem.clone(), story];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl Listing {
    fn show(&self, output: &mut Output) -> Result<(), Failure> {
        let columns = ["", "engine", "version", "source", "trust", "state"].map(Column::left);
        let mut grid = Grid::new(columns.to_vec());
        for engine in &self.engines {
            let serving = self.slot.effective.as_deref().unwrap_or_default();
            let effective = stages(serving).contains(&engine.id.as_str());
            let mark = if effective { "*" } else { " " };
            let source = match &engine.real_path {
                Some(real) => format!("{} -> {real}", engine.source),
                None => engine.source.clone(),
            };
            let bad = engine.problem.is_some() || engine.quarantined;
            let tone = if bad { Tone::Warning } else { Tone::Plain };
            let cells = [
                mark.to_owned(),
                engine.id.clone(),
                engine.version.clone(),
                source,
                engine.trust(),
                engine.state(effective),
            ];
            grid.row(cells.to_vec(), tone);
        }
        output.print(&grid.render(output.style()))?;
        let SlotLine { configured, effective, reason, found_by } = &self.slot;
        let effective = effective.as_deref().unwrap_or(NOBODY);
        let how =
            if *found_by == "reading" { "by reading; --check loads it" } else { "by loading it" };
        output.print(&format!("slot: configured {configured}, effective {effective} ({how})\n"))?;
        if let Some(reason) = reason {
            output.remark(&format!("the slot says {configured:?}, but {reason}"));
        }
        Ok(())
    }
}

/// Where a link ends; `None` for what is no link, or leads nowhere.
fn real_path(path: &Path) -> Option<String> {
    let is_link = path.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
    let real = if is_link { path.canonicalize().ok()? } else { return None };
    Some(real.display().to_string())
}

/// `2026-11-21 17:40 UTC`.
fn minute(timestamp_ms: i64) -> String {
    let time = Timestamp::from_millisecond(timestamp_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
