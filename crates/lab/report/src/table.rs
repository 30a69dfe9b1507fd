//! A table as data, and as the page, Markdown and CSV show it.

use crate::units::{grouped, plain};

/// Rows under named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Names with their units.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Cell {
    /// Not known, not measured.
    #[default]
    None,
    Text(String),
    /// A number, and how many digits after the point are shown.
    Number(f64, usize),
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::Text(text.into())
    }
}

impl Cell {
    /// Text that may be missing.
    pub(crate) fn text(text: Option<&str>) -> Cell {
        text.filter(|text| !text.is_empty()).map_or(Cell::None, Cell::from)
    }

    /// A number that may be missing.
    pub(crate) fn number(value: Option<f64>, digits: usize) -> Cell {
        value.filter(|v| v.is_finite()).map_or(Cell::None, |v| Cell::Number(v, digits))
    }

    /// How many of something, which may be a part of one such as 0.5 CPUs: a whole number, or in thousandths.
    pub(crate) fn count(value: f64) -> Cell {
        let is_whole = |digits: &usize| (value * 10f64.powi(*digits as i32)).fract() == 0.0;
        Cell::Number(value, (0..3).find(is_whole).unwrap_or(3))
    }

    /// The cell as people read it; `–` if it is not known.
    pub(crate) fn shown(&self) -> String {
        self.written("–", grouped)
    }

    /// Its text, or its number in this form; `none` if it is not known.
    fn written(&self, none: &str, number: fn(f64, usize) -> String) -> String {
        match self {
            Cell::None => none.into(),
            Cell::Text(text) => text.clone(),
            Cell::Number(value, digits) => number(*value, *digits),
        }
    }
}

impl Table {
    /// A table of these rows; ` | ` stands between the names of its columns.
    pub(crate) fn new(columns: &str, rows: impl IntoIterator<Item = Vec<Cell>>) -> Table {
        let columns = columns.split(" | ").map(str::to_owned).collect();
        Table { columns, rows: rows.into_iter().collect() }
    }

    /// Leaves out columns in which no row has a value.
    pub(crate) fn without_empty_columns(mut self) -> Table {
        let is_used = |at: usize| self.rows.iter().any(|row| !matches!(row.get(at), None | Some(Cell::None)));
        let used: Vec<usize> = (0..self.columns.len()).filter(|at| is_used(*at)).collect();
        self.columns = used.iter().map(|at| self.columns[*at].clone()).collect();
        let kept = |row: &Vec<Cell>| used.iter().filter_map(|at| row.get(*at).cloned()).collect();
        self.rows = self.rows.iter().map(kept).collect();
        self
    }

    /// True for columns of numbers: they stand to the right.
    pub(crate) fn is_numeric(&self, column: usize) -> bool {
        let cells = || self.rows.iter().filter_map(|row| row.get(column));
        cells().any(|c| matches!(c, Cell::Number(..))) && !cells().any(|c| matches!(c, Cell::Text(_)))
    }

    /// Comma-separated values with a line of names.
    pub(crate) fn csv(&self) -> String {
        let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
        // Writing to memory cannot fail.
        let _ = writer.write_record(&self.columns);
        for row in &self.rows {
            let _ = writer.write_record(row.iter().map(|cell| cell.written("", plain)));
        }
        writer.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// A Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|c| escape(c)).collect());
        let rule = |at| if self.is_numeric(at) { "---:".into() } else { "---".into() };
        text.push_str(&line((0..self.columns.len()).map(rule).collect()));
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|c| escape(&c.shown())).collect()));
        }
        text
    }
}

/// Text that Markdown takes as text, on one line: no table borders, HTML, links or emphasis from the data.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace(['\n', '\r', '\t'], " ").replace('&', "&amp;").replace('<', "&lt;");
    // The backslash first: it stands before the others.
    ['\\', '|', '`', '*', '[', ']'].iter().fold(text, |text, c| text.replace(*c, &format!("\\{c}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Table {
        let rows = [
            vec!["a|b <script>".into(), Cell::Number(182_400.4, 0), Cell::None],
            vec!["c, \"d\"".into(), Cell::number(Some(f64::NAN), 0), Cell::None],
        ];
        Table::new("point | IOPS | p99 (ms)", rows)
    }

    #[test]
    fn markdown_is_a_table_whatever_the_data() {
        let want = "| point | IOPS | p99 (ms) |\n| --- | ---: | --- |\n\
                    | a\\|b &lt;script> | 182,400 | – |\n| c, \"d\" | – | – |\n";
        assert_eq!(case().markdown(), want);
    }

    #[test]
    fn csv_has_plain_numbers_and_quotes() {
        assert_eq!(case().csv(), "point,IOPS,p99 (ms)\na|b <script>,182400,\n\"c, \"\"d\"\"\",,\n");
    }

    #[test]
    fn parts_of_one_are_counted() {
        let shown = [0.5, 1.0, 16_000.0, 1.333, 0.25, 1.0 / 3.0].map(|n| Cell::count(n).shown());
        assert_eq!(shown, ["0.5", "1", "16,000", "1.333", "0.25", "0.333"]);
    }

    #[test]
    fn empty_columns_go() {
        assert_eq!(case().without_empty_columns().columns, ["point", "IOPS"]);
    }
}
