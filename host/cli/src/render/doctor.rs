//! Renders what compactions lost, in 80 columns.

use std::path::Path;

use super::format::{DASH, format_count, group_digits, one_line};
use super::grid::{Grid, GridColumn};
use super::style::{TextStyle, Tone};
use super::wrap::words;
use crate::doctor::measure::{EngineComparison, SessionMeasure, names};
use crate::doctor::{DoctorReport, UnreadableFile};
use crate::session_arg::shell_quote;
use ctxhost_history::{LostText, SessionLoss};
use ctxhost_retention::{Category, CategoryShare};
use textwrap::core::display_width;

/// Columns of the report.
const WIDTH: usize = 80;
/// Lost requests and names that are quoted for each session.
const QUOTED: usize = 3;
/// Characters of a quoted request or name.
const QUOTED_CHARS: usize = 60;
/// Compactions that are listed for each session, and unreadable files.
const LISTED: usize = 5;
const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// Renders the report.
pub(crate) fn render(report: &DoctorReport, style: TextStyle) -> String {
    let mut parts = Vec::new();
    if report.compacted.is_empty() && report.whole.is_empty() {
        parts.push(nothing_found(report));
    } else {
        parts.push(head(report));
    }
    let numbered = report.compacted.iter().zip(1..);
    parts.extend(numbered.map(|(session, number)| render_session(session, number, report, style)));
    parts.extend(whole_sessions(report));
    parts.extend(left_out(report));
    parts.join("\n")
}

fn head(report: &DoctorReport) -> String {
    let read = (report.compacted.len() + report.whole.len()) as u64;
    let compactions: usize =
        report.compacted.iter().filter_map(|s| Some(s.loss.as_ref()?.count)).sum();
    format!(
        "{} read, {} compacted, {}\n",
        format_count(read, "session"),
        group_digits(report.compacted.len() as u64),
        format_count(compactions as u64, "compaction")
    )
}

fn nothing_found(report: &DoctorReport) -> String {
    let mut text = "no session found in\n".to_owned();
    for path in &report.searched {
        text += &format!("  {}\n", short_path(path));
    }
    let agents =
        if report.is_denied { ", `ctxhost doctor --yes` the folders of your agents" } else { "" };
    let next = format!(
        "next: `ctxhost doctor --path DIR` searches another folder{agents}; \
         `ctxhost replay demo:coding` shows engines at work on a built-in session"
    );
    text + &wrap(&next, "")
}

fn render_session(
    session: &SessionMeasure,
    number: usize,
    report: &DoctorReport,
    style: TextStyle,
) -> String {
    let Some(loss) = &session.loss else { return String::new() };
    let name = one_line(&session.name);
    let mut facts = vec![session.agent.clone()];
    if !session.cwd.is_empty() {
        facts.push(one_line(&short_path(Path::new(&session.cwd))));
    }
    facts.push(format_age(session.newest_ms, report.now_ms));
    let title = format!("{number}. {name} ({})", facts.join(", "));
    let mut text = wrap(&title, "   ");
    if let Some((first, rest)) = text.split_once(char::is_whitespace) {
        // A name that is longer than a line is wrapped right after the number.
        text = format!("{} {}", style.paint(Tone::Strong, first), rest.trim_start());
    }
    text += &wrap(&format!("   {}", describe_loss(loss)), "   ");
    text += &quoted(loss);
    text += &compaction_table(loss, style);
    for engine in &session.engines {
        text += &wrap(&format!("   {}", describe_engine(engine)), "   ");
    }
    if session.unreadable_lines > 0 {
        let lines = format_count(session.unreadable_lines as u64, "unreadable line");
        text += &format!("   {lines} skipped\n");
    }
    // A path may be longer than a line, and must stay whole to be pasted.
    text + &format!("   ctxhost diff {}\n", shell_quote(&session.argument))
}

/// `3 compactions; 14 of your 22 requests and 31 of 60 paths and identifiers are gone; …`
fn describe_loss(loss: &SessionLoss) -> String {
    let compactions = format_count(loss.count as u64, "compaction");
    let (asks, names) = (loss.retention.asks, names(&loss.retention));
    let gone = |share: CategoryShare, what: &str, whose: &str| match share.total - share.kept {
        _ if share.total == 0 => None,
        0 => None,
        lost => {
            Some(format!("{} of {whose}{} {what}", group_digits(lost), group_digits(share.total)))
        }
    };
    let parts: Vec<String> =
        [gone(asks, "requests", "your "), gone(names, "paths and identifiers", "")]
            .into_iter()
            .flatten()
            .collect();
    let lost = match parts.as_slice() {
        [] => "every request, path and identifier is still stated".to_owned(),
        parts => format!("{} are gone", parts.join(" and ")),
    };
    let rebilled: Vec<u64> = loss.compactions.iter().filter_map(|c| c.rebilled_tokens).collect();
    let rebilled = if rebilled.is_empty() {
        String::new()
    } else {
        format!("; {} tokens re-billed", group_digits(rebilled.iter().sum()))
    };
    format!("{compactions}; {lost}{rebilled}")
}

