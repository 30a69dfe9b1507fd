//! Starts that go wrong, with shell scripts in the place of the daemons: whatever happens, no process is left,
//! nothing is overwritten, and the error quotes what the daemon said.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests deal in files, threads and processes"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carmine_testbed::{BedKind, Daemon, Event, Layout, Plan, StartOptions, Testbed, Wish};
use carmine_topology::Topology;
use carmine_types::StoreKind;

struct World {
    root: tempfile::TempDir,
    cancel: AtomicBool,
    events: Vec<Event>,
}

impl World {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), cancel: AtomicBool::new(false), events: Vec::new() }
    }

    fn layout(&self) -> Layout {
        Layout::new(&self.root.path().join("bed")).unwrap()
    }

    /// Programs of both daemons that run this shell script, in which `$program` is their name.
    fn programs(&self, script: &str) -> PathBuf {
        for name in ["carmine-mon", "carmine-osd"] {
            let path = self.root.path().join(name);
            fs::write(&path, format!("#!/bin/sh\nprogram={name}\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.root.path().to_owned()
    }

    fn plan(&self, store: StoreKind) -> Plan {
        let wish = Wish {
            osds: Some(2),
            store: Some(store),
            osd_size_bytes: Some(64 << 20),
            sparse: Some(true),
            ..Wish::default()
        };
        Plan::new(&wish, &Topology::from_short("1x4x1").unwrap(), "f0f0").unwrap()
    }

    /// Makes and starts a testbed whose program is `script`; returns how it ended.
    fn up(&mut self, store: StoreKind, script: &str) -> Result<(), String> {
        let (layout, plan, programs) = (self.layout(), self.plan(store), self.programs(script));
        let events = &mut self.events;
        let mut start = StartOptions {
            programs,
            cancel: &self.cancel,
            events: &mut |event| events.push(event),
            limit: Duration::from_secs(2),
        };
        let mut bed = Testbed::create(&layout, plan, false, &mut start).map_err(|e| e.to_string())?;
        bed.start(&mut start).map(drop).map_err(|e| e.to_string())
    }

    /// No process has this world's folder on its command line.
    fn is_quiet(&self) -> bool {
        let dir = self.layout().dir().display().to_string();
        let named = |entry: fs::DirEntry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).split('\0').any(|arg| arg == dir)
        };
        !fs::read_dir("/proc").unwrap().flatten().any(named)
    }
}

#[test]
fn a_monitor_that_ends_is_quoted() {
    let mut world = World::new();
    let error = world.up(StoreKind::Cyan, "echo cannot listen: port 99 is in use >&2; exit 1").unwrap_err();
    assert!(
        error.contains("mon has ended (exit status: 1)")
            || error.contains("mon ended at once (exit status: 1)"),
        "{error}"
    );
    assert!(error.contains("port 99 is in use") && error.contains("mon.log"), "{error}");
    assert!(world.is_quiet());
    let layout = world.layout();
    assert!(layout.plan().exists(), "the folder stays for a look, and for the next try");
    assert!(!layout.pid_file(Daemon::MON).exists());
}

#[test]
fn an_osd_that_ends_takes_the_rest_along() {
    let mut world = World::new();
    let script = r#"
        if [ "$program" = carmine-mon ]; then echo 127.0.0.1:1 > "$2/run/mon.addr"; exec sleep 60; fi
        echo "osd $5: the device is dead" >&2; exit 1"#;
    let error = world.up(StoreKind::Cyan, script).unwrap_err();
    // Nothing answers at port 1, so either of the two is noticed first.
    assert!(error.contains("the device is dead") || error.contains("monitor"), "{error}");
    assert!(world.is_quiet());
    assert!(!world.layout().mon_addr().exists());
}

#[test]
fn ctrl_c_leaves_nothing_running() {
    let mut world = World::new();
    world.cancel.store(true, Ordering::Relaxed);
    let error = world.up(StoreKind::Cyan, "exec sleep 60").unwrap_err();
    assert_eq!(error, "interrupted");
    assert!(world.is_quiet());
}

