//! Renders what a compaction did.

use std::path::Path;

use super::format::{DASH, format_count, format_percent, group_digits, one_line};
use super::grid::{Grid, GridColumn};
use super::style::{TextStyle, Tone};
use crate::session_arg::shell_quote;
use ctxhost_history::{AlteredEntry, CompactionDiff, InsertedMessage, LostText, RecordLocation};
use ctxhost_retention::Category;

/// Default number of listed lines; all lists together fit on a screen.
const LISTED: usize = 10;
/// Default number of lines of the replacement.
const SUMMARY_LINES: usize = 12;

/// Renders the difference. `session` is the path as given on the command line.
pub(crate) fn render(
    difference: &CompactionDiff,
    session: &Path,
    all: bool,
    style: TextStyle,
) -> String {
    let most = if all { usize::MAX } else { LISTED };
    let mut parts = vec![head(difference, session, style), shares(difference, style)];
    parts.extend(lost_section(&difference.lost, most, style));
    parts.extend(touched_section("dropped", &difference.dropped, most, style));
    parts.extend(touched_section("shortened", &difference.shortened, most, style));
    parts.extend(inserted_section(&difference.inserted, all, style));
    parts.extend(fetch_hint(difference, session));
    parts.join("\n")
}

fn head(difference: &CompactionDiff, session: &Path, style: TextStyle) -> String {
    let CompactionDiff { number, compactions, before_tokens, after_tokens, .. } = difference;
    let name = format!("compaction {number} of {compactions}");
    let engine = match difference.engine.as_str() {
        // Pi and OpenClaw record no engine for their own compactions.
        "" => "made by the agent".to_owned(),
        engine => {
            let named = format!("{} {}", one_line(engine), one_line(&difference.engine_version));
            named.trim_end().to_owned()
        }
    };
    let mut facts =
        vec![style.paint(Tone::Strong, &name), one_line(&session.display().to_string())];
    facts.extend([format_location(&difference.at), engine, one_line(&difference.trigger)]);
    facts.retain(|fact| !fact.trim().is_empty());
    let change = before_tokens.abs_diff(*after_tokens) as f64;
    format!(
        "{}\n{} → {} tokens, {} {} · {} dropped, {} shortened, {} inserted\n",
        facts.join(" · "),
        group_digits(*before_tokens),
        group_digits(*after_tokens),
        format_percent(change * 100.0 / (*before_tokens).max(1) as f64),
        if after_tokens > before_tokens { "more" } else { "less" },
        group_digits(difference.dropped.len() as u64),
        group_digits(difference.shortened.len() as u64),
        group_digits(difference.inserted.len() as u64),
    )
}

fn format_location(at: &RecordLocation) -> String {
    let line = at.line.map(|line| format!(", line {}", group_digits(line as u64)));
    format!("entry {}{}", one_line(&at.entry), line.unwrap_or_default())
}

fn shares(difference: &CompactionDiff, style: TextStyle) -> String {
    let columns =
        [GridColumn::left("category"), GridColumn::right("kept"), GridColumn::right("of")];
    let mut grid = Grid::new([&columns[..], &[GridColumn::right("share")]].concat());
    for category in Category::ALL {
        let share = difference.retention.of(category);
        let ratio = match share.total {
            0 => DASH.into(),
            _ => format_percent(share.ratio() * 100.0),
        };
        let cells =
            [category.name().into(), group_digits(share.kept), group_digits(share.total), ratio];
        grid.row(cells.into(), Tone::Plain);
    }
    grid.render(style)
}

/// A heading with the count, and how many of it are listed.
fn title(name: &str, shown: usize, count: usize, style: TextStyle) -> String {
    let count = if shown < count {
        format!(
            "{} of {}; --all lists them",
            group_digits(shown as u64),
            group_digits(count as u64)
        )
    } else {
        group_digits(count as u64)
    };
    format!("{} ({count})\n", style.paint(Tone::Strong, name))
}

fn lost_section(lost: &[LostText], most: usize, style: TextStyle) -> Option<String> {
    let mut text = String::new();
    let mut shown = 0;
    for category in Category::ALL {
        let of_category: Vec<&LostText> =
            lost.iter().filter(|lost| lost.category == category).collect();
        // Newest first: recent losses matter most for the next request.
        let listed = of_category.iter().rev().take(most);
        for lost in listed {
            shown += 1;
            let (name, at) = (category.name(), format_location(&lost.at));
            text += &format!("  {name:<9} {}  ({at})\n", one_line(&lost.text));
        }
    }
    (shown > 0).then(|| title("lost, newest first", shown, lost.len(), style) + &text)
}

fn touched_section(
    name: &str,
    touched: &[AlteredEntry],
    most: usize,
    style: TextStyle,
) -> Option<String> {
    if touched.is_empty() {
        return None;
    }
    // The records of an imported session are not lines of its file.
    let has_lines = touched.iter().any(|row| row.at.line.is_some());
    let mut columns: Vec<GridColumn> =
        has_lines.then(|| GridColumn::right("line")).into_iter().collect();
    columns.extend([GridColumn::left("entry"), GridColumn::left("role")]);
    columns.extend([GridColumn::right("tokens"), GridColumn::left("begins with").wrapping()]);
    let mut grid = Grid::new(columns);
    for row in touched.iter().take(most) {
        let line = row.at.line.map_or(DASH.into(), |line| group_digits(line as u64));
        let mut cells: Vec<String> = has_lines.then_some(line).into_iter().collect();
        let tokens = match row.after_tokens {
            0 => group_digits(row.before_tokens),
            after => format!("{} → {}", group_digits(row.before_tokens), group_digits(after)),
        };
        let (record, role) = (one_line(&row.at.entry), one_line(&row.role));
        cells.extend([record, role, tokens, one_line(&row.excerpt)]);
        grid.row(cells, Tone::Plain);
    }
    let shown = touched.len().min(most);
    Some(title(name, shown, touched.len(), style) + &grid.render(style))
}

fn inserted_section(inserted: &[InsertedMessage], all: bool, style: TextStyle) -> Option<String> {
    let texts = inserted.iter().map(|message| {
        let head = format!("  [{}, {} tokens]\n", message.role, group_digits(message.tokens));
        head + &summary_lines(&message.text, all)
    });
    let texts: String = texts.collect();
    (!texts.is_empty()).then(|| format!("{}\n{texts}", style.paint(Tone::Strong, "replacement")))
}

/// A summary, indented; without `all` its first lines and how many follow.
pub(crate) fn summary_lines(summary: &str, all: bool) -> String {
    let lines: Vec<&str> = summary.lines().collect();
    let shown = if all { lines.len() } else { SUMMARY_LINES.min(lines.len()) };
    let mut text = String::new();
    for line in lines.iter().take(shown) {
        text += format!("  {}", one_line(line)).trim_end();
        text.push('\n');
    }
    if shown < lines.len() {
        let more = format_count((lines.len() - shown) as u64, "more line");
        text += &format!("  … {more}; --all shows them\n");
    }
    text
}

/// The command that prints a dropped entry.
fn fetch_hint(difference: &CompactionDiff, session: &Path) -> Option<String> {
    let dropped = difference.dropped.iter().chain(&difference.shortened).next()?;
    Some(format!(
        "the session file still has every entry; print one with\n  ctxhost fetch {} {}\n",
        shell_quote(session),
        one_line(&dropped.at.entry)
    ))
}
