//! A real Ceph 16.2 (Debian's packages) as a peer: made, loaded by the stock tools, restarted with other settings, removed.
#![allow(clippy::disallowed_methods)] // reads files and looks into /proc

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carmine_tests::{Testbed, carmine_bin, installed, run, succeed, workspace_root};
use serde_json::Value;

const MINUTES: Duration = Duration::from_secs(180);

/// One small OSD that shares its CPUs with the client, so that it runs on any machine.
const SMALL: &[&str] = &["--osds", "1", "--pgs", "8", "--osd-size", "1G", "--sparse", "--overprovisioned"];

/// `carmine peer COMMAND` in a folder of its own; dropped, the peer is removed.
struct Peer {
    bed: Testbed,
}

impl Peer {
    fn dir(&self) -> PathBuf {
        self.bed.dir().with_file_name("peer")
    }

    fn output(&self, command: &[&str], args: &[&str]) -> std::process::Output {
        let dir = self.dir();
        let all = [command, &["--dir", dir.to_str().expect("UTF-8")], args].concat();
        run(&carmine_bin(), &all, MINUTES)
    }

    fn ok(&self, command: &[&str], args: &[&str]) -> String {
        succeed(self.output(command, args), &format!("carmine {command:?} {args:?}"))
    }

    fn status(&self) -> Value {
        let text = String::from_utf8(self.output(&["peer", "status"], &["--json"]).stdout).expect("UTF-8");
        serde_json::from_str(&text).expect("a status")
    }

    /// Processes that have this folder on their command line, whatever they are.
    fn processes(&self) -> Vec<String> {
        let dir = self.dir();
        let dir = dir.as_os_str().as_encoded_bytes();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let ours = lines.filter(|line| line.windows(dir.len()).any(|part| part == dir));
        ours.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
    }

    /// A load of two seconds; its result and its samples, of which there is one for each second.
    fn bench(&self, client: &str, rw: &str) -> (Value, Value) {
        self.bench_with(client, &["--rw", rw, "--runtime", "2"])
    }

    fn bench_with(&self, client: &str, options: &[&str]) -> (Value, Value) {
        let file = |name: &str| self.dir().with_file_name(format!("{client}.{name}"));
        let (json, samples) = (file("json"), file("samples"));
        let load = ["--client", client, "--iodepth", "4", "--size", "8m", "--object-size", "1m"];
        let json_s = json.to_str().expect("UTF-8");
        let files = ["--json", json_s, "--samples", samples.to_str().expect("UTF-8")];
        self.ok(&["bench"], &[&load[..], options, &files].concat());
        let read = |path: &Path| serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
        (read(&json), read(&samples))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.dir().exists() {
            let gone = self.output(&["peer", "destroy"], &[]);
            if !gone.status.success() {
                eprintln!("destroy failed: {}", String::from_utf8_lossy(&gone.stderr));
            }
        }
    }
}

fn can_run() -> bool {
    installed("ceph-osd", "ceph-osd") && installed("ceph-mon", "ceph-mon") && installed("fio", "fio")
}

/// Figures that must be in every result of a hosted client.
fn check_result(result: &Value, rw: &str) {
    let direction = if rw.ends_with("read") { "read" } else { "write" };
    let carmine = &result["carmine"];
    let ops = result["jobs"][0][direction]["total_ios"].as_u64().expect("operations");
    let iops = carmine["iops"].as_f64().expect("IOPS");
    assert!(ops > 0 && iops > 0.0, "{result}");
    assert!(carmine["osds"][0]["cpu_seconds"]["kernel_total"].as_f64().is_some_and(|s| s > 0.0), "{carmine}");
    assert_eq!((&carmine["route"], &carmine["peer"]["kind"]), (&"single".into(), &"ceph".into()));
    assert!(carmine["peer"]["contrast"]["ceph_does_not"].as_array().is_some_and(|list| !list.is_empty()));
    let by_hand = carmine["client"]["command"].as_array().map(Vec::len);
    assert!(by_hand.is_none_or(|words| words > 3), "{carmine}");
    assert!(carmine["doctor"].is_array());
    assert!(carmine["client_cores_used"].as_f64().is_some_and(|cores| cores > 0.0));
}

fn rbd(peer: &Peer, args: &[&str]) -> std::process::Output {
    let conf = peer.dir().join("ceph.conf");
    let all = [&["-c", conf.to_str().expect("UTF-8")], args].concat();
    run(Path::new("rbd"), &all, MINUTES)
}

