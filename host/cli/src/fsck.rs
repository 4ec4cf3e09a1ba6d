//! `ctxhost fsck`: whether sessions on disk are what was written, and what can be put right.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::chat::sessions_root;
use super::failure::Failure;
use super::output::Output;
use super::render::phrase::{counted, grouped};
use ctxhost_session::checkup::{Checkup, Fault, Note};

/// Check that sessions on disk are what was written.
///
/// Finds lines that were cut short, changed, lost, moved or doubled, and files that others may read.
/// Ends with 0 where every line of every session is sound, with 1 where one is not.
#[derive(Debug, clap::Args)]
pub(super) struct Fsck {
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

impl Fsck {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let found = self.find()?;
        let mut report = Report::default();
        for folder in &found.folders {
            report.folder(folder, self.repair);
        }
        for file in &found.files {
            let checkup = Checkup::of(file)?;
            report.sessions.push(if self.repair { checkup.repair()? } else { checkup });
        }
        match self.json {
            true => output.print_bytes(format!("{:#}\n", report.to_json()).as_bytes())?,
            false => output.print(&report.to_text())?,
        }
        Ok(ExitCode::from(u8::from(report.damaged() > 0)))
    }

    fn find(&self) -> Result<Found, Failure> {
        let mut found = Found::default();
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
struct Found {
    files: Vec<PathBuf>,
    /// Folders that ctxhost made, so that nobody else should look into them.
    folders: Vec<PathBuf>,
}

impl Found {
    fn folder(&mut self, folder: &Path, is_own: bool) -> Result<(), Failure> {
        self.folders.extend(is_own.then(|| folder.to_owned()));
        for path in inside(folder)? {
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
fn inside(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unread =
        |error| Failure::caller(format!("cannot read the folder {}: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(unread)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(unread)?;
    paths.retain(|path| !path.is_symlink());
    paths.sort();
    Ok(paths)
}

/// What was found and done.
#[derive(Debug, Default)]
struct Report {
    /// Folders that others may look into, or that were closed again.
    folders: Vec<FolderReport>,
    sessions: Vec<Checkup>,
}

#[derive(Debug)]
struct FolderReport {
    note: Note,
    repaired: Option<String>,
}

impl Report {
    fn folder(&mut self, folder: &Path, repair: bool) {
        let note = Checkup::folder(folder);
        let report =
            |note: Note| FolderReport { repaired: repair.then(|| note.repair_mode()), note };
        self.folders.extend(note.map(report));
    }

    fn damaged(&self) -> usize {
        self.sessions.iter().filter(|session| !session.is_sound()).count()
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
            counted(self.sessions.len() as u64, "session"),
            counted(messages, "message"),
            grouped(damaged),
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
fn session_text(session: &Checkup) -> Option<String> {
    let faults = session.faults.iter().map(fault_line);
    let notes = session.notes.iter().map(|note| note_line(session, note));
    let repairs = session.repairs.iter().map(|done| format!("  {done}\n"));
    let said: String = faults.chain(notes).chain(repairs).collect();
    let holder = session.holder.as_ref().map(|holder| format!("  open in {holder}\n"));
    let holder = holder.unwrap_or_default();
    (!said.is_empty()).then(|| format!("{}\n{holder}{said}", session.path.display()))
}

fn fault_line(fault: &Fault) -> String {
    match &fault.record {
        Some(id) => format!("  line {}, record {id}: {}\n", fault.line, fault.message),
        None => format!("  line {}: {}\n", fault.line, fault.message),
    }
}

fn note_line(session: &Checkup, note: &Note) -> String {
    let name = note.path.file_name().unwrap_or_default().to_string_lossy();
    match note.path == session.path {
        true => format!("  note: {}\n", note.message),
        false => format!("  note: {name}: {}\n", note.message),
    }
}

fn session_json(session: &Checkup) -> Value {
    json!({
        "path": session.path,
        "messages": session.messages,
        "sound": session.is_sound(),
        "open_in": session.holder,
        "faults": session.faults,
        "notes": session.notes,
        "repairs": session.repairs,
    })
}
