//! `ctxhost completions` and `ctxhost man`, generated from the command definitions.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::CliArgs;
use super::error::CliError;
use super::examples::with_examples;
use super::output::Output;
use super::render::format::format_count;
use super::session_arg::shell_quote;

/// Print the completion script of a shell.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// Shell.
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn run(&self, output: &mut Output) -> Result<ExitCode, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CliArgs::command(), "ctxhost", &mut script);
        output.print_bytes(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write the manual pages, one for each command.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Folder for the pages; created if it does not exist.
    folder: PathBuf,
}

impl ManArgs {
    pub(super) fn run(&self, output: &mut Output) -> Result<ExitCode, CliError> {
        let failed = |error: io::Error| {
            CliError::user(format!(
                "cannot write the manual pages to {}: {error}",
                self.folder.display()
            ))
        };
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        clap_mangen::generate_to(with_examples(CliArgs::command()), &self.folder)
            .map_err(failed)?;
        let pages = std::fs::read_dir(&self.folder).map_err(failed)?.filter_map(Result::ok);
        let is_page =
            |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("ctxhost");
        let count = format_count(pages.filter(is_page).count() as u64, "page");
        let (folder, page) = (self.folder.display(), shell_quote(&self.folder.join("ctxhost.1")));
        output.print(&format!("{count} in {folder}; read one with `man -l {page}`\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
