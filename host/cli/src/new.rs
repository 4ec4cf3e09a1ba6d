//! `ctxhost new`: the folder of an engine of one's own.

use std::path::PathBuf;
use std::process::ExitCode;

use super::failure::Failure;
use super::named::for_shell;
use super::output::Output;
use ctxhost_scaffold::{EngineApi, EngineName, Language, Scaffold, ScaffoldError};

/// Write a new engine: sources, tests, a CI file, ready to build.
///
/// It builds and passes `ctxhost check` as it is; what it does is small, real and there to be changed.
/// Nothing is ever written over: the folder must not be there yet.
#[derive(Debug, clap::Args)]
pub(super) struct New {
    /// The id: lower-case words joined by hyphens, such as keep-errors. Crate, slot and file are called so.
    id: String,
    /// What it is written in.
    #[arg(long, value_enum, default_value_t = Lang::Rust)]
    lang: Lang,
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
enum Lang {
    Rust,
    C,
}

impl New {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let name: EngineName = self.id.parse().map_err(caller)?;
        let engine_api = match &self.engine_api {
            Some(text) => text.parse().map_err(caller)?,
            None => EngineApi::usual(),
        };
        let language = match self.lang {
            Lang::Rust => Language::Rust,
            Lang::C => Language::C,
        };
        let folder = self.dir.unwrap_or_else(|| name.id().into());
        let scaffold = Scaffold { name, language, engine_api };
        let files = scaffold.write(&folder)?;
        let mut said = format!("created {}/\n", folder.display());
        for file in files {
            said += &format!("  {}\n", file.display());
        }
        said += &match language {
            Language::Rust => format!("engine API: {}\n", origin(&scaffold.engine_api)),
            Language::C => "header: that of this program\n".into(),
        };
        said += &format!("next: cd {} && ctxhost dev\n", for_shell(&folder));
        output.print(&said)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the dependency comes from, and what that means for others.
fn origin(engine_api: &EngineApi) -> String {
    match engine_api {
        EngineApi::Path(_) => format!("{engine_api} (on this machine only; see Cargo.toml)"),
        EngineApi::Git(_) | EngineApi::Version(_) => engine_api.to_string(),
    }
}

fn caller(error: impl std::error::Error) -> Failure {
    Failure::caller(error.to_string())
}

impl From<ScaffoldError> for Failure {
    fn from(error: ScaffoldError) -> Self {
        match error {
            ScaffoldError::Exists { .. } => Failure::caller(error.to_string()),
            ScaffoldError::Unwritable { .. } => Failure::internal(error.to_string()),
        }
    }
}
