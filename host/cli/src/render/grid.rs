//! Tables laid out by comfy-table, coloured by row, as wide as the terminal at most.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle,
};
use textwrap::core::display_width;

use super::format::DASH;
use super::style::{TextStyle, Tone};
use super::wrap::{widest_line, wrap};

/// Between the rows of a layout, to tell them apart: comfy-table returns text only.
const ROW_END: char = '\u{1}';

/// One thin line below the column names.
const LINES: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .row_separator(LineStyle::none().fill(ROW_END).junction(ROW_END));

/// The lines of the table head.
const HEAD_LINES: usize = 2;

/// Least width that wrapped text needs to be readable.
const MIN_WRAP_WIDTH: usize = 24;

/// Indentation of text below its row.
const BELOW_INDENT: &str = "      ";

/// A table.
pub(crate) struct Grid {
    columns: Vec<GridColumn>,
    rows: Vec<Vec<String>>,
    tones: Vec<Tone>,
}

/// A column.
#[derive(Clone)]
pub(crate) struct GridColumn {
    name: String,
    alignment: CellAlignment,
    wraps: bool,
    /// Whether its words are copied as a whole, such as paths.
    keeps_words: bool,
    zeros: ZeroColumn,
}

/// What happens to a column in which every row is 0 or empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ZeroColumn {
    Shown,
    Hidden,
    /// Hidden, and named below the table.
    Named,
}

impl GridColumn {
    /// A left-aligned column, for text.
    pub(crate) fn left(name: &str) -> Self {
        GridColumn {
            name: name.to_owned(),
            alignment: CellAlignment::Left,
            wraps: false,
            keeps_words: false,
            zeros: ZeroColumn::Shown,
        }
    }

    /// A right-aligned column, for numbers.
    pub(crate) fn right(name: &str) -> Self {
        GridColumn { alignment: CellAlignment::Right, ..GridColumn::left(name) }
    }

    /// Wraps this column on a narrow terminal.
    pub(crate) fn wrapping(self) -> Self {
        GridColumn { wraps: true, ..self }
    }

    /// Wraps this column, but breaks no word: where one does not fit, the column goes below the rows.
    pub(crate) fn wrapping_words(self) -> Self {
        GridColumn { keeps_words: true, ..self.wrapping() }
    }

    /// Hides this column if all of it is 0 or empty.
    pub(crate) fn optional(self) -> Self {
        GridColumn { zeros: ZeroColumn::Hidden, ..self }
    }

    /// Hides this column if all of it is 0, and says so below the table.
    pub(crate) fn named_if_zero(self) -> Self {
        GridColumn { zeros: ZeroColumn::Named, ..self }
    }
}

