//! BENCHMARKS.md against its archive: every table of the page is made from `benches/current.json`, and every figure there stands in
//! the file of the notebook that its row names. So no figure is on the page that nobody measured. After a change of the archive:
//!
//! ```text
//! CARMINE_BENCHMARKS=write scripts/test -p carmine-tests --test benchmarks_page     rewrites the tables of the page
//! ```
#![allow(clippy::disallowed_methods)] // reads files, and writes the page

use std::borrow::Borrow;
use std::collections::BTreeSet;

use carmine_tests::workspace_root;
use serde_json::Value;

/// Set to `write`, the page's tables are rewritten instead of compared.
const MODE: &str = "CARMINE_BENCHMARKS";
/// One page: who wants more reads the notebook.
const LINES_MAX: usize = 150;
const NOT_MEASURED: &str = "not measured";
/// In place of a figure that the row cannot have, and of a source that the notebook does not name.
const NONE: &str = "–";
/// The tables of rows with figures, in the order of the page.
const TABLES: [&str; 4] = ["ratios", "IOPS", "recovery", "comparisons"];

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn archive() -> Value {
    serde_json::from_str(&read("benches/current.json")).expect("benches/current.json is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key:?} in {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key:?} in {value}"))
}

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no whole number {key:?} in {value}"))
}

fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    list(value, key).iter().map(|text| text.as_str().expect("a text")).collect()
}

fn table<'a>(archive: &'a Value, name: &str) -> &'a Value {
    let found = list(archive, "tables").iter().find(|table| table["name"] == name);
    found.unwrap_or_else(|| panic!("the archive has no table {name:?}"))
}

/// All rows that say where they come from, or that nothing was measured.
fn rows(archive: &Value) -> impl Iterator<Item = &Value> {
    let figures = list(archive, "tables").iter().flat_map(|table| list(table, "rows"));
    figures.chain(list(&archive["verdicts"], "rows")).chain(list(archive, "instructions"))
}

/// A number as the notebook writes it: `1,273.9`.
fn number(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// A figure as the notebook writes it: the median with its spread, or each round, or the highest round.
fn figure(units: &Value, figure: &Value) -> String {
    let unit = text(figure, "unit");
    let decimals = figure["decimals"].as_u64().or_else(|| units[unit].as_u64());
    let decimals = decimals.unwrap_or_else(|| panic!("the archive does not list the unit {unit:?}")) as usize;
    let show = |value: &Value| {
        number(value.as_f64().unwrap_or_else(|| panic!("a number is missing in {figure}")), decimals)
    };
    if let Some(rounds) = figure["every"].as_array() {
        return rounds.iter().map(show).collect::<Vec<_>>().join(", ");
    }
    let middle = ["median", "most", "count"].into_iter().find(|key| !figure[*key].is_null());
    let middle = show(&figure[middle.unwrap_or("median")]);
    match figure["spread"].as_str() {
        None | Some(NOT_MEASURED) => middle,
        Some(_) => format!("{middle} [{}–{}]", show(&figure["low"]), show(&figure["high"])),
    }
}

/// The cell of the page for a figure.
fn cell(units: &Value, value: &Value) -> String {
    if value.is_null() {
        return NONE.to_owned();
    }
    if let Some(words) = value.as_str() {
        assert_eq!(words, NOT_MEASURED, "a figure is a number, or it says that there is none");
        return words.to_owned();
    }
    let after = if value["spread"] == NOT_MEASURED {
        " [not measured]"
    } else if value["most"].is_number() {
        " at most"
    } else {
        ""
    };
    figure(units, value) + after
}

/// The figure of a row that its aim is about: the last one.
fn aimed(row: &Value) -> &Value {
    list(row, "figures").iter().rfind(|figure| figure.is_object()).expect("a figure")
}

fn meets(row: &Value, value: f64) -> bool {
    match (row["aim"]["at_least"].as_f64(), row["aim"]["at_most"].as_f64()) {
        (Some(least), None) => value >= least,
        (None, Some(most)) => value <= most,
        _ => panic!("{row} has no aim"),
    }
}

/// An aim is reached if the worse end of the interval reaches it, so if both ends do.
fn is_reached(row: &Value) -> bool {
    let figure = aimed(row);
    let ends = ["low", "median", "high", "most", "count"].into_iter();
    ends.filter_map(|key| figure[key].as_f64()).all(|value| meets(row, value))
}

/// Whether a row reaches its aim, as the page says it. A row without an aim is there because it is a loss.
fn outcome(row: &Value) -> &'static str {
    if row["aim"].is_null() {
        return "a loss";
    }
    let median = aimed(row)["median"].as_f64();
    match (is_reached(row), median.is_some_and(|median| meets(row, median))) {
        (true, _) => "yes",
        (false, true) => "**no**, by its interval only",
        (false, false) => "**no**",
    }
}

