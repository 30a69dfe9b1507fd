//! Tables of text: each column as wide as its widest cell, two blanks between columns.

/// Side to which a column is pushed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Rows under headings.
pub(super) struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, Side)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, each with its end.
    pub(super) fn render(&self) -> String {
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
            cells.chain([self.columns[at].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let heads = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = self.columns.iter().zip(widths).enumerate().map(|(at, ((_, side), width))| {
            let cell = row.get(at).map_or("", String::as_str);
            if *side == Side::Left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let mut line = cells.collect::<Vec<_>>().join("  ");
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("NAME", Side::Left), ("N", Side::Right)]);
        table.row(["a".to_owned(), "100".to_owned()]);
        table.row(["longer".to_owned()]);
        assert_eq!(table.render(), "NAME      N\na       100\nlonger\n");
    }
}
