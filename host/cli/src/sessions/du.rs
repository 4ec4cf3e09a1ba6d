//! `ctxhost sessions du`: disk usage of sessions.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::chat::blob_dirs;
use crate::error::CliError;
use crate::json_path::json_path;
use crate::output::Output;
use crate::render::format::{format_bytes, format_count, one_line};
use crate::render::grid::{Grid, GridColumn};
use crate::render::style::{TextStyle, Tone};
use ctxhost_blobs::{DiskUsage, StoredBlob};

/// Show the disk usage of sessions, and what they would use with everything inline.
#[derive(Debug, clap::Args)]
pub(crate) struct DuArgs {
    /// Folder with sessions, at any depth; by default all stored sessions.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Print the usage as JSON, in bytes.
    #[arg(long)]
    json: bool,
}

impl DuArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let home = blob_dirs();
        let usage = match &self.folder {
            Some(folder) => DiskUsage::measure_folder(folder, &home)?,
            None => DiskUsage::measure_all(&home)?,
        };
        let roots = self.folder.map_or_else(|| home.all_session_dirs(), |folder| vec![folder]);
        if self.json {
            output.print_json(&to_json(&usage))?;
        } else {
            output.print(&to_text(&usage, &roots, output.style()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn to_text(usage: &DiskUsage, roots: &[PathBuf], style: TextStyle) -> String {
    let mut grid = Grid::new(vec![
        GridColumn::right("logical"),
        GridColumn::right("stored"),
        GridColumn::right("dedup"),
        GridColumn::left("session").wrapping_words(),
    ]);
    for session in &usage.sessions {
        let names = roots.iter().filter_map(|root| session.path.strip_prefix(root).ok());
        let name = names.into_iter().next().unwrap_or(&session.path);
        let sizes = [session.logical_bytes, session.stored_bytes].map(format_bytes);
        let dedup = format_factor(session.dedup_factor());
        let name = one_line(&name.display().to_string());
        grid.row(sizes.into_iter().chain([dedup, name]).collect(), Tone::Plain);
    }
    let mut text = if usage.sessions.is_empty() { String::new() } else { grid.render(style) };
    text.push_str(&format!(
        "{}  logical {}  stored {}  dedup {}\n",
        format_count(usage.sessions.len() as u64, "session"),
        format_bytes(usage.logical_bytes),
        format_bytes(usage.stored_bytes),
        format_factor(usage.dedup_factor()),
    ));
    if !usage.unreferenced.is_empty() {
        text.push_str(&format!(
            "{} ({}) unreferenced; `ctxhost gc --dry-run` shows what can be removed\n",
            format_count(usage.unreferenced.len() as u64, "blob"),
            format_bytes(total_bytes(&usage.unreferenced)),
        ));
    }
    text
}

fn to_json(usage: &DiskUsage) -> Value {
    let sessions = usage.sessions.iter().map(|session| {
        json!({
            "path": json_path(&session.path),
            "logical_bytes": session.logical_bytes,
            "stored_bytes": session.stored_bytes,
        })
    });
    json!({
        "sessions": sessions.collect::<Vec<_>>(),
        "logical_bytes": usage.logical_bytes,
        "stored_bytes": usage.stored_bytes,
        "unreferenced_blobs": usage.unreferenced.len(),
        "unreferenced_bytes": total_bytes(&usage.unreferenced),
    })
}

pub(crate) fn total_bytes(blobs: &[StoredBlob]) -> u64 {
    blobs.iter().map(|blob| blob.size_bytes).sum()
}

fn format_factor(factor: f64) -> String {
    format!("{factor:.1}x")
}
