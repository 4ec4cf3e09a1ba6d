//! `ctxhost shadow`: what engines in the shadow would have made of requests.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::config;
use super::failure::Failure;
use super::gc::parse_age;
use super::moment::now_ms;
use super::output::Output;
use super::render::grid::{Column, Grid};
use super::render::paint::Tone;
use super::render::phrase::{clean, counted, grouped, milliseconds, percent};
use ctxhost_config::Config;
use ctxhost_engine::state_folder;
use ctxhost_runtime::shadow::ledger;
use ctxhost_runtime::shadow::report::{EngineRow, ShadowReport};

/// The engines in the shadow of the slot's own.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Shadow {
    /// Compare what they would have made of requests with what the slot's own engine made of them.
    Report(Report),
}

/// What to report.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// How far back, such as 24h or 7d.
    #[arg(long, value_name = "AGE", value_parser = parse_age, default_value = "24h")]
    since: Duration,
    /// Report the requests of hosts with any config, not those with this one alone.
    #[arg(long)]
    all: bool,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

impl Shadow {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let Shadow::Report(report) = self;
        report.run(&config::load(config_path)?, output)
    }
}

impl Report {
    fn run(self, config: &Config, output: &mut Output) -> Result<ExitCode, Failure> {
        let path = state_folder().join(ledger::FILE_NAME);
        let since_ms = i64::try_from(self.since.as_millis()).unwrap_or(i64::MAX);
        let (mut lines, unreadable) = ledger::read(&path, now_ms().saturating_sub(since_ms))
            .map_err(|error| Failure::caller(format!("cannot read {}: {error}", path.display())))?;
        if unreadable > 0 {
            let lines = counted(unreadable, "line");
            output.remark(&format!("{lines} of {} cannot be read", path.display()));
        }
        let (all, own) = (lines.len(), ledger::config_name(config));
        lines.retain(|line| self.all || own.is_empty() || line.config == own);
        let elsewhere = all - lines.len();
        if elsewhere > 0 {
            let requests = counted(elsewhere as u64, "request");
            output.remark(&format!("{requests} of hosts with other configs left out; see --all"));
        }
        let report = ShadowReport::of(&lines);
        if self.json {
            let json = serde_json::to_string_pretty(&report);
            let json = json.map_err(|error| Failure::internal(error.to_string()))?;
            output.print_bytes(format!("{json}\n").as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        output.print(&told(&report, config, output))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn told(report: &ShadowReport, config: &Config, output: &Output) -> String {
    if report.requests == 0 {
        return nothing(config);
    }
    let names = ["requests", "would compact", "survival", "prompt tokens", "", "p99 ms", "illegal"];
    let columns = [Column::left("engine")].into_iter().chain(names.map(Column::right));
    let mut grid = Grid::new(columns.collect());
    for row in &report.engines {
        let tone = if row.illegal + row.failed > 0 { Tone::Warning } else { Tone::Plain };
        grid.row(cells(row), tone);
    }
    let failed = report.engines.iter().filter(|row| row.failed > 0).map(failure);
    let skipped = (report.skipped > 0)
        .then(|| format!("{} came too fast to be looked at\n", counted(report.skipped, "request")));
    grid.render(output.style()) + &failed.chain(skipped).collect::<String>()
}

/// Why there is nothing to report.
fn nothing(config: &Config) -> String {
    let shadows = config.shadows();
    let named = &config.plugins.slots.shadow;
    let why_not = |name: &String| {
        Some(format!("{name} does not run: {}", config.plugins.shadow_refusal(name)?))
    };
    match shadows.as_slice() {
        [] if named.is_empty() => "nothing was shaped beside an engine in the shadow; name one in \
                                   ctxhost.toml, with shadow = [\"mask\"] under [plugins.slots]\n"
            .into(),
        [] => {
            let why_not: Vec<String> = named.iter().filter_map(why_not).collect();
            format!("nothing was shaped beside an engine in the shadow; {}\n", why_not.join("; "))
        }
        shadows => format!(
            "nothing was shaped beside {} in that time; a host that runs with {} writes down what it \
             sees, and replays have no shadows\n",
            shadows.join(", "),
            config.name(),
        ),
    }
}

fn cells(row: &EngineRow) -> Vec<String> {
    let ratio = match row.serves {
        true => "serves".to_owned(),
        false => format!("{:.2}x", row.tokens_ratio),
    };
    vec![
        clean(&row.engine),
        grouped(row.requests),
        grouped(row.compacts),
        percent(row.survival_mean * 100.0),
        grouped(row.tokens),
        ratio,
        milliseconds(row.p99_us),
        grouped(row.illegal),
    ]
}

fn failure(row: &EngineRow) -> String {
    let why = clean(row.failure.as_deref().unwrap_or_default());
    format!("{} made nothing of {}: {why}\n", clean(&row.engine), counted(row.failed, "request"))
}
