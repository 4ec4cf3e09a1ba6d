//! `ctxhost shadow`: what engines in the shadow would have made of requests.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::clock::now_ms;
use super::config;
use super::error::CliError;
use super::gc::parse_age;
use super::output::Output;
use super::render::format::{format_count, format_ms, format_percent, group_digits, one_line};
use super::render::grid::{Grid, GridColumn};
use super::render::style::Tone;
use ctxhost_agent::shadow::log;
use ctxhost_agent::shadow::report::{ShadowReport, ShadowRow};
use ctxhost_config::Config;
use ctxhost_engine::state_folder;

/// The engines in the shadow of the slot's own.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ShadowCommand {
    /// Compare what they would have made of requests with what the slot's own engine made of them.
    Report(ShadowReportArgs),
}

/// What to report.
#[derive(Debug, clap::Args)]
pub(super) struct ShadowReportArgs {
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

impl ShadowCommand {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let ShadowCommand::Report(report) = self;
        report.run(&config::load_config(config_path)?, output)
    }
}

impl ShadowReportArgs {
    fn run(self, config: &Config, output: &mut Output) -> Result<ExitCode, CliError> {
        let path = state_folder().join(log::FILE_NAME);
        let since_ms = i64::try_from(self.since.as_millis()).unwrap_or(i64::MAX);
        let (mut lines, unreadable) = log::read(&path, now_ms().saturating_sub(since_ms))
            .map_err(|error| CliError::user(format!("cannot read {}: {error}", path.display())))?;
        if unreadable > 0 {
            let lines = format_count(unreadable, "line");
            output.note(&format!("{lines} of {} cannot be read", path.display()));
        }
        let (all, own) = (lines.len(), log::config_name(config));
        lines.retain(|line| self.all || own.is_empty() || line.config == own);
        let elsewhere = all - lines.len();
        if elsewhere > 0 {
            let requests = format_count(elsewhere as u64, "request");
            output.note(&format!("{requests} of hosts with other configs left out; see --all"));
        }
        let report = ShadowReport::from_records(&lines);
        if self.json {
            let json = serde_json::to_string_pretty(&report);
            let json = json.map_err(|error| CliError::internal(error.to_string()))?;
            output.print_bytes(format!("{json}\n").as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        output.print(&render_report(&report, config, output))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn render_report(report: &ShadowReport, config: &Config, output: &Output) -> String {
    if report.requests == 0 {
        return empty_report(config);
    }
    let names = ["requests", "would compact", "survival", "prompt tokens", "", "p99 ms", "illegal"];
    let columns = [GridColumn::left("engine")].into_iter().chain(names.map(GridColumn::right));
    let mut grid = Grid::new(columns.collect());
    for row in &report.engines {
        let tone = if row.illegal + row.failed > 0 { Tone::Warning } else { Tone::Plain };
        grid.row(cells(row), tone);
    }
    let failed = report.engines.iter().filter(|row| row.failed > 0).map(failure_line);
    let skipped = (report.skipped > 0).then(|| {
        format!("{} came too fast to be looked at\n", format_count(report.skipped, "request"))
    });
    grid.render(output.style()) + &failed.chain(skipped).collect::<String>()
}

/// Why there is nothing to report.
fn empty_report(config: &Config) -> String {
    let shadows = config.shadows();
    let named = &config.plugins.slots.shadow;
    let why_not = |name: &String| {
        Some(format!("{name} does not run: {}", config.plugins.shadow_disabled_reason(name)?))
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

fn cells(row: &ShadowRow) -> Vec<String> {
    let ratio = match row.serves {
        true => "serves".to_owned(),
        false => format!("{:.2}x", row.tokens_ratio),
    };
    vec![
        one_line(&row.engine),
        group_digits(row.requests),
        group_digits(row.compacts),
        format_percent(row.survival_mean * 100.0),
        group_digits(row.tokens),
        ratio,
        format_ms(row.p99_us),
        group_digits(row.illegal),
    ]
}

fn failure_line(row: &ShadowRow) -> String {
    let why = one_line(row.failure.as_deref().unwrap_or_default());
    format!(
        "{} made nothing of {}: {why}\n",
        one_line(&row.engine),
        format_count(row.failed, "request")
    )
}