impl Grid {
    pub(crate) fn new(columns: Vec<GridColumn>) -> Self {
        Grid { columns, rows: Vec::new(), tones: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>, tone: Tone) {
        self.rows.push(cells.iter().map(|cell| cell.replace(ROW_END, "\u{fffd}")).collect());
        self.tones.push(tone);
    }

    /// Renders the table without trailing blanks, no wider than the terminal.
    ///
    /// On a narrow terminal text wraps in its column, or goes below its row; if the rest does not
    /// fit either, each row becomes a block of lines.
    pub(crate) fn render(&self, style: TextStyle) -> String {
        let (shown, zeros) = self.without_zero_columns();
        shown.fit(style) + &zeros.line("in every row", style)
    }

    /// Renders the table if it fits, else transposed: one line for each column, and as many rows side by side as fit.
    pub(crate) fn render_or_transpose(&self, style: TextStyle) -> String {
        let (shown, zeros) = self.without_zero_columns();
        let fits = |grid: &Grid| style.width.is_none_or(|width| grid.width() <= usize::from(width));
        // Many numeric columns cannot wrap, but few rows fit side by side.
        let blocks = if fits(&shown) { None } else { shown.transposed_blocks(fits) };
        let of_all = match (&blocks, self.columns.first()) {
            // The rows are columns now, and what they are is the name of the first one.
            (Some(_), Some(first)) => format!("for every {}", first.name),
            _ => "in every row".to_owned(),
        };
        let blocks = blocks.unwrap_or_else(|| vec![shown]);
        let text: Vec<String> = blocks.iter().map(|block| block.fit(style)).collect();
        text.join("\n") + &zeros.line(&of_all, style)
    }

    /// The rows transposed, in tables that fit; `None` without rows, or if one does not fit.
    fn transposed_blocks(&self, fits: impl Fn(&Grid) -> bool) -> Option<Vec<Grid>> {
        let mut rest = self.rows.as_slice();
        let mut blocks = Vec::new();
        while !rest.is_empty() {
            let of_first = |count: usize| {
                let rows = rest.iter().take(count).cloned().collect();
                Grid { columns: self.columns.clone(), rows, tones: Vec::new() }.transposed()
            };
            let count = (1..=rest.len()).rev().find(|count| fits(&of_first(*count)))?;
            blocks.push(of_first(count));
            rest = rest.get(count..).unwrap_or_default();
        }
        (!blocks.is_empty()).then_some(blocks)
    }

    /// Without the columns that hide if they are zero, and those of them that have to be named.
    fn without_zero_columns(&self) -> (Grid, ZeroColumns) {
        let is_zero = |cell: &String| matches!(cell.as_str(), "" | "0" | DASH);
        let hides = |index: usize, column: &GridColumn| {
            column.zeros != ZeroColumn::Shown
                && !self.rows.is_empty()
                && self.rows.iter().all(|row| row.get(index).is_none_or(is_zero))
        };
        // A dash is an unknown figure, not 0.
        let has = |index: usize, figure: &str| {
            self.rows.iter().any(|row| row.get(index).is_some_and(|cell| cell == figure))
        };
        let (mut columns, mut kept, mut zeros) = (Vec::new(), Vec::new(), ZeroColumns::default());
        for (index, column) in self.columns.iter().enumerate() {
            if !hides(index, column) {
                columns.push(column.clone());
                kept.push(index);
            } else if column.zeros == ZeroColumn::Named && has(index, "0") {
                zeros.names.push(column.name.clone());
                zeros.has_unknown |= has(index, DASH);
            }
        }
        let cells = |row: &Vec<String>| -> Vec<String> {
            kept.iter().map(|index| row.get(*index).cloned().unwrap_or_default()).collect()
        };
        let rows = self.rows.iter().map(cells).collect();
        (Grid { columns, rows, tones: self.tones.clone() }, zeros)
    }

    fn fit(&self, style: TextStyle) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = style.width.map(usize::from).filter(|width| *width < self.width()) else {
            return self.paint_rows(&self.layout(&all, None), style).concat();
        };
        let (wrapping, fixed): (Vec<usize>, Vec<usize>) =
            all.iter().partition(|index| self.columns.get(**index).is_some_and(|it| it.wraps));
        let fixed_width = widest_line(&self.layout(&fixed, None).replace(ROW_END, " "));
        // With the blanks around each wrapping column.
        let room = width.saturating_sub(fixed_width + 2 * wrapping.len()) / wrapping.len().max(1);
        let is_cut = wrapping.iter().any(|index| self.longest_kept_word(*index) > room);
        match wrapping.as_slice() {
            [] => self.stacked(width, style),
            [below] if fixed_width <= width && (is_cut || width < fixed_width + MIN_WRAP_WIDTH) => {
                let rows = self.paint_rows(&self.layout(&fixed, None), style);
                self.with_text_below(&rows, *below, width)
            }
            _ if !is_cut && fixed_width + wrapping.len() * MIN_WRAP_WIDTH <= width => {
                self.paint_rows(&self.layout(&all, style.width), style).concat()
            }
            _ => self.stacked(width, style),
        }
    }

    /// The width of the longest word that must not be broken in a column.
    fn longest_kept_word(&self, index: usize) -> usize {
        let keeps_words = self.columns.get(index).is_some_and(|column| column.keeps_words);
        let cells = self.rows.iter().filter(|_| keeps_words).filter_map(|row| row.get(index));
        cells.flat_map(|cell| cell.split_whitespace()).map(display_width).max().unwrap_or(0)
    }

    fn width(&self) -> usize {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        widest_line(&self.layout(&all, None).replace(ROW_END, " "))
    }

