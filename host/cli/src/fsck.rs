//! `ctxhost fsck`: checks and repairs session files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::agent_folders::is_of_openclaw;
use super::chat::sessions_root;
use super::error::CliError;
use super::json_path::json_path;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::session_file::{check_changeable, recording_error};
use ctxhost_session::fsck::{FsckNote, FsckReport, SessionChecker, SessionFault, is_failed_repair};

/// Check session files for damage.
///
/// Finds lines that were truncated, changed, lost, moved or duplicated, and files that other users
/// can read. Exit code 1 on damage or a failed repair.
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
        let report = self.check()?;
        if self.json {
            output.print_bytes(format!("{:#}\n", report.to_json()).as_bytes())?
        } else {
            output.print(&report.to_text())?
        }
        // Notes do not count as damage, so that a cron job reports only lost or changed lines.
        Ok(ExitCode::from(u8::from(report.damaged() > 0 || report.has_failed_repair())))
    }

    fn check(&self) -> Result<FsckSummary, CliError> {
        let found = self.find()?;
        let mut report = FsckSummary::default();
        for folder in &found.folders {
            report.add_note(FsckReport::check_folder(folder), self.repair);
        }
        for path in &found.others {
            report.add_note(FsckReport::check_leftover(path), self.repair);
        }
        let mut checker = SessionChecker::default();
        for SessionFile { path, origin } in &found.files {
            if self.repair && *origin == FileOrigin::Named {
                check_changeable(path, path)?;
            }
            let session = checker.check(path)?;
            // A folder may hold files of any program. They have no damage that this could tell, and are not changed.
            if *origin == FileOrigin::UserFolder && !session.is_session {
                continue;
            }
            if let Some(error) = recording_error(path, path).filter(|_| !session.is_intact()) {
                if *origin == FileOrigin::Named {
                    return Err(error);
                }
                continue;
            }
            let is_repaired = self.repair && !is_of_openclaw(path);
            report.sessions.push(if is_repaired { checker.repair(session)? } else { session });
        }
        Ok(report)
    }

    fn find(&self) -> Result<FsckTargets, CliError> {
        let mut found = FsckTargets::default();
        if self.paths.is_empty() {
            let root = sessions_root();
            // A machine that never ran a chat has no such folder, which is not an error.
            match root.metadata() {
                Ok(_) => found.folder(&root, true)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(unlisted(&root, &error)),
            }
        }
        let named: HashSet<&Path> = self.paths.iter().map(PathBuf::as_path).collect();
        for path in &self.paths {
            // A pattern such as `s.jsonl*` names the files beside a session too, which are checked with it.
            if session_of(path).is_some_and(|session| named.contains(session.as_path())) {
                continue;
            }
            // A file is checked whatever its extension; in folders only `.jsonl` is a session.
            if path.is_dir() {
                found.folder(path, false)?;
            } else {
                found.files.push(SessionFile { path: path.clone(), origin: FileOrigin::Named });
            }
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

/// A file that may be a session.
#[derive(Debug)]
struct SessionFile {
    path: PathBuf,
    origin: FileOrigin,
}

/// How a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileOrigin {
    /// The user named it.
    Named,
    /// It is in a folder that the user named, which may hold files of other programs.
    UserFolder,
    /// It is in the folder of the sessions of `chat`, where a file without a header is a damaged session.
    ChatFolder,
}

/// The files and folders to check.
#[derive(Debug, Default)]
struct FsckTargets {
    files: Vec<SessionFile>,
    /// Folders that ctxhost created, which other users must not be able to read.
    folders: Vec<PathBuf>,
    /// Files of no session that exists.
    others: Vec<PathBuf>,
}

impl FsckTargets {
    fn folder(&mut self, folder: &Path, is_own: bool) -> Result<(), CliError> {
        // Modes are checked only on folders that ctxhost created; those that a user names are
        // theirs.
        self.folders.extend(is_own.then(|| folder.to_owned()));
        for path in folder_entries(folder)? {
            if path.is_dir() {
                self.folder(&path, is_own)?;
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                let origin = if is_own { FileOrigin::ChatFolder } else { FileOrigin::UserFolder };
                self.files.push(SessionFile { path, origin });
            } else if session_of(&path).is_some_and(|session| !session.exists()) {
                self.others.push(path);
            }
        }
        Ok(())
    }
}

fn unlisted(folder: &Path, error: &std::io::Error) -> CliError {
    CliError::internal(format!("cannot list {}: {error}", folder.display()))
}

/// The paths in a folder, sorted. Symbolic links are skipped, since they could form a cycle.
fn folder_entries(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unread = |error| unlisted(folder, &error);
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
    /// Folders that other users can read, and files of no session; or that were repaired.
    folders: Vec<FolderReport>,
    sessions: Vec<FsckReport>,
}

#[derive(Debug)]
struct FolderReport {
    note: FsckNote,
    repaired: Option<String>,
}

impl FsckSummary {
    fn add_note(&mut self, note: Option<FsckNote>, repair: bool) {
        let report =
            |note: FsckNote| FolderReport { repaired: repair.then(|| note.repair()), note };
        self.folders.extend(note.map(report));
    }

    fn damaged(&self) -> usize {
        self.sessions.iter().filter(|session| !session.is_intact()).count()
    }

    fn has_failed_repair(&self) -> bool {
        let mut of_folders = self.folders.iter().filter_map(|folder| folder.repaired.as_deref());
        of_folders.any(is_failed_repair) || self.sessions.iter().any(FsckReport::has_failed_repair)
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
            "folders": folders.map(|folder| json!({ "note": note_json(&folder.note), "repaired": folder.repaired })).collect::<Vec<_>>(),
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

fn note_json(note: &FsckNote) -> Value {
    json!({ "kind": note.kind, "path": json_path(&note.path), "message": note.message })
}

fn session_json(session: &FsckReport) -> Value {
    json!({
        "path": json_path(&session.path),
        "messages": session.messages,
        "sound": session.is_intact(),
        "open_in": session.holder,
        "faults": session.faults,
        "notes": session.notes.iter().map(note_json).collect::<Vec<_>>(),
        "repairs": session.repairs,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A folder with a session and files of other programs, each with mode 0644.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/w"}"#;
        let record = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-21T01:41:21.054Z","message":{"role":"user","content":"hi"}}"#;
        for (name, text) in [
            ("own.jsonl", format!("{header}\n{record}\n")),
            ("damaged.jsonl", format!("{}\n{record}\n", header.replace('{', "["))),
            ("log.jsonl", "{\"level\":\"info\"}\n".to_owned()),
            (
                "qwen.jsonl",
                r#"{"uuid":"u","type":"user","message":{"role":"user","parts":[{"text":"hi"}]}}"#
                    .to_owned(),
            ),
            ("empty.jsonl", String::new()),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        folder
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn repair(path: &Path) -> FsckSummary {
        FsckArgs { paths: vec![path.to_owned()], repair: true, json: false }.check().unwrap()
    }

    #[test]
    fn files_of_other_programs_in_a_folder_are_left_alone() {
        let folder = folder();
        let report = repair(folder.path());
        assert_eq!((report.sessions.len(), report.damaged()), (2, 0), "{}", report.to_text());
        assert!(!report.has_failed_repair(), "{}", report.to_text());
        let modes = ["own", "damaged", "log", "qwen", "empty"]
            .map(|name| mode(&folder.path().join(format!("{name}.jsonl"))));
        assert_eq!(modes, [0o600, 0o600, 0o644, 0o644, 0o644]);
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_written_as_json() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = folder();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.jsonl"));
        fs::copy(folder.path().join("own.jsonl"), &path).unwrap();
        let args = FsckArgs { paths: vec![path], repair: false, json: true };
        let report = args.check().unwrap().to_json();
        let session = &report["sessions"][0];
        for shown in [&session["path"], &session["notes"][0]["path"]] {
            assert!(shown.as_str().unwrap().contains("caf\u{fffd}.jsonl"), "{report}");
        }
    }

    #[test]
    fn a_new_session_that_never_got_its_name_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (left, young) =
            (at("s.jsonl.new-e9eb55db4e5bf54b"), at("t.jsonl.new-e9eb55db4e5bf54b"));
        let others = [at("s.jsonl.new-notes"), at("s.jsonl.damaged")];
        for path in [&left, &young].into_iter().chain(&others) {
            fs::write(path, "{}").unwrap();
        }
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        for path in std::iter::once(&left).chain(&others) {
            fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        let args = FsckArgs { paths: vec![folder.path().to_owned()], repair: false, json: false };
        let text = args.check().unwrap().to_text();
        assert!(text.contains("s.jsonl.new-e9eb55db4e5bf54b\n  note: left by a process"), "{text}");
        let report = repair(folder.path());
        assert!(!report.has_failed_repair(), "{}", report.to_text());
        assert!(!left.exists() && young.exists() && others.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_named_file_of_another_program_is_an_error_and_not_changed() {
        let folder = folder();
        let log = folder.path().join("log.jsonl");
        let report = repair(&log);
        assert!(report.damaged() == 1 && report.has_failed_repair(), "{}", report.to_text());
        assert_eq!(mode(&log), 0o644);
    }
}
