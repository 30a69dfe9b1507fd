//! A report as one HTML file that needs nothing beside it.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carmine_load::words::{WORDS, Word, WordKind, word};
use carmine_types::counted;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{Chart, Key, picture, style_sheet};
use crate::figures::slug;
use crate::report::{Block, Kind, Part, Report};
use crate::table::{Cell, Table, escape, plain};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
/// Nothing is fetched from anywhere.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The page.
pub(crate) fn html(report: &Report) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { (report.title) " – Carmine" }
                style { (PreEscaped(style_sheet())) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    div.top {
                        div { h1 { (report.title) } p.subtitle { (report.subtitle) } }
                        button #theme type="button" hidden title="Switch between light and dark" { "Dark" }
                    }
                    nav aria-label="Parts of the page" { @for part in &report.parts { a href={ "#" (part.id) } { (part.title) } } }
                }
                main { @for part in &report.parts { section id=(part.id) { h2 { (part.title) } @for block in &part.blocks { (shown(block)) } } } }
                footer { "Written by carmine report. The same tables stand in report.md; the archive has all samples and logs." }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// A text in which verdicts and marks tell their meaning and lead to the glossary.
fn worded(text: &str) -> Markup {
    html! {
        @for (piece, word) in pieces(text) {
            @if let Some(word) = word { a.word href="#words" title=(word.meaning) { (piece) } } @else { (piece) }
        }
    }
}

fn list(items: &[String]) -> Markup {
    html! { ul { @for item in items { li { (worded(item)) } } } }
}

fn shown(block: &Block) -> Markup {
    html! {
        @match block {
            Block::Text(Kind::Answer, items) => div.answer { @for item in items { p { (worded(item)) } } },
            Block::Text(Kind::Notices, items) => div.notices role="note" aria-label="Limits of this run" { (list(items)) },
            Block::Text(Kind::Findings, items) => div.headline { (list(items)) },
            Block::Text(Kind::Remarks, items) => div.remarks { (list(items)) },
            Block::Charts(charts) => div.charts { @for chart in charts { (figure(chart)) } },
            Block::Table(name, rows) => {
                @if !name.is_empty() {
                    div.more { h3 { (name) } span.files { (download(&slug(name), "csv", "text/csv", &rows.csv())) } }
                }
                (table(rows, name))
            }
            Block::Files(files) => details.others {
                summary { (counted(files.len(), "point")) " not drawn" }
                ul { @for (name, table) in files { li { (download(name, "csv", "text/csv", &table.csv())) " " (name) } } }
            },
            Block::Links(links) => ul.flames { @for [name, href, text] in links { li { a href=(href) { (name) } ": " (text) } } },
            Block::Verbatim(text) => pre tabindex="0" { (text) },
            Block::Folded(part) => (folded(part)),
        }
    }
}

/// Sentences alone are shown openly; the rest unfolds on a click.
fn folded(part: &Part) -> Markup {
    let body = html! { @for block in &part.blocks { (shown(block)) } };
    let is_open = part.blocks.iter().all(|block| matches!(block, Block::Text(..)));
    html! {
        section.part {
            @if is_open { h3 { (part.title) } (body) } @else { details { summary { h3 { (part.title) } } (body) } }
        }
    }
}

fn figure(chart: &Chart) -> Markup {
    let (inline, file) = picture(chart);
    html! {
        figure.chart id=(chart.id) {
            figcaption { h3 { (chart.title) } p.context { (chart.context) } }
            (legend(chart))
            (PreEscaped(inline))
            @if !chart.remarks.is_empty() { div.remarks { (list(&chart.remarks)) } }
            div.more {
                span.files {
                    (download(&chart.id, "svg", "image/svg+xml", &file))
                    (download(&chart.id, "csv", "text/csv", &chart.table.csv()))
                }
                details { summary { "Table" } (table(&chart.table, &format!("Figures of: {}", chart.title))) }
            }
        }
    }
}

/// A link that holds its file.
fn download(stem: &str, ending: &str, kind: &str, content: &str) -> Markup {
    let data = format!("data:{kind};charset=utf-8;base64,{}", STANDARD.encode(content));
    html! { a href=(data) download={ (stem) "." (ending) } aria-label={ "Download " (stem) "." (ending) } { (ending.to_uppercase()) } }
}

fn legend(chart: &Chart) -> Markup {
    html! {
        @if chart.keys().next().is_some() {
            ul.legend aria-label="Legend" {
                @for Key { name, ink, dotted } in chart.keys() {
                    li title=(terms(name)) { i.dotted[*dotted] style={ "border-color:var(" (ink.variable()) ")" } {} (name) }
                }
            }
        }
    }
}

/// A table that can be scrolled with the keyboard, and sorted where scripts run.
fn table(table: &Table, name: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(name) {
            table.sortable {
                thead { tr { @for (at, column) in table.columns.iter().enumerate() {
                    th.n[table.is_numeric(at)] scope="col" title=(terms(column)) { (column) }
                } } }
                tbody { @for row in &table.rows { (table_row(table, row)) } }
            }
        }
    }
}

