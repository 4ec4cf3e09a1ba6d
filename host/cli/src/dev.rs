//! `ctxhost dev`: builds an engine, replays a session and compares it with `legacy`, at every
//! change.

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

/// Build, replay and compare an engine at every change.
///
/// Builds the engine in this folder, replays a session through it and through legacy, and shows the
/// differences; repeats when a source changes. The replay runs in its own process, so an engine
/// that crashes does not end this command.
#[derive(Debug, clap::Args)]
pub(super) struct DevArgs {
    /// Session to replay.
    #[arg(long, value_name = "FILE|demo:NAME", default_value = "demo:coding", value_parser = SessionSource::parser())]
    session: SessionSource,
    /// Context window to replay against, such as 32k; by default the one that `replay` uses.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Folder of the engine's sources; by default the current one.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Build in release mode. The default.
    #[arg(long, conflicts_with = "debug")]
    release: bool,
    /// Build in debug mode: faster to build, timings are not meaningful.
    #[arg(long)]
    debug: bool,
    /// Run once and exit: 1 if the engine failed, 2 if there is no engine or nothing to replay.
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
        // Fails before the build on errors that the replay would find after it.
        self.session.open()?;
        super::config::load_config(config_path)?;
        // The replay runs in a child of this same binary, so that both always have the same
        // version.
        let program = std::env::current_exe()?;
        let mut dev_loop = DevLoop {
            profile: if self.debug { BuildProfile::Debug } else { BuildProfile::Release },
            trial: ReplayTrial {
                program,
                session: self.session.to_string(),
                window: self.window,
                config: config_path.map(Path::to_owned),
            },
            project,
            generations: GenerationLog::default(),
            last_good: LastGood::default(),
        };
        if self.once {
            let is_sound = dev_loop.run_round(output)?;
            return Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        // Started before the first build: a change during it triggers the next one.
        let watch = SourceWatcher::start(&dev_loop.project)?;
        loop {
            // A failing build must not end the loop; the author fixes it and saves again.
            if let Err(error) = dev_loop.run_round(output) {
                output.note(&error.to_string());
            }
            output.note(&format!(
                "watching {} (Ctrl-C to stop)",
                dev_loop.project.folder().display()
            ));
            let changed = watch.wait()?;
            let shown = changed.strip_prefix(dev_loop.project.folder()).unwrap_or(&changed);
            output.note(&format!("changed: {}", shown.display()));
        }
    }
}

/// The state of `dev` between builds.
struct DevLoop {
    project: EngineProject,
    profile: BuildProfile,
    trial: ReplayTrial,
    generations: GenerationLog,
    last_good: LastGood,
}

/// Name and run of the last generation that served every request.
#[derive(Default)]
struct LastGood(Option<(String, EngineRun)>);

impl LastGood {
    fn get(&self) -> Option<(&str, &EngineRun)> {
        self.0.as_ref().map(|(name, run)| (name.as_str(), run))
    }

    /// Keeps a run for the next comparison and returns `true`, if the engine served every request without an
    /// invariant violation.
    fn record(&mut self, name: String, run: &EngineRun) -> bool {
        // Repairs do not count: a repaired plan was served by this engine.
        let is_sound = run.totals.fallbacks == 0 && run.totals.violations == 0;
        // The figures of a failed generation are those of the fallback.
        if is_sound {
            self.0 = Some((name, run.clone()));
        }
        is_sound
    }
}

impl DevLoop {
    /// Builds, replays and reports; `true` if the engine served every request without an invariant
    /// violation.
    fn run_round(&mut self, output: &mut Output) -> Result<bool, CliError> {
        let built = self.project.build(self.profile)?;
        let took = format!("built in {:.1} s", built.duration.as_secs_f64());
        // Loading the same bytes twice would compare a generation with itself.
        let Some(generation) = self.generations.add(&built)? else {
            output.print(&format!("{took}; the library is unchanged\n"))?;
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
            return Err(CliError::internal("the replay reported other engines than requested"));
        };
        let comparison = RunComparison {
            session: &report.session,
            window: &report.window,
            name: &name,
            library: &built.library,
            run,
            legacy,
            last_good: self.last_good.get(),
        };
        output.print(&render(&comparison, output.style()))?;
        Ok(self.last_good.record(name, run))
    }
}

impl From<DevError> for CliError {
    fn from(error: DevError) -> Self {
        match error {
            // The author can fix these, so they are exit code 2.
            DevError::NoProject { .. } | DevError::NoLibrary { .. } | DevError::Load(_) => {
                CliError::user(error.to_string())
            }
            other => CliError::internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn a_build_is_compared_with_the_last_good_one() {
        let (good, failed) = (sample::compared(), sample::troubled());
        let mut last_good = LastGood::default();
        assert!(!last_good.record("mask@dev.1".into(), &failed.runs[0]));
        assert!(last_good.get().is_none(), "nothing to compare with");
        assert!(last_good.record("mask@dev.2".into(), &good.runs[0]));
        assert!(!last_good.record("mask@dev.3".into(), &failed.runs[0]));
        assert_eq!(last_good.get().map(|(name, _)| name), Some("mask@dev.2"));
    }
}
