//! `ctxhost shadow`: what shadow engines would have done.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::clock::now_ms;
use super::config;
use super::duration::parse_duration;
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_count, format_ms, format_percent, group_digits, one_line};
use super::render::grid::{Grid, GridColumn};
use super::render::style::Tone;
use ctxhost_agent::shadow::log;
use ctxhost_agent::shadow::report::{ShadowReport, ShadowRow};
use ctxhost_config::Config;
use ctxhost_engine::state_folder;

/// Compare shadow engines with the active engine.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ShadowCommand {
    /// Compare the results of shadow engines with those of the active engine.
    Report(ShadowReportArgs),
}

/// Options of the shadow report.
#[derive(Debug, clap::Args)]
pub(super) struct ShadowReportArgs {
    /// Period, such as 24h or 7d.
    #[arg(long, value_name = "AGE", value_parser = parse_duration, default_value = "24h")]
    since: Duration,
    /// Include hosts with other configs.
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
        // A line may be half written by a host that is running.
        if unreadable > 0 {
            let lines = format_count(unreadable, "line");
            output.note(&format!("skipped {lines} of {} that cannot be read", path.display()));
        }
        let (all, own) = (lines.len(), log::config_name(config));
        // Without a config of its own the report cannot tell hosts apart and shows all of them.
        lines.retain(|line| self.all || own.is_empty() || line.config == own);
        let elsewhere = all - lines.len();
        if elsewhere > 0 {
            let requests = format_count(elsewhere as u64, "request");
            output.note(&format!(
                "{requests} of hosts with other configs omitted; include them with --all"
            ));
        }
        let report = ShadowReport::from_records(&lines);
        if self.json {
            output.print_json(&report)?;
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
    let names =
        ["requests", "would compact", "retention", "prompt tokens", "", "p99 ms", "violations"];
    let columns = [GridColumn::left("engine")].into_iter().chain(names.map(GridColumn::right));
    let mut grid = Grid::new(columns.collect());
    for row in &report.engines {
        let tone = if row.violations + row.failed > 0 { Tone::Warning } else { Tone::Plain };
        grid.row(cells(row), tone);
    }
    let failed = report.engines.iter().filter(|row| row.failed > 0).map(failure_line);
    let skipped = (report.skipped > 0).then(|| {
        format!(
            "{} skipped because the shadow engines were busy\n",
            format_count(report.skipped, "request")
        )
    });
    grid.render(output.style()) + &failed.chain(skipped).collect::<String>()
}

/// Why the report is empty.
fn empty_report(config: &Config) -> String {
    let shadows = config.shadows();
    let named = &config.plugins.slots.shadow;
    let why_not = |name: &String| {
        Some(format!("{name} does not run: {}", config.plugins.shadow_disabled_reason(name)?))
    };
    match shadows.as_slice() {
        [] if named.is_empty() => {
            "no shadow engine is configured; set shadow = [\"mask\"] in [plugins.slots]\n".into()
        }
        [] => {
            let why_not: Vec<String> = named.iter().filter_map(why_not).collect();
            format!("no shadow engine ran: {}\n", why_not.join("; "))
        }
        shadows => format!(
            "no requests for {} in this period; hosts with config {} record them, replays do not\n",
            shadows.join(", "),
            config.name(),
        ),
    }
}

fn cells(row: &ShadowRow) -> Vec<String> {
    let ratio = if row.active { "active".to_owned() } else { format!("{:.2}x", row.tokens_ratio) };
    vec![
        one_line(&row.engine),
        group_digits(row.requests),
        group_digits(row.compacts),
        format_percent(row.retention_mean * 100.0),
        group_digits(row.tokens),
        ratio,
        format_ms(row.p99_us),
        group_digits(row.violations),
    ]
}

fn failure_line(row: &ShadowRow) -> String {
    let why = one_line(row.failure.as_deref().unwrap_or_default());
    format!("{} failed on {}: {why}\n", one_line(&row.engine), format_count(row.failed, "request"))
}
