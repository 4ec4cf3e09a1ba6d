//! `ctxhost export`: a branch as one document, without secrets if so wished.

use std::path::PathBuf;
use std::process::ExitCode;

use super::chat::media_home;
use super::failure::Failure;
use super::output::Output;
use super::render::phrase::counted;
use ctxhost_history::{self as history, Replaced, write_new};
use ctxhost_media::Images;
use ctxhost_session::recording;

/// Write down a whole branch, with its compactions and what they folded away.
///
/// With --redact, secrets, e-mail addresses and the names of home folders become numbered placeholders, and
/// pictures and signatures are left out. Patterns find what they know: read it before you share it.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The session, or a recording of another agent.
    session: PathBuf,
    /// Replace what should stay at home.
    #[arg(long)]
    redact: bool,
    /// A session again, or a page to read.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "json")]
    format: Format,
    /// Write it to a new file that only you can read; by default to standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// JSON Lines in the session format of Pi.
    #[value(alias = "jsonl")]
    Json,
    /// Markdown.
    #[value(alias = "md")]
    Markdown,
}

impl Export {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let session = recording::read(&self.session)?.session;
        let export = history::export(&session, self.redact);
        let text = match self.format {
            Format::Json => self.with_images(&export.json()),
            Format::Markdown => export.markdown()?,
        };
        match &self.out {
            Some(path) => write_new(path, text.as_bytes())?,
            // Somebody reads Markdown, in a pager as well; JSON has no character in it that steers.
            None if self.format == Format::Markdown => output.print(&text)?,
            None => output.print_bytes(text.as_bytes())?,
        }
        output.remark(&told(&export));
        Ok(ExitCode::SUCCESS)
    }
}

impl Export {
    /// Whoever reads it has no store: images that were put away stand in their lines again.
    fn with_images(&self, text: &str) -> String {
        let images = Images::inline(media_home().of_session(&self.session));
        text.split_inclusive('\n').map(|line| images.bring_back_in_line(line)).collect()
    }
}

fn told(export: &history::Export) -> String {
    let mut parts = vec![
        counted(export.messages as u64, "message"),
        counted(export.compactions as u64, "compaction"),
    ];
    if let Some(replaced) = export.replaced {
        let Replaced { secrets, addresses, names, images } = replaced;
        parts.push(format!("{} replaced", counted(secrets as u64, "secret")));
        let others =
            [(addresses, "e-mail addresses"), (names, "home folders"), (images, "pictures")];
        let others = others.into_iter().filter(|(number, _)| *number > 0);
        parts.extend(others.map(|(number, what)| format!("{what}: {number}")));
    }
    parts.join(", ")
}
