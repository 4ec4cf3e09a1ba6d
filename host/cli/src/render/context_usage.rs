//! Renders the context usage: a grid of ten by ten cells, with figures beside it.

use clap::builder::styling::AnsiColor;

use super::format::{format_count, format_percent, group_digits, one_line};
use super::style::{TextStyle, Tone};
use ctxhost_agent::context_usage::{ContextUsage, UsageCategory, UsagePart};

/// Cells of the grid, each 1 % of the window.
const CELLS: usize = 100;
/// Cells in a row.
const ROW_CELLS: usize = 10;

/// The parts of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowBudget {
    /// The whole window, in provider tokens.
    pub(crate) window_tokens: u64,
    /// Reserved for the answer, in provider tokens.
    pub(crate) reserve_tokens: u64,
    /// The budget of the conversation, in estimated tokens.
    pub(crate) budget_tokens: u64,
}

/// A line of figures and the look of its cells.
struct UsageRow {
    symbol: char,
    color: AnsiColor,
    name: String,
    tokens: u64,
}

/// The grid with its figures, what could be freed, and when the next compaction is due.
pub(crate) fn render(filling: &ContextUsage, window: WindowBudget, style: TextStyle) -> String {
    let rows = rows(filling, window);
    let whole_tokens = rows.iter().map(|row| row.tokens).sum::<u64>().max(1);
    let cells = cells(&rows, whole_tokens, style);
    let mut text = String::new();
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    // More categories than grid lines are possible.
    for at in 0..rows.len().max(CELLS / ROW_CELLS) {
        let cells = cells.get(at).cloned().unwrap_or_else(|| "  ".repeat(ROW_CELLS));
        let figures = rows.get(at).map(|row| {
            let share = row.tokens as f64 * 100.0 / whole_tokens as f64;
            let mark = style.color_text(row.color, &mark(row, style));
            let (name, tokens) = (&row.name, group_digits(row.tokens));
            format!("  {mark} {name:width$} {tokens:>11} {:>6}", format_percent(share))
        });
        text += &format!("{}\n", format!("{cells}{}", figures.unwrap_or_default()).trim_end());
    }
    text + &usage_lines(filling, window, style)
}

/// The lines below the grid.
fn usage_lines(filling: &ContextUsage, window: WindowBudget, style: TextStyle) -> String {
    let WindowBudget { budget_tokens, .. } = window;
    let share = filling.tokens as f64 * 100.0 / budget_tokens.max(1) as f64;
    let mut text = format!(
        "\n{} of {} budget tokens used ({})\n",
        group_digits(filling.tokens),
        group_digits(budget_tokens),
        format_percent(share)
    );
    let (results, arguments) = (filling.old_results_tokens, filling.old_arguments_tokens);
    if results + arguments > 0 {
        text += &format!(
            "reclaimable {}: {} in old tool results, {} in arguments of old calls\n",
            group_digits(results + arguments),
            group_digits(results),
            group_digits(arguments)
        );
    }
    let next = match (filling.turn_tokens, filling.turns_left(budget_tokens)) {
        _ if filling.tokens > budget_tokens => {
            style.paint(Tone::Warning, "over the budget: the next request is compacted first")
        }
        (Some(turn_tokens), Some(turns)) => format!(
            "next compaction in about {}, at {} tokens a turn (mean of the last {})",
            format_count(turns, "turn"),
            group_digits(turn_tokens),
            group_digits(filling.turns)
        ),
        _ => "no turn yet to predict the next compaction from".into(),
    };
    text + &next + "\n"
}

