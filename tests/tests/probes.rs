//! The static probes of `carmine-osd` against what users read: the table of docs/tracing.md, and the probes and arguments that
//! docs/stages.bt looks at.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "reads files and starts programs")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use carmine_tests::{carmine_bin, workspace_root};

/// Number of arguments of each probe.
type Probes = BTreeMap<String, usize>;

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands after a label such as `Name:` in each note, in order.
fn after<'a>(notes: &'a str, label: &str) -> Vec<&'a str> {
    notes.lines().filter_map(|line| line.trim().strip_prefix(label)).map(str::trim).collect()
}

/// The probes that `carmine-osd` has, by its notes.
fn of_program() -> Probes {
    let program = carmine_bin().with_file_name("carmine-osd");
    let out =
        Command::new("readelf").arg("-n").arg(&program).output().expect("readelf, of the linker's package");
    let notes = String::from_utf8_lossy(&out.stdout);
    let (providers, names) = (after(&notes, "Provider:"), after(&notes, "Name:"));
    let (places, arguments) = (after(&notes, "Location:"), after(&notes, "Arguments:"));
    assert!(providers.iter().all(|name| *name == "carmine"), "{providers:?}");
    let nowhere = |place: &&str| place.starts_with("0x0000000000000000");
    assert_eq!(places.iter().copied().find(nowhere), None, "a note of code that the linker left out");
    assert_eq!((names.len(), names.len()), (places.len(), arguments.len()), "{notes}");
    let mut probes = Probes::new();
    for (name, arguments) in names.into_iter().zip(arguments) {
        let count = arguments.split_whitespace().count();
        let before = probes.insert(name.to_owned(), count);
        assert!(before.is_none_or(|before| before == count), "{name} has {before:?} arguments, and {count}");
    }
    probes
}

/// The probes that the page lists.
fn of_page() -> Probes {
    let page = read("docs/tracing.md");
    let rows = page.lines().skip_while(|line| !line.starts_with("| probe | arguments |")).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].split_whitespace().count())
    };
    rows.take_while(|line| line.starts_with('|')).map(row).collect()
}

#[test]
fn the_page_lists_the_probes_of_the_program() {
    assert_eq!(
        of_page(),
        of_program(),
        "docs/tracing.md and carmine-osd: probes with the number of their arguments"
    );
}

/// The names that stand after each `mark` in a text.
fn names<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = |part: &'a str| part.split(|c| !is_part(c)).next().unwrap_or_default();
    text.split(mark).skip(1).map(name).collect()
}

/// The highest argument that a text uses.
fn most(text: &str) -> Option<usize> {
    names(text, "arg").into_iter().filter_map(|number| number.parse().ok()).max()
}

#[test]
fn the_script_looks_at_probes_and_arguments_that_exist() {
    let (script, probes) = (read("docs/stages.bt"), of_page());
    let parts: Vec<&str> = script.split("usdt:$1:").skip(1).collect();
    assert!(parts.len() > 10, "docs/stages.bt: {parts:#?}");
    for part in parts {
        let name = names(part, "carmine:")[0];
        let count = probes.get(name).unwrap_or_else(|| panic!("docs/stages.bt: there is no probe {name}"));
        let most = most(part);
        assert!(most.is_none_or(|most| most < *count), "docs/stages.bt: {name} has no arg{most:?}");
    }
}

/// The page names each histogram that the script prints.
#[test]
fn the_page_explains_what_the_script_prints() {
    let (script, page) = (read("docs/stages.bt"), read("docs/tracing.md"));
    let (body, end) = script.split_once("\nEND\n").expect("a probe END");
    let cleared: BTreeSet<&str> = names(end, "@").into_iter().collect();
    let printed: BTreeSet<&str> = names(body, "@").into_iter().filter(|map| !cleared.contains(map)).collect();
    assert!(printed.contains("write_us"), "{printed:?}");
    let unknown: Vec<_> = printed.iter().filter(|map| !page.contains(&format!("`{map}`"))).collect();
    assert!(unknown.is_empty(), "docs/tracing.md does not explain {unknown:?}");
    let needless: Vec<_> = cleared.difference(&names(body, "@").into_iter().collect()).copied().collect();
    assert!(needless.is_empty(), "docs/stages.bt clears {needless:?}, which it has not");
}
