//! Captures output: the end in memory, and long output also in a file.

use std::io;
use std::path::PathBuf;

use tempfile::TempPath;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;

use crate::output_limit::{OUTPUT_MAX_BYTES, create_output_file, last_lines};

/// The largest output file: endless output must not fill the disk.
const SAVED_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The captured output of a command.
#[derive(Debug, Default)]
pub(super) struct OutputCapture {
    end: Vec<u8>,
    total_bytes: u64,
    saving: OutputFile,
}

#[derive(Debug, Default)]
enum OutputFile {
    /// The output fits in memory so far.
    #[default]
    InMemory,
    /// The output goes to this file.
    Open(File, TempPath),
    /// The file could not be written.
    Failed(io::Error),
}

impl OutputCapture {
    /// Appends output.
    pub(super) async fn push(&mut self, chunk: &[u8]) {
        self.save(chunk).await;
        self.end.extend_from_slice(chunk);
        self.total_bytes += chunk.len() as u64;
        if self.end.len() > 2 * OUTPUT_MAX_BYTES {
            // One byte more than is returned, to see whether it starts a line.
            // Trimmed at twice the limit, so that the copying is amortized.
            self.end.drain(..self.end.len() - OUTPUT_MAX_BYTES - 1);
        }
    }

    async fn save(&mut self, chunk: &[u8]) {
        let fits = self.end.len() + chunk.len() <= OUTPUT_MAX_BYTES;
        if matches!(self.saving, OutputFile::InMemory) && !fits {
            self.saving = begin(&self.end).await.unwrap_or_else(OutputFile::Failed);
        }
        let OutputFile::Open(file, _) = &mut self.saving else { return };
        if self.total_bytes < SAVED_MAX_BYTES
            && let Err(error) = file.write_all(chunk).await
        {
            self.saving = OutputFile::Failed(error);
        }
    }

    /// The whole output, or its end with a notice about the file.
    pub(super) async fn finish(self) -> String {
        let text = String::from_utf8_lossy(&self.end);
        let saved = match self.saving {
            OutputFile::InMemory => return text.into_owned(),
            OutputFile::Open(file, path) => keep(file, path).await,
            OutputFile::Failed(error) => Err(error),
        };
        let saved = match saved {
            Ok(path) if self.total_bytes > SAVED_MAX_BYTES => {
                format!("the first {SAVED_MAX_BYTES} bytes are in {}", path.display())
            }
            Ok(path) => format!("all of it is in {}", path.display()),
            Err(error) => format!("the rest is lost, for it could not be saved: {error}"),
        };
        let displayed = last_lines(&text, OUTPUT_MAX_BYTES);
        let total = self.total_bytes;
        format!(
            "[cut: these are the last {} of {total} bytes; {saved}]\n{displayed}",
            displayed.len()
        )
    }
}

async fn begin(so_far: &[u8]) -> io::Result<OutputFile> {
    let file = spawn_blocking(create_output_file).await.map_err(io::Error::other)??;
    let (file, path) = file.into_parts();
    let mut file = File::from_std(file);
    file.write_all(so_far).await?;
    Ok(OutputFile::Open(file, path))
}

async fn keep(mut file: File, path: TempPath) -> io::Result<PathBuf> {
    file.flush().await?;
    path.keep().map_err(|error| error.error)
}