fn rows(filling: &ContextUsage, window: WindowBudget) -> Vec<UsageRow> {
    let mut rows: Vec<UsageRow> = filling.parts.iter().map(row).collect();
    let WindowBudget { window_tokens, reserve_tokens, budget_tokens } = window;
    // What is neither budget nor reserve: system prompt, tools and the safety margin.
    let held_tokens = window_tokens.saturating_sub(reserve_tokens).saturating_sub(budget_tokens);
    let free_tokens = budget_tokens.saturating_sub(filling.tokens);
    let more = [
        ('.', AnsiColor::White, "free", free_tokens),
        ('m', AnsiColor::BrightBlack, "prompt, tools, margin", held_tokens),
        ('#', AnsiColor::BrightBlack, "reserve for the answer", reserve_tokens),
    ];
    let more = more.into_iter().filter(|(_, _, _, tokens)| *tokens > 0);
    rows.extend(more.map(|(symbol, color, name, tokens)| UsageRow {
        symbol,
        color,
        name: name.into(),
        tokens,
    }));
    rows
}

fn row(part: &UsagePart) -> UsageRow {
    let (symbol, color, name) = match part.category {
        UsageCategory::System => ('S', AnsiColor::White, "system"),
        UsageCategory::User => ('U', AnsiColor::Green, "user"),
        UsageCategory::Assistant => ('A', AnsiColor::Blue, "assistant"),
        UsageCategory::Thinking => ('T', AnsiColor::Magenta, "thinking"),
        UsageCategory::ToolCalls => ('C', AnsiColor::Cyan, "tool calls"),
        UsageCategory::ToolResults => ('R', AnsiColor::Yellow, "results"),
        UsageCategory::Images => ('I', AnsiColor::Red, "images"),
        UsageCategory::Summaries => ('Y', AnsiColor::BrightGreen, "summaries"),
    };
    let name = match part.tool.as_str() {
        "" => name.to_owned(),
        tool => format!("{name} of {}", one_line(tool)),
    };
    UsageRow { symbol, color, name, tokens: part.tokens }
}

fn mark(row: &UsageRow, style: TextStyle) -> String {
    if style.color { "■".into() } else { row.symbol.to_string() }
}

/// The lines of the grid. Cells follow the running sum, so that they always add up to a hundred.
fn cells(rows: &[UsageRow], whole_tokens: u64, style: TextStyle) -> Vec<String> {
    let mut cells = Vec::with_capacity(CELLS);
    let mut sum_tokens = 0;
    for row in rows {
        sum_tokens += row.tokens;
        let until = (sum_tokens as f64 * CELLS as f64 / whole_tokens as f64).round() as usize;
        while cells.len() < until.min(CELLS) {
            cells.push(format!("{} ", style.color_text(row.color, &mark(row, style))));
        }
    }
    cells.chunks(ROW_CELLS).map(<[String]>::concat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling() -> ContextUsage {
        let part =
            |sort, tool: &str, tokens| UsagePart { category: sort, tool: tool.into(), tokens };
        ContextUsage {
            parts: vec![
                part(UsageCategory::User, "", 4_000),
                part(UsageCategory::Assistant, "", 6_000),
                part(UsageCategory::ToolResults, "shell", 30_000),
            ],
            tokens: 40_000,
            old_results_tokens: 21_000,
            old_arguments_tokens: 500,
            turn_tokens: Some(5_000),
            turns: 8,
        }
    }

    const WINDOW: WindowBudget =
        WindowBudget { window_tokens: 100_000, reserve_tokens: 20_000, budget_tokens: 66_000 };

    #[test]
    fn the_grid_has_a_hundred_cells() {
        insta::assert_snapshot!(render(&filling(), WINDOW, TextStyle::default()));
    }

    #[test]
    fn colour_changes_the_cells_and_no_figure() {
        let colored = render(&filling(), WINDOW, TextStyle { color: true, width: None });
        assert_eq!(colored.matches('■').count(), 100 + 6);
        assert!(colored.contains("results of shell"));
    }

    #[test]
    fn an_exceeded_budget_is_reported() {
        let window = WindowBudget { budget_tokens: 30_000, ..WINDOW };
        let text = render(&filling(), window, TextStyle::default());
        assert!(text.contains("over the budget: "), "{text}");
    }
}
