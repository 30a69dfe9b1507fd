//! Tables of text: each column as wide as its widest cell, two blanks between columns. And numbers of bytes, counts and times
//! as Ceph prints them.

/// Rows under headings.
pub(crate) struct Table {
    /// Columns of words, whose cells are pushed to the left.
    left: Vec<bool>,
    /// Those whose headings are.
    left_heading: Vec<bool>,
    /// The headings and the rows.
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows; `|` stands between the names of its columns, `<` before that of a column of words, and `>` before one
    /// that is to the left of its numbers.
    pub(crate) fn new(columns: &str) -> Table {
        let left = columns.split('|').map(|name| name.starts_with('<')).collect();
        let left_heading = columns.split('|').map(|name| name.starts_with(['<', '>'])).collect();
        let mut table = Table { left, left_heading, lines: Vec::new() };
        table.row(&columns.replace(['<', '>'], ""));
        table
    }

    /// Adds a row: `|` stands between its cells, and missing cells are empty.
    pub(crate) fn row(&mut self, cells: &str) {
        self.lines.push(cells.split('|').map(str::to_owned).collect());
    }

    /// The lines, each with its end.
    pub(crate) fn render(&self) -> String {
        let cells = |at: usize| self.lines.iter().filter_map(move |line| line.get(at));
        let width = |at: usize| cells(at).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.left.len()).map(width).collect();
        let (heading, rows) = self.lines.split_at(1.min(self.lines.len()));
        let heading = heading.iter().map(|line| self.line(line, &self.left_heading, &widths));
        heading.chain(rows.iter().map(|line| self.line(line, &self.left, &widths))).collect()
    }

    fn line(&self, line: &[String], left: &[bool], widths: &[usize]) -> String {
        let cells = left.iter().zip(widths).enumerate().map(|(at, (left, width))| {
            let cell = line.get(at).map_or("", String::as_str);
            if *left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    }
}

/// A number of bytes in at most seven characters: `6.0 MiB`, `10 GiB`, `512 B`.
pub(super) fn bytes(value: u64) -> String {
    scaled(value, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// A count: `1.50k`, `12M`.
pub(super) fn count(value: u64) -> String {
    scaled(value, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn scaled(value: u64, step: u64, units: &[&str]) -> String {
    let mut index = 0;
    let mut unit = 1_u64;
    while index + 1 < units.len() && value / unit >= step {
        unit *= step;
        index += 1;
    }
    let name = units.get(index).copied().unwrap_or_default();
    if value.is_multiple_of(unit) {
        return format!("{}{name}", value / unit);
    }
    let part = value as f64 / unit as f64;
    let shown =
        [2, 1].map(|digits| format!("{part:.digits$}{name}")).into_iter().find(|text| text.len() <= 7);
    shown.unwrap_or_else(|| format!("{part:.0}{name}"))
}

/// A length of time by its largest unit: `42s`, `5m`, `3h`, `2d`.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A number with at most so many digits, as C's `%g` prints it: without zeros at its end, and with an exponent if it is very large
/// or small.
pub(crate) fn general(value: f64, digits: i32) -> String {
    let exact = format!("{value:.*e}", (digits - 1).max(0) as usize);
    let Some((mantissa, exponent)) = exact.split_once('e') else { return exact };
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let exponent = exponent.parse::<i32>().unwrap_or_default();
    if (-4..digits).contains(&exponent) {
        return trimmed(&format!("{value:.*}", (digits - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// A share, 0 for a share of nothing.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("<NAME|N");
        table.row("a|100");
        table.row("longer");
        assert_eq!(table.render(), "NAME      N\na       100\nlonger\n");
    }

    #[test]
    fn as_ceph_prints_them() {
        let shown = [0, 512, 1024, 1536, 6 << 20, (6 << 20) + 1, 10 << 30, (10 << 30) + (1 << 29), u64::MAX]
            .map(bytes);
        let wanted = ["0 B", "512 B", "1 KiB", "1.5 KiB", "6 MiB", "6.0 MiB", "10 GiB", "10 GiB", "16 EiB"];
        assert_eq!(shown, wanted);
        assert_eq!([0, 999, 1000, 1500, 12_000_000].map(count), ["0", "999", "1k", "1.50k", "12M"]);
        assert_eq!([5, 300, 10_000, 1 << 20].map(age), ["5s", "5m", "2h", "12d"]);
        assert_eq!(ratio(1, 0), 0.0);
        assert_eq!(
            [12.027_746_2, 223.0, 0.05, 2.242_152, 0.0].map(|n| general(n, 6)),
            ["12.0277", "223", "0.05", "2.24215", "0"]
        );
    }
}
