//! `ctxhost fsck`: whether sessions on disk are what was written, and what can be put right.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::chat::sessions_root;
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use ctxhost_session::fsck::{FsckNote, FsckReport, SessionFault};

/// Check that sessions on disk are what was written.
///
/// Finds lines that were cut short, changed, lost, moved or doubled, and files that others may read.
/// Ends with 0 where every line of every session is sound, with 1 where one is not.
#[derive(Debug, clap::Args)]
pub(super) struct FsckArgs {
    /// Session files, or folders that hold some; by default all that `chat` keeps.
    #[arg(value_name = "FILE|FOLDER")]
    paths: Vec<PathBuf>,
    /// Put right what can be put right without losing anything: torn lines, checksums, modes, left-overs.
    #[arg(long)]
    repair: bool,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

impl FsckArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let found = self.find()?;
        let mut report = FsckSummary::default();
        for folder in &found.folders {
            report.folder(folder, self.repair);
        }
        for file in &found.files {
            let checkup = FsckReport::check(file)?;
            report.sessions.push(if self.repair { checkup.repair()? } else { checkup });
        }
        match self.json {
            true => output.print_bytes(format!("{:#}\n", report.to_json()).as_bytes())?,
            false => output.print(&report.to_text())?,
        }
        Ok(ExitCode::from(u8::from(report.damaged() > 0)))
    }

    fn find(&self) -> Result<FsckTargets, CliError> {
        let mut found = FsckTargets::default();
        if self.paths.is_empty() {
            let root = sessions_root();
            if root.is_dir() {
                found.folder(&root, true)?;
            }
        }
        for path in &self.paths {
            match path.is_dir() {
                true => found.folder(path, false)?,
                false => found.files.push(path.clone()),
            }
        }
        Ok(found)
    }
}

/// What there is to check.
#[derive(Debug, Default)]
struct FsckTargets {
    files: Vec<PathBuf>,
    /// Folders that ctxhost made, so that nobody else should look into them.
    folders: Vec<PathBuf>,
}

impl FsckTargets {
    fn folder(&mut self, folder: &Path, is_own: bool) -> Result<(), CliError> {
        self.folders.extend(is_own.then(|| folder.to_owned()));
        for path in folder_entries(folder)? {
            match path.is_dir() {
                true => self.folder(&path, is_own)?,
                false => self.file(path),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf) {
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            self.files.push(path);
        }
    }
}

/// What is in a folder, by name. Links are left out: they could lead in circles.
fn folder_entries(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unread =
        |error| CliError::user(format!("cannot read the folder {}: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(unread)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(unread)?;
    paths.retain(|path| !path.is_symlink());
    paths.sort();
    Ok(paths)
}

/// What was found and done.
#[derive(Debug, Default)]
struct FsckSummary {
    /// Folders that others may look into, or that were closed again.
    folders: Vec<FolderReport>,
    sessions: Vec<FsckReport>,
}

#[derive(Debug)]
struct FolderReport {
    note: FsckNote,
    repaired: Option<String>,
}

impl FsckSummary {
    fn folder(&mut self, folder: &Path, repair: bool) {
        let note = FsckReport::check_folder(folder);
        let report =
            |note: FsckNote| FolderReport { repaired: repair.then(|| note.repair_mode()), note };
        self.folders.extend(note.map(report));
    }

    fn damaged(&self) -> usize {
        self.sessions.iter().filter(|session| !session.is_intact()).count()
    }

    fn messages(&self) -> usize {
        self.sessions.iter().map(|session| session.messages).sum()
    }

    fn to_text(&self) -> String {
        let folders = self.folders.iter().map(|folder| {
            let said = folder.repaired.as_ref().map(|said| format!("  {said}\n"));
            format!(
                "{}\n{}",
                folder.note.path.display(),
                said.unwrap_or_else(|| { format!("  note: {}\n", folder.note.message) })
            )
        });
        let sessions = self.sessions.iter().filter_map(session_text);
        let (messages, damaged) = (self.messages() as u64, self.damaged() as u64);
        let sum = format!(
            "{}, {}, {} damaged\n",
            format_count(self.sessions.len() as u64, "session"),
            format_count(messages, "message"),
            group_digits(damaged),
        );
        folders.chain(sessions).chain([sum]).collect()
    }

    fn to_json(&self) -> Value {
        let folders = self.folders.iter();
        json!({
            "folders": folders.map(|it| json!({ "note": it.note, "repaired": it.repaired })).collect::<Vec<_>>(),
            "sessions": self.sessions.iter().map(session_json).collect::<Vec<_>>(),
            "messages": self.messages(),
            "damaged": self.damaged(),
        })
    }
}

/// What there is to say of a session; nothing of one that is as it should be.
fn session_text(session: &FsckReport) -> Option<String> {
    let faults = session.faults.iter().map(fault_line);
    let notes = session.notes.iter().map(|note| note_line(session, note));
    let repairs = session.repairs.iter().map(|done| format!("  {done}\n"));
    let said: String = faults.chain(notes).chain(repairs).collect();
    let holder = session.holder.as_ref().map(|holder| format!("  open in {holder}\n"));
    let holder = holder.unwrap_or_default();
    (!said.is_empty()).then(|| format!("{}\n{holder}{said}", session.path.display()))
}

fn fault_line(fault: &SessionFault) -> String {
    match &fault.record {
        Some(id) => format!("  line {}, record {id}: {}\n", fault.line, fault.message),
        None => format!("  line {}: {}\n", fault.line, fault.message),
    }
}

fn note_line(session: &FsckReport, note: &FsckNote) -> String {
    let name = note.path.file_name().unwrap_or_default().to_string_lossy();
    match note.path == session.path {
        true => format!("  note: {}\n", note.message),
        false => format!("  note: {name}: {}\n", note.message),
    }
}

fn session_json(session: &FsckReport) -> Value {
    json!({
        "path": session.path,
        "messages": session.messages,
        "sound": session.is_intact(),
        "open_in": session.holder,
        "faults": session.faults,
        "notes": session.notes,
        "repairs": session.repairs,
    })
}
