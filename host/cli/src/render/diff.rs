//! What a compaction did, as text.

use std::path::Path;

use super::grid::{Column, Grid};
use super::paint::{Style, Tone};
use super::phrase::{clean, counted, grouped, percent};
use crate::named::for_shell;
use ctxhost_history::{Difference, Inserted, LostAt, RecordPlace, Touched};
use ctxhost_survival::Category;

/// Lines of each list that are shown unasked: they fit on a screen together.
const LISTED: usize = 10;
/// Lines of what stands for the rest that are shown unasked.
const SUMMARY_LINES: usize = 12;

/// The whole difference. `session` is the file as it is named on a command line.
pub(crate) fn render(difference: &Difference, session: &Path, all: bool, style: Style) -> String {
    let most = if all { usize::MAX } else { LISTED };
    let mut parts = vec![head(difference, session, style), shares(difference, style)];
    parts.extend(lost(&difference.lost, most, style));
    parts.extend(touched("dropped", &difference.dropped, most, style));
    parts.extend(touched("shortened", &difference.shortened, most, style));
    parts.extend(inserted(&difference.inserted, all, style));
    parts.extend(fetching(difference, session));
    parts.join("\n")
}

fn head(difference: &Difference, session: &Path, style: Style) -> String {
    let Difference { number, compactions, before_tokens, after_tokens, .. } = difference;
    let name = format!("compaction {number} of {compactions}");
    let engine = match difference.engine.as_str() {
        "" => "made by Pi".to_owned(),
        engine => format!("{} {}", clean(engine), clean(&difference.engine_version)),
    };
    let mut facts = vec![style.paint(Tone::Strong, &name), clean(&session.display().to_string())];
    facts.extend([place(&difference.at), engine, clean(&difference.trigger)]);
    facts.retain(|fact| !fact.trim().is_empty());
    let saved = before_tokens.saturating_sub(*after_tokens) as f64;
    format!(
        "{}\n{} → {} tokens, {} less · {} dropped, {} shortened, {} put in\n",
        facts.join(" · "),
        grouped(*before_tokens),
        grouped(*after_tokens),
        percent(saved * 100.0 / (*before_tokens).max(1) as f64),
        grouped(difference.dropped.len() as u64),
        grouped(difference.shortened.len() as u64),
        grouped(difference.inserted.len() as u64),
    )
}

fn place(at: &RecordPlace) -> String {
    let line = at.line.map(|line| format!(", line {}", grouped(line as u64)));
    format!("record {}{}", clean(&at.record), line.unwrap_or_default())
}

fn shares(difference: &Difference, style: Style) -> String {
    let columns = [Column::left("still said"), Column::right("kept"), Column::right("of")];
    let mut grid = Grid::new([&columns[..], &[Column::right("share")]].concat());
    for category in Category::ALL {
        let share = difference.survival.of(category);
        let ratio = match share.total {
            0 => "–".into(),
            _ => percent(share.ratio() * 100.0),
        };
        let cells = [category.name().into(), grouped(share.kept), grouped(share.total), ratio];
        grid.row(cells.into(), Tone::Plain);
    }
    grid.render(style)
}

/// How many there are, and how many of them follow.
fn title(name: &str, shown: usize, count: usize, style: Style) -> String {
    let count = match shown < count {
        true => format!("{} of {}; --all lists them", grouped(shown as u64), grouped(count as u64)),
        false => grouped(count as u64),
    };
    format!("{} ({count})\n", style.paint(Tone::Strong, name))
}

fn lost(lost: &[LostAt], most: usize, style: Style) -> Option<String> {
    let mut text = String::new();
    let mut shown = 0;
    for category in Category::ALL {
        let of_category: Vec<&LostAt> =
            lost.iter().filter(|lost| lost.category == category).collect();
        let listed = of_category.iter().rev().take(most);
        for lost in listed {
            shown += 1;
            let (name, at) = (category.name(), place(&lost.at));
            text += &format!("  {name:<9} {}  ({at})\n", clean(&lost.text));
        }
    }
    (shown > 0).then(|| title("said no more, the newest first", shown, lost.len(), style) + &text)
}

fn touched(name: &str, touched: &[Touched], most: usize, style: Style) -> Option<String> {
    if touched.is_empty() {
        return None;
    }
    let mut columns = vec![Column::right("line"), Column::left("entry"), Column::left("role")];
    columns.extend([Column::right("tokens"), Column::left("begins with").wrapping()]);
    let mut grid = Grid::new(columns);
    for row in touched.iter().take(most) {
        let line = row.at.line.map_or("–".into(), |line| grouped(line as u64));
        let tokens = match row.after_tokens {
            0 => grouped(row.before_tokens),
            after => format!("{} → {}", grouped(row.before_tokens), grouped(after)),
        };
        let (record, role) = (clean(&row.at.record), clean(&row.role));
        grid.row(vec![line, record, role, tokens, clean(&row.excerpt)], Tone::Plain);
    }
    let shown = touched.len().min(most);
    Some(title(name, shown, touched.len(), style) + &grid.render(style))
}

fn inserted(inserted: &[Inserted], all: bool, style: Style) -> Option<String> {
    let texts = inserted.iter().map(|message| {
        let lines: Vec<&str> = message.text.lines().collect();
        let shown = if all { lines.len() } else { SUMMARY_LINES.min(lines.len()) };
        let mut text = format!("  [{}, {} tokens]\n", message.role, grouped(message.tokens));
        for line in lines.iter().take(shown) {
            text += format!("  {}", clean(line)).trim_end();
            text.push('\n');
        }
        if shown < lines.len() {
            let more = counted((lines.len() - shown) as u64, "more line");
            text += &format!("  … {more}; --all shows them\n");
        }
        text
    });
    let texts: String = texts.collect();
    (!texts.is_empty())
        .then(|| format!("{}\n{texts}", style.paint(Tone::Strong, "what stands for them")))
}

/// The command that shows one of them.
fn fetching(difference: &Difference, session: &Path) -> Option<String> {
    let dropped = difference.dropped.iter().chain(&difference.shortened).next()?;
    Some(format!(
        "nothing is gone from the file; see an entry with\n  ctxhost fetch {} {}\n",
        for_shell(session),
        clean(&dropped.at.record)
    ))
}