#[test]
fn a_real_ceph_is_made_loaded_restarted_and_removed() {
    if !can_run() {
        return;
    }
    let peer = Peer { bed: Testbed::new() };
    peer.ok(&["peer", "up"], SMALL);
    let status = peer.status();
    assert_eq!((&status["state"], &status["pgs_clean"]), (&"running".into(), &8.into()));
    assert_eq!(status["about"]["profile"], "stock");
    let pid = status["osds"][0]["pid"].as_i64().expect("a pid");
    let allowed = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let cpus = &status["osds"][0]["cpus"][0];
    assert!(allowed.lines().any(|line| *line == format!("Cpus_allowed_list:\t{cpus}")), "{allowed}");

    let loads = [
        ("carmine", "randwrite"),
        ("fio-rados", "randwrite"),
        ("fio-rbd", "randread"),
        ("rados-bench", "randread"),
    ];
    for (client, rw) in loads {
        let (result, samples) = peer.bench(client, rw);
        check_result(&result, rw);
        let percentile = &result["jobs"][0][rw.trim_start_matches("rand")]["clat_ns"]["percentile"];
        assert_eq!(percentile.is_object(), client != "rados-bench", "absent, not zero: {percentile}");
        assert!(samples["series"]["osd_cores"].is_array(), "{samples}");
        assert_eq!(samples["series"]["iops"][0].is_number(), client != "rados-bench", "{samples}");
    }

    // `--age` writes no more than it is told: twice 8 MiB in blocks of 64 KiB.
    for client in ["fio-rados", "fio-rbd"] {
        let (aged, _) = peer.bench_with(client, &["--age", "2", "--bs", "64k"]);
        assert_eq!(aged["jobs"][0]["write"]["total_ios"], 256, "{client}: {aged}");
    }
    let dealt =
        ["--rw", "randwrite", "--runtime", "3", "--numjobs", "4", "--volumes", "2", "--processes", "2"];
    let (dealt, _) = peer.bench_with("fio-rbd", &dealt);
    check_result(&dealt, "randwrite");
    assert!(dealt["jobs"][0]["write"]["clat_ns"]["percentile"].is_object(), "merged: {dealt}");
    let images = succeed(rbd(&peer, &["ls", "bench"]), "rbd ls");
    assert!(images.contains("carmine-4m\n") && images.contains("carmine-4m-1"), "{images}");

    // Another profile is a restart: the data stays.
    peer.ok(&["peer", "down"], &[]);
    assert_eq!(peer.status()["state"], "stopped");
    peer.ok(&["peer", "up"], &["--tuned", "--opt", "osd_op_num_shards=3"]);
    let status = peer.status();
    assert_eq!(status["about"]["settings"]["osd_op_num_shards"], "3");
    let shards = run(
        Path::new("ceph"),
        &[
            "daemon",
            peer.dir().join("run/osd.0.asok").to_str().expect("UTF-8"),
            "config",
            "get",
            "osd_op_num_shards",
        ],
        MINUTES,
    );
    assert!(succeed(shards, "ceph daemon").contains("\"3\""));
    let begin = Instant::now();
    check_result(&peer.bench("fio-rados", "randread").0, "randread");
    assert!(begin.elapsed() < Duration::from_secs(180));

    peer.ok(&["peer", "destroy"], &[]);
    assert!(!peer.dir().exists());
    assert_eq!(peer.processes(), [""; 0]);
}

#[test]
fn what_cannot_be_done_is_said_before_anything_starts() {
    if !can_run() {
        return;
    }
    let peer = Peer { bed: Testbed::new() };
    let refused = |command: &[&str], args: &[&str], part: &str| {
        let output = peer.output(command, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(part), "{command:?} {args:?}: {said}");
    };
    refused(&["peer", "up"], &["--size", "2"], "--size 2");
    refused(&["peer", "up"], &["--peer-build", "/nonexistent"], "/nonexistent");
    refused(&["peer", "status"], &[], "there is no peer");
    refused(&["bench"], &["--client", "rados-bench", "--rate", "100"], "--rate 100");
    refused(&["bench"], &["--client", "rados-bench", "--io-size", "8m"], "--io-size");
    assert!(!peer.dir().exists());
    assert_eq!(peer.processes(), [""; 0]);
}

