//! Tables laid out by comfy-table, coloured by row.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle,
};

use super::style::{TextStyle, Tone};

/// One thin line below the column names.
const LINES: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The lines of the table head.
const HEAD_LINES: usize = 2;

/// Least width that wrapped text needs to be readable.
const MIN_WRAP_WIDTH: usize = 24;

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
}

impl GridColumn {
    /// A left-aligned column, for text.
    pub(crate) fn left(name: &str) -> Self {
        GridColumn { name: name.to_owned(), alignment: CellAlignment::Left, wraps: false }
    }

    /// A right-aligned column, for numbers.
    pub(crate) fn right(name: &str) -> Self {
        GridColumn { alignment: CellAlignment::Right, ..GridColumn::left(name) }
    }

    /// Wraps this column on a narrow terminal.
    pub(crate) fn wrapping(self) -> Self {
        GridColumn { wraps: true, ..self }
    }
}

impl Grid {
    pub(crate) fn new(columns: Vec<GridColumn>) -> Self {
        Grid { columns, rows: Vec::new(), tones: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>, tone: Tone) {
        self.rows.push(cells);
        self.tones.push(tone);
    }

    /// Renders the table without trailing blanks.
    ///
    /// If the last column has no room to wrap, its text goes below each row.
    pub(crate) fn render(&self, style: TextStyle) -> String {
        let fixed = self.columns.iter().filter(|column| !column.wraps).count();
        let fixed_width = widest_line(&self.layout(fixed, None));
        match style.width {
            Some(width)
                if fixed < self.columns.len()
                    && usize::from(width) < fixed_width + MIN_WRAP_WIDTH =>
            {
                let lines = self.paint_lines(&self.layout(fixed, None), style);
                self.with_text_below(&lines, fixed)
            }
            width => self.paint_lines(&self.layout(self.columns.len(), width), style).concat(),
        }
    }

    /// Renders the table if it fits, else transposed: one line for each column.
    pub(crate) fn render_or_transpose(&self, style: TextStyle) -> String {
        let natural_width = widest_line(&self.layout(self.columns.len(), None));
        match style.width {
            // Many numeric columns cannot wrap, but few rows fit side by side.
            Some(width) if usize::from(width) < natural_width => self.transposed().render(style),
            _ => self.render(TextStyle { width: None, ..style }),
        }
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

    /// The first columns, laid out within a width.
    fn layout(&self, columns: usize, width: Option<u16>) -> String {
        let mut table = Table::new();
        table.load_style(LINES);
        table.set_header(self.columns.iter().take(columns).map(|column| column.name.as_str()));
        table.add_rows(self.rows.iter().map(|row| row.iter().take(columns)));
        for (column, layout) in self.columns.iter().zip(table.column_iter_mut()) {
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

    /// The lines with the tone of their row. A wrapped row continues with an empty first cell.
    fn paint_lines(&self, text: &str, style: TextStyle) -> Vec<String> {
        let mut tones = self.tones.iter();
        let mut tone = Tone::Quiet;
        let first_width = self.first_width();
        // comfy-table returns text only, so rows are recognised by a non-empty first cell.
        let begins_row = |line: &str| line.chars().take(first_width).any(|char| char != ' ');
        let mut painted = Vec::new();
        for (index, line) in text.lines().map(str::trim_end).enumerate() {
            if index >= HEAD_LINES && begins_row(line) {
                tone = *tones.next().unwrap_or(&Tone::Plain);
            }
            // Painted after the layout, which would count escape sequences as width.
            painted.push(format!("{}\n", style.paint(tone, line)));
        }
        painted
    }

    fn first_width(&self) -> usize {
        let name = self.columns.first().map(|column| column.name.as_str());
        let cells = self.rows.iter().filter_map(|row| row.first().map(String::as_str));
        name.into_iter().chain(cells).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn with_text_below(&self, lines: &[String], column: usize) -> String {
        let (head, rows) = lines.split_at(HEAD_LINES.min(lines.len()));
        let mut text = head.concat();
        for (line, row) in rows.iter().zip(&self.rows) {
            let below = row.get(column).map_or("", String::as_str);
            text += &format!("{line}      {below}\n");
        }
        text
    }
}

fn widest_line(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}
