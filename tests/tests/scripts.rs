//! The scripts that a newcomer runs first, where their machine is not as they expect it: with programs and folders of the
//! tests' own in the places of the machine's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // runs programs and writes files

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use carmine_tests::skip;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("a checkout")
}

/// Runs `script` in a bash that has the functions of `scripts/lib.sh`; programs in `bin` come before all others.
fn with_lib(script: &str, bin: &Path, args: &[&Path]) -> Output {
    let lib = checkout().join("scripts/lib.sh");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    Command::new("bash")
        .args(["-c", &format!("set -euo pipefail; . {}; {script}", lib.display()), "test"])
        .args(args)
        .env("PATH", path)
        .env_remove("LIBCLANG_PATH")
        .env("TMPDIR", bin)
        .output()
        .expect("bash runs")
}

fn program(bin: &Path, name: &str, text: &str) {
    let path = bin.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn libclang_is_not_taken_for_there_because_of_its_namesakes() {
    let root = tempfile::tempdir().expect("a folder");
    let libs = root.path().join("usr/lib/x86_64-linux-gnu");
    let llvm = root.path().join("usr/lib/llvm-14/lib");
    fs::create_dir_all(&libs).and_then(|()| fs::create_dir_all(&llvm)).expect("folders");
    let has = || with_lib(r#"has_libclang "$1""#, root.path(), &[root.path()]).status.success();
    assert!(!has());
    fs::write(libs.join("libclang-cpp.so.14"), "").expect("a file");
    std::os::unix::fs::symlink(libs.join("libclang-cpp.so.14"), llvm.join("libclang-cpp.so"))
        .expect("a link");
    assert!(!has(), "libclang-cpp is another library");
    std::os::unix::fs::symlink("../../nowhere/libclang-14.so.1", llvm.join("libclang.so.1")).expect("a link");
    assert!(!has(), "a link to nothing");
    fs::write(libs.join("libclang-14.so.14.0.6"), "").expect("a file");
    assert!(has());
}

#[test]
fn a_checkout_does_not_take_what_another_has_compiled_of_our_own_crates() {
    let cache = tempfile::tempdir().expect("a folder");
    let marks = cache.path().join("release/.fingerprint");
    let own = || marks.join("carmine-types-1").exists();
    let had_by = |checkout: &str| {
        fs::create_dir_all(marks.join("serde-1"))
            .and_then(|()| fs::create_dir_all(marks.join("carmine-types-1")))
            .expect("folders");
        let script = format!(r#"CARGO_TARGET_DIR=$1 CHECKOUT={checkout}; forget_other_checkout"#);
        assert!(with_lib(&script, cache.path(), &[cache.path()]).status.success());
        assert!(marks.join("serde-1").exists(), "dependencies are the same for all");
    };
    had_by("/one");
    assert!(!own(), "nobody knows whose it was");
    had_by("/one");
    assert!(own());
    had_by("/other");
    assert!(!own());
}

/// The output of `install_missing` on a machine where apt behaves as `apt` says, and the packages that it asked apt for
/// in the end. Packages that were installed are no longer missing.
fn install(apt: &str, root: bool) -> (Output, String) {
    let bin = tempfile::tempdir().expect("a folder");
    let at = bin.path();
    program(at, "id", if root { "echo 0" } else { "echo 1000" });
    program(at, "cargo", "");
    program(at, "apt-get", &apt.replace("$INSTALLED", &at.join("installed").display().to_string()));
    let script = r#"
        missing_packages() { for p in build-essential libclang1-14 fio; do grep -qsw -- "$p" "$1/installed" || echo "$p"; done; }
        eval "$(declare -f missing_packages | sed "s#\$1/#$1/#")"
        install_missing; echo went on"#;
    let out = with_lib(script, at, &[at]);
    (out, fs::read_to_string(at.join("installed")).unwrap_or_default())
}

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Installs every package that it is asked for, each alone or all together.
const INSTALLS: &str = r#"for p; do case $p in -* | install) ;; *) echo "$p" >>$INSTALLED ;; esac; done"#;

#[test]
fn a_broken_repository_is_no_reason_not_to_install() {
    let apt = format!(
        r#"[ "$1" != update ] || {{ echo 'E: The repository of somebody else is broken'; exit 100; }}; {INSTALLS}"#
    );
    let (out, installed) = install(&apt, true);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(installed.split_whitespace().collect::<Vec<_>>(), ["build-essential", "libclang1-14", "fio"]);
    assert!(said(&out).contains("went on"));
}

#[test]
fn what_cannot_be_installed_is_named_and_the_rest_is_installed() {
    let refuses = |package: &str| {
        format!(
            r#"case "$*" in update*) exit 0 ;; *{package}*) echo 'E: Unable to locate package'; exit 100 ;; esac; {INSTALLS}"#
        )
    };
    let (out, installed) = install(&refuses("fio"), true);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(installed.split_whitespace().collect::<Vec<_>>(), ["build-essential", "libclang1-14"]);
    assert!(
        said(&out).contains("not installed (optional): fio") && said(&out).contains("went on"),
        "{}",
        said(&out)
    );

    let (out, installed) = install(&refuses("libclang1-14"), true);
    assert!(!out.status.success() && !said(&out).contains("went on"), "{}", said(&out));
    assert_eq!(installed.split_whitespace().collect::<Vec<_>>(), ["build-essential", "fio"]);
    assert!(
        said(&out).contains("error: missing packages; as root run:")
            && said(&out).contains("E: Unable to locate")
    );
}

#[test]
fn who_may_not_install_is_told_what_to_run() {
    let (out, installed) = install("exit 1", false);
    let command = "as root run:  apt-get update; apt-get install -y --no-install-recommends build-essential libclang1-14 fio\n";
    assert!(!out.status.success() && said(&out).contains(command), "{}", said(&out));
    assert_eq!(installed, "");
}

#[test]
fn the_readme_has_the_commands_with_which_the_quickstart_ends() {
    let readme = fs::read_to_string(checkout().join("README.md")).expect("a README");
    let out = with_lib("next_commands '~/.cache/carmine/target/release/carmine' 2", Path::new("/"), &[]);
    let commands = String::from_utf8(out.stdout).expect("text");
    assert_eq!(commands.lines().count(), 4, "{commands}");
    for command in commands.lines() {
        let has = |line: &str| line.split("   #").next().is_some_and(|line| line.trim() == command);
        assert!(readme.lines().any(has), "the README lacks: {command}");
    }
}

#[test]
fn scripts_tell_their_use_and_refuse_other_options() {
    for script in ["quickstart", "fresh", "lab"] {
        let run = |option: &str| {
            Command::new(checkout().join("scripts").join(script)).arg(option).output().expect("it runs")
        };
        let help = run("--help");
        assert!(help.status.success() && said(&help).starts_with(&format!("usage: scripts/{script}")));
        assert_eq!(run("--no-such-option").status.code(), Some(2));
    }
}

#[test]
fn measurements_beside_ceph_tell_their_use_and_are_python() {
    let parse = "import ast, sys; [ast.parse(open(path).read()) for path in sys.argv[1:]]";
    for script in ["recovery", "snapshots", "targets"] {
        let path = checkout().join("scripts").join(script);
        let help = Command::new(path).arg("--help").output().expect("it runs");
        let usage = format!("scripts/{script}");
        let first = said(&help).lines().next().unwrap_or_default().to_owned();
        assert!(help.status.success() && first.contains(&usage), "{first}");
        let folder = checkout().join("scripts/beside");
        let files = ["beside.py".to_owned(), format!("{script}.py")].map(|file| folder.join(file));
        let parsed = Command::new("/usr/bin/python3").args(["-B", "-c", parse]).args(files).output();
        let Ok(parsed) = parsed else { return skip("there is no /usr/bin/python3") };
        assert!(parsed.status.success(), "{}", said(&parsed));
    }
}

/// Both builds are programs that measure nothing, and `compare` exits with `code` for the second of two cases; for the first it is
/// undecided.
fn before_after(code: u8) -> Output {
    let root = tempfile::tempdir().expect("a folder");
    let at = root.path();
    let build = r#"case $1 in
        bench) while [ "$1" != --json ]; do shift; done; : >"$2" ;;
        compare) case $2 in *cyan.randread.1/*) exit 3 ;; *) exit $CODE ;; esac ;;
        esac"#;
    program(at, "build", &build.replace("$CODE", &code.to_string()));
    let build = at.join("build");
    let mut script = Command::new(checkout().join("scripts/before-after"));
    script.arg(&build).arg("5").env("NEW", &build).env("OUT", at.join("out")).env("DIR", at);
    script.env("CARMINE_CACHE", at.join("cache"));
    for (name, value) in [("STORES", "cyan"), ("LOADS", "randread"), ("DEPTHS", "1 64")] {
        script.env(name, value);
    }
    script.output().expect("the script runs")
}

#[test]
fn before_after_names_what_is_undecided_and_fails_by_what_is_worse() {
    for (code, exit) in [(0, 0), (1, 1), (2, 1)] {
        let out = before_after(code);
        assert_eq!(out.status.code(), Some(exit), "{code}: {}", said(&out));
        assert!(said(&out).contains("undecided: cyan.randread.1: not counted as worse"), "{}", said(&out));
    }
}

/// The commands that the quickstart gives `carmine` where it may use these CPUs, and what it says. Other work spoils a repeat of these
/// rows, of which one more repeat is enough.
fn quickstart(cpus: &str, spoilt: &str) -> (Vec<String>, String) {
    let root = tempfile::tempdir().expect("a folder");
    let at = root.path();
    let log = at.join("log");
    let names =
        format!(r#"case "$*" in "table --lacking"*.4.json*) ;; "table --lacking"*) echo "{spoilt}" ;; esac"#);
    program(at, "carmine", &format!("echo \"$*\" >>{}\n{names}", log.display()));
    let mut script = Command::new(checkout().join("scripts/quickstart"));
    script.arg("--results").arg(at.join("results")).arg("--dir").arg(at.join("dir"));
    script
        .env("CARMINE_BIN", at.join("carmine"))
        .env("QUICKSTART_CPUS", cpus)
        .env("CARMINE_CACHE", at.join("cache"));
    let out = script.output().expect("the script runs");
    assert!(out.status.success(), "{}", said(&out));
    let commands = fs::read_to_string(&log).expect("commands").lines().map(str::to_owned).collect();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let page =
        format!("file://{}", at.canonicalize().expect("a folder").join("results/report.html").display());
    assert_eq!(text.lines().last(), Some(page.as_str()), "{text}");
    (commands, text)
}

#[test]
fn the_quickstart_measures_again_only_what_other_work_spoilt() {
    let (commands, _) = quickstart("0-1", "inside-2-reactors.randwrite\nmemory.randread");
    let fourth = |command: &str| -> Vec<&String> {
        let is_fourth = |line: &&String| line.starts_with(command) && line.contains(".4.json");
        commands.iter().filter(is_fourth).collect()
    };
    let rows = ["inside-2-reactors.randwrite.4.json", "memory.randread.4.json"];
    let benches = fourth("bench");
    assert!(
        benches.len() == 2 && benches.iter().zip(rows).all(|(line, row)| line.contains(row)),
        "{benches:#?}"
    );
    let ups = commands.iter().filter(|line| line.starts_with("up")).count();
    assert_eq!(ups, 3 * 3 + 3, "a testbed is made only for rows that are measured: {commands:#?}");
    let last = commands.iter().rfind(|line| line.starts_with("table")).expect("a table");
    assert!(last.contains("--html") && rows.iter().all(|row| last.contains(row)), "{last}");
    assert!(!commands.iter().any(|line| line.contains(".5.")), "{commands:#?}");
}

#[test]
fn the_quickstart_measures_what_the_cpus_allow_three_times_and_with_a_baseline() {
    for (cpus, ups, rows, left_out) in [("3", 1, 2, 3), ("0-1", 3, 6, 1), ("0-2,5", 5, 7, 0)] {
        let (commands, said) = quickstart(cpus, "");
        let starting = |word: &'static str| commands.iter().filter(move |line| line.starts_with(word));
        let counts = ["up", "baseline", "bench"].map(|word| starting(word).count());
        assert_eq!(counts, [3 * ups, 3 * rows, 3 * rows], "{cpus}: {commands:#?}");
        let table = starting("table").next().expect("a table");
        assert_eq!(table.matches(".json").count(), 3 * rows, "each repeat has a file of its own: {table}");
        let rounds = ["1", "2", "3"].map(|round| table.matches(&format!(".{round}.json")).count());
        assert_eq!(rounds, [rows; 3], "the rows are measured in rounds: {table}");
        assert!(starting("bench").all(|line| line.contains("--baseline")), "{commands:#?}");
        assert_eq!(said.matches("Left out: ").count(), left_out, "{said}");
        // CPUs are shared only for loads that need no client.
        let mut is_shared = false;
        for line in &commands {
            is_shared = if line.starts_with("up") { line.contains("--overprovisioned") } else { is_shared };
            assert!(
                !is_shared || !line.starts_with("bench") || line.contains("--in-process"),
                "{commands:#?}"
            );
        }
    }
    let (commands, _) = quickstart("0-2,5", "");
    let is_arm = |line: &&String| line.starts_with("up") && line.contains("cyan --osd-memory");
    let arms: Vec<_> = commands.iter().filter(is_arm).collect();
    assert!(arms.len() == 3 * 2 && arms.iter().all(|line| line.ends_with("--client-cpus 2,5")), "{arms:#?}");
}
