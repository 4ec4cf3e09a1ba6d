//! `ctxhost sessions du`: what sessions take on the disk.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::chat::media_home;
use crate::failure::Failure;
use crate::render::phrase::{counted, size};
use ctxhost_media::{Blob, Usage};

/// What sessions take on the disk, and what they would take with everything inline.
#[derive(Debug, clap::Args)]
pub(crate) struct Du {
    /// The folder that holds them, at any depth; by default that of all sessions that are kept.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Print it as JSON, in bytes.
    #[arg(long)]
    json: bool,
}

impl Du {
    pub(super) fn run(self) -> Result<String, Failure> {
        let home = media_home();
        let usage = match &self.folder {
            Some(folder) => Usage::below(folder, &home)?,
            None => Usage::of_all(&home)?,
        };
        let roots = self.folder.map_or_else(|| home.all_sessions(), |folder| vec![folder]);
        Ok(match self.json {
            true => format!("{:#}\n", to_json(&usage)),
            false => to_text(&usage, &roots),
        })
    }
}

fn to_text(usage: &Usage, roots: &[PathBuf]) -> String {
    let mut text = String::new();
    if !usage.sessions.is_empty() {
        text.push_str("   logical     stored   dedup  session\n");
    }
    for session in &usage.sessions {
        let names = roots.iter().filter_map(|root| session.path.strip_prefix(root).ok());
        let name = names.into_iter().next().unwrap_or(&session.path);
        let (logical, stored) = (size(session.logical_bytes), size(session.stored_bytes));
        let dedup = times(session.dedup());
        text.push_str(&format!("{logical:>10} {stored:>10} {dedup:>7}  {}\n", name.display()));
    }
    text.push_str(&format!(
        "{}  logical {}  stored {}  dedup {}\n",
        counted(usage.sessions.len() as u64, "session"),
        size(usage.logical_bytes),
        size(usage.stored_bytes),
        times(usage.dedup()),
    ));
    if !usage.unnamed.is_empty() {
        text.push_str(&format!(
            "{} more ({}) that none of them names; `ctxhost gc --dry-run` says what may go\n",
            counted(usage.unnamed.len() as u64, "blob"),
            size(bytes_of(&usage.unnamed)),
        ));
    }
    text
}

fn to_json(usage: &Usage) -> Value {
    let sessions = usage.sessions.iter().map(|session| {
        json!({
            "path": session.path,
            "logical_bytes": session.logical_bytes,
            "stored_bytes": session.stored_bytes,
        })
    });
    json!({
        "sessions": sessions.collect::<Vec<_>>(),
        "logical_bytes": usage.logical_bytes,
        "stored_bytes": usage.stored_bytes,
        "unnamed_blobs": usage.unnamed.len(),
        "unnamed_bytes": bytes_of(&usage.unnamed),
    })
}

/// What all of them take.
pub(crate) fn bytes_of(blobs: &[Blob]) -> u64 {
    blobs.iter().map(|blob| blob.size_bytes).sum()
}

fn times(factor: f64) -> String {
    format!("{factor:.1}x")
}
