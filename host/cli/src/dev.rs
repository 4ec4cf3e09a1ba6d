//! `ctxhost dev`: an engine built, tried and held against the bundled one, at every change.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::error::CliError;
use super::output::Output;
use super::render::dev::{RunComparison, render};
use super::replay::SessionSource;
use super::window::parse_tokens;
use ctxhost_agent::replay::report::EngineRun;
use ctxhost_dev::{
    BuildProfile, DevError, EngineProject, GenerationLog, ReplayTrial, SourceWatcher,
};
use ctxhost_engine::short_digest;

/// Build the engine of this folder, replay a session through it and through legacy, show the
/// differences; and again whenever a source changes.
///
/// Each build that changed something is a generation of its own. The replay runs in a process of its
/// own, so an engine that crashes ends that and not this.
#[derive(Debug, clap::Args)]
pub(super) struct DevArgs {
    /// The session to replay.
    #[arg(long, value_name = "FILE|demo:NAME", default_value = "demo:coding")]
    session: SessionSource,
    /// The context window to replay against, such as 32k; by default the one that `replay` takes.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// The folder of the engine's sources; by default this one.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Build as hosts will load it. The default.
    #[arg(long, conflicts_with = "debug")]
    release: bool,
    /// Build sooner; times mean little then.
    #[arg(long)]
    debug: bool,
    /// Do it once and end: with 1 where the engine failed, with 2 where there is none or nothing to replay.
    #[arg(long)]
    once: bool,
}

impl DevArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let project = EngineProject::open(self.dir.as_deref().unwrap_or(Path::new(".")))?;
        // What the replay would refuse after minutes of building.
        self.session.open()?;
        super::config::load_config(config_path)?;
        let program = std::env::current_exe()?;
        let mut bench = DevLoop {
            profile: if self.debug { BuildProfile::Debug } else { BuildProfile::Release },
            trial: ReplayTrial {
                program,
                session: self.session.to_string(),
                window: self.window,
                config: config_path.map(Path::to_owned),
            },
            project,
            generations: GenerationLog::default(),
            before: None,
        };
        if self.once {
            let is_sound = bench.run_round(output)?;
            return Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let watch = SourceWatcher::start(&bench.project)?;
        loop {
            if let Err(failure) = bench.run_round(output) {
                output.note(&failure.to_string());
            }
            output.note(&format!("watching {} (Ctrl-C ends)", bench.project.folder().display()));
            let changed = watch.wait()?;
            let shown = changed.strip_prefix(bench.project.folder()).unwrap_or(&changed);
            output.note(&format!("changed: {}", shown.display()));
        }
    }
}

/// What stays the same over the rounds, and what the newest of them found.
struct DevLoop {
    project: EngineProject,
    profile: BuildProfile,
    trial: ReplayTrial,
    generations: GenerationLog,
    /// The run of the generation before.
    before: Option<(String, EngineRun)>,
}

impl DevLoop {
    /// Builds, tries and shows; whether the engine served every request and no law was broken.
    fn run_round(&mut self, output: &mut Output) -> Result<bool, CliError> {
        let built = self.project.build(self.profile)?;
        let took = format!("built in {:.1} s", built.duration.as_secs_f64());
        let Some(generation) = self.generations.add(&built)? else {
            output.print(&format!("{took}; the library is the same as before\n"))?;
            return Ok(true);
        };
        let name = generation.name();
        output.print(&format!(
            "{took}, loaded {name} ({}, sha256 {})\n",
            generation.version,
            short_digest(&generation.sha256)
        ))?;
        let report = self.trial.run(&generation)?;
        let [run, legacy] = report.runs.as_slice() else {
            return Err(CliError::internal("the replay told of other engines than were asked for"));
        };
        let comparison = RunComparison {
            session: &report.session,
            window: &report.window,
            name: &name,
            library: &built.library,
            run,
            legacy,
            before: self.before.as_ref().map(|(name, run)| (name.as_str(), run)),
        };
        output.print(&render(&comparison, output.style()))?;
        let is_sound = run.totals.fallbacks == 0 && run.totals.violations == 0;
        self.before = Some((name, run.clone()));
        Ok(is_sound)
    }
}

impl From<DevError> for CliError {
    fn from(error: DevError) -> Self {
        match error {
            DevError::NoProject { .. } | DevError::NoLibrary { .. } | DevError::Load(_) => {
                CliError::user(error.to_string())
            }
            other => CliError::internal(other.to_string()),
        }
    }
}
