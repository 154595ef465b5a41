//! Text tables: columns as wide as their widest cell, coloured after measuring.

use crate::paint::{Paint, Tone};

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell with a colour.
    pub fn new(tone: Tone, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), tone }
    }

    /// Its text, without colour.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A cell that holds nothing worth reading.
    pub fn none() -> Cell {
        Cell::new(Tone::Dim, "-")
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::new(Tone::Plain, text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::new(Tone::Plain, text)
    }
}

/// Where a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the headings are not shown.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table, one string a line, headings first, no trailing blanks.
    pub fn lines(&self, paint: Paint) -> Vec<String> {
        let widths = self.widths();
        let head: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::new(Tone::Dim, *name)).collect();
        std::iter::once(&head).chain(&self.rows).map(|row| self.line(row, &widths, paint)).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let cell = |row: &Vec<Cell>, i| row.get(i).map_or(0, |c: &Cell| c.text.chars().count());
        (0..self.columns.len())
            .map(|i| {
                let widest = self.rows.iter().map(|row| cell(row, i)).max();
                widest.unwrap_or(0).max(self.columns[i].0.chars().count())
            })
            .collect()
    }

    fn line(&self, row: &[Cell], widths: &[usize], paint: Paint) -> String {
        let mut line = String::new();
        let mut blanks = 0;
        for ((cell, width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            let pad = width - cell.text.chars().count();
            if *align == Align::Right {
                blanks += pad;
            }
            if !cell.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', blanks));
                line.push_str(&paint.apply(cell.tone, &cell.text));
                blanks = 0;
            }
            blanks += if *align == Align::Left { pad + 2 } else { 2 };
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_where_text_ends() {
        let mut table = Table::new(&[("RAIL", Align::Left), ("CALLS", Align::Right), ("WHY", Align::Left)]);
        table.row(["cards".into(), "1,204".into(), "".into()]);
        table.row(["é".into(), "7".into(), "BulkheadFull".into()]);
        assert_eq!(table.lines(Paint::PLAIN), ["RAIL   CALLS  WHY", "cards  1,204", "é          7  BulkheadFull"]);
    }
}