fn table_row(table: &Table, row: &[Cell]) -> Markup {
    let of = |column: &str| {
        let at = table.columns.iter().position(|c| c == column)?;
        row.get(at).map(Cell::shown)
    };
    let is_bad = matches!(of("state").as_deref(), Some("failed" | "unreadable"));
    let is_marked = of("marks").is_some_and(|words| !matches!(&*words, "" | "–"));
    html! {
        tr.bad[is_bad].marked[is_marked] {
            @for (at, cell) in row.iter().enumerate() {
                @match cell {
                    Cell::Number(value, digits) => td.n data-v=(plain(*value, *digits)) { (cell.shown()) },
                    // Sentences need room, words do not.
                    _ => td.n[table.is_numeric(at)].long[cell.shown().len() > 28] { (worded(&cell.shown())) },
                }
            }
        }
    }
}

// A report as text.

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
            Block::Text(_, items) => items_of(items),
            Block::Charts(charts) => {
                charts.iter().map(|chart| chart_text(chart, before.replace(chart))).collect()
            }
            Block::Table(name, table) if name.is_empty() => table.markdown(),
            Block::Table(name, table) => format!("{}:\n\n{}", escape(name), table.markdown()),
            Block::Files(files) => {
                let files = items_of(files.iter().map(|(name, _)| name));
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

fn items_of<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    items.into_iter().map(|item| format!("- {}\n", escape(item))).collect()
}

fn chart_text(chart: &Chart, before: Option<&Chart>) -> String {
    let table = match before.filter(|before| before.table == chart.table) {
        Some(before) => format!("The figures are those of \"{}\".\n", escape(&before.title)),
        None => chart.table.markdown(),
    };
    let gap = if chart.remarks.is_empty() { "" } else { "\n" };
    let (title, context, remarks) = (escape(&chart.title), escape(&chart.context), items_of(&chart.remarks));
    format!("\n### {title}\n\n{context}\n\n{table}{gap}{remarks}")
}

/// A fence that is longer than any run of backticks in the text.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

// The words of verdicts, marks and terms, explained where they occur, and in a glossary of those that occur.

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '-'
}

/// A text in pieces; those that are verdicts or marks come with their word.
pub(crate) fn pieces(text: &str) -> Vec<(&str, Option<&'static Word>)> {
    let (mut pieces, mut at, mut told) = (Vec::new(), 0, 0);
    for part in text.split_inclusive(|c| !is_of_word(c)) {
        let name = part.trim_end_matches(|c| !is_of_word(c));
        if let Some(word) = defined(&text[..at], name, text) {
            pieces.extend([(&text[told..at], None), (name, Some(word))]);
            told = at + name.len();
        }
        at += part.len();
    }
    pieces.push((&text[told..], None));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

/// A word in capitals. `OSD` is a verdict only where one is named: elsewhere it is the daemon.
fn defined(before: &str, name: &str, text: &str) -> Option<&'static Word> {
    let word = word(name).filter(|word| word.kind != WordKind::Term)?;
    (name != "OSD" || text == name || before.ends_with("by ")).then_some(word)
}

/// The terms in a name, such as that of a column, each with its meaning.
pub(crate) fn terms(name: &str) -> String {
    let lower = name.to_lowercase();
    let is_in = |word: &&Word| word.kind == WordKind::Term && holds(&lower, &word.name.to_lowercase());
    let told = WORDS.iter().filter(is_in).map(|word| format!("{}: {}", word.name, word.meaning));
    told.collect::<Vec<_>>().join("\n")
}

/// True if the words of `name` stand in the text, also in the plural.
fn holds(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let after = &text[at + name.len()..];
        let after = after.strip_prefix('s').unwrap_or(after);
        !text[..at].ends_with(is_of_word) && !after.starts_with(is_of_word)
    })
}

/// A part with the words that the report uses.
pub(crate) fn glossary(report: &Report) -> Part {
    let text = markdown(report);
    let said = text.split(['\n', '|']).flat_map(|line| pieces(line.trim()));
    let said: BTreeSet<&str> = said.filter_map(|(_, word)| Some(word?.name)).collect();
    let lower = text.to_lowercase();
    let occurs = |word: &&Word| match word.kind {
        WordKind::Term => holds(&lower, &word.name.to_lowercase()),
        _ => said.contains(word.name),
    };
    let row = |word: &Word| vec![word.name.into(), word.kind.word().into(), word.meaning.into()];
    let table = Table::new("word | kind | meaning", WORDS.iter().filter(occurs).map(row));
    Part::new("words", "Words", vec![Block::Table("Words of this report".into(), table)])
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

#[cfg(test)]
mod words_tests {
    use super::*;

    #[test]
    fn verdicts_and_marks_are_found_in_a_text() {
        let found = |text| -> Vec<&str> {
            pieces(text).into_iter().filter_map(|(_, word)| word.map(|word| word.name)).collect()
        };
        assert_eq!(found("SHARED 4, NOISY: x; bound beyond it by DEVICE"), ["SHARED", "NOISY", "DEVICE"]);
        assert_eq!(found("1 OSD: at most 5 IOPS. Limited by OSD: busy"), ["OSD"]);
        assert_eq!((found("OSD"), found("UNSHARED, shared")), (vec!["OSD"], vec![]));
        let whole: String = pieces("a SHARED, b").into_iter().map(|(piece, _)| piece).collect();
        assert_eq!(whole, "a SHARED, b");
    }

    #[test]
    fn terms_are_whole_words() {
        assert!(holds("iops per core used", "core") && holds("2 reactors", "reactor"));
        assert!(!holds("scores", "core") && !holds("unused", "used"));
    }
}
