//! Renders the context usage: a grid of ten by ten cells, with figures beside it.

use clap::builder::styling::AnsiColor;
use textwrap::core::display_width;

use super::format::{format_count, format_percent, group_digits, one_line};
use super::style::{TextStyle, Tone};
use ctxhost_agent::context_usage::{ContextUsage, UsageCategory, UsagePart};
use ctxhost_context::{Budget, CompactionPolicy, PromptPreview};

/// Cells of the grid, each 1 % of the window.
const CELLS: usize = 100;
/// Least width of names on a narrow terminal.
const MIN_NAME_WIDTH: usize = 12;
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

/// The next request and the window it has to fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextRequest<'a> {
    window: WindowBudget,
    engine: &'a str,
    tokens: u64,
    needs_compaction: bool,
    /// When the host may compact for it.
    compaction: CompactionPolicy,
    /// Whether it fails: no turn can be predicted.
    pub(crate) is_refused: bool,
}

impl<'a> NextRequest<'a> {
    pub(crate) fn new(
        preview: &'a PromptPreview,
        compaction: CompactionPolicy,
        window_tokens: u64,
    ) -> NextRequest<'a> {
        let Budget { tokens: budget_tokens, reserve_tokens, .. } = preview.budget;
        let window = WindowBudget { window_tokens, reserve_tokens, budget_tokens };
        let PromptPreview { engine, tokens, needs_compaction, .. } = preview;
        NextRequest {
            window,
            engine,
            tokens: *tokens,
            needs_compaction: *needs_compaction,
            compaction,
            is_refused: false,
        }
    }
}

/// A line of figures and the look of its cells.
struct UsageRow {
    symbol: char,
    color: AnsiColor,
    name: String,
    tokens: u64,
}

/// The grid with its figures, what could be freed, and what becomes of the next request.
pub(crate) fn render(filling: &ContextUsage, next: NextRequest<'_>, style: TextStyle) -> String {
    let rows = rows(filling, next.window);
    let sum_tokens = rows.iter().map(|row| row.tokens).sum::<u64>();
    // Of the window, also if the parts exceed it: with their sum as the base, a share would get smaller the more
    // the others exceed it.
    let whole_tokens = next.window.window_tokens.max(1);
    let cells = cells(&rows, whole_tokens, style);
    let mut text = String::new();
    let width = rows.iter().map(|row| display_width(&row.name)).max().unwrap_or(0);
    let width = width.min(name_room(style)).max(MIN_NAME_WIDTH);
    // More categories than grid lines are possible.
    for at in 0..rows.len().max(CELLS / ROW_CELLS) {
        let cells = cells.get(at).cloned().unwrap_or_else(|| "  ".repeat(ROW_CELLS));
        let figures = rows.get(at).map(|row| {
            let share = row.tokens as f64 * 100.0 / whole_tokens as f64;
            let mark = style.color_text(row.color, &mark(row, style));
            let (name, tokens) = (shorten(&row.name, width), group_digits(row.tokens));
            let padding = " ".repeat(width.saturating_sub(display_width(&name)));
            format!("  {mark} {name}{padding} {tokens:>11} {:>6}", format_percent(share))
        });
        text += &format!("{}\n", format!("{cells}{}", figures.unwrap_or_default()).trim_end());
    }
    if sum_tokens > whole_tokens {
        text += &format!(
            "\nshares of the window of {} tokens, which the parts exceed by {}\n",
            group_digits(whole_tokens),
            group_digits(sum_tokens - whole_tokens)
        );
    }
    text + &usage_lines(filling, next, style)
}

/// Room for names in a terminal: what cells, mark and figures leave.
fn name_room(style: TextStyle) -> usize {
    const CELLS_AND_FIGURES: usize = 2 * ROW_CELLS + 4 + 1 + 11 + 1 + 6;
    let width = style.width.map_or(usize::MAX, usize::from);
    width.saturating_sub(CELLS_AND_FIGURES)
}

/// The name with its middle left out if it is too wide: tools of one MCP server begin alike.
fn shorten(name: &str, width: usize) -> String {
    if display_width(name) <= width {
        return name.to_owned();
    }
    let (head, tail) = (width / 2, width.saturating_sub(width / 2 + 1));
    let beginning: String = name.chars().take(head).collect();
    let end = name.chars().count().saturating_sub(tail);
    format!("{beginning}…{}", name.chars().skip(end).collect::<String>())
}

