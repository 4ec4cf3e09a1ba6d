//! `ctxhost gc`: what nothing names any more is cleared away.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use super::chat::blob_dirs;
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_bytes, format_count};
use super::run_setup;
use super::sessions::total_bytes;
use ctxhost_blobs::{GRACE, GarbageCollector, GarbageReport, TRASH_DAYS};

/// Clear away results and images that no session names any more.
///
/// Hosts may be at work meanwhile. Sessions stay where they are, unless retention.session_days is set in
/// ctxhost.toml: then those that nobody has touched for so long go to the trash folder.
#[derive(Debug, clap::Args)]
pub(super) struct GcArgs {
    /// How old they are at least, such as 90d or 12h, and never less than 1h; by default
    /// retention.blob_days.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    older_than: Option<Duration>,
    /// Say what would go, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl GcArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let config = run_setup::find_config(config_path, &std::env::current_dir()?, output)?;
        let retention = config.retention;
        let older_than = self.older_than.unwrap_or_else(|| days(retention.blob_days));
        let session_days = Some(retention.session_days).filter(|days| *days > 0);
        let collection = GarbageCollector {
            home: blob_dirs(),
            blobs_older_than: older_than.max(GRACE),
            sessions_older_than: session_days.map(days),
            now: SystemTime::now(),
        };
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
    let verb = |would: &str, did: &str| match is_dry {
        true => format!("would {would}"),
        false => did.to_owned(),
    };
    let age = age(collection.blobs_older_than);
    let removed = verb("remove", "removed");
    let mut text = format!(
        "{removed} {} ({}) older than {age}; {} of them reachable\n",
        format_count(garbage.blobs.len() as u64, "blob"),
        format_bytes(total_bytes(&garbage.blobs)),
        garbage.reachable,
    );
    let mut say = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    if !garbage.recent.is_empty() {
        let (blobs, bytes) =
            (garbage.recent.len() as u64, format_bytes(total_bytes(&garbage.recent)));
        let blobs = format_count(blobs, "blob");
        say(format!(
            "{} {blobs} ({bytes}) that nothing names, not older than {age}",
            verb("keep", "kept")
        ));
    }
    if !garbage.staging.is_empty() {
        let (files, bytes) =
            (garbage.staging.len() as u64, format_bytes(total_bytes(&garbage.staging)));
        say(format!(
            "{removed} {} ({bytes}) of writes that were cut short",
            format_count(files, "file")
        ));
    }
    if !garbage.sessions.is_empty() {
        let bytes = garbage.sessions.iter().map(|session| session.size_bytes).sum();
        let untouched = collection.sessions_older_than.map(self::age).unwrap_or_default();
        say(format!(
            "{} {} ({}) to the trash for {TRASH_DAYS}d, untouched for {untouched}:",
            verb("move", "moved"),
            format_count(garbage.sessions.len() as u64, "session"),
            format_bytes(bytes),
        ));
    }
    garbage.sessions.iter().for_each(|session| say(format!("  {}", session.path.display())));
    for day in &garbage.trash {
        say(format!("{removed} {} ({})", day.path.display(), format_bytes(day.size_bytes)));
    }
    text
}

const HOUR: Duration = Duration::from_secs(60 * 60);

fn days(number: u64) -> Duration {
    HOUR.saturating_mul(24).saturating_mul(u32::try_from(number).unwrap_or(u32::MAX))
}

fn age(age: Duration) -> String {
    let hours = age.as_secs() / HOUR.as_secs();
    if hours.is_multiple_of(24) { format!("{}d", hours / 24) } else { format!("{hours}h") }
}

pub(super) fn parse_age(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no age; write a number of days or hours, such as 90d or 12h");
    let (number, hours) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => (days, 24),
        (_, Some(hours)) => (hours, 1),
        _ => return Err(bad()),
    };
    let number: u32 = number.trim().parse().map_err(|_| bad())?;
    Ok(HOUR.saturating_mul(hours).saturating_mul(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for text in ["90d", "12h", "0d", "1d"] {
            assert_eq!(age(parse_age(text).unwrap()), text);
        }
        assert_eq!(age(parse_age("48h").unwrap()), "2d");
        for text in ["", "d", "90", "-1d", "1.5d", "1w"] {
            assert!(parse_age(text).is_err(), "{text}");
        }
    }
}
