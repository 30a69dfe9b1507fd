//! A report as one HTML file that needs nothing beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carmine_types::counted;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{Chart, Key, picture, style_sheet};
use crate::figures::slug;
use crate::report::{Block, Kind, Part, Report};
use crate::table::{Cell, Table};
use crate::units::plain;
use crate::words::{pieces, terms};

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
                footer { (report.footer) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// A text in which verdicts and marks show their meaning and lead to the glossary.
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
