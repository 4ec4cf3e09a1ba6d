//! `ctxhost new`: the folder of an engine of one's own.

use std::path::PathBuf;
use std::process::ExitCode;

use super::error::CliError;
use super::output::Output;
use super::session_arg::shell_quote;
use ctxhost_scaffold::{ApiSource, EngineName, EngineScaffold, ScaffoldError, ScaffoldLanguage};

/// Write a new engine: sources, tests, a CI file, ready to build.
///
/// It builds and passes `ctxhost check` as it is; what it does is small, real and there to be changed.
/// Nothing is ever written over: the folder must not be there yet.
#[derive(Debug, clap::Args)]
pub(super) struct NewArgs {
    /// The id: lower-case words joined by hyphens, such as keep-errors. Crate, slot and file are called so.
    id: String,
    /// What it is written in.
    #[arg(long, value_enum, default_value_t = LanguageArgument::Rust)]
    lang: LanguageArgument,
    /// The folder to make; by default one called like the engine, here.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Where the crate gets ctxhost-engine-api from: its folder, a git URL or a version. By default the
    /// sources that this program was built from, while they are there, else the version it speaks.
    /// Nothing to an engine in C: this program holds the header.
    #[arg(long, value_name = "PATH|URL|VERSION")]
    engine_api: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LanguageArgument {
    Rust,
    C,
}

impl NewArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let name: EngineName = self.id.parse().map_err(user_error)?;
        let engine_api = match &self.engine_api {
            Some(text) => text.parse().map_err(user_error)?,
            None => ApiSource::default_source(),
        };
        let language = match self.lang {
            LanguageArgument::Rust => ScaffoldLanguage::Rust,
            LanguageArgument::C => ScaffoldLanguage::C,
        };
        let folder = self.dir.unwrap_or_else(|| name.id().into());
        let scaffold = EngineScaffold { name, language, api_source: engine_api };
        let files = scaffold.write(&folder)?;
        let mut said = format!("created {}/\n", folder.display());
        for file in files {
            said += &format!("  {}\n", file.display());
        }
        said += &match language {
            ScaffoldLanguage::Rust => format!("engine API: {}\n", origin(&scaffold.api_source)),
            ScaffoldLanguage::C => "header: that of this program\n".into(),
        };
        said += &format!("next: cd {} && ctxhost dev\n", shell_quote(&folder));
        output.print(&said)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the dependency comes from, and what that means for others.
fn origin(engine_api: &ApiSource) -> String {
    match engine_api {
        ApiSource::Path(_) => format!("{engine_api} (on this machine only; see Cargo.toml)"),
        ApiSource::Git(_) | ApiSource::Version(_) => engine_api.to_string(),
    }
}

fn user_error(error: impl std::error::Error) -> CliError {
    CliError::user(error.to_string())
}

impl From<ScaffoldError> for CliError {
    fn from(error: ScaffoldError) -> Self {
        match error {
            ScaffoldError::Exists { .. } => CliError::user(error.to_string()),
            ScaffoldError::Unwritable { .. } => CliError::internal(error.to_string()),
        }
    }
}
