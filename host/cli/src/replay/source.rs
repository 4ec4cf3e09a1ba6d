//! Sources of a replay: a file, or a built-in demo.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use super::super::agent_folders::resolve_session;
use super::super::error::CliError;
use super::super::run_setup;
use ctxhost_agent::OfflineOptions;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_agent::replay::report::ReplayWindow;
use ctxhost_config::Config;
use ctxhost_import::{DEMO_PREFIX, DEMOS, DemoSession, ImportedSession};

/// A session on the command line: `work.jsonl`, `demo:coding`.
#[derive(Clone, Debug)]
pub(crate) enum SessionSource {
    File(PathBuf),
    Demo(&'static DemoSession),
}

impl SessionSource {
    /// The parser of an argument: names of files need not be UTF-8.
    pub(crate) fn parser() -> impl TypedValueParser<Value = SessionSource> {
        PathBufValueParser::new().try_map(SessionSource::from_argument)
    }

    fn from_argument(path: PathBuf) -> Result<SessionSource, String> {
        let Some(text) = path.to_str().filter(|text| text.starts_with(DEMO_PREFIX)) else {
            return Ok(SessionSource::File(path));
        };
        match DemoSession::find(text) {
            Some(demo) => Ok(SessionSource::Demo(demo)),
            // A file may really be called `demo:x`; it wins over an unknown demo.
            None if path.exists() => Ok(SessionSource::File(path)),
            None => {
                let demos =
                    DEMOS.map(|demo| format!("{DEMO_PREFIX}{} ({})", demo.name, demo.about));
                Err(format!("unknown demo; available: {}", demos.join(", ")))
            }
        }
    }
}

impl fmt::Display for SessionSource {
    /// As it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionSource::File(path) => write!(f, "{}", path.display()),
            SessionSource::Demo(demo) => write!(f, "{DEMO_PREFIX}{}", demo.name),
        }
    }
}

impl SessionSource {
    /// Reads the session into memory.
    pub(crate) fn open(&self) -> Result<ImportedSession, CliError> {
        Ok(match self {
            SessionSource::File(path) => ctxhost_import::open_file(&resolve_session(path)?)?,
            SessionSource::Demo(demo) => demo.open()?,
        })
    }

    /// Its name on the command line; `None` for a demo.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            SessionSource::File(path) => Some(path),
            SessionSource::Demo(_) => None,
        }
    }

    /// The name in reports: a file without its folders.
    pub(crate) fn name(&self) -> String {
        match self {
            SessionSource::File(path) => {
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            SessionSource::Demo(_) => self.to_string(),
        }
    }

    /// The path from which a config is searched; empty for a demo.
    pub(crate) fn config_anchor(&self) -> PathBuf {
        match self {
            SessionSource::File(path) => path.clone(),
            SessionSource::Demo(_) => PathBuf::new(),
        }
    }

    /// The files of these sessions; none for a demo. One that is missing keeps its name.
    pub(crate) fn files(sources: &[SessionSource]) -> Vec<PathBuf> {
        let file = |source: &SessionSource| match source {
            SessionSource::File(named) => {
                Some(resolve_session(named).unwrap_or_else(|_| named.clone()))
            }
            SessionSource::Demo(_) => None,
        };
        sources.iter().filter_map(file).collect()
    }

    /// The options for the model of a recording. The window of a demo overrides the config;
    /// --window overrides both.
    pub(super) fn options(
        &self,
        config: &Config,
        registry: &EngineRegistry,
        recorded: &ImportedSession,
        window_tokens: Option<u64>,
    ) -> Result<(OfflineOptions, ReplayWindow), CliError> {
        let own = match self {
            SessionSource::File(_) => None,
            SessionSource::Demo(demo) => Some(demo.window_tokens),
        };
        let (options, mut window) = {
            let (model, tokens) = (recorded.session.model(), recorded.window_tokens);
            run_setup::run_options(config, registry, model, window_tokens.or(own), tokens)?
        };
        if window_tokens.is_none() && own.is_some() {
            // Otherwise the report would claim that the window came from --window.
            window.source = "demo".into();
        }
        Ok((options, window))
    }
}