#[test]
fn a_daemon_that_ignores_sigterm_is_killed() {
    let mut world = World::new();
    world.cancel.store(true, Ordering::Relaxed);
    let error = world.up(StoreKind::Cyan, "trap '' TERM; while :; do sleep 0.05; done").unwrap_err();
    assert_eq!(error, "interrupted");
    assert!(world.is_quiet());
}

#[test]
fn a_failed_mkfs_leaves_no_folder() {
    let mut world = World::new();
    let error = world.up(StoreKind::Blue, "echo error: no space left on device >&2; exit 1").unwrap_err();
    assert_eq!(error, "cannot make the store of osd.0: no space left on device");
    assert!(!world.layout().dir().exists());
}

#[test]
fn mkfs_tells_its_progress() {
    let mut world = World::new();
    let script = "[ $program = carmine-osd ] && [ $5 = --mkfs ] && echo progress 5 10 && exit 0; exit 1";
    let _ = world.up(StoreKind::Blue, script);
    let steps = world
        .events
        .iter()
        .filter(|e| matches!(e, Event::Progress { done: 5, total: 10, is_bytes: true, .. }));
    assert_eq!(steps.count(), 2);
}

#[test]
fn one_folder_one_testbed() {
    let world = World::new();
    let (layout, plan, programs) = (world.layout(), world.plan(StoreKind::Cyan), world.programs("exit 1"));
    let mut events = |_| ();
    let mut start =
        StartOptions { programs, cancel: &world.cancel, events: &mut events, limit: Duration::from_secs(1) };
    let bed = Testbed::create(&layout, plan.clone(), false, &mut start).unwrap();
    let busy = Testbed::open(BedKind::Testbed, layout.clone()).unwrap_err().to_string();
    assert!(busy.contains("another carmine command"), "{busy}");
    drop(bed);
    let again = Testbed::create(&layout, plan, false, &mut start).unwrap_err();
    assert!(again.is_usage(), "{again}");
    let bed = Testbed::open(BedKind::Testbed, layout.clone()).unwrap().unwrap();
    assert_eq!(bed.parts().unwrap().0, []);
    fs::write(layout.dir().join("mine"), "x").unwrap();
    bed.folder.destroy().unwrap();
    assert!(Testbed::open(BedKind::Testbed, layout.clone()).unwrap().is_none());
    let left: Vec<_> = fs::read_dir(layout.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["mine"], "what the testbed did not make stays");
}

#[test]
fn a_stranger_with_the_pid_of_a_daemon_lives() {
    let world = World::new();
    let (layout, plan, programs) = (world.layout(), world.plan(StoreKind::Cyan), world.programs("exit 1"));
    let mut events = |_| ();
    let mut start =
        StartOptions { programs, cancel: &world.cancel, events: &mut events, limit: Duration::from_secs(1) };
    let bed = Testbed::create(&layout, plan, false, &mut start).unwrap();
    let mut stranger = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    let record = format!(r#"{{"pid":{},"start_ticks":1,"boot_id":"of before"}}"#, stranger.id());
    fs::write(layout.pid_file(Daemon::MON), record).unwrap();
    bed.folder.stop().unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "it was not ours");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_plan_of_another_format_is_refused() {
    let world = World::new();
    let layout = world.layout();
    fs::create_dir_all(layout.dir()).unwrap();
    fs::write(layout.plan(), r#"{"format":99}"#).unwrap();
    let error = Testbed::open(BedKind::Testbed, layout.clone()).unwrap_err().to_string();
    assert!(error.contains("format 99"), "{error}");
    fs::write(layout.plan(), "{").unwrap();
    let error = Testbed::open(BedKind::Testbed, layout).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

#[test]
fn a_missing_daemon_is_named_with_how_to_build_it() {
    let world = World::new();
    let mut events = |_| ();
    let mut start = StartOptions {
        programs: world.root.path().to_owned(),
        cancel: &world.cancel,
        events: &mut events,
        limit: Duration::from_secs(1),
    };
    let mut bed = Testbed::create(&world.layout(), world.plan(StoreKind::Cyan), false, &mut start).unwrap();
    let error = bed.start(&mut start).unwrap_err().to_string();
    assert!(error.contains("carmine-mon is missing") && error.contains("quickstart --build"), "{error}");
    assert!(world.is_quiet());
}