    fn transposed(&self) -> Grid {
        let cell = |row: &Vec<String>, index| row.get(index).cloned().unwrap_or_default();
        let mut names = self.columns.iter().map(|column| column.name.as_str());
        let mut columns = vec![GridColumn::left(names.next().unwrap_or_default())];
        columns.extend(self.rows.iter().map(|row| GridColumn::right(&cell(row, 0))));
        let mut turned = Grid::new(columns);
        for (index, name) in names.enumerate() {
            let cells = self.rows.iter().map(|row| cell(row, index + 1));
            turned.row([name.to_owned()].into_iter().chain(cells).collect(), Tone::Plain);
        }
        turned
    }

    /// A block for each row: its first cell, then a line for each other cell that is not empty.
    fn stacked(&self, width: usize, style: TextStyle) -> String {
        let labels = self.columns.iter().map(|column| display_width(&column.name));
        let label_width = labels.max().unwrap_or(0);
        let mut text = String::new();
        for (row, tone) in self.rows.iter().zip(&self.tones) {
            let mut cells = self.columns.iter().zip(row).filter(|(_, cell)| {
                let cell = cell.trim();
                !cell.is_empty() && cell != DASH
            });
            if let Some((column, cell)) = cells.next() {
                let head = format!("{} {cell}", column.name);
                text += &format!("{}\n", style.paint(*tone, head.trim()));
            }
            for (column, cell) in cells {
                let padding = " ".repeat(label_width - display_width(&column.name));
                let line = format!("  {}:{padding} {cell}\n", column.name);
                // Without the padding a long value takes fewer lines.
                text += &if display_width(line.trim_end()) <= width {
                    line
                } else {
                    wrap(&format!("  {}: {cell}\n", column.name), width)
                };
            }
        }
        text
    }

