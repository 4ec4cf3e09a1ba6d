//! `ctxhost fsck`: checks and repairs session files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::chat::sessions_root;
use super::error::{CliError, recording_error};
use super::output::Output;
use super::render::format::{format_count, group_digits};
use ctxhost_session::fsck::{FsckNote, FsckReport, SessionFault};

/// Check session files for damage.
///
/// Finds lines that were truncated, changed, lost, moved or duplicated, and files that other users
/// can read. Exit code 1 if a session is damaged.
#[derive(Debug, clap::Args)]
pub(super) struct FsckArgs {
    /// Session files or folders; by default all sessions of `chat`.
    #[arg(value_name = "FILE|FOLDER")]
    paths: Vec<PathBuf>,
    /// Repair what can be repaired without loss: torn lines, checksums, file modes, left-over
    /// files.
    #[arg(long)]
    repair: bool,
    /// Print the report as JSON.
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
            let session = FsckReport::check(file)?;
            // A folder may hold both. What another agent wrote has no damage that this could tell, and is not changed.
            if let Some(error) = recording_error(file).filter(|_| !session.is_intact()) {
                if self.paths.contains(file) {
                    return Err(error);
                }
                continue;
            }
            report.sessions.push(if self.repair { session.repair()? } else { session });
        }
        if self.json {
            output.print_bytes(format!("{:#}\n", report.to_json()).as_bytes())?
        } else {
            output.print(&report.to_text())?
        }
        // Notes do not count as damage, so that a cron job reports only lost or changed lines.
        Ok(ExitCode::from(u8::from(report.damaged() > 0)))
    }

    fn find(&self) -> Result<FsckTargets, CliError> {
        let mut found = FsckTargets::default();
        if self.paths.is_empty() {
            let root = sessions_root();
            // A machine that never ran a chat has no such folder, which is not an error.
            if root.is_dir() {
                found.folder(&root, true)?;
            }
        }
        let named: HashSet<&Path> = self.paths.iter().map(PathBuf::as_path).collect();
        for path in &self.paths {
            // A pattern such as `s.jsonl*` names the files beside a session too, which are checked with it.
            if session_of(path).is_some_and(|session| named.contains(session.as_path())) {
                continue;
            }
            // A file is checked whatever its extension; in folders only `.jsonl` is a session.
            if path.is_dir() { found.folder(path, false)? } else { found.files.push(path.clone()) }
        }
        Ok(found)
    }
}

/// The session that a file beside it, such as `s.jsonl.crc`, belongs to.
fn session_of(path: &Path) -> Option<PathBuf> {
    const EXTENSION: &str = ".jsonl";
    let name = path.file_name()?.to_str()?;
    let (session, _) = name.split_once(&format!("{EXTENSION}."))?;
    Some(path.with_file_name(format!("{session}{EXTENSION}")))
}

/// The files and folders to check.
#[derive(Debug, Default)]
struct FsckTargets {
    files: Vec<PathBuf>,
    /// Folders that ctxhost created, which other users must not be able to read.
    folders: Vec<PathBuf>,
}

impl FsckTargets {
    fn folder(&mut self, folder: &Path, is_own: bool) -> Result<(), CliError> {
        // Modes are checked only on folders that ctxhost created; those that a user names are
        // theirs.
        self.folders.extend(is_own.then(|| folder.to_owned()));
        for path in folder_entries(folder)? {
            if path.is_dir() { self.folder(&path, is_own)? } else { self.file(path) }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf) {
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            self.files.push(path);
        }
    }
}

/// The paths in a folder, sorted. Symbolic links are skipped, since they could form a cycle.
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

/// The results of all checks.
#[derive(Debug, Default)]
struct FsckSummary {
    /// Folders that other users can read, or that were repaired.
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
            let path = folder.note.path.display();
            match &folder.repaired {
                Some(repair) => format!("{path}\n  {repair}\n"),
                None => format!("{path}\n  note: {}\n", folder.note.message),
            }
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
            "folders": folders.map(|folder| json!({ "note": folder.note, "repaired": folder.repaired })).collect::<Vec<_>>(),
            "sessions": self.sessions.iter().map(session_json).collect::<Vec<_>>(),
            "messages": self.messages(),
            "damaged": self.damaged(),
        })
    }
}

/// The findings of a session; `None` for a sound one.
fn session_text(session: &FsckReport) -> Option<String> {
    let faults = session.faults.iter().map(fault_line);
    let notes = session.notes.iter().map(|note| note_line(session, note));
    let repairs = session.repairs.iter().map(|done| format!("  {done}\n"));
    let findings: String = faults.chain(notes).chain(repairs).collect();
    let holder = session.holder.as_ref().map(|holder| format!("  open in {holder}\n"));
    let holder = holder.unwrap_or_default();
    (!findings.is_empty()).then(|| format!("{}\n{holder}{findings}", session.path.display()))
}

fn fault_line(fault: &SessionFault) -> String {
    match &fault.record {
        Some(id) => format!("  line {}, record {id}: {}\n", fault.line, fault.message),
        None => format!("  line {}: {}\n", fault.line, fault.message),
    }
}

fn note_line(session: &FsckReport, note: &FsckNote) -> String {
    let name = note.path.file_name().unwrap_or_default().to_string_lossy();
    if note.path == session.path {
        format!("  note: {}\n", note.message)
    } else {
        format!("  note: {name}: {}\n", note.message)
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
