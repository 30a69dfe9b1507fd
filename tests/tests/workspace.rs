//! The workspace's own rules: allowed dependencies, licences, the size of files. ARCHITECTURE.md and deny.toml are the
//! tables; this compares them with what cargo resolved.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads files and runs cargo

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use carmine_tests::workspace_root;
use serde_json::Value;

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}

fn strings<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Direct non-dev dependencies of each workspace crate on other workspace crates, without the `carmine-` prefix.
fn crate_edges(meta: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let members: BTreeSet<&str> = strings(meta, "workspace_members").into_iter().collect();
    let mut edges = BTreeMap::new();
    for package in meta["packages"].as_array().into_iter().flatten() {
        if !members.contains(package["id"].as_str().unwrap_or_default()) {
            continue;
        }
        let name = package["name"].as_str().unwrap_or_default().trim_start_matches("carmine-").to_string();
        let inner = package["dependencies"].as_array().into_iter().flatten();
        let inner = inner.filter(|d| d["kind"].is_null()).filter_map(|d| d["name"].as_str());
        let inner = inner.filter_map(|n| n.strip_prefix("carmine-")).map(str::to_string).collect();
        edges.insert(name, inner);
    }
    edges
}

/// Rows `| name | may use a b c |` of the table with this heading in ARCHITECTURE.md.
fn allowed_edges(heading: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed = BTreeMap::new();
    for row in rows(heading) {
        let uses = row[1].split_whitespace().map(|c| c.trim_matches('`').to_string());
        allowed.insert(row[0].trim_matches('`').to_string(), uses.filter(|c| c != "–").collect());
    }
    allowed
}

/// The rows of the table of ARCHITECTURE.md that begins with this line, as cells.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(workspace_root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let rows = page.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let found: Vec<Vec<String>> = rows.take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!found.is_empty(), "ARCHITECTURE.md lost its table {heading}");
    found
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    let allowed = allowed_edges("| crate | may depend on |");
    for (name, uses) in crate_edges(&metadata()) {
        let may = allowed.get(&name).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for crate {name}"));
        let more: Vec<_> = uses.difference(may).collect();
        assert!(
            more.is_empty(),
            "crate {name} depends on {more:?}, which its row in ARCHITECTURE.md does not allow"
        );
    }
}

#[test]
fn only_kv_rocks_links_rocksdb_and_only_the_reactor_sees_the_ring() {
    let owners: [(&str, &[&str]); 3] = [
        ("rocksdb", &["carmine-kv-rocks"]),
        ("io-uring", &["carmine-reactor"]),
        ("tokio-uring", &["carmine-benches"]),
    ];
    for package in metadata()["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if !name.starts_with("carmine-") {
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            for (guarded, may) in owners {
                if dependency["name"] == guarded {
                    assert!(may.contains(&name), "{name} depends on {guarded}; only {may:?} may");
                }
            }
        }
    }
}

/// Names of all packages that a program of `package` links, with all features.
fn linked(meta: &Value, package: &str) -> BTreeSet<String> {
    let name = |id: &str| {
        let packages = meta["packages"].as_array().into_iter().flatten();
        let mut found = packages.filter(|package| package["id"] == id);
        found.next().and_then(|package| package["name"].as_str()).unwrap_or_default().to_owned()
    };
    let node = |id: &str| meta["resolve"]["nodes"].as_array()?.iter().find(|node| node["id"] == id);
    let members = strings(meta, "workspace_members");
    let mut waiting: Vec<&str> = members.into_iter().filter(|id| name(id) == package).collect();
    let mut seen: BTreeSet<&str> = waiting.iter().copied().collect();
    assert_eq!(waiting.len(), 1, "{package} is in the workspace");
    while let Some(id) = waiting.pop() {
        for dependency in node(id).and_then(|node| node["deps"].as_array()).into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            let is_linked = kinds.into_iter().any(|kind| kind["kind"].is_null());
            let id = dependency["pkg"].as_str().unwrap_or_default();
            if is_linked && seen.insert(id) {
                waiting.push(id);
            }
        }
    }
    seen.into_iter().map(name).collect()
}

