//! Whole testbeds with the real binary: started, inspected, damaged, stopped, removed. `cyan` only, so that this also
//! runs without RocksDB; the workspace's `tests` do the same with `blue` and with stock clients.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run programs and look at files"
)]

mod bed;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bed::{Bed, is_gone, kill, text};
use serde_json::{Value, json};

#[path = "testbed/live.rs"]
mod live;

const UP: &[&str] = &["up", "--osds", "2", "--store", "cyan", "--pgs", "16", "--overprovisioned"];

#[test]
fn a_testbed_lives_and_leaves_nothing() {
    let bed = Bed::new();
    let said = bed.ok(UP);
    assert!(said.contains("reactor CPUs") && said.contains("up: 2 OSDs x 1 reactor, cyan"), "{said}");
    let status = bed.status();
    assert_eq!((&status["state"], &status["pgs"]["active"]), (&Value::from("running"), &Value::from(16)));
    assert_eq!(bed.processes().len(), 3);
    let conf = fs::read_to_string(bed.dir().join("ceph.conf")).unwrap();
    assert!(conf.contains(status["mon_addr"].as_str().unwrap()), "{conf}");
    bed.fails(UP, 2, "already runs");
    assert!(bed.ok(&["down"]).contains("osd.1 stopped"));
    assert!(bed.processes().is_empty());
    assert_eq!(bed.status()["state"], "stopped");
    assert!(bed.ok(&["down"]).contains("was not running"));
    for (options, part) in [
        (["--osds", "3"], "--osds 3: this testbed was made with 2"),
        (["--size", "1"], "made with 2"),
        (["--store", "null"], "made with cyan"),
        (["--pgs", "32"], "made with 16"),
        (["--osd-size", "1G"], "made with 4096M"),
    ] {
        bed.fails(&[&["up"], &options[..]].concat(), 2, part);
    }
    let mut again = bed.command(&["up", "--reactors", "2", "--poll", "sleep"]);
    let out = again.output().unwrap();
    assert!(out.status.success() && text(&out.stderr).contains("starts empty"), "{}", text(&out.stderr));
    let status = bed.status();
    assert_eq!(
        (&status["osds"][1]["reactors"], &status["plan"]["poll"]),
        (&Value::from(2), &Value::from("sleep"))
    );
    bed.ok(&["destroy"]);
    assert!(bed.processes().is_empty() && !bed.dir().exists());
    bed.fails(&["status"], 2, "no testbed");
}

