//! A report as text.

use std::fmt::Write as _;

use crate::chart::Chart;
use crate::report::{Block, Kind, Part, Report};
use crate::table::{Table, escape};

/// The report in Markdown, with the tables of all charts.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n\n{}\n", escape(&report.title), escape(&report.subtitle));
    let mut before = None;
    for part in &report.parts {
        write_part(&mut text, part, 2, &mut before);
    }
    text
}

/// `before` is the chart before: tables that are the same are written once.
fn write_part<'a>(text: &mut String, part: &'a Part, level: usize, before: &mut Option<&'a Chart>) {
    // Writing to a String does not fail: here and below.
    let _ = write!(text, "\n{} {}\n", "#".repeat(level), escape(&part.title));
    for block in &part.blocks {
        text.push('\n');
        match block {
            Block::Text(Kind::Answer | Kind::Notices, items) => {
                items.iter().for_each(|item| text.push_str(&format!("> {}\n>\n", escape(item))));
            }
            Block::Text(_, items) => list(text, items),
            Block::Charts(charts) => {
                for chart in charts {
                    write_chart(text, chart, *before);
                    *before = Some(chart);
                }
            }
            Block::Table(name, table) => write_table(text, name, table),
            Block::Files(files) => {
                text.push_str("The archive has the samples of these points as points/NAME.samples.json:\n\n");
                list(text, &files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
            }
            Block::Links(links) => {
                for [name, href, shows] in links {
                    let _ = writeln!(text, "- [{}]({href}): {}", escape(name), escape(shows));
                }
            }
            Block::Verbatim(verbatim) => {
                let fence = fence(verbatim);
                let _ = writeln!(text, "{fence}\n{}\n{fence}", verbatim.trim_end());
            }
            Block::Folded(part) => write_part(text, part, level + 1, before),
        }
    }
}

fn list(text: &mut String, items: &[String]) {
    for item in items {
        let _ = writeln!(text, "- {}", escape(item));
    }
}

fn write_table(text: &mut String, name: &str, table: &Table) {
    if !name.is_empty() {
        let _ = write!(text, "{}:\n\n", escape(name));
    }
    text.push_str(&table.markdown());
}

fn write_chart(text: &mut String, chart: &Chart, before: Option<&Chart>) {
    let _ = writeln!(text, "\n### {}\n\n{}\n", escape(&chart.title), escape(&chart.context));
    match before.filter(|before| before.table == chart.table) {
        Some(before) => {
            let _ = writeln!(text, "The figures are those of \"{}\".", escape(&before.title));
        }
        None => text.push_str(&chart.table.markdown()),
    }
    if !chart.remarks.is_empty() {
        text.push('\n');
    }
    list(text, &chart.remarks);
}

/// A fence that is longer than any run of backticks in the text.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_fence() {
        assert_eq!(fence("plain"), "```");
        assert_eq!(fence("a ```` b"), "`````");
    }
}