fn aim(row: &Value) -> String {
    let sign = if row["aim"]["at_least"].is_number() { ("≥", "at_least") } else { ("≤", "at_most") };
    row["aim"][sign.1].as_f64().map_or_else(|| NONE.to_owned(), |value| format!("{} {value}", sign.0))
}

fn line<S: Borrow<str>>(cells: &[S]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn from(row: &Value) -> String {
    let link = |file: &str| format!("[{}](benches/notebook/{file})", text(row, "date"));
    row["notebook"].as_str().map_or_else(|| NONE.to_owned(), link)
}

/// A table of figures, with the aim of each row where it has one, its rounds, its host and its file of the notebook.
fn of_figures(archive: &Value, name: &str) -> Vec<String> {
    let table = table(archive, name);
    let (labels, figures, rows) = (texts(table, "labels"), texts(table, "figures"), list(table, "rows"));
    let (has_aims, has_outcomes) = (rows.iter().any(|row| row["aim"].is_object()), name == "ratios");
    let mut rule = [vec!["---"; labels.len()], vec!["---:"; figures.len()]].concat();
    let mut head = [labels, figures].concat();
    if has_aims {
        head.push("aim");
        rule.push("---:");
    }
    if has_outcomes {
        head.push("reached");
        rule.push("---");
    }
    head.extend([table["rounds"].as_str().unwrap_or("rounds"), "host", "from"]);
    rule.extend(["---:", "---", "---"]);
    let mut lines = vec![line(&head), format!("|{}|", rule.join("|"))];
    for row in rows {
        let mut cells: Vec<String> = texts(row, "labels").into_iter().map(str::to_owned).collect();
        cells.extend(list(row, "figures").iter().map(|value| cell(&archive["units"], value)));
        cells.extend(has_aims.then(|| aim(row)));
        cells.extend(has_outcomes.then(|| outcome(row).to_owned()));
        cells.push(row["rounds"].as_u64().map_or_else(|| NONE.to_owned(), |rounds| rounds.to_string()));
        cells.push(row["host"].as_str().unwrap_or(NONE).to_owned());
        cells.push(from(row));
        assert_eq!(cells.len(), head.len(), "the archive's table {name:?}: {row}");
        lines.push(line(&cells));
    }
    lines
}

fn of_hosts(archive: &Value) -> Vec<String> {
    let mut lines = vec!["| host | CPUs | measured |".to_owned(), "|---|---|---|".to_owned()];
    let hosts = list(archive, "hosts").iter();
    lines.extend(hosts.map(|host| line(&[text(host, "name"), text(host, "is"), text(host, "measured")])));
    lines
}

fn of_commands(archive: &Value) -> Vec<String> {
    let mut lines = vec!["| makes | command |".to_owned(), "|---|---|".to_owned()];
    let commands = list(archive, "commands").iter();
    lines
        .extend(commands.map(|of| line(&[text(of, "makes"), format!("`{}`", text(of, "command")).as_str()])));
    lines
}

fn of_instructions(archive: &Value) -> Vec<String> {
    let head = "| store | load | iodepth | fence | counted | aim of a count | from |";
    let mut lines = vec![head.to_owned(), "|---|---|---:|---:|---:|---:|---|".to_owned()];
    let instructions = |row: &Value, key| number(count(row, key) as f64, 0);
    lines.extend(list(archive, "instructions").iter().map(|row| {
        let of = [format!("`{}`", text(row, "store")), text(row, "load").to_owned()];
        let counts =
            [count(row, "iodepth").to_string(), instructions(row, "fence"), instructions(row, "count")];
        let aim = row["aim"]["at_most"].as_f64().map_or_else(|| NONE.to_owned(), |most| number(most, 0));
        line(&[&of[..], &counts[..], &[aim, from(row)][..]].concat())
    }));
    lines
}

/// A row of the verdicts; the right verdict's count is bold.
fn of_fault(verdicts: &[&str], row: &Value) -> String {
    let counts: Vec<u64> = list(row, "counts").iter().filter_map(Value::as_u64).collect();
    assert_eq!(counts.len(), verdicts.len(), "{row}");
    let cells = verdicts.iter().zip(counts).map(|(verdict, count)| {
        if *verdict == text(row, "right") { format!("**{count}**") } else { count.to_string() }
    });
    line(&std::iter::once(text(row, "put_in").to_owned()).chain(cells).collect::<Vec<_>>())
}

fn of_verdicts(archive: &Value) -> Vec<String> {
    let verdicts = texts(&archive["verdicts"], "verdicts");
    let rule = format!("|---{}|", "|---:".repeat(verdicts.len()));
    let mut lines = vec![line(&[vec!["put in"], verdicts.clone()].concat()), rule];
    lines.extend(list(&archive["verdicts"], "rows").iter().map(|row| of_fault(&verdicts, row)));
    lines
}

/// The tables of the page, in order.
fn tables(archive: &Value) -> Vec<Vec<String>> {
    let [ratios, iops, recovery, comparisons] = TABLES.map(|name| of_figures(archive, name));
    let (instructions, verdicts) = (of_instructions(archive), of_verdicts(archive));
    let (hosts, commands) = (of_hosts(archive), of_commands(archive));
    vec![hosts, ratios, iops, recovery, instructions, verdicts, comparisons, commands]
}

fn is_row(line: &str) -> bool {
    line.starts_with('|')
}

/// The page with these tables in place of its own: each run of lines that begin with `|` is one.
fn with_tables(page: &str, tables: &[Vec<String>]) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let mut left = tables.iter();
    let mut made: Vec<&str> = Vec::new();
    for run in lines.chunk_by(|one, next| is_row(one) == is_row(next)) {
        if is_row(run[0]) {
            let table = left.next().expect("BENCHMARKS.md has more tables than the archive");
            made.extend(table.iter().map(String::as_str));
        } else {
            made.extend(run);
        }
    }
    assert_eq!(left.count(), 0, "tables of the archive that BENCHMARKS.md lacks");
    made.join("\n") + "\n"
}