#[test]
fn daemons_link_no_charts_and_no_terminal() {
    let meta = metadata();
    let none_of = ["ratatui", "crossterm", "indicatif", "inferno", "maud", "zip"];
    for daemon in ["carmine-osd-daemon", "carmine-mon-daemon"] {
        let linked = linked(&meta, daemon);
        assert!(linked.contains("carmine-reactor"), "{daemon} links {linked:?}");
        let found: Vec<_> = none_of.into_iter().filter(|name| linked.contains(*name)).collect();
        assert!(found.is_empty(), "{daemon} links {found:?}");
    }
    // The names are those of packages that `carmine` links.
    let linked = linked(&meta, "carmine-cli");
    assert!(none_of.into_iter().all(|name| linked.contains(name)), "carmine links {linked:?}");
}

/// Crate and licence of each exception that deny.toml makes.
fn exceptions(deny: &toml::Table) -> impl Iterator<Item = (&str, &str)> {
    let rows = deny["licenses"].get("exceptions").and_then(|rows| rows.as_array()).into_iter().flatten();
    rows.flat_map(|row| {
        let of = row["crate"].as_str().expect("the name of a crate");
        row["allow"].as_array().expect("a list").iter().filter_map(move |l| Some((of, l.as_str()?)))
    })
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let deny: toml::Table = std::fs::read_to_string(workspace_root().join("deny.toml"))
        .expect("deny.toml")
        .parse()
        .expect("TOML");
    let allowed: BTreeSet<&str> =
        deny["licenses"]["allow"].as_array().expect("a list").iter().filter_map(|v| v.as_str()).collect();
    let exceptions: Vec<(&str, &str)> = exceptions(&deny).collect();
    for package in metadata()["packages"].as_array().into_iter().flatten() {
        let licence = package["license"].as_str().unwrap_or_default();
        // `A OR B`: one suffices; `A AND B`: all must be allowed. `/` is the old spelling of OR.
        let any = licence.replace('/', " OR ").replace(['(', ')'], " ");
        let name = package["name"].as_str().unwrap_or_default();
        let may = |l: &str| allowed.contains(l) || exceptions.contains(&(name, l));
        let ok = any.split(" OR ").any(|all| all.split(" AND ").all(|l| may(l.trim())));
        assert!(ok, "{name} has the licence {licence:?}, which deny.toml does not allow");
    }
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "target" && n != ".git") {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// 600 lines is a smell, 1,000 a stop: a file that long holds more than one concept.
#[test]
fn no_source_file_is_too_long() {
    let mut files = Vec::new();
    for top in ["crates", "benches", "tests"] {
        sources(&workspace_root().join(top), &mut files);
    }
    for file in files {
        let lines = std::fs::read_to_string(&file).expect("UTF-8 source").lines().count();
        assert!(lines <= 1000, "{}: {lines} lines: split it by concept", file.display());
    }
}

/// `unsafe` only in the reactor: the ring, the queues, the buffers and one small `sys` module.
#[test]
fn unsafe_stays_in_the_reactor() {
    let mut files = Vec::new();
    sources(&workspace_root().join("crates"), &mut files);
    for file in files {
        if file.components().any(|c| c.as_os_str() == "reactor" || c.as_os_str() == "tests") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("UTF-8 source");
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let found =
                code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
            assert!(!found, "{}:{}: unsafe outside carmine-reactor", file.display(), number + 1);
        }
    }
}

/// Code of all crates, tests left out: path and text.
fn code() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    sources(&workspace_root().join("crates"), &mut files);
    files.retain(|path| !path.components().any(|c| c.as_os_str() == "tests"));
    files
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(&path).expect("UTF-8 source")))
        .collect()
}

