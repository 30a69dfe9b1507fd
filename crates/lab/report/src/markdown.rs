//! A report as text.

use std::fmt::Write as _;

use crate::report::{Report, Section};
use crate::table::escape;

/// The report in Markdown, with the tables of all charts.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n\n{}\n", escape(&report.title), escape(&report.subtitle));
    heading(&mut text, "What was found");
    for notice in &report.notices {
        let _ = writeln!(text, "> {}\n>", escape(notice));
    }
    if !report.notices.is_empty() {
        text.push('\n');
    }
    list(&mut text, &report.headline);
    for group in report.groups.iter().filter(|g| !g.text.is_empty() && g.files.is_empty()) {
        heading(&mut text, group.title);
        list(&mut text, &group.text);
    }
    let charts = || report.groups.iter().flat_map(|g| &g.charts);
    for (chart, before) in charts().zip(std::iter::once(None).chain(charts().map(Some))) {
        heading(&mut text, &escape(&chart.title));
        let _ = writeln!(text, "{}\n", escape(&chart.context));
        match before.filter(|before| before.table == chart.table) {
            Some(before) => {
                let _ = writeln!(text, "The figures are those of \"{}\".", escape(&before.title));
            }
            None => text.push_str(&chart.table.markdown()),
        }
        if !chart.remarks.is_empty() {
            text.push('\n');
        }
        list(&mut text, &chart.remarks);
    }
    if !report.flames.is_empty() {
        heading(&mut text, "Flamegraphs");
        for flame in &report.flames.all {
            let _ = writeln!(text, "- [{}]({}): {}", escape(&flame.point), flame.href, escape(&flame.text));
        }
        list(&mut text, &report.flames.missing);
    }
    for group in report.groups.iter().filter(|g| !g.files.is_empty()) {
        heading(&mut text, &format!("{}: what is not drawn", group.title));
        list(&mut text, &group.text);
        text.push_str("\nThe archive has the samples of these points as points/NAME.samples.json:\n\n");
        let names: Vec<String> = group.files.iter().map(|(name, _)| name.clone()).collect();
        list(&mut text, &names);
    }
    heading(&mut text, "Every point");
    text.push_str(&report.points.markdown());
    heading(&mut text, "Conditions");
    report.sections.iter().for_each(|part| section(&mut text, part));
    text
}

fn heading(text: &mut String, title: &str) {
    let _ = write!(text, "\n## {title}\n\n");
}

fn list(text: &mut String, items: &[String]) {
    for item in items {
        let _ = writeln!(text, "- {}", escape(item));
    }
}

fn section(text: &mut String, part: &Section) {
    let _ = write!(text, "\n### {}\n\n", escape(&part.title));
    list(text, &part.text);
    if let Some(table) = part.table.as_ref().filter(|t| !t.rows.is_empty()) {
        if !part.text.is_empty() {
            text.push('\n');
        }
        text.push_str(&table.markdown());
    }
    if !part.verbatim.is_empty() {
        let fence = fence(&part.verbatim);
        let _ = writeln!(text, "{fence}\n{}\n{fence}", part.verbatim.trim_end());
    }
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