#[test]
fn the_tables_of_the_page_are_those_of_the_archive() {
    let (page, archive) = (read("BENCHMARKS.md"), archive());
    assert_eq!(list(&archive, "tables").len(), TABLES.len(), "a table that the page does not show");
    let made = with_tables(&page, &tables(&archive));
    if made == page {
        return;
    }
    if std::env::var(MODE).is_ok_and(|mode| mode == "write") {
        std::fs::write(workspace_root().join("BENCHMARKS.md"), made).expect("BENCHMARKS.md can be written");
        return;
    }
    let other = made.lines().zip(page.lines()).find(|(wanted, is)| wanted != is);
    panic!(
        "BENCHMARKS.md does not show what benches/current.json has; run this test with {MODE}=write and look at the difference. \
         The first line, as the archive has it and as the page does: {other:#?}"
    );
}

/// README's figures of Carmine beside Ceph are the archive's, too.
#[test]
fn the_readme_has_the_current_figures_beside_ceph() {
    let (archive, readme) = (archive(), read("README.md"));
    for (load, iodepth) in
        [("randread", 16), ("randread", 64), ("randwrite, durable", 16), ("randwrite, durable", 64)]
    {
        let name = match load {
            "randread" => format!("randread {iodepth}, fio rbd"),
            _ => format!("durable randwrite {iodepth}, fio rbd"),
        };
        let rows = list(table(&archive, "ratios"), "rows");
        let row = rows.iter().find(|row| texts(row, "labels") == [&name, "machine CPU, µs", "Ceph"]);
        let row = row.unwrap_or_else(|| panic!("the archive has no row {name:?}"));
        let cells = list(row, "figures").iter().map(|value| cell(&archive["units"], value));
        let head = [load.to_owned(), iodepth.to_string(), count(row, "rounds").to_string()];
        let wanted = line(&head.into_iter().chain(cells).collect::<Vec<_>>());
        assert!(readme.contains(&wanted), "README.md lacks\n{wanted}");
    }
}

