//! README.md and the pages in `docs/`: their commands work, and their links lead somewhere. A block marked `sh run` is run, all
//! of a page in one folder; of every other command the options are checked.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "reads files and starts programs")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use carmine_tests::{Testbed, carmine_bin, has_real_mon, run, workspace_root};

/// A page with the name that messages give it.
struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    fn name(&self) -> String {
        self.path.strip_prefix(workspace_root()).unwrap_or(&self.path).display().to_string()
    }

    /// The blocks of shell commands: whether they are to be run, and their text.
    fn blocks(&self) -> Vec<(bool, String)> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let Some(kind) = line.strip_prefix("```") else { continue };
            let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            if let "sh" | "sh run" = kind {
                blocks.push((kind == "sh run", block.join("\n")));
            }
        }
        blocks
    }

    /// Text between single backticks, outside of blocks.
    fn spans(&self) -> Vec<String> {
        let mut in_block = false;
        let mut spans = Vec::new();
        for line in self.text.lines() {
            in_block ^= line.starts_with("```");
            if !in_block {
                spans.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        spans
    }
}

fn pages() -> Vec<Page> {
    let root = workspace_root();
    let docs = std::fs::read_dir(root.join("docs")).expect("docs/").flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    paths.push(root.join("README.md"));
    paths.sort();
    let read = |path: PathBuf| Page { text: std::fs::read_to_string(&path).expect("a page"), path };
    paths.into_iter().map(read).collect()
}

/// The words of each call of `carmine` in some lines of shell, without comments, redirections and brackets.
fn calls(shell: &str) -> Vec<Vec<String>> {
    let joined = shell.replace("\\\n", " ");
    let without_comments = joined.lines().map(|line| line.split(" #").next().unwrap_or_default());
    let parts = without_comments.flat_map(|line| line.split(['|', ';', '&'])).map(str::trim);
    let calls = parts.filter(|part| part.starts_with("carmine ")).map(|part| {
        let words = shlex::split(&part.replace(['[', ']'], " ")).expect("words");
        words.into_iter().skip(1).take_while(|word| !word.starts_with(['>', '<', '…'])).collect()
    });
    calls.collect()
}

/// The program reads the options before `--help`, and refuses what it does not know.
#[test]
fn every_command_and_option_on_a_page_exists() {
    let mut wrong = Vec::new();
    for page in pages() {
        let blocks = page.blocks().into_iter().map(|(_, block)| block);
        for call in blocks.chain(page.spans()).flat_map(|shell| calls(&shell)) {
            // `help WORD` is help already.
            let ask = (call[0] != "help").then_some("--help");
            // What follows `--` is another program's.
            let own = call.iter().map(String::as_str).take_while(|word| *word != "--");
            let words: Vec<&str> = own.chain(ask).collect();
            let out = run(&carmine_bin(), &words, Duration::from_secs(20));
            if !out.status.success() {
                let said = String::from_utf8_lossy(&out.stderr);
                wrong.push(format!("{}: carmine {}: {said}", page.name(), call.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A folder in which the commands of a page run. Testbeds that they leave are destroyed with it.
struct Folder(Testbed);

/// A shell function in place of the program: each new testbed has a real monitor.
const WITH_A_REAL_MON: &str = r#"
carmine() {
  case "$*" in
  up*) command carmine "$@" --mon ceph ;;
  sweep*--out*) command carmine "$@" --set mon=ceph ;;
  *) command carmine "$@" ;;
  esac
}
"#;

impl Folder {
    fn path(&self) -> PathBuf {
        self.0.dir().parent().expect("a parent").to_path_buf()
    }

    fn shell(&self, page: &str, block: &str, before: &str) {
        let bin = carmine_bin();
        let programs = bin.parent().expect("a folder").display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let script = format!(
            "cd '{}'; export PATH='{path}'; set -euo pipefail\n{before}{block}",
            self.path().display()
        );
        let out = run(Path::new("bash"), &["-c", &script], Duration::from_secs(400));
        let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{page}:\n{block}\n{said}{error}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.path()).into_iter().flatten().flatten() {
            let mut destroy = Command::new(carmine_bin());
            destroy.arg("destroy").arg("--dir").arg(entry.path()).stdout(Stdio::null()).stderr(Stdio::null());
            // Most entries are no testbeds.
            let _ = entry.path().is_dir().then(|| destroy.status());
        }
    }
}

/// Runs the blocks of these pages, each after the same lines of shell.
fn run_blocks(turn: &Testbed, before: &str, pages: impl Iterator<Item = Page>) {
    for page in pages {
        let folder = Folder(turn.second());
        for (_, block) in page.blocks().into_iter().filter(|(is_run, _)| *is_run) {
            folder.shell(&page.name(), &block, before);
        }
    }
}

#[test]
fn the_commands_of_the_pages_run() {
    run_blocks(&Testbed::alone(), "", pages().into_iter());
}

/// A newcomer's commands.
#[test]
fn the_commands_of_the_readme_run_under_a_real_monitor() {
    if has_real_mon(&[]) {
        let readme = pages().into_iter().filter(|page| page.name() == "README.md");
        run_blocks(&Testbed::alone(), WITH_A_REAL_MON, readme);
    }
}

#[test]
#[ignore = "two minutes and a half: scripts/test -p carmine-tests --test docs -- --include-ignored"]
fn the_commands_of_the_pages_run_under_a_real_monitor() {
    if has_real_mon(&[]) {
        run_blocks(&Testbed::alone(), WITH_A_REAL_MON, pages().into_iter());
    }
}

#[test]
fn links_and_scripts_of_the_pages_are_there() {
    let mut gone = Vec::new();
    for page in pages() {
        let folder = page.path.parent().expect("a folder");
        for part in page.text.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                gone.push(format!("{}: {target}", page.name()));
            }
        }
        for part in page.text.split("scripts/").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            if !workspace_root().join("scripts").join(&name).exists() {
                gone.push(format!("{}: scripts/{name}", page.name()));
            }
        }
    }
    assert!(gone.is_empty(), "these are not there: {gone:#?}");
}

/// Two screens, at the width to which the pages are wrapped; every page of `docs/` is linked.
#[test]
fn the_readme_is_short_and_leads_to_every_page() {
    let pages = pages();
    let readme = pages.iter().find(|page| page.name() == "README.md").expect("README.md");
    let lines = readme.text.lines().count();
    assert!(lines <= 110, "README.md has {lines} lines: move something to docs/");
    let wide: Vec<&str> = readme.text.lines().filter(|line| line.chars().count() > 150).collect();
    assert!(wide.is_empty(), "README.md: {wide:#?}");
    for page in pages.iter().map(Page::name).filter(|name| name.starts_with("docs/")) {
        assert!(readme.text.contains(&format!("({page})")), "README.md does not link {page}");
    }
}
