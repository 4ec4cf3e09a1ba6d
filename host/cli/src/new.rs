//! `ctxhost new`: creates the folder of a new engine.

use std::path::PathBuf;
use std::process::ExitCode;

use super::error::CliError;
use super::output::Output;
use super::session_arg::shell_quote;
use ctxhost_scaffold::{ApiSource, EngineName, EngineScaffold, ScaffoldError, ScaffoldLanguage};

/// Create a new engine: sources, tests and a CI file, ready to build.
///
/// It builds and passes `ctxhost check`. Existing folders are not overwritten.
#[derive(Debug, clap::Args)]
pub(super) struct NewArgs {
    /// Id: lower-case words joined by hyphens, such as keep-errors; also the name of the crate and
    /// the file.
    id: String,
    /// Language of the engine.
    #[arg(long, value_enum, default_value_t = LanguageArgument::Rust)]
    lang: LanguageArgument,
    /// Folder to create; by default the id, in the current folder.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Source of ctxhost-engine-api: a folder, a git URL or a version. By default the sources this
    /// program was built from if they exist, else its version. Not used for C, whose header is
    /// included.
    #[arg(long, value_name = "PATH|URL|VERSION")]
    engine_api: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LanguageArgument {
    Rust,
    C,
    /// Hidden: only to say which one to use instead.
    #[value(name = "cpp", aliases = ["c++", "cxx"], hide = true)]
    Cpp,
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
            LanguageArgument::Cpp => {
                return Err(CliError::user("C++ has no template of its own")
                    .hint("use --lang c: its header is C++ as well; see docs/engines/c.md"));
            }
        };
        // The id is a valid folder and crate name by construction.
        let folder = self.dir.unwrap_or_else(|| name.id().into());
        let scaffold = EngineScaffold { name, language, api_source: engine_api };
        let files = scaffold.write(&folder)?;
        let mut text = format!("created {}/\n", folder.display());
        for file in files {
            text += &format!("  {}\n", file.display());
        }
        text += &match language {
            ScaffoldLanguage::Rust => format!("engine API: {}\n", origin(&scaffold.api_source)),
            ScaffoldLanguage::C => "header: included\n".into(),
        };
        text += &format!("next: cd {} && ctxhost dev\n", shell_quote(&folder));
        output.print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The source of the dependency, with what may keep it from being found.
fn origin(engine_api: &ApiSource) -> String {
    match engine_api {
        ApiSource::Path(_) => format!("{engine_api} (on this machine only; see Cargo.toml)"),
        ApiSource::Version(_) => {
            format!("{engine_api} of crates.io (if it is not there: --engine-api PATH|URL)")
        }
        ApiSource::Git(_) => engine_api.to_string(),
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