#[test]
fn the_page_is_short_and_its_links_lead_somewhere() {
    let page = read("BENCHMARKS.md");
    let lines = page.lines().count();
    assert!(lines <= LINES_MAX, "BENCHMARKS.md has {lines} lines: move something to the notebook");
    for part in page.split("](").skip(1) {
        let target = part.split([')', '#']).next().unwrap_or_default();
        let is_there = target.contains("://") || workspace_root().join(target).exists();
        assert!(is_there, "BENCHMARKS.md: {target} is not there");
    }
}

/// Whether a figure stands in a text, and not within a longer number.
fn has_figure(text: &str, figure: &str) -> bool {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    text.match_indices(figure).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut after = text[at + figure.len()..].chars();
        let (next, then) = (after.next(), after.next());
        let continues = is_digit(next) || (matches!(next, Some('.' | ',')) && is_digit(then));
        !is_digit(before) && !matches!(before, Some('.' | ',')) && !continues
    })
}

#[test]
fn a_figure_within_a_longer_number_is_another_one() {
    assert!(has_figure("at 2.3, 4.3 and **1,273.9**", "2.3") && has_figure("| 1,273.9 us |", "1,273.9"));
    assert!(!has_figure("12.3", "2.3") && !has_figure("1,273.9", "273.9") && !has_figure("2.34", "2.3"));
    assert!(!has_figure("31,500", "31") && !has_figure("4.2.3", "2.3"));
    assert_eq!(
        number(1273.9, 1) + " " + &number(416_304.0, 0) + " " + &number(0.8, 2),
        "1,273.9 416,304 0.80"
    );
}

#[test]
fn every_figure_stands_in_the_notebook() {
    let archive = archive();
    for table in list(&archive, "tables") {
        for row in list(table, "rows") {
            let figures: Vec<_> = list(row, "figures").iter().zip(texts(table, "figures")).collect();
            let Some(file) = row["notebook"].as_str() else {
                let is_measured = figures.iter().any(|(value, _)| *value != NOT_MEASURED);
                assert!(!is_measured, "no file of the notebook has {row}");
                continue;
            };
            let note = read(&format!("benches/notebook/{file}"));
            for (value, title) in figures.into_iter().filter(|(value, _)| value.is_object()) {
                let shown = figure(&archive["units"], value);
                assert!(has_figure(&note, &shown), "{file} does not have {shown} of {row}");
                let unit = text(value, "unit");
                let is_named =
                    title.contains(unit) || texts(row, "labels").iter().any(|of| of.contains(unit));
                assert!(is_named, "the page does not name the unit {unit} of {row}");
                let spread = value["spread"].as_str().filter(|spread| *spread != NOT_MEASURED);
                assert!(spread.is_none_or(|spread| title.contains(spread)), "{title:?} is not {spread:?}");
            }
        }
    }
}

