//! The users' table `tests/TOOLS.md`: what each stock tool can and cannot do. A test that drives a tool keeps a [`Sheet`],
//! adds a row for each thing that it has just seen to work or to be refused, and at its end compares the sheet with the
//! page. So no row is on the page that no run produced, and none is missing:
//!
//! ```text
//! CARMINE_TOOLS=write scripts/test -p carmine-tests --test rados_tool     rewrites the sheets of these tests
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::workspace_root;

/// Set to `write`, the page's sheets are rewritten instead of compared.
const MODE: &str = "CARMINE_TOOLS";
/// Where new sheets go: before this line.
const LAST: &str = "<!-- end of sheets -->";
const END: &str = "<!-- /sheet -->";
/// Tests of one program run beside each other.
static PAGE: Mutex<()> = Mutex::new(());

/// The rows of one part of one tool, in the order in which they were seen.
#[derive(Debug)]
pub struct Sheet {
    title: &'static str,
    rows: Vec<(String, String)>,
}

impl Sheet {
    /// An empty sheet. The title names the tool and the part, e.g. `rados: objects`; only one test has it.
    pub fn new(title: &'static str) -> Sheet {
        Sheet { title, rows: Vec::new() }
    }

    /// Rows that nobody compares: of a test that takes the steps of another one on another testbed.
    pub fn unlisted() -> Sheet {
        Sheet { title: "", rows: Vec::new() }
    }

    /// `what` (words of the command line) was seen to work; `note` says what was looked at, or is empty.
    pub fn works(&mut self, what: &str, note: &str) {
        let answer = if note.is_empty() { "works".to_owned() } else { format!("works: {note}") };
        self.rows.push((what.to_owned(), answer));
    }

    /// `what` was seen to be refused at once; `said` is the part of the answer that a user reads.
    pub fn refused(&mut self, what: &str, said: &str) {
        self.rows.push((what.to_owned(), format!("**refused**: {}", said.trim())));
    }

    /// Compares this sheet with the page, or writes it there if `CARMINE_TOOLS=write`.
    ///
    /// # Panics
    /// If the page has another sheet of this title, or none.
    pub fn check(self) {
        let _page = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::fs::read_to_string(page_path()).expect("tests/TOOLS.md");
        let updated = replace(&text, self.title, &self.render());
        if updated == text {
            return;
        }
        if std::env::var(MODE).is_ok_and(|mode| mode == "write") {
            return std::fs::write(page_path(), updated).expect("tests/TOOLS.md can be written");
        }
        panic!(
            "tests/TOOLS.md does not say what this run saw of {:?}; run this test with {MODE}=write and look at the \
             difference. Seen:\n{}",
            self.title,
            self.render()
        );
    }

    fn render(&self) -> String {
        let mut out = format!("{}\n### {}\n| command | answer |\n|---|---|\n", begin(self.title), self.title);
        for (what, answer) in &self.rows {
            let _ = writeln!(out, "| {} | {} |", cell(what), cell(answer));
        }
        out.push_str(END);
        out.push('\n');
        out
    }
}

/// The page.
pub fn page_path() -> PathBuf {
    workspace_root().join("tests/TOOLS.md")
}

/// Titles of the sheets on a page, in order.
pub fn titles(page: &str) -> Vec<&str> {
    page.lines().filter_map(|line| line.strip_prefix("<!-- sheet ")?.strip_suffix(" -->")).collect()
}

fn begin(title: &str) -> String {
    format!("<!-- sheet {title} -->")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The page with this sheet in its place: where one of the same title was, else in the order of titles.
fn replace(page: &str, title: &str, sheet: &str) -> String {
    if let Some(from) = page.find(&begin(title)) {
        let after = page[from..].find(END).map_or(page.len(), |at| from + at + END.len() + 1);
        return format!("{}{sheet}{}", &page[..from], &page[after.min(page.len())..]);
    }
    let next = titles(page).into_iter().find(|other| *other > title).map(begin);
    let at = page.find(next.as_deref().unwrap_or(LAST)).unwrap_or(page.len());
    format!("{}{sheet}\n{}", &page[..at], &page[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(title: &'static str, row: &str) -> String {
        let mut sheet = Sheet::new(title);
        sheet.works(row, "");
        sheet.render()
    }

    #[test]
    fn sheets_are_put_in_order_and_replaced_in_place() {
        let mut page = format!("# head\n{LAST}\ntail\n");
        for (title, row) in [("b", "1"), ("a", "1"), ("c", "1"), ("b", "2")] {
            page = replace(&page, title, &sheet(title, row));
        }
        assert_eq!(titles(&page), ["a", "b", "c"]);
        assert!(
            page.contains("### b\n| command | answer |\n|---|---|\n| 2 | works |\n<!-- /sheet -->\n"),
            "{page}"
        );
        assert!(
            page.starts_with("# head\n<!-- sheet a -->") && page.ends_with("<!-- end of sheets -->\ntail\n")
        );
        assert_eq!(replace(&page, "c", &sheet("c", "1")), page, "the same sheet changes nothing");
    }

    #[test]
    fn cells_stay_cells() {
        let mut sheet = Sheet::new("t");
        sheet.refused("osd set a|b", "no\nsuch flag\n");
        assert!(sheet.render().contains("| osd set a\\|b | **refused**: no such flag |\n"));
    }
}
