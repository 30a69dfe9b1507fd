//! The real binary with wrong options: each ends with the right exit code and a sentence that names what is
//! wrong, without a panic, and leaves nothing behind.
#![allow(clippy::disallowed_methods, reason = "tests run programs and look at files")]

use std::path::Path;
use std::process::{Command, Output};

fn carmine(args: &[&str], cwd: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_carmine")).args(args).current_dir(cwd).output().unwrap()
}

/// Words as on a command line, exit code, part of the error.
const WRONG: &[(&str, i32, &str)] = &[
    ("", 2, "Usage"),
    ("fly", 2, "fly"),
    ("up --osds 0", 2, "--osds 0"),
    ("up --osds x", 2, "--osds"),
    ("up --osds -1", 2, "-1"),
    ("up --osds 99999999999", 2, "--osds"),
    ("up --reactors 0", 2, "--reactors 0"),
    ("up --reactors 10000", 2, "--reactors"),
    ("up --reactors 200", 2, "too few CPUs"),
    ("up --store zfs", 2, "zfs"),
    ("up --size 0", 2, "--size 0"),
    ("up --size 3 --osds 1", 2, "only 1 OSD;"),
    ("up --min-size 9", 2, "--min-size 9"),
    ("up --pgs 100", 2, "power of two"),
    ("up --pgs 0", 2, "--pgs 0"),
    ("up --osd-size 1K", 2, "--osd-size"),
    ("up --osd-size 4Q", 2, "unit `q`"),
    ("up --osd-size 99999999T", 2, "too large"),
    ("up --osd-memory 1", 2, "--osd-memory"),
    ("up --balance best", 2, "best"),
    ("up --cpus 4096", 2, "4096"),
    ("up --cpus a-b", 2, "a-b"),
    ("up --cpus 0 --client-cpus 0", 2, "--client-cpus"),
    ("up --client-cpus 99", 2, "99"),
    ("up --client-cpus count:0", 2, "count:0"),
    ("up --client-cpus count:5000", 2, "clients need 5000 CPUs"),
    ("up --system-cpus 0 --neighbour-cpus 0", 2, "--system-cpus and --neighbour-cpus both have CPU 0"),
    ("up --balance none --confine cpuset --confine-cpus 1", 2, "--balance none"),
    ("up --store cyan --readahead 0", 2, "--readahead: the store cyan"),
    ("up --spec /nonexistent", 2, "--spec /nonexistent"),
    ("up --alien-cpus 99", 2, "99"),
    ("up --alien-threads 0", 2, "--alien-threads 0"),
    ("up --poll never", 2, "never"),
    ("up --poll adaptive:", 2, "adaptive:"),
    ("up --addr host", 2, "host"),
    ("up --addr 0.0.0.0", 2, "0.0.0.0"),
    ("up --addr 192.0.2.1", 2, "--insecure"),
    ("peer up --opt public_addr=192.0.2.1", 2, "public_addr: a peer listens on loopback only"),
    ("up --devs /dev/a,/dev/b", 2, "2 devices for 1 OSD:"),
    ("up --devs /dev/a --store cyan", 2, "cyan"),
    ("up --devs /dev/a --osd-size 8G", 2, "--osd-size"),
    ("up --osds 3 --osds-per-device 2", 2, "dealt evenly"),
    ("up --osds 2 --osds-per-device 2 --store cyan", 2, "cyan"),
    ("up --osds 2 --osds-per-device 2 --devs /nonexistent", 2, "/nonexistent"),
    ("restart", 2, "no testbed"),
    ("osd stop 0", 2, "no testbed"),
    ("osd kill", 2, "<N>..."),
    ("osd restart 0 --reactors 0", 2, "--reactors"),
    ("up --precondition --precondition-bs 1000", 2, "--precondition-bs 1000"),
    ("up --force-wipe", 2, "--force-wipe"),
    ("up --confine jail", 2, "jail"),
    ("up --confine cpuset", 2, "--confine-cpus"),
    ("up --confine-cpus 1", 2, "--confine quota"),
    ("up --confine-cpus 0", 2, "`0`"),
    ("up --confine cpuset --confine-cpus 1.5", 2, "whole CPUs"),
    ("up --confine cpuset --confine-cpus 2000", 2, "--confine-cpus 2000"),
    ("up --confine quota --confine-cpus 2000", 2, "--confine-cpus 2000"),
    ("up --confine cpuset --confine-cpus 1 --cpus 4096", 2, "4096"),
    ("up --osd-env A", 2, "NAME=VALUE"),
    ("up --osd-env =1", 2, "NAME=VALUE"),
    ("up --osd-wrap no-such-program", 2, "no-such-program"),
    ("up --timeout 0", 2, "timeout"),
    ("up --dir", 2, "--dir"),
    ("up --dir=", 2, "--dir"),
    ("up --dir /proc/nowhere/x --overprovisioned", 1, "/proc/nowhere"),
    ("up --dir /dev/null --overprovisioned", 1, "/dev/null"),
    ("load", 2, "--listen"),
    ("load --listen 192.0.2.1:7400", 2, "nothing is encrypted and nobody is authenticated"),
    ("load --listen 127.0.0.1:7400 --cpus a-b", 2, "a-b"),
    ("bench --load-hosts a:1 --in-process", 2, "--in-process"),
    ("bench --load-hosts a:1,b:1", 2, "each of 2 load hosts needs a job"),
    ("bench --load-hosts a:1 --client fio-rbd", 2, "--load-hosts: only --client carmine"),
    ("compare", 2, "BASE"),
    ("compare nowhere", 2, "nowhere: no run is archived here"),
    ("compare a.json b.json", 2, "a.json"),
    ("compare a b --tolerance 5", 2, "tolerance"),
    ("compare a b --arms x,y", 2, "--arms"),
    ("compare a --arms x,y,z", 2, "name two arms"),
    ("model", 2, "RESULTS"),
    ("model nowhere.json", 2, "nowhere.json"),
    ("model nowhere.json --reactors 0", 2, "1..=1024"),
    ("model nowhere.json --reactors 4,x", 2, "invalid digit"),
    ("report", 2, "RUN"),
    ("report /nonexistent", 1, "no run is archived here"),
    ("report . --out /dev/null/x", 1, "no run is archived here"),
    ("status", 2, "no testbed"),
    ("down", 2, "no testbed"),
    ("destroy", 2, "no testbed"),
    ("status --dir /nonexistent", 2, "no testbed"),
    ("plan --topology 2x", 2, "2x"),
    ("plan --topology 0x1x1", 2, "0x1x1"),
    ("plan --topology /nonexistent", 2, "/nonexistent"),
    ("plan --topology 2x64x2:l3=7", 2, "l3=7"),
    ("plan --topology 2x4x1:nvme0n1@node2", 2, "nvme0n1@node2"),
    ("plan --topology 1x4x1 --balance drive", 2, "--devs"),
    ("plan --topology 1x1x1 --osds 1 --reactors 2", 2, "too few CPUs"),
    ("plan --topology 2x28x2 --balance osd --osds 60 --reactors 5", 2, "too few CPUs"),
    ("osdmap", 2, "FILE"),
    ("osdmap /nonexistent", 1, "/nonexistent"),
    ("osdmap /dev/null", 1, "not an OSDMap"),
    ("osdmap /", 1, "/"),
    ("admin --osd 0 {}", 2, "no testbed"),
    ("admin --osd x {}", 2, "--osd"),
    ("admin --osd 0", 2, "QUESTION"),
];