#[test]
fn every_row_names_its_date_its_host_and_the_command_that_makes_it() {
    let archive = archive();
    let names = |key: &str| list(&archive, key).iter().map(|of| text(of, "name")).collect::<BTreeSet<_>>();
    let (hosts, commands) = (names("hosts"), names("commands"));
    let mut used = BTreeSet::new();
    for row in rows(&archive).filter(|row| row["notebook"].is_string()) {
        assert!(text(row, "notebook").starts_with(text(row, "date")), "{row}");
        assert!(row["host"].as_str().is_none_or(|host| hosts.contains(host)), "{row}");
        used.insert(text(row, "made_by"));
    }
    assert_eq!(used, commands, "commands that make rows, and commands of the archive");
    for command in list(&archive, "commands").iter().map(|of| text(of, "command")) {
        for word in command.split(' ').filter(|word| word.starts_with("scripts/")) {
            assert!(workspace_root().join(word).exists(), "{command}: {word} is not there");
        }
    }
}

/// A reader sees first what is missed: an aim that is reached by now, or is no longer, changes its place.
#[test]
fn what_is_missed_comes_first() {
    let archive = archive();
    let ratios = list(table(&archive, "ratios"), "rows").iter();
    let reached: Vec<bool> = ratios.map(|row| row["aim"].is_object() && is_reached(row)).collect();
    assert!(reached.is_sorted(), "rows that are missed, and then rows that are reached: {reached:?}");
    for row in list(table(&archive, "comparisons"), "rows") {
        assert!(is_reached(row), "the instrument is wrong too often: {row}");
    }
}

#[test]
fn instructions_are_those_of_the_fence() {
    let archive = archive();
    let fence = read("benches/instructions.tsv");
    let fence: Vec<&str> = fence.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
    let rows = list(&archive, "instructions").iter();
    let shown: Vec<String> = rows
        .map(|row| {
            let note = read(&format!("benches/notebook/{}", text(row, "notebook")));
            let counted = number(count(row, "count") as f64, 0);
            assert!(has_figure(&note, &counted), "the notebook does not have {counted} of {row}");
            let (depth, fence) = (count(row, "iodepth"), count(row, "fence"));
            format!("{}\t{}\t{depth}\t{fence}", text(row, "store"), text(row, "load"))
        })
        .collect();
    assert_eq!(shown, fence, "benches/current.json and benches/instructions.tsv");
}

#[test]
fn every_fault_has_the_verdicts_of_the_notebook() {
    let archive = archive();
    let verdicts = texts(&archive["verdicts"], "verdicts");
    for row in list(&archive["verdicts"], "rows") {
        let runs: u64 = list(row, "counts").iter().filter_map(Value::as_u64).sum();
        assert_eq!(runs, count(row, "rounds"), "each run has one verdict: {row}");
        let note = read(&format!("benches/notebook/{}", text(row, "notebook")));
        let line = of_fault(&verdicts, row);
        assert!(note.lines().any(|of| of == line), "the notebook does not have {line}");
    }
}

#[test]
fn the_index_has_every_file_of_the_notebook_newest_first() {
    let index = read("benches/notebook/README.md");
    let entries: Vec<&str> = index.lines().filter(|line| line.starts_with("- [")).collect();
    let listed: Vec<&str> = entries
        .iter()
        .map(|entry| {
            let (_, target) = entry.split_once("](").expect("a link");
            target.split_once(')').expect("the end of a link").0
        })
        .collect();
    let dates: Vec<&str> = listed.iter().map(|file| &file[.."2026-11-28".len()]).collect();
    assert!(dates.is_sorted_by(|one, next| one >= next), "newest first: {dates:#?}");
    let folder = std::fs::read_dir(workspace_root().join("benches/notebook")).expect("the notebook");
    let names = folder.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut files: Vec<String> = names.filter(|name| name != "README.md").collect();
    let mut listed_once: Vec<String> = listed.into_iter().map(str::to_owned).collect();
    files.sort();
    listed_once.sort();
    assert_eq!(listed_once, files, "lines of the index, and files of the notebook");
}