/// The lines below the grid.
fn usage_lines(filling: &ContextUsage, next: NextRequest<'_>, style: TextStyle) -> String {
    let budget_tokens = next.window.budget_tokens;
    let (used, budget) = (group_digits(next.tokens), group_digits(budget_tokens));
    // Of no budget, nothing is a share.
    let share = match budget_tokens {
        0 => String::new(),
        _ => format!(" ({})", format_percent(next.tokens as f64 * 100.0 / budget_tokens as f64)),
    };
    let mut text = format!("\n{used} of {budget} budget tokens used{share}\n");
    let (results, arguments) = (filling.old_results_tokens, filling.old_arguments_tokens);
    if results + arguments > 0 {
        text += &format!(
            "reclaimable {}: {} in old tool results, {} in arguments of old calls\n",
            group_digits(results + arguments),
            group_digits(results),
            group_digits(arguments)
        );
    }
    text + &outlook(filling, next, style) + "\n"
}

/// What becomes of the next request.
fn outlook(filling: &ContextUsage, next: NextRequest<'_>, style: TextStyle) -> String {
    let budget_tokens = next.window.budget_tokens;
    if next.is_refused {
        let text = "no request of this session succeeds with this window and engine";
        return style.paint(Tone::Warning, text);
    }
    if next.needs_compaction {
        let text = match next.compaction {
            CompactionPolicy::Never => {
                "over the budget: the next request waits until you compact (compaction.timing)"
            }
            _ => "over the budget: the next request is compacted first",
        };
        return style.paint(Tone::Warning, text);
    }
    if filling.tokens > budget_tokens {
        return format!(
            "{} selects what fits from {} tokens of history, without a compaction",
            next.engine,
            group_digits(filling.tokens)
        );
    }
    match (filling.turn_tokens, filling.turns_left(budget_tokens)) {
        (Some(turn_tokens), Some(turns)) => format!(
            "full in about {}, at {} tokens a turn (mean of the last {})",
            format_count(turns, "turn"),
            group_digits(turn_tokens),
            group_digits(filling.turns)
        ),
        _ => "no turn yet to predict from when the budget is full".into(),
    }
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

/// The lines of the grid. Cells follow the running sum, so that they add up to a hundred; parts beyond the window
/// have none.
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

    const NEXT: NextRequest<'_> = NextRequest {
        window: WindowBudget {
            window_tokens: 100_000,
            reserve_tokens: 20_000,
            budget_tokens: 66_000,
        },
        engine: "legacy",
        tokens: 40_000,
        needs_compaction: false,
        compaction: CompactionPolicy::WhenWanted,
        is_refused: false,
    };

    #[test]
    fn the_grid_has_a_hundred_cells() {
        insta::assert_snapshot!(render(&filling(), NEXT, TextStyle::default()));
    }

    #[test]
    fn a_long_tool_name_is_shortened_in_a_narrow_terminal() {
        let mut filling = filling();
        filling.parts[2].tool = "mcp__server-of-somebody__read_a_file_of_the_workspace".into();
        let style = TextStyle { color: false, width: Some(80) };
        let text = render(&filling, NEXT, style);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("results of") && text.contains("_workspace"), "{text}");
    }

    #[test]
    fn colour_changes_the_cells_and_no_figure() {
        let colored = render(&filling(), NEXT, TextStyle { color: true, width: None });
        assert_eq!(colored.matches('■').count(), 100 + 6);
        assert!(colored.contains("results of shell"));
    }

    #[test]
    fn an_exceeded_budget_is_reported() {
        let window = WindowBudget { budget_tokens: 30_000, ..NEXT.window };
        let next = NextRequest { window, needs_compaction: true, ..NEXT };
        let render = |next| render(&filling(), next, TextStyle::default());
        let text = render(next);
        assert!(text.contains("40,000 of 30,000 budget tokens used (133.3%)"), "{text}");
        assert!(text.contains("the next request is compacted first"), "{text}");
        let text = render(NextRequest { compaction: CompactionPolicy::Never, ..next });
        assert!(text.contains("waits until you compact"), "{text}");
        let text = render(NextRequest { is_refused: true, ..next });
        assert!(text.contains("no request of this session succeeds"), "{text}");
        assert!(!text.contains("is compacted first") && !text.contains("full in"), "{text}");
        // The shares are of the window, as the name of a cell says.
        assert!(text.contains("results of shell            30,000  30.0%"), "{text}");
        assert!(
            text.contains(
                "shares of the window of 100,000 tokens, which the parts exceed by 10,000"
            ),
            "{text}"
        );
        assert!(!render(NEXT).contains("shares of the window"));
        // Many engines make each request fit.
        let fitting =
            NextRequest { engine: "window", tokens: 29_000, needs_compaction: false, ..next };
        let text = render(fitting);
        assert!(text.contains("29,000 of 30,000 budget tokens used (96.7%)"), "{text}");
        let selected =
            "window selects what fits from 40,000 tokens of history, without a compaction";
        assert!(text.contains(selected), "{text}");
    }
}