/// One type for one thing: what there was beside it stays gone.
#[test]
fn a_change_a_frame_and_an_attribute_have_one_form_each() {
    let gone = ["TxnOp", "RepTxn", "encode_rep", "transaction_ops", "Frame::parse", "SNAP_ATTRS"];
    for (path, text) in code() {
        for name in gone {
            assert!(!text.contains(name), "{}: {name} is back", path.display());
        }
    }
}

/// The fields of a struct as they are written, one a line, without comments.
fn fields(text: &str, name: &str) -> Vec<String> {
    let (_, body) =
        text.split_once(&format!("struct {name} {{")).unwrap_or_else(|| panic!("no struct {name}"));
    let (body, _) = body.split_once("\n}").expect("its end");
    let is_field = |line: &&str| line.ends_with(',') && !line.starts_with("//") && !line.starts_with('#');
    body.lines().map(str::trim).filter(is_field).map(str::to_owned).collect()
}

/// Where the parts of a PG are: a folder each, and what composes them.
fn pg_folder() -> PathBuf {
    workspace_root().join("crates/osd/osd/src/pg")
}

/// The parts of a PG, with the path and the text of each of their files.
fn parts_of_a_pg() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let mut parts = BTreeMap::new();
    for folder in std::fs::read_dir(pg_folder()).expect("a folder").flatten().map(|entry| entry.path()) {
        if !folder.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        sources(&folder, &mut files);
        let text = |path: PathBuf| (path.clone(), std::fs::read_to_string(&path).expect("UTF-8 source"));
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        parts.insert(name, files.into_iter().map(text).collect());
    }
    parts
}

/// The names with which paths begin that follow `crate::pg::`: one a path, or those of its list in braces.
fn names_of_pg(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for path in text.split("crate::pg::").skip(1) {
        let mut depth = 0;
        // The list as far as it goes, or the path; what lies deeper in it is left out.
        let outer = path.chars().take_while(|c| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth > 0 || is_name(*c)
        });
        let list: String = outer.collect();
        let mut depth = 0;
        let paths = list.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth <= 1 && (c == ',' || c == '{')
        });
        let first = |path: &str| path.trim().chars().take_while(|c| is_name(*c)).collect();
        names.extend(paths.map(first).filter(|name: &String| !name.is_empty()));
    }
    names
}

#[test]
fn names_behind_a_path_are_found() {
    let found = names_of_pg(
        "use crate::pg::copies::{a, b};\n crate::pg::Pg::new(); use crate::pg::{\n  family::{self, x::{y, z}},\n op,\n};",
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Pg", "copies", "family", "op"]);
}

/// No part knows more of the others than it must: the table has no row, and no name in it, too many.
#[test]
fn parts_of_a_pg_import_only_what_the_architecture_allows() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (part, files) in parts_of_a_pg() {
        let uses = found.entry(part.clone()).or_default();
        for (path, text) in files {
            // So all that comes from another part is seen below.
            let is_root = path.ends_with(format!("{part}/mod.rs"));
            let climbs =
                |line: &str| line.contains("super::super") || is_root && line.starts_with("use super::");
            assert!(
                !text.lines().any(climbs),
                "{}: write crate::pg:: for what is above {part}",
                path.display()
            );
            uses.extend(names_of_pg(&text).into_iter().filter(|name| *name != part));
        }
        uses.retain(|name| name != "Pg" && name != "family");
    }
    assert_eq!(found, allowed_edges("| part of a PG | may import from |"), "found, and in ARCHITECTURE.md");
}

/// Where bytes are depends on the kind of a PG, which `copies` knows; what clients see is more than this member's own copy.
#[test]
fn only_one_part_of_a_pg_names_the_store() {
    for (part, files) in parts_of_a_pg().into_iter().filter(|(part, _)| part != "copies") {
        for (path, text) in files {
            // `.store(` is that of an atomic number.
            let is_field =
                |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
            assert!(
                !text.split(".store").skip(1).any(is_field),
                "{}: reads past the backend",
                path.display()
            );
            let is_past = part == "op" && text.contains("own_store");
            assert!(!is_past, "{}: operations see `Objects`, not one copy", path.display());
        }
    }
}

