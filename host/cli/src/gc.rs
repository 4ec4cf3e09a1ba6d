//! `ctxhost gc`: removes blobs that nothing references.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use super::chat::blob_dirs;
use super::duration::{format_duration, parse_duration};
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_bytes, format_count, group_digits};
use super::run_setup;
use super::sessions::total_bytes;
use ctxhost_blobs::{GRACE, GarbageCollector, GarbageReport, TRASH_DAYS};

/// Remove results and images that no session references.
///
/// Safe while hosts are running. Sessions are kept, unless retention.session_days is set: then
/// sessions that were not used for that long move to the trash.
#[derive(Debug, clap::Args)]
pub(super) struct GcArgs {
    /// Minimum age, such as 90d or 12h, at least 1h; by default retention.blob_days.
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Show what would be removed, but change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl GcArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let config =
            run_setup::find_session_config(config_path, &std::env::current_dir()?, output)?;
        let retention = config.retention;
        let older_than = self.older_than.unwrap_or_else(|| days(retention.blob_days));
        // 0 disables the removal of sessions.
        let session_days = Some(retention.session_days).filter(|days| *days > 0);
        let collection = GarbageCollector {
            home: blob_dirs(),
            // Younger blobs may belong to a write in progress whose session line does not exist
            // yet.
            blobs_older_than: older_than.max(GRACE),
            sessions_older_than: session_days.map(days),
            now: SystemTime::now(),
        };
        // Found first and swept second: the dry run reports exactly what a sweep would remove.
        let mut garbage = collection.find()?;
        if !self.dry_run {
            collection.remove(&mut garbage)?;
        }
        output.print(&describe_garbage(&collection, &garbage, self.dry_run))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_garbage(
    collection: &GarbageCollector,
    garbage: &GarbageReport,
    is_dry: bool,
) -> String {
    let verb =
        |would: &str, did: &str| if is_dry { format!("would {would}") } else { did.to_owned() };
    let age = format_duration(collection.blobs_older_than);
    let removed = verb("remove", "removed");
    let mut text = format!(
        "{removed} {} ({}) older than {age}; {} of them reachable\n",
        format_count(garbage.blobs.len() as u64, "blob"),
        format_bytes(total_bytes(&garbage.blobs)),
        group_digits(garbage.reachable as u64),
    );
    let mut add_line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    if !garbage.recent.is_empty() {
        let (blobs, bytes) =
            (garbage.recent.len() as u64, format_bytes(total_bytes(&garbage.recent)));
        let blobs = format_count(blobs, "blob");
        add_line(format!(
            "{} {blobs} ({bytes}) unreferenced, but not older than {age}",
            verb("keep", "kept")
        ));
    }
    if !garbage.staging.is_empty() {
        let (files, bytes) =
            (garbage.staging.len() as u64, format_bytes(total_bytes(&garbage.staging)));
        add_line(format!(
            "{removed} {} ({bytes}) of interrupted writes",
            format_count(files, "file")
        ));
    }
    if !garbage.sessions.is_empty() {
        let bytes = garbage.sessions.iter().map(|session| session.size_bytes).sum();
        let untouched = collection.sessions_older_than.map(format_duration).unwrap_or_default();
        add_line(format!(
            "{} {} ({}) to the trash for {TRASH_DAYS}d, unused for {untouched}:",
            verb("move", "moved"),
            format_count(garbage.sessions.len() as u64, "session"),
            format_bytes(bytes),
        ));
    }
    garbage.sessions.iter().for_each(|session| add_line(format!("  {}", session.path.display())));
    for day in &garbage.trash {
        add_line(format!("{removed} {} ({})", day.path.display(), format_bytes(day.size_bytes)));
    }
    text
}

const HOUR: Duration = Duration::from_secs(60 * 60);

fn days(number: u64) -> Duration {
    HOUR.saturating_mul(24).saturating_mul(u32::try_from(number).unwrap_or(u32::MAX))
}
