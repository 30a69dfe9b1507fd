//! A report as text.

use crate::chart::Chart;
use crate::report::{Block, Kind, Part, Report};
use crate::table::escape;

/// The report in Markdown, with the tables of all charts.
pub(crate) fn markdown(report: &Report) -> String {
    let mut before = None;
    let parts = report.parts.iter().map(|part| part_text(part, 2, &mut before)).collect::<String>();
    format!("# {}\n\n{}\n{parts}", escape(&report.title), escape(&report.subtitle))
}

/// `before` is the chart before: tables that are the same are written once.
fn part_text<'a>(part: &'a Part, level: usize, before: &mut Option<&'a Chart>) -> String {
    let mut text = format!("\n{} {}\n", "#".repeat(level), escape(&part.title));
    for block in &part.blocks {
        text += "\n";
        text += &match block {
            Block::Text(Kind::Answer | Kind::Notices, items) => {
                items.iter().map(|item| format!("> {}\n>\n", escape(item))).collect::<String>()
            }
            Block::Text(_, items) => list(items),
            Block::Charts(charts) => {
                charts.iter().map(|chart| chart_text(chart, before.replace(chart))).collect()
            }
            Block::Table(name, table) if name.is_empty() => table.markdown(),
            Block::Table(name, table) => format!("{}:\n\n{}", escape(name), table.markdown()),
            Block::Files(files) => {
                let files = list(files.iter().map(|(name, _)| name));
                format!("The archive has the samples of these points as points/NAME.samples.json:\n\n{files}")
            }
            Block::Links(links) => {
                let link = |[name, href, shows]: &[String; 3]| {
                    format!("- [{}]({href}): {}\n", escape(name), escape(shows))
                };
                links.iter().map(link).collect()
            }
            Block::Verbatim(verbatim) => {
                let fence = fence(verbatim);
                format!("{fence}\n{}\n{fence}\n", verbatim.trim_end())
            }
            Block::Folded(part) => part_text(part, level + 1, before),
        };
    }
    text
}

fn list<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    items.into_iter().map(|item| format!("- {}\n", escape(item))).collect()
}

fn chart_text(chart: &Chart, before: Option<&Chart>) -> String {
    let table = match before.filter(|before| before.table == chart.table) {
        Some(before) => format!("The figures are those of \"{}\".\n", escape(&before.title)),
        None => chart.table.markdown(),
    };
    let gap = if chart.remarks.is_empty() { "" } else { "\n" };
    let (title, context, remarks) = (escape(&chart.title), escape(&chart.context), list(&chart.remarks));
    format!("\n### {title}\n\n{context}\n\n{table}{gap}{remarks}")
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