/// Each part of a PG changes by its own methods only.
#[test]
fn no_module_changes_the_fields_of_a_pg_or_of_its_parts() {
    let pg = pg_folder();
    let read =
        |file: &str| std::fs::read_to_string(pg.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    // A PG lies behind an `Rc`: a field changes only if it has a cell.
    for field in fields(&read("mod.rs"), "Pg") {
        assert!(!field.contains("Cell<"), "Pg: {field}");
    }
    let parts = [
        ("op/mod.rs", "ClientOps"),
        ("op/pipeline.rs", "Pipeline"),
        ("op/usage.rs", "Usage"),
        ("copies/mod.rs", "Copies"),
        ("copies/backend.rs", "Backend"),
        ("copies/replica.rs", "Replica"),
        ("copies/commit.rs", "Commits"),
        ("peer/mod.rs", "Peer"),
        ("peer/log.rs", "PgLog"),
        ("recovery/mod.rs", "Recoveries"),
        ("scrub/mod.rs", "Scrubs"),
        ("../../../peering/src/peering.rs", "Peering"),
    ];
    for (file, part) in parts {
        // In a crate of its own a part may be open to that crate.
        let is_open = if file.starts_with("..") { "pub " } else { "pub" };
        for field in fields(&read(file), part) {
            assert!(!field.starts_with(is_open), "{part}: {field}");
        }
    }
    for (path, text) in code() {
        for part in ["peering", "log", "usage"] {
            let whole = format!(".{part}.borrow_mut() =");
            assert!(!text.contains(&whole), "{}: {whole}", path.display());
        }
    }
}

/// What stands between backticks in a cell of a table.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The file or folder of a place in "Ceph's word, our word": a path in the OSD, or one that begins with a crate's name.
fn place(path: &str) -> PathBuf {
    let crates = workspace_root().join("crates");
    let in_crate = path.split_once('/').and_then(|(name, rest)| {
        let groups = std::fs::read_dir(&crates).expect("a folder").flatten();
        groups.map(|group| group.path().join(name).join("src").join(rest)).find(|path| path.exists())
    });
    in_crate.unwrap_or_else(|| crates.join("osd/osd/src").join(path))
}

/// A Ceph engineer finds each name of the table at the place that its row names.
#[test]
fn names_are_where_the_table_of_words_says() {
    let mut names_found = 0;
    for row in rows("| Ceph | here | place |") {
        let mut words = BTreeSet::new();
        for path in quoted(&row[2]) {
            let place = place(path);
            assert!(place.exists(), "{path} is gone; its row: {row:?}");
            let mut files = Vec::new();
            if place.is_dir() {
                sources(&place, &mut files)
            } else {
                files.push(place)
            }
            for file in files {
                let text = std::fs::read_to_string(&file).expect("UTF-8 source");
                let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
                words.insert(stem);
                words.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
            }
        }
        for name in quoted(&row[1]).flat_map(|path| path.split("::")) {
            assert!(words.contains(name), "{name} is not there; its row: {row:?}");
            names_found += 1;
        }
    }
    assert!(names_found > 50, "ARCHITECTURE.md lost its table of words");
}

/// Modules of `blue`, each of which uses those before it only.
const BLUE: [&str; 6] = ["device", "meta", "log", "objects", "shard", "mount"];

#[test]
fn modules_of_the_store_make_no_circle() {
    let blue = workspace_root().join("crates/store/store/src/blue");
    for (rank, module) in BLUE.iter().enumerate() {
        let mut files = Vec::new();
        sources(&blue.join(module), &mut files);
        assert!(!files.is_empty(), "{module} is gone: mend this test");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("UTF-8 source");
            for above in BLUE.iter().skip(rank + 1) {
                let path = format!("crate::blue::{above}");
                assert!(!text.contains(&path), "{}: {module} must not use {above}", file.display());
            }
        }
    }
}
