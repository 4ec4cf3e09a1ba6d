//! `ctxhost export`: one branch as a document, redacted on request.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::agent_folders::open_session;
use super::chat::blob_dirs;
use super::error::CliError;
use super::output::Output;
use super::render::format::format_count;
use super::session_arg::shell_quote;
use super::store::find_session;
use ctxhost_blobs::ImageStore;
use ctxhost_history::{self as history, ExportCounts, RedactionCounts, write_new};
use ctxhost_session::Session;

/// Export a branch with its compactions and the entries they folded.
///
/// --redact replaces secrets, e-mail addresses and names of home folders by numbered placeholders,
/// and removes images and signatures. Patterns find only what they know: read the result before you
/// share it.
#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// Session or recording of another agent, by file or id.
    session: PathBuf,
    /// Replace personal data by placeholders.
    #[arg(long)]
    redact: bool,
    /// Session file, or a page to read.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "json")]
    format: ExportFormat,
    /// Write to a new file that only you can read; by default to standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// JSON Lines in the session format of Pi.
    #[value(alias = "jsonl")]
    Json,
    /// Markdown.
    #[value(alias = "md")]
    Markdown,
}

impl ExportArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let path = find_session(&self.session, config_path)?;
        let session = open_session(&path, output)?.into_session_with_window()?;
        let counts = match self.format {
            ExportFormat::Json => self.export_json(&session, &path, output)?,
            ExportFormat::Markdown => {
                let (page, counts) = history::export_markdown(&session, self.redact)?;
                match &self.out {
                    Some(path) => write_new(path, |file| file.write_all(page.as_bytes()))?,
                    // Markdown is read on a terminal, so it is sanitized; JSON escapes control
                    // characters itself.
                    None => output.print_unwrapped(&page)?,
                }
                counts
            }
        };
        // On standard error, because the export itself may be on standard output.
        output.note(&describe_export(&counts, self.out.as_deref()));
        Ok(ExitCode::SUCCESS)
    }

    /// Exports line by line: a session can be larger than what is free of the memory.
    fn export_json(
        &self,
        session: &Session,
        path: &Path,
        output: &mut Output,
    ) -> Result<ExportCounts, CliError> {
        // With the images from the blob store, which a reader of the export does not have.
        let images = ImageStore::new_inline(blob_dirs().session_blobs(path));
        match &self.out {
            // Never overwrites, and readable by the owner only: an export contains the whole
            // conversation.
            Some(out) => Ok(write_new(out, |file| {
                history::export_branch(session, self.redact, |line| {
                    file.write_all(images.load_line_images(line).as_bytes())
                })
            })?),
            None => Ok(history::export_branch(session, self.redact, |line| {
                output.print_bytes(images.load_line_images(line).as_bytes())
            })?),
        }
    }
}

fn describe_export(counts: &ExportCounts, out: Option<&Path>) -> String {
    let mut parts = vec![
        format_count(counts.messages as u64, "message"),
        format_count(counts.compactions as u64, "compaction"),
    ];
    if let Some(replaced) = counts.replaced {
        let RedactionCounts { secrets, addresses, names, images } = replaced;
        parts.push(format!("{} replaced", format_count(secrets as u64, "secret")));
        let others = [(addresses, "e-mail addresses"), (names, "home folders"), (images, "images")];
        let others = others.into_iter().filter(|(number, _)| *number > 0);
        parts.extend(others.map(|(number, what)| format!("{what}: {number}")));
    }
    let written = out.map(|out| format!(" written to {}", shell_quote(out)));
    parts.join(", ") + &written.unwrap_or_default()
}
