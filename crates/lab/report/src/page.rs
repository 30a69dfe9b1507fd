//! A report as one HTML file that needs nothing beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{Chart, Ink, Plot, picture, style_sheet};
use crate::figures::Group;
use crate::flames::Flames;
use crate::report::{Report, Section};
use crate::table::{Cell, Table};
use crate::units::plain;

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
                (head(report))
                main {
                    (headline(report))
                    @for group in &report.groups { (charts(group)) }
                    @if report.groups.is_empty() { p { "There is no data for a chart." } }
                    @if !report.flames.is_empty() { (flames(&report.flames)) }
                    (points(&report.points))
                    (conditions(&report.sections))
                }
                footer { "Written by carmine report. The same tables stand in report.md; the archive has all samples and logs." }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn head(report: &Report) -> Markup {
    html! {
        header {
            div.top {
                div {
                    h1 { (report.title) }
                    p.subtitle { (report.subtitle) }
                }
                button #theme type="button" hidden title="Switch between light and dark" { "Dark" }
            }
            nav aria-label="Parts of the page" {
                a href="#headline" { "What was found" }
                @for group in &report.groups { a href={ "#" (group.id) } { (group.title) } }
                @if !report.flames.is_empty() { a href="#flames" { "Flamegraphs" } }
                a href="#points" { "Every point" }
                a href="#conditions" { "Conditions" }
            }
        }
    }
}

fn list(items: &[String]) -> Markup {
    html! { ul { @for item in items { li { (item) } } } }
}

fn headline(report: &Report) -> Markup {
    html! {
        section #headline {
            h2 { "What was found" }
            @if !report.notices.is_empty() {
                div.notices role="note" aria-label="Limits of this run" { (list(&report.notices)) }
            }
            div.headline {
                @if report.headline.is_empty() { p { "No point was measured: there is nothing to say." } }
                (list(&report.headline))
            }
        }
    }
}

fn charts(group: &Group) -> Markup {
    html! {
        section id=(group.id) {
            h2 { (group.title) }
            @if !group.text.is_empty() { ul.remarks { @for text in &group.text { li { (text) } } } }
            div.charts { @for chart in &group.charts { (figure(chart)) } }
            @if !group.files.is_empty() {
                details.others {
                    summary { (group.files.len()) " points that are not drawn" }
                    ul { @for (name, table) in &group.files { li { (download(name, "csv", "text/csv", &table.csv())) " " (name) } } }
                }
            }
        }
    }
}

fn figure(chart: &Chart) -> Markup {
    let picture = picture(chart);
    html! {
        figure.chart id=(chart.id) {
            figcaption {
                h3 { (chart.title) }
                p.context { (chart.context) }
            }
            (legend(&chart.plot))
            (PreEscaped(picture.inline))
            @if !chart.remarks.is_empty() { ul.remarks { @for remark in &chart.remarks { li { (remark) } } } }
            div.more {
                span.files {
                    (download(&chart.id, "svg", "image/svg+xml", &picture.file))
                    (download(&chart.id, "csv", "text/csv", &chart.table.csv()))
                }
                details {
                    summary { "Table" }
                    (table(&chart.table, &format!("Figures of: {}", chart.title)))
                }
            }
        }
    }
}

/// A link that holds its file.
fn download(stem: &str, ending: &str, kind: &str, content: &str) -> Markup {
    let data = format!("data:{kind};charset=utf-8;base64,{}", STANDARD.encode(content));
    html! { a href=(data) download={ (stem) "." (ending) } aria-label={ "Download " (stem) "." (ending) } { (ending.to_uppercase()) } }
}

fn legend(plot: &Plot) -> Markup {
    let keys = plot.keys();
    let colour = |ink: Ink| format!("border-color:var({})", ink.variable());
    html! {
        @if keys.len() > 1 {
            ul.legend aria-label="Legend" {
                @for key in &keys {
                    li { i.dotted[key.dotted] style=(colour(key.ink)) {} (key.name) }
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
                    th.n[table.is_numeric(at)] scope="col" { (column) }
                } } }
                tbody { @for row in &table.rows { (table_row(table, row)) } }
            }
        }
    }
}

fn table_row(table: &Table, row: &[Cell]) -> Markup {
    let of = |column: &str| {
        let at = table.columns.iter().position(|c| c == column)?;
        match row.get(at) {
            Some(Cell::Text(text)) => Some(text.as_str()),
            _ => None,
        }
    };
    let bad = matches!(of("state"), Some("failed" | "unreadable"));
    let marked = of("marks").is_some_and(|words| !words.is_empty());
    html! {
        tr.bad[bad].marked[marked] {
            @for (at, cell) in row.iter().enumerate() {
                @if let Cell::Number(value, digits) = cell {
                    td.n data-v=(plain(*value, *digits)) { (cell.shown()) }
                } @else {
                    td.n[table.is_numeric(at)].long[is_long(cell)] { (cell.shown()) }
                }
            }
        }
    }
}

/// Sentences need room, words do not.
fn is_long(cell: &Cell) -> bool {
    matches!(cell, Cell::Text(text) if text.len() > 28)
}

fn flames(flames: &Flames) -> Markup {
    html! {
        section #flames {
            h2 { "Flamegraphs" }
            ul.remarks {
                @if !flames.all.is_empty() { li { "Files of the archive, not part of this page. A click into one zooms, Ctrl-F searches." } }
                @for text in &flames.missing { li { (text) } }
            }
            @if !flames.all.is_empty() {
                ul.flames { @for flame in &flames.all { li { a href=(flame.href) { (flame.point) } ": " (flame.text) } } }
            }
        }
    }
}

fn points(points: &Table) -> Markup {
    html! {
        section #points {
            h2 { "Every point" }
            @if points.rows.is_empty() { p { "The run has no points." } }
            @else {
                div.more { span.files { (download("points", "csv", "text/csv", &points.csv())) } }
                (table(points, "Every point of the run"))
            }
        }
    }
}

fn conditions(sections: &[Section]) -> Markup {
    html! {
        section #conditions {
            h2 { "Conditions" }
            @for part in sections {
                section.part {
                    // Missing figures are shown openly; the rest unfolds on a click.
                    @if part.verbatim.is_empty() && part.table.is_none() { h3 { (part.title) } (section_body(part)) }
                    @else { details { summary { h3 { (part.title) } } (section_body(part)) } }
                }
            }
        }
    }
}

fn section_body(part: &Section) -> Markup {
    html! {
        @if !part.text.is_empty() { (list(&part.text)) }
        @if let Some(found) = part.table.as_ref().filter(|t| !t.rows.is_empty()) { (table(found, &part.title)) }
        @if !part.verbatim.is_empty() { pre tabindex="0" { (part.verbatim) } }
    }
}
