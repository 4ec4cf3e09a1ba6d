//! `ctxhost dev`: an engine built, tried and held against the bundled one, at every change.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::failure::Failure;
use super::output::Output;
use super::render::dev::{Comparison, render};
use super::replay::SessionSource;
use super::window::parse_tokens;
use ctxhost_dev::{DevError, Generations, Profile, Project, Trial, Watch};
use ctxhost_engine::shown_digest;
use ctxhost_runtime::replay::report::Run;

/// Build the engine of this folder, replay a session through it and through legacy, show the
/// differences; and again whenever a source changes.
///
/// Each build that changed something is a generation of its own. The replay runs in a process of its
/// own, so an engine that crashes ends that and not this.
#[derive(Debug, clap::Args)]
pub(super) struct Dev {
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

impl Dev {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let project = Project::open(self.dir.as_deref().unwrap_or(Path::new(".")))?;
        // What the replay would refuse after minutes of building.
        self.session.open()?;
        super::config::load(config_path)?;
        let program = std::env::current_exe()?;
        let mut bench = Bench {
            profile: if self.debug { Profile::Debug } else { Profile::Release },
            trial: Trial {
                program,
                session: self.session.to_string(),
                window: self.window,
                config: config_path.map(Path::to_owned),
            },
            project,
            generations: Generations::default(),
            before: None,
        };
        if self.once {
            let is_sound = bench.round(output)?;
            return Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let watch = Watch::begin(&bench.project)?;
        loop {
            if let Err(failure) = bench.round(output) {
                output.remark(&failure.to_string());
            }
            output.remark(&format!("watching {} (Ctrl-C ends)", bench.project.folder().display()));
            let changed = watch.wait()?;
            let shown = changed.strip_prefix(bench.project.folder()).unwrap_or(&changed);
            output.remark(&format!("changed: {}", shown.display()));
        }
    }
}

/// What stays the same over the rounds, and what the newest of them found.
struct Bench {
    project: Project,
    profile: Profile,
    trial: Trial,
    generations: Generations,
    /// The run of the generation before.
    before: Option<(String, Run)>,
}

impl Bench {
    /// Builds, tries and shows; whether the engine served every request and no law was broken.
    fn round(&mut self, output: &mut Output) -> Result<bool, Failure> {
        let built = self.project.build(self.profile)?;
        let took = format!("built in {:.1} s", built.took.as_secs_f64());
        let Some(generation) = self.generations.take_in(&built)? else {
            output.print(&format!("{took}; the library is the same as before\n"))?;
            return Ok(true);
        };
        let name = generation.name();
        output.print(&format!(
            "{took}, loaded {name} ({}, sha256 {})\n",
            generation.version,
            shown_digest(&generation.sha256)
        ))?;
        let report = self.trial.run(&generation)?;
        let [run, legacy] = report.runs.as_slice() else {
            return Err(Failure::internal("the replay told of other engines than were asked for"));
        };
        let comparison = Comparison {
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

impl From<DevError> for Failure {
    fn from(error: DevError) -> Self {
        match error {
            DevError::NoProject { .. } | DevError::NoLibrary { .. } | DevError::Load(_) => {
                Failure::caller(error.to_string())
            }
            other => Failure::internal(other.to_string()),
        }
    }
}