#[test]
fn a_dead_osd_is_named() {
    let bed = Bed::new();
    bed.ok(UP);
    kill("-9", bed.pid("osd.1"));
    bed.wait_for("the death of osd.1", || {
        bed.status()["pgs"]["clean"] == 0 && bed.status()["pgs"]["active"] == 16
    });
    let out = bed.run(&["status"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        said.contains("degraded")
            && said.contains("osd.1 is dead")
            && said.contains("16 of 16 PGs have fewer"),
        "{said}"
    );
    bed.ok(&["down"]);
    bed.ok(&["up"]);
    assert_eq!(bed.status()["state"], "running");
}

#[test]
fn up_starts_what_is_dead_and_nothing_else() {
    let bed = Bed::new();
    bed.ok(UP);
    for dead in [&["osd.1"][..], &["mon"], &["osd.0", "mon"]] {
        let before: Vec<i64> = DAEMONS.map(|daemon| bed.pid(daemon)).into();
        let killed: Vec<i64> = dead.iter().map(|daemon| bed.pid(daemon)).collect();
        killed.iter().for_each(|pid| kill("-9", *pid));
        bed.wait_for("the death", || killed.iter().all(|pid| is_gone(*pid)));
        bed.fails(&["up", "--poll", "sleep"], 2, "leave the options out");
        bed.fails(&["up", "--osds", "3"], 2, "made with 2");
        assert_eq!(bed.processes().len(), 3 - dead.len(), "a refusal starts nothing");
        let out = bed.run(if dead == ["mon"] { UP } else { &["up"] });
        assert!(out.status.success(), "{dead:?}: {}", text(&out.stderr));
        assert!(
            text(&out.stderr).contains(&format!("starting {}", dead.join(", "))),
            "{}",
            text(&out.stderr)
        );
        assert_eq!(bed.status()["state"], "running", "{dead:?}");
        for (daemon, before) in DAEMONS.into_iter().zip(before) {
            assert_eq!(bed.pid(daemon) != before, dead.contains(&daemon), "{dead:?}: {daemon}");
        }
    }
    bed.fails(&["up"], 2, "already runs");
}

const DAEMONS: [&str; 3] = ["osd.0", "osd.1", "mon"];

/// A name, and what is done to a testbed's folder.
type Loss = (&'static str, fn(&Bed));

/// Ways to lose the records of a testbed's processes.
const LOSSES: [Loss; 4] = [
    ("a damaged plan", |bed| fs::write(bed.dir().join("testbed.json"), "{\"format\": 1, \"osd").unwrap()),
    ("no plan", |bed| fs::remove_file(bed.dir().join("testbed.json")).unwrap()),
    ("no records", |bed| fs::remove_dir_all(bed.dir().join("run")).unwrap()),
    ("damaged plan and record", |bed| {
        fs::write(bed.dir().join("testbed.json"), "").unwrap();
        fs::write(bed.dir().join("run/osd.1.json"), "{").unwrap();
    }),
];

#[test]
fn processes_end_without_plan_or_records() {
    for (name, lose) in LOSSES {
        for command in ["down", "destroy"] {
            let bed = Bed::new();
            bed.ok(UP);
            // It has another folder on its command line: it is none of ours.
            let other = Bed::new();
            other.ok(&[&UP[..1], &["--osds", "1"], &UP[3..]].concat());
            lose(&bed);
            let said = bed.ok(&[command]);
            assert_eq!((bed.processes().len(), other.processes().len()), (0, 2), "{name}, {command}: {said}");
            if command == "down" {
                assert!(said.contains("osd.0 stopped") && said.contains("mon stopped"), "{name}: {said}");
                assert!(bed.dir().join("mon/state.0").exists(), "{name}: the data stays");
            } else {
                assert!(!bed.dir().exists(), "{name}: {:?}", fs::read_dir(bed.dir()).map(|d| d.count()));
            }
        }
    }
}

#[test]
fn a_testbed_of_another_version_is_stopped_but_not_removed() {
    let bed = Bed::new();
    bed.ok(UP);
    let plan = bed.dir().join("testbed.json");
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&plan, text.replace("\"format\": 2", "\"format\": 1")).unwrap();
    bed.fails(&["destroy"], 1, "use the carmine that made it");
    assert_eq!(bed.processes().len(), 3);
    assert!(bed.ok(&["down"]).contains("osd.1 stopped") && bed.processes().is_empty());
    fs::write(&plan, text).unwrap();
}

#[test]
fn all_killed_at_once() {
    let bed = Bed::new();
    bed.ok(UP);
    for daemon in ["mon", "osd.0", "osd.1"] {
        kill("-9", bed.pid(daemon));
    }
    bed.wait_for("the end", || bed.processes().is_empty());
    assert_eq!(bed.status()["state"], "stopped");
    bed.ok(&["up"]);
    assert_eq!(bed.status()["state"], "running");
}

#[test]
fn a_port_in_use() {
    let bed = Bed::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    bed.fails(&[UP, &["--addr", &addr]].concat(), 1, "is another process using port");
    assert!(bed.processes().is_empty());
    drop(taken);
    // The folder was made; with the port free the same command goes on.
    bed.ok(&[UP, &["--addr", &addr]].concat());
    assert_eq!(bed.status()["mon_addr"], addr.as_str());
    bed.ok(&["down"]);
    bed.ok(&["up"]);
    assert_eq!(bed.status()["mon_addr"], addr.as_str(), "the port stays");
}

#[test]
fn no_daemon_listens_for_other_machines_unless_told_to() {
    let bed = Bed::new();
    bed.ok(UP);
    bed.ok(&["down"]);
    let plan = bed.dir().join("testbed.json");
    let text = fs::read_to_string(&plan).unwrap();
    let other = text.replace("\"addr\": \"127.0.0.1:0\"", "\"addr\": \"192.0.2.1:0\"");
    assert_ne!(text, other);
    fs::write(&plan, other).unwrap();
    bed.fails(&["up"], 2, "192.0.2.1, where nothing is encrypted and nobody is authenticated");
    bed.fails(&["restart"], 2, "--insecure");
    // The daemons as they are started by hand.
    for words in [&["carmine-mon"][..], &["carmine-osd", "--id", "0"]] {
        let program = Path::new(env!("CARGO_BIN_EXE_carmine")).with_file_name(words[0]);
        let out = Command::new(program).args(&words[1..]).arg("--dir").arg(bed.dir()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("--insecure") && said.lines().count() == 1, "{words:?}: {said}");
    }
    assert!(bed.processes().is_empty());
    fs::write(&plan, text).unwrap();
    bed.ok(&["up"]);
}

#[test]
fn a_free_port_is_kept_or_replaced() {
    let bed = Bed::new();
    bed.ok(UP);
    let addr = bed.status()["mon_addr"].as_str().unwrap().to_string();
    bed.ok(&["down"]);
    bed.ok(&["up"]);
    assert_eq!(bed.status()["mon_addr"], addr.as_str());
    bed.ok(&["down"]);
    let _taken = TcpListener::bind(&addr).unwrap();
    bed.ok(&["up"]);
    let other = bed.status()["mon_addr"].as_str().unwrap().to_string();
    assert_ne!(other, addr);
    assert!(fs::read_to_string(bed.dir().join("ceph.conf")).unwrap().contains(&other));
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn ctrl_c_while_it_starts() {
    let bed = Bed::new();
    bed.ok(UP);
    bed.ok(&["down"]);
    let up = spawn(bed.command(&["up"]));
    bed.wait_for("the start of osd.0", || bed.dir().join("run/osd.0.json").exists());
    kill("-INT", i64::from(up.id()));
    let out = up.wait_with_output().unwrap();
    // It may have been ready in the very moment.
    if !out.status.success() {
        assert!(text(&out.stderr).contains("interrupted"), "{}", text(&out.stderr));
        assert!(bed.processes().is_empty(), "left over: {:?}", bed.processes());
    }
}

#[test]
fn a_stopped_osd_does_not_hang_the_tools() {
    let bed = Bed::new();
    bed.ok(UP);
    let pid = bed.pid("osd.0");
    kill("-STOP", pid);
    let begin = Instant::now();
    let out = bed.run(&["status"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("osd.0 does not answer"), "{}", text(&out.stdout));
    assert!(begin.elapsed() < Duration::from_secs(40));
    kill("-CONT", pid);
    assert_eq!(bed.status()["state"], "running");
}

/// Two wrappers: one that becomes the OSD, one that starts it as a child beside another and outlives it.
const WRAPPERS: [(&str, &str); 2] = [
    ("execs", "exec \"$@\""),
    ("forks", "sleep 600 &\n\"$@\" &\nwait $!\necho \"wrapper of osd $NUMBER is done\""),
];

/// Pids whose environment names this cluster's wrappers.
fn marked(fsid: &str) -> usize {
    let mark = format!("CARMINE_WRAPPED_OSD={fsid}/");
    let has =
        |e: &fs::DirEntry| text(&fs::read(e.path().join("environ")).unwrap_or_default()).contains(&mark);
    fs::read_dir("/proc").unwrap().flatten().filter(has).count()
}

#[test]
fn osds_in_a_wrapper() {
    for (name, script) in WRAPPERS {
        let bed = Bed::new();
        let path = bed.root.path().join("wrap.sh");
        fs::write(&path, format!("#!/bin/sh\necho wrapped as $1\nshift\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let wrap = format!("'{}' {name}-{{osd}}", path.display());
        bed.ok(&[UP, &["--osd-wrap", &wrap, "--osd-env", "NUMBER={osd}", "--osd-env", "OTHER=a=b"]].concat());
        let status = bed.status();
        let fsid = status["plan"]["fsid"].as_str().unwrap().to_owned();
        assert!(marked(&fsid) >= 2, "{name}");
        for osd in 0..2 {
            let pid = status["osds"][osd]["pid"].as_i64().unwrap();
            let line = text(&fs::read(format!("/proc/{pid}/cmdline")).unwrap());
            assert!(
                line.split('\0').next().is_some_and(|word| word.ends_with("/carmine-osd"))
                    && !line.contains("wrap.sh"),
                "{name}: {line}"
            );
            let environ = text(&fs::read(format!("/proc/{pid}/environ")).unwrap());
            assert!(
                environ.contains(&format!("NUMBER={osd}\0")) && environ.contains("OTHER=a=b\0"),
                "{name}"
            );
        }
        // An OSD that dies alone takes nothing along, and `down` ends what its wrapper left.
        kill("-9", bed.pid("osd.0"));
        bed.ok(&["down"]);
        assert_eq!((bed.processes().len(), marked(&fsid)), (0, 0), "{name}: left over");
        let log = fs::read_to_string(bed.dir().join("osd.1.log")).unwrap();
        assert!(log.contains(&format!("wrapped as {name}-1")), "{name}: {log}");
        assert_eq!(log.contains("wrapper of osd 1 is done"), name == "forks", "{log}");
        // It is kept until it is taken away.
        bed.ok(&["up"]);
        assert!(marked(&fsid) >= 2, "{name}");
        bed.ok(&["down"]);
        bed.ok(&["up", "--osd-wrap", "none", "--osd-env", "none"]);
        assert_eq!(marked(&fsid), 0, "{name}");
    }
}

#[test]
fn a_wrapper_that_starts_no_osd_is_named() {
    let bed = Bed::new();
    let begin = Instant::now();
    bed.fails(
        &[UP, &["--osd-wrap", "sh -c 'echo no counters here; exit 3'"]].concat(),
        1,
        "no counters here",
    );
    assert!(begin.elapsed() < Duration::from_secs(40) && bed.processes().is_empty());
    bed.fails(&["up", "--osd-wrap", "no-such-program"], 2, "no-such-program");
    bed.ok(&["up", "--osd-wrap", "none"]);
}

#[test]
fn one_osd_starts_again_in_a_running_testbed() {
    let bed = Bed::new();
    bed.ok(UP);
    let (mon, other) = (bed.pid("mon"), bed.pid("osd.0"));
    for signal in ["-9", "-TERM"] {
        let before = bed.pid("osd.1");
        kill(signal, before);
        bed.wait_for("the death of osd.1", || bed.processes().len() == 2);
        assert!(bed.ok(&["restart", "--osd", "1"]).contains("restarted osd.1"));
        assert_ne!(bed.pid("osd.1"), before);
        assert_eq!(
            (bed.status()["state"].as_str(), bed.pid("mon"), bed.pid("osd.0")),
            (Some("running"), mon, other)
        );
    }
    // One that runs is stopped first; without a number all are.
    bed.ok(&["restart"]);
    assert_eq!((bed.status()["state"].as_str(), bed.pid("mon")), (Some("running"), mon));
    assert_ne!(bed.pid("osd.0"), other);
    bed.fails(&["restart", "--osd", "2"], 2, "only 0-1");
    kill("-9", bed.pid("mon"));
    bed.wait_for("the death of the monitor", || bed.processes().len() == 2);
    bed.fails(&["restart"], 1, "the monitor");
    bed.ok(&["down"]);
    // Where nothing runs, the monitor is started, too.
    assert!(bed.ok(&["restart"]).contains("restarted osd.0 osd.1"));
    assert_eq!(bed.status()["state"], "running");
}

/// `carmine osd`: the exit code, and both outputs.
fn osd(bed: &Bed, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carmine"));
    let out = command.arg("osd").args(words).arg("--dir").arg(bed.dir()).output().unwrap();
    (out.status.code(), text(&out.stdout) + &text(&out.stderr))
}

#[test]
fn osds_are_handled_one_by_one() {
    let bed = Bed::new();
    bed.ok(UP);
    let (mon, other) = (bed.pid("mon"), bed.pid("osd.0"));
    let reactors = || bed.status()["osds"][1]["reactors"].as_u64();
    for (verb, how) in [("stop", "stopped"), ("kill", "was killed")] {
        let told = osd(&bed, &[verb, "1", "--json"]);
        let json: Value = serde_json::from_str(&told.1).unwrap();
        assert_eq!((told.0, json), (Some(0), json!([{"osd": "osd.1", "result": how}])));
        assert_eq!(bed.processes().len(), 2, "{verb}: the monitor and osd.0 run on");
        assert_eq!(osd(&bed, &[verb, "1"]), (Some(0), "osd.1 was not running\n".to_owned()));
        assert_eq!(osd(&bed, &["start", "1"]), (Some(0), "osd.1 is up\n".to_owned()));
        assert_eq!(bed.status()["state"], "running");
    }
    // Another number of reactors stays over restarts, and ends with the next `up`.
    assert_eq!(osd(&bed, &["restart", "1", "--reactors", "2"]).0, Some(0));
    assert_eq!(reactors(), Some(2));
    osd(&bed, &["restart", "1"]);
    assert_eq!((reactors(), bed.pid("mon"), bed.pid("osd.0")), (Some(2), mon, other));
    // One comes back while another is dead: nobody waits for that one's PGs.
    osd(&bed, &["kill", "0"]);
    assert_eq!(osd(&bed, &["restart", "1"]), (Some(0), "osd.1 is up\n".to_owned()));
    for (words, part) in [(["start", "1"], "osd.1 runs already"), (["stop", "7"], "only 0-1")] {
        let (code, said) = osd(&bed, &words);
        assert!(code == Some(2) && said.contains(part), "{words:?}: {said}");
    }
    bed.ok(&["down"]);
    assert_eq!(osd(&bed, &["start", "0"]), (Some(0), "osd.0 is up\n".to_owned()));
    assert_eq!(bed.processes().len(), 2, "the monitor and osd.0");
    bed.ok(&["down"]);
    bed.ok(UP);
    assert_eq!(reactors(), Some(1));
}

const THREE_UP: &[&str] =
    &["up", "--osds", "3", "--size", "3", "--store", "cyan", "--pgs", "16", "--overprovisioned"];

/// A testbed of three OSDs, of which osd.1 does `how` instead of starting while a file is there, and that file.
fn up_with_a_bad_osd(how: &str) -> (Bed, std::path::PathBuf) {
    let bed = Bed::new();
    let bad = bed.root.path().join("bad");
    let script =
        format!("if [ {{osd}} = 1 ] && [ -e {} ]; then {how}; fi; exec \"$0\" \"$@\"", bad.display());
    bed.ok(&[THREE_UP, &["--osd-wrap", &format!("sh -c '{script}'")]].concat());
    bed.ok(&["down"]);
    fs::write(&bad, "").unwrap();
    (bed, bad)
}

fn states(bed: &Bed) -> (Vec<bool>, Value) {
    let status = bed.status();
    let up = status["osds"].as_array().unwrap().iter().map(|osd| osd["up"] == true).collect();
    (up, status["pgs"]["active"].clone())
}

#[test]
fn what_can_start_starts_and_the_rest_is_named() {
    let (bed, bad) = up_with_a_bad_osd("echo the drive is gone; exit 7");
    let serves = || states(&bed) == (vec![true, false, true], Value::from(16));
    let out = bed.run(&["up"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(text(&out.stdout).contains("up: 2 of 3 OSDs"), "{}", text(&out.stdout));
    for part in
        ["osd.1", "exit status: 7", "the drive is gone", "carmine osd start 1", "carmine osd remove 1"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(serves(), "{:?}", states(&bed));
    let (mon, osd_0) = (bed.pid("mon"), bed.pid("osd.0"));
    // Once more: nothing that runs is touched, and it is named again.
    bed.fails(&["up"], 3, "the drive is gone");
    let (code, told) = osd(&bed, &["start", "1", "--json"]);
    assert!(code == Some(3) && told.contains("does not run") && told.contains("the drive is gone"), "{told}");
    assert_eq!((bed.pid("mon"), bed.pid("osd.0")), (mon, osd_0));
    let shown = bed.run(&["status"]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(text(&shown.stdout).contains("osd.1 is dead"), "{}", text(&shown.stdout));
    bed.fails(&["restart"], 3, "the drive is gone");
    assert!(bed.pid("osd.0") != osd_0 && serves(), "the others were restarted: {:?}", states(&bed));
    // `osd start` names the two OSDs whose drives are there.
    bed.ok(&["down"]);
    assert_eq!(osd(&bed, &["start", "0", "2"]), (Some(0), "osd.0 is up\nosd.2 is up\n".to_owned()));
    bed.wait_for("the PGs", serves);
    // Without its drive it is removed and made anew, while the others serve.
    let osd_0 = bed.pid("osd.0");
    assert_eq!(osd(&bed, &["remove", "1"]), (Some(0), "osd.1 is removed\n".to_owned()));
    let (code, told) = osd(&bed, &["add"]);
    assert!(code == Some(1) && told.contains("the drive is gone"), "{told}");
    assert_eq!(states(&bed).0, [true, true], "what could not be added is not there");
    fs::remove_file(&bad).unwrap();
    assert_eq!(osd(&bed, &["add"]), (Some(0), "osd.1 is up\n".to_owned()));
    assert_eq!((bed.status()["state"].as_str(), bed.pid("osd.0")), (Some("running"), osd_0));
    // OSDs that run are as many as the pool needs.
    let (code, told) = osd(&bed, &["remove", "1"]);
    assert!(code == Some(2) && told.contains("osd add"), "{told}");
}

#[test]
fn an_osd_that_hangs_at_its_start_is_named_and_the_others_serve() {
    let (bed, bad) = up_with_a_bad_osd("exec sleep 600");
    let out = bed.run(&["up", "--timeout", "6"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("osd.1 was not up within 6 s"), "{said}");
    assert_eq!(bed.processes().len(), 3, "the monitor and two OSDs");
    bed.wait_for("the PGs", || states(&bed) == (vec![true, false, true], Value::from(16)));
    fs::remove_file(bad).unwrap();
    bed.ok(&["up"]);
    assert_eq!(bed.status()["state"], "running");
}

/// The monitor's program is replaced by one that listens nowhere.
#[test]
fn a_monitor_that_hangs_at_its_start_is_named() {
    let bed = Bed::new();
    let programs = bed.root.path().join("bin");
    fs::create_dir(&programs).unwrap();
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_carmine"));
    for name in ["carmine", "carmine-osd"] {
        fs::copy(own.with_file_name(name), programs.join(name)).unwrap();
    }
    let mon = programs.join("carmine-mon");
    fs::write(&mon, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&mon, fs::Permissions::from_mode(0o755)).unwrap();
    let mut up = Command::new(programs.join("carmine"));
    let out = up.args(&UP[..1]).arg("--dir").arg(bed.dir()).args(&UP[1..]).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("mon is not ready in time: still waiting for the monitor"), "{said}");
    assert!(bed.processes().is_empty(), "{:?}", bed.processes());
}