    /// Columns, laid out within a width. Rows are separated by lines of [`ROW_END`].
    fn layout(&self, columns: &[usize], width: Option<u16>) -> String {
        let shown = || columns.iter().filter_map(|index| self.columns.get(*index));
        let cells = |row: &Vec<String>| -> Vec<String> {
            columns.iter().map(|index| row.get(*index).cloned().unwrap_or_default()).collect()
        };
        let mut table = Table::new();
        table.load_style(LINES);
        table.set_header(shown().map(|column| column.name.as_str()));
        table.add_rows(self.rows.iter().map(cells));
        for (column, layout) in shown().zip(table.column_iter_mut()) {
            layout.set_cell_alignment(column.alignment);
            layout.set_padding((0, 1));
            // Numbers and names are never broken.
            if !column.wraps {
                layout.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        table.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table.to_string()
    }

    /// The head, then each row, with the tone of the row.
    fn paint_rows(&self, text: &str, style: TextStyle) -> Vec<String> {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let (head, body) = lines.split_at(HEAD_LINES.min(lines.len()));
        // Painted after the layout, which would count escape sequences as width.
        let paint = |lines: &[&str], tone| -> String {
            lines.iter().map(|line| format!("{}\n", style.paint(tone, line))).collect()
        };
        let mut painted = vec![paint(head, Tone::Quiet)];
        if body.is_empty() {
            return painted;
        }
        let rows = body.split(|line| line.contains(ROW_END));
        let tones = self.tones.iter().copied().chain(std::iter::repeat(Tone::Plain));
        painted.extend(rows.zip(tones).map(|(lines, tone)| paint(lines, tone)));
        painted
    }

    fn with_text_below(&self, painted: &[String], column: usize, width: usize) -> String {
        let (head, rows) = painted.split_at(1.min(painted.len()));
        let mut text = head.concat();
        for (lines, row) in rows.iter().zip(&self.rows) {
            text += lines;
            let below = row.get(column).map_or("", String::as_str);
            if !below.is_empty() {
                text += &wrap(&format!("{BELOW_INDENT}{below}\n"), width);
            }
        }
        text
    }
}

/// The columns that are hidden because all of their figures are 0.
#[derive(Default)]
struct ZeroColumns {
    names: Vec<String>,
    /// Whether rows have no figure there.
    has_unknown: bool,
}

impl ZeroColumns {
    fn line(&self, of_all: &str, style: TextStyle) -> String {
        if self.names.is_empty() {
            return String::new();
        }
        let known = if self.has_unknown { " with figures" } else { "" };
        let names = self.names.join(", ");
        format!("{}\n", style.paint(Tone::Quiet, &format!("0 {of_all}{known}: {names}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sanitize::sanitize;
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(vec![
            GridColumn::left(""),
            GridColumn::left("engine"),
            GridColumn::right("repairs").named_if_zero(),
            GridColumn::right("notes").optional(),
            GridColumn::left("reason").wrapping(),
        ]);
        let row = |mark: &str, name: &str, reason: &str| {
            [mark, name, "0", DASH, reason].map(str::to_owned).to_vec()
        };
        grid.row(row("*", "legacy", "the active engine of this config, set by hand"), Tone::Bad);
        grid.row(row("", "日本語", "not used"), Tone::Warning);
        grid
    }

    #[test]
    fn every_width_is_kept() {
        for width in 24..100 {
            let style = TextStyle { color: false, width: Some(width) };
            for text in [grid().render(style), grid().render_or_transpose(style)] {
                let widest = widest_line(&text);
                // The line that names columns is wrapped with all other text.
                let text = wrap(&text, width.into());
                assert!(widest_line(&text) <= width.into(), "{width}, {widest}:\n{text}");
                assert!(text.contains("legacy") && text.contains("hand"), "{text}");
            }
        }
    }

    #[test]
    fn a_file_name_is_not_broken() {
        let columns =
            vec![GridColumn::right("stored"), GridColumn::left("session").wrapping_words()];
        let mut grid = Grid::new(columns);
        let name = "2026-11-21T09-01-00-000Z_0123456789abcdef.jsonl";
        grid.row(["12.5 KiB", name].map(str::to_owned).to_vec(), Tone::Plain);
        for width in 40..100 {
            let text = grid.render(TextStyle { color: false, width: Some(width) });
            assert!(text.contains(name), "{width}: {text}");
        }
    }

    #[test]
    fn an_unknown_figure_is_not_zero() {
        let shown = |cells: [&str; 2], width| {
            let columns = vec![GridColumn::left("engine"), GridColumn::right("peak")];
            let mut grid = Grid::new(
                columns.into_iter().chain([GridColumn::right("repairs").named_if_zero()]).collect(),
            );
            for (engine, repairs) in ["legacy", "mask"].into_iter().zip(cells) {
                grid.row([engine, "1,234,567", repairs].map(str::to_owned).to_vec(), Tone::Plain);
            }
            let text = grid.render_or_transpose(TextStyle { color: false, width });
            text.lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(shown(["0", "0"], None), "0 in every row: repairs");
        assert_eq!(shown(["0", DASH], None), "0 in every row with figures: repairs");
        assert!(!shown([DASH, DASH], None).contains("repairs"));
        assert_eq!(shown(["0", "0"], Some(15)), "0 in every row: repairs", "does not fit at all");
    }

    #[test]
    fn narrow_rows_are_stacked() {
        let style = |width| TextStyle { color: false, width: Some(width) };
        insta::assert_snapshot!("below", grid().render(style(30)));
        let mut wide = Grid::new(["engine", "peak", "tokens sent"].map(GridColumn::right).to_vec());
        wide.row(["window", "19,420", "412,904"].map(str::to_owned).to_vec(), Tone::Plain);
        insta::assert_snapshot!("stacked", wide.render(style(18)));
    }

    #[test]
    fn rows_that_do_not_fit_side_by_side_are_in_several_tables() {
        let columns = ["engine", "peak", "compactions", "tokens sent", "stable prefix"];
        let mut grid = Grid::new(columns.map(GridColumn::right).to_vec());
        for engine in ["window", "legacy", "head-tail"] {
            let cells = [engine, "19,420", "5", "1,412,904", "90.1%"].map(str::to_owned);
            grid.row(cells.to_vec(), Tone::Plain);
        }
        let text = grid.render_or_transpose(TextStyle { color: false, width: Some(40) });
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("engine")).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(heads.len(), 2, "{text}");
        assert_eq!(words(heads[0]), ["engine", "window", "legacy"]);
        assert_eq!(words(heads[1]), ["engine", "head-tail"]);
        assert!(widest_line(&text) <= 40, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("tokens sent")).count(), 2);
    }

    #[test]
    fn a_row_with_an_empty_first_cell_has_its_own_tone() {
        let text = grid().render(TextStyle { color: true, width: None });
        let line = text.lines().find(|line| line.contains("日本語")).unwrap();
        assert!(sanitize(line, true).starts_with("\u{1b}[33m"), "{line:?}");
    }
}