#[test]
fn wrong_options_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (line, code, part) in WRONG {
        let args: Vec<&str> = line.split_whitespace().collect();
        let out = carmine(&args, dir.path());
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(*code), "carmine {line}: {text}");
        assert!(text.contains(part), "carmine {line}: {text:?} does not name {part:?}");
        assert!(!text.contains("panicked"), "carmine {line}: {text}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn help_and_version() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["--help"][..], &["up", "--help"], &["--version"], &["version"], &["version", "--verbose"]]
    {
        let out = carmine(args, dir.path());
        assert!(out.status.success() && !out.stdout.is_empty(), "{args:?}");
    }
    let text = carmine(&["version", "--verbose"], dir.path()).stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    for word in ["profile", "rustc", "target", "allocator", "mimalloc", "rocksdb"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn help_explains_words_and_still_commands() {
    let dir = tempfile::tempdir().unwrap();
    let help = |args: &[&str]| {
        let out = carmine(args, dir.path());
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    for (args, part) in [
        (&["help", "words"][..], "- **hop**: A message from one reactor to another."),
        (&["help", "verdicts"], "| 1 | SHARED |"),
        (&["help", "NOISY"], "NOISY (mark): "),
        (&["help", "hop", "--json"], "\"kind\": \"term\""),
        (&["help"], "carmine help words"),
        // Commands, also those that are words.
        (&["help", "bench"], "--iodepth"),
        (&["help", "baseline"], "Usage: carmine baseline"),
        (&["help", "store", "bench"], "Usage: carmine store bench"),
        (&["store", "help"], "Usage: carmine store"),
    ] {
        let (code, text) = help(args);
        assert!(code == Some(0) && text.contains(part), "{args:?}: {text}");
    }
    assert_eq!(help(&["help", "nonsense"]).0, Some(2));
}

#[test]
fn plans_for_other_machines() {
    let dir = tempfile::tempdir().unwrap();
    let out = carmine(&["plan", "--topology", "2x28x2", "--osds", "8", "--reactors", "5"], dir.path());
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("2x28x2") && text.contains("PGs/reactor"), "{text}");
    let out =
        carmine(&["plan", "--topology", "1x8x8x2", "--osds", "16", "--reactors", "2", "--json"], dir.path());
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan["grid"]["osds"].as_array().unwrap().len(), 16);
}

#[test]
fn a_large_machine_is_planned_by_its_drives() {
    let dir = tempfile::tempdir().unwrap();
    let shape = ["plan", "--topology", "2x64x2:l3=8:drives=8", "--osds", "8", "--reactors", "4"];
    let said = |args: &[&str]| carmine(&[&shape[..], args].concat(), dir.path()).stdout;
    let text = String::from_utf8_lossy(&said(&[])).into_owned();
    assert!(text.contains("its interrupts") && text.contains("on another NUMA node"), "{text}");
    let plan: serde_json::Value = serde_json::from_slice(&said(&["--balance", "drive", "--json"])).unwrap();
    let grid = &plan["grid"];
    assert_eq!(
        (grid["osds"][7]["drive"].as_str(), grid["devices"][7]["node"].as_u64()),
        (Some("nvme7n1"), Some(1))
    );
    assert_eq!(grid["osds"][7]["reactors"][0]["node"], 1);
    assert!(grid.get("disturbed").is_none(), "{grid}");
}

/// Hours only for what can be answered.
#[test]
fn studies_are_listed_with_what_they_cannot_answer() {
    let dir = tempfile::tempdir().unwrap();
    let list = |shape: &str| {
        let out = carmine(&["study", "list", "--json", "--topology", shape], dir.path()).stdout;
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()
    };
    let (small, large) = (list("1x2x1"), list("2x28x2"));
    for at in [1, 2, 4] {
        assert!(small[at]["estimate_s"].is_null() && small[at]["no_answer"].is_string(), "{}", small[at]);
        assert!(large[at]["estimate_s"].is_f64() && large[at]["no_answer"].is_null(), "{}", large[at]);
    }
    assert!(small[1]["no_answer"].as_str().unwrap().contains("two sockets"), "{}", small[1]);
    assert!(small[0]["estimate_s"].is_f64() && small[0]["open"][0].as_str().unwrap().contains("cpuset"));
}

/// "4+2+26": CPUs of the system, of the OSD, and of virtual machines.
#[test]
fn a_specification_is_printed_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let out = carmine(&[&["plan", "--topology", "1x16x2"], args].concat(), dir.path());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let slices =
        ["--system-cpus", "0-1", "--client-cpus", "2-3", "--cpus", "4-5", "--neighbour-cpus", "6-31"];
    let asked = [&slices[..], &["--balance", "none", "--reactors", "2", "--readahead", "1M"]].concat();
    let spec = said(&[&asked[..], &["--print-spec"]].concat());
    assert!(
        spec.contains("system_cpus = \"0-1\"") && spec.contains("readahead_bytes = \"1048576\""),
        "{spec}"
    );
    std::fs::write(dir.path().join("spec.toml"), &spec).unwrap();
    let (from_file, from_options) = (said(&["--spec", "spec.toml"]), said(&asked));
    assert_eq!(from_file, from_options);
    assert!(from_file.contains("strategy  none") && from_file.contains("neighbour CPU 6-31"), "{from_file}");
    let other = said(&["--spec", "spec.toml", "--balance", "default"]);
    assert!(other.contains("strategy  default") && other.contains("system    CPU 0-1"), "{other}");
}

#[test]
fn a_used_folder_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("precious");
    std::fs::write(&file, "mine").unwrap();
    let at = dir.path().to_str().unwrap();
    let out = carmine(&["up", "--dir", at, "--store", "cyan", "--overprovisioned"], dir.path());
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("precious") && text.contains("not empty"), "{text}");
    for command in ["down", "destroy", "status"] {
        assert_eq!(carmine(&[command, "--dir", at], dir.path()).status.code(), Some(2), "{command}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// The oracle files are not part of the repository; where they are, our text is theirs.
#[test]
fn prints_maps_as_osdmaptool_does() {
    let Ok(oracle) = std::env::var("CARMINE_ORACLE") else { return };
    let dir = tempfile::tempdir().unwrap();
    for cluster in ["live-1osd", "live-3osd"] {
        let file = |name: &str| format!("{oracle}/{cluster}/{name}");
        for (option, expected) in [(&[][..], "osdmap.txt"), (&["--pgs-dump"], "map-pgs-dump.txt")] {
            let map = file("osdmap.bin");
            let out = carmine(&[&["osdmap", map.as_str()], option].concat(), dir.path());
            let expected = std::fs::read_to_string(file(expected)).unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), expected, "{cluster} {option:?}");
        }
    }
}