/// The newest lost requests and names.
fn quoted(loss: &SessionLoss) -> String {
    let newest = |categories: &[Category]| -> Vec<&LostText> {
        let of = loss.lost.iter().filter(|lost| categories.contains(&lost.category));
        let mut found: Vec<&LostText> = of.collect();
        found.sort_by_key(|lost| std::cmp::Reverse(lost.at.place));
        found.truncate(QUOTED);
        found
    };
    let mut text = String::new();
    for ask in newest(&[Category::Asks]) {
        text += &format!("   gone: \"{}\"\n", shorten(&one_line(&ask.text)));
    }
    let names: Vec<String> = newest(&[Category::Paths, Category::Ids])
        .into_iter()
        .map(|name| shorten_path(&one_line(&name.text)))
        .collect();
    if !names.is_empty() {
        text += &wrap(&format!("   gone: {}", names.join(", ")), "     ");
    }
    text
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The end of a path says more than its beginning.
fn shorten_path(path: &str) -> String {
    let skipped = path.chars().count().saturating_sub(QUOTED_CHARS);
    if skipped == 0 {
        path.to_owned()
    } else {
        format!("…{}", path.chars().skip(skipped).collect::<String>())
    }
}

fn compaction_table(loss: &SessionLoss, style: TextStyle) -> String {
    let mut columns = vec![GridColumn::left(""), GridColumn::left("when")];
    let figures = ["before", "after", "lost requests", "lost names", "re-billed"];
    columns.extend(figures.map(GridColumn::right));
    let mut grid = Grid::new(columns);
    let lost = |share: CategoryShare| {
        format!("{}/{}", group_digits(share.total - share.kept), group_digits(share.total))
    };
    // The newest ones: they explain what is missing now.
    let listed = loss.compactions.iter().skip(loss.compactions.len().saturating_sub(LISTED));
    let skipped = loss.count.saturating_sub(listed.len());
    for compaction in listed {
        let day: String = compaction.time.chars().take("2026-01-01".len()).collect();
        grid.row(
            vec![
                format!("@{} {}", compaction.number, one_line(&compaction.trigger)),
                if day.is_empty() { DASH.into() } else { day },
                group_digits(compaction.before_tokens),
                group_digits(compaction.after_tokens),
                lost(compaction.retention.asks),
                lost(names(&compaction.retention)),
                compaction.rebilled_tokens.map_or(DASH.into(), group_digits),
            ],
            Tone::Plain,
        );
    }
    let indent = 3;
    let width = style.width.map_or(WIDTH, usize::from).min(WIDTH).saturating_sub(indent);
    let width = u16::try_from(width).ok();
    let table = grid.render_or_transpose(TextStyle { width, ..style });
    let mut text: String = table.lines().map(|line| format!("   {}\n", line.trim_end())).collect();
    if skipped > 0 {
        let earlier = format_count(skipped as u64, "earlier compaction");
        text += &format!("   and {earlier}; ctxhost diff NAME@1 shows the first\n");
    }
    text
}

fn describe_engine(compared: &EngineComparison) -> String {
    let engine = one_line(&compared.engine);
    let Some(shares) = &compared.retention else {
        return format!("{engine} was not measured: {}", one_line(&compared.reason));
    };
    let (asks, names) = (shares.asks, names(shares));
    format!(
        "{engine} would have kept {} of {} requests and {} of {} paths and identifiers, in {} of {} \
         tokens",
        group_digits(asks.kept),
        group_digits(asks.total),
        group_digits(names.kept),
        group_digits(names.total),
        group_digits(compared.prompt_tokens),
        group_digits(compared.budget_tokens)
    )
}

fn whole_sessions(report: &DoctorReport) -> Option<String> {
    let count = report.whole.len() as u64;
    let longest = report.whole.iter().map(|session| session.entries).max()?;
    let unreadable: usize = report.whole.iter().map(|session| session.unreadable_lines).sum();
    let skipped = match unreadable {
        0 => String::new(),
        lines => format!("; {} skipped", format_count(lines as u64, "unreadable line")),
    };
    Some(format!(
        "{} without compactions; the longest has {}{skipped}\n",
        format_count(count, "session"),
        format_count(longest, "entry")
    ))
}

fn left_out(report: &DoctorReport) -> Option<String> {
    let left_out = &report.left_out;
    let mut parts = Vec::new();
    let mut add = |count: usize, text: String| {
        if count > 0 {
            parts.push(text);
        }
    };
    let sessions =
        |count: usize, kind: &str| format_count(count as u64, &format!("{kind} session"));
    add(
        left_out.older,
        format!(
            "{} (--limit {} reads them)",
            sessions(left_out.older, "older"),
            left_out.older + report.limit
        ),
    );
    add(left_out.large, format!("{} (--path FILE reads one)", sessions(left_out.large, "large")));
    add(left_out.empty, sessions(left_out.empty, "empty"));
    let files = format_count(left_out.unknown as u64, "file");
    add(left_out.unknown, format!("{files} of unknown format"));
    // A disk that fails makes many of them.
    parts.extend(report.unreadable.iter().take(LISTED).map(UnreadableFile::describe));
    let more = report.unreadable.len().saturating_sub(LISTED);
    parts.extend(
        (more > 0).then(|| format!("{} more that cannot be read", group_digits(more as u64))),
    );
    parts.extend(left_out.databases.iter().cloned());
    (!parts.is_empty()).then(|| wrap(&format!("left out: {}", parts.join(", ")), "  "))
}

/// `today`, `2 days ago`, or a date.
fn format_age(time_ms: i64, now_ms: i64) -> String {
    let days = now_ms.div_euclid(DAY_MS) - time_ms.div_euclid(DAY_MS);
    match days {
        0 => "today".into(),
        1 => "yesterday".into(),
        2..=30 => format!("{days} days ago"),
        _ => jiff::Timestamp::from_millisecond(time_ms)
            .map_or_else(|_| DASH.into(), |time| time.strftime("%Y-%m-%d").to_string()),
    }
}

/// A path with `~` for the home folder.
pub(crate) fn short_path(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) if below.as_os_str().is_empty() => "~".into(),
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// Wraps a text between its words; `indent` begins each further line. A longer word keeps its line.
fn wrap(text: &str, indent: &str) -> String {
    let begin: String = text.chars().take_while(|c| *c == ' ').collect();
    let (mut wrapped, mut line) = (String::new(), begin);
    let mut is_empty = true;
    for word in words(text) {
        if !is_empty && display_width(&line) + 1 + display_width(word) > WIDTH {
            wrapped += &format!("{line}\n");
            line = indent.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    wrapped + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_history::CompactionLoss;
    use ctxhost_retention::Shares;

    use crate::doctor::LeftOut;

    #[test]
    fn ages_are_days_and_then_dates() {
        let now_ms = 1_767_225_600_000;
        let ages = [0, 1, 2, 30, 31, -1].map(|days| format_age(now_ms - days * DAY_MS, now_ms));
        assert_eq!(
            ages,
            ["today", "yesterday", "2 days ago", "30 days ago", "2025-12-01", "2026-01-02"]
        );
    }

    #[test]
    fn files_that_cannot_be_read_are_listed_with_the_reason() {
        let file = |number: usize| UnreadableFile {
            path: format!("/srv/{number}.jsonl").into(),
            reason: "permission denied".to_owned(),
        };
        let report = DoctorReport {
            compacted: Vec::new(),
            whole: Vec::new(),
            left_out: LeftOut::default(),
            unreadable: (0..LISTED + 2).map(file).collect(),
            searched: Vec::new(),
            is_denied: false,
            limit: 20,
            now_ms: 0,
        };
        let text = left_out(&report).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("/srv/4.jsonl cannot be read: permission denied"), "{text}");
        assert!(text.ends_with("2 more that cannot be read"), "{text}");
        assert!(!text.contains("unknown"), "{text}");
    }

    #[test]
    fn a_table_of_large_numbers_and_long_triggers_has_at_most_80_columns() {
        let share = CategoryShare { kept: 0, total: 1_600 };
        let retention = Shares { asks: share, paths: share, ..Shares::default() };
        let compaction = |number: usize| CompactionLoss {
            number,
            trigger: "threshold".to_owned(),
            time: "2026-11-30T10:00:00.000Z".to_owned(),
            before_tokens: 1_131_273,
            after_tokens: 111_255,
            retention,
            rebilled_tokens: Some(1_015_100),
        };
        for count in [1, 11] {
            let loss = SessionLoss {
                count,
                compactions: (1..=count).map(compaction).collect(),
                retention,
                lost: Vec::new(),
                newest: String::new(),
            };
            let style = TextStyle { width: Some(100), ..TextStyle::default() };
            let text = compaction_table(&loss, style);
            assert!(text.lines().all(|line| display_width(line) <= WIDTH), "{text}");
            assert!(text.contains(&format!("@{count} threshold")), "{text}");
            assert!(text.contains("1,600/1,600") && text.contains("1,015,100"), "{text}");
        }
    }

    #[test]
    fn lines_have_at_most_80_columns() {
        let text = format!("   {}", "word ".repeat(60));
        let wrapped = wrap(&text, "     ");
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), 60);
        assert!(wrapped.starts_with("   word") && wrapped.contains("\n     word"));
        let long = "x".repeat(100);
        assert_eq!(wrap(&long, "  "), format!("{long}\n"));
    }
}
