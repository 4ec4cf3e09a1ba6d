//! Where a session to replay comes from: a file, or the program itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::super::error::CliError;
use super::super::run_setup;
use ctxhost_agent::OfflineOptions;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_agent::replay::report::ReplayWindow;
use ctxhost_config::Config;
use ctxhost_session::import::{self, DEMO_PREFIX, DEMOS, DemoSession, ImportedSession};

/// A session on the command line: `work.jsonl`, `demo:coding`.
#[derive(Clone, Debug)]
pub(crate) enum SessionSource {
    File(PathBuf),
    Demo(&'static DemoSession),
}

impl FromStr for SessionSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match DemoSession::find(text).filter(|_| text.starts_with(DEMO_PREFIX)) {
            Some(demo) => Ok(SessionSource::Demo(demo)),
            None if text.starts_with(DEMO_PREFIX) && !Path::new(text).exists() => {
                let told = DEMOS.map(|demo| format!("{DEMO_PREFIX}{} ({})", demo.name, demo.about));
                Err(format!("there is no such demo; there are {}", told.join(", ")))
            }
            None => Ok(SessionSource::File(text.into())),
        }
    }
}

impl fmt::Display for SessionSource {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionSource::File(path) => write!(f, "{}", path.display()),
            SessionSource::Demo(demo) => write!(f, "{DEMO_PREFIX}{}", demo.name),
        }
    }
}

impl SessionSource {
    /// The session, in memory.
    pub(crate) fn open(&self) -> Result<ImportedSession, CliError> {
        Ok(match self {
            SessionSource::File(path) => import::open_file(path)?,
            SessionSource::Demo(demo) => demo.open()?,
        })
    }

    /// The name that reports show: of a file without its folders.
    pub(super) fn name(&self) -> String {
        match self {
            SessionSource::File(path) => {
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            SessionSource::Demo(_) => self.to_string(),
        }
    }

    /// The file beside which a config may stand; for a demo one that is nowhere.
    pub(super) fn config_anchor(&self) -> PathBuf {
        match self {
            SessionSource::File(path) => path.clone(),
            SessionSource::Demo(_) => PathBuf::new(),
        }
    }

    /// The options for the model of a recording. A demo has a window of its own, which goes before that of the config and
    /// behind one that was asked for.
    pub(super) fn options(
        &self,
        config: &Config,
        roster: &EngineRegistry,
        recorded: &ImportedSession,
        asked: Option<u64>,
    ) -> Result<(OfflineOptions, ReplayWindow), CliError> {
        let own = match self {
            SessionSource::File(_) => None,
            SessionSource::Demo(demo) => Some(demo.window_tokens),
        };
        let (options, mut window) = {
            let (model, tokens) = (recorded.session.model(), recorded.window_tokens);
            run_setup::run_options(config, roster, model, asked.or(own), tokens)?
        };
        if asked.is_none() && own.is_some() {
            window.source = "demo".into();
        }
        Ok((options, window))
    }
}
