//! Tables of text: each column as wide as its widest cell, two blanks between columns.

/// Rows under headings.
pub(super) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows; `|` stands between the names of its columns, `<` before that of a column of words, whose
    /// cells are pushed to the left.
    pub(super) fn new(columns: &str) -> Table {
        Table { columns: columns.split('|').map(str::to_owned).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, each with its end.
    pub(super) fn render(&self) -> String {
        let heads: Vec<String> =
            self.columns.iter().map(|name| name.trim_start_matches('<').to_owned()).collect();
        let lines = || std::iter::once(&heads).chain(&self.rows);
        let width = |at: usize| lines().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..heads.len()).map(|at| width(at).unwrap_or(0)).collect();
        lines().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = self.columns.iter().zip(widths).enumerate().map(|(at, (column, width))| {
            let cell = row.get(at).map_or("", String::as_str);
            if column.starts_with('<') { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
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
        let mut table = Table::new("<NAME|N");
        table.row(["a".to_owned(), "100".to_owned()]);
        table.row(["longer".to_owned()]);
        assert_eq!(table.render(), "NAME      N\na       100\nlonger\n");
    }
}
