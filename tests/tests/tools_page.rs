//! The page of the tools as a whole; each of its sheets is compared by the test that makes it.
#![allow(clippy::disallowed_methods)] // reads files

use std::path::{Path, PathBuf};

use carmine_tests::sheet::{page_path, titles};
use carmine_tests::workspace_root;

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a folder").flatten();
    entries
        .map(|entry| entry.path())
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

/// A sheet that no test makes any more would never be compared again.
#[test]
fn every_sheet_has_a_test_that_makes_it() {
    let page = std::fs::read_to_string(page_path()).expect("tests/TOOLS.md");
    let files = sources(&workspace_root().join("tests/tests"));
    let all: String = files.iter().map(|p| std::fs::read_to_string(p).expect("UTF-8")).collect();
    for title in titles(&page) {
        let made = all.matches(&format!("Sheet::new({title:?})")).count();
        assert_eq!(made, 1, "{made} tests make the sheet {title:?} of tests/TOOLS.md");
    }
}

#[test]
fn the_readme_links_the_page() {
    let readme = std::fs::read_to_string(workspace_root().join("README.md")).expect("README.md");
    assert!(readme.contains("(tests/TOOLS.md)"));
}