/// A folder as a build of Ceph makes it, of the installed programs.
fn build_of_the_installed(bed: &Testbed) -> PathBuf {
    let build = bed.dir().with_file_name("build");
    std::fs::create_dir_all(build.join("bin")).expect("a folder");
    std::fs::create_dir_all(build.join("lib")).expect("a folder");
    for program in ["ceph-mon", "ceph-osd", "ceph", "monmaptool"] {
        let at = Path::new("/usr/bin").join(program);
        std::os::unix::fs::symlink(at, build.join("bin").join(program)).expect("a link");
    }
    // A build has the plugins of erasure codes and object classes in one folder.
    let triples = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = triples.flat_map(|triple| [triple.join("ceph/erasure-code"), triple.join("rados-classes")]);
    for plugin in folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        let link = build.join("lib").join(plugin.file_name());
        std::os::unix::fs::symlink(plugin.path(), link).expect("a link");
    }
    build
}

/// About 10 s: the monitor is real, its OSD makes its store and then does not start.
#[test]
fn a_daemon_that_dies_at_its_start_is_named_with_its_last_words() {
    if !can_run() {
        return;
    }
    let peer = Peer { bed: Testbed::new() };
    let build = build_of_the_installed(&peer.bed);
    let osd = build.join("bin/ceph-osd");
    std::fs::remove_file(&osd).expect("the link");
    let script = "#!/bin/sh\ncase \"$*\" in *--mkfs*|*version*) exec /usr/bin/ceph-osd \"$@\";; esac\n\
                  echo '-1 osd.0 unable to mount its store' >&2\nexit 3\n";
    std::fs::write(&osd, script).expect("a script");
    std::fs::set_permissions(&osd, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let build = build.display().to_string();
    let output = peer.output(&["peer", "up"], &[SMALL, &["--peer-build", &build]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["osd.0 ", "(exit status: 3)", "osd.0.log", "unable to mount its store", "was removed again"]
    {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    assert!(!peer.dir().exists());
    assert_eq!(peer.processes(), [""; 0]);
}

/// About 40 s: a Ceph is made, and started twice. Its windows are long enough for a first reading that a busy machine delays by a second.
#[test]
fn a_sweep_measures_a_build_of_the_users_beside_ours() {
    if !can_run() {
        return;
    }
    let bed = Testbed::new();
    let build = build_of_the_installed(&bed);
    let path = |name: &str| bed.dir().with_file_name(name).display().to_string();
    let text = "name = \"beside\"\ncompare = \"peer\"\nruntime = \"4s\"\nramp = \"100ms\"\n[axes]\npeer = [\"none\", \"ceph\"]\n\
                client = \"fio-rados\"\nworkload = \"randwrite4k\"\nosd_size_bytes = \"1G\"\nsize_bytes = \"16M\"\npgs = 8\n";
    std::fs::write(path("beside.toml"), text).expect("a plan");
    let (plan, out) = (path("beside.toml"), path("run"));
    let line =
        ["sweep", &plan, "--overprovisioned", "--out", &out, "--peer-build", build.to_str().expect("UTF-8")];
    succeed(run(&carmine_bin(), &line, MINUTES), "carmine sweep");
    let points = std::fs::read_dir(path("run/points")).expect("points").flatten().map(|entry| entry.path());
    let is_result = |path: &PathBuf| {
        let name = path.display().to_string();
        name.ends_with(".json") && !name.ends_with(".state.json") && !name.ends_with(".samples.json")
    };
    let read = |path: PathBuf| serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let results: Vec<Value> = points.filter(is_result).map(read).collect();
    let peers =
        results.iter().filter(|result| result["carmine"]["peer"]["build"] == build.to_str().expect("UTF-8"));
    assert_eq!((results.len(), peers.count()), (3, 1), "ours, the build, and the first again");
    assert!(!Path::new(&path("run/layouts")).exists());
}

/// Requests drawn at random are answered alike (`tests/tests/python/answers.py`; more seeds by hand). About 35 s.
#[test]
fn a_real_ceph_gives_the_same_answers() {
    if !can_run() {
        return;
    }
    let bed = Testbed::up(SMALL);
    let peer = Peer { bed: bed.second() };
    peer.ok(&["peer", "up"], SMALL);
    let script = workspace_root().join("tests/tests/python/answers.py");
    let theirs = peer.dir().join("ceph.conf");
    let [script, theirs] = [&script, &theirs].map(|path| path.to_str().expect("UTF-8"));
    let asked = [script, &bed.conf(), theirs, "--seeds", "0..5", "--requests", "100"];
    succeed(run(Path::new("/usr/bin/python3"), &asked, MINUTES), "answers.py");
}
