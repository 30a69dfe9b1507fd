//! The loop over points with commands that are only pretended: failures, resuming, stopping, curves.
#![allow(clippy::disallowed_methods)] // archives are read

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_study::archive::{Point, PointEnd, RUN_FORMAT, Run, RunFile, write_whole};
use carmine_study::commands::{BoundedCommand, What};
use carmine_study::expand::{Machine, expand};
use carmine_study::plan::Plan;
use carmine_study::run::{End, Ending, Event, Executor, Job, Options, Sweep};
use common::described;
use serde_json::json;

/// Pretends that commands run: remembers them, and writes the results that `carmine bench` would. A closed loop gives 1000 IOPS,
/// an open one its rate.
#[derive(Default)]
struct Fake {
    argv: Vec<Vec<String>>,
    clock_s: f64,
    /// Loads whose command line has this word fail.
    fail_load: Option<String>,
    fail_start: Option<String>,
    fail_prepare: bool,
    /// The user stops at this load, from 0.
    stop_at_load: Option<usize>,
    loads: usize,
    /// From this load on it is slower by a fifth.
    slower_from: Option<usize>,
    stddev: f64,
    /// Each load seems to reach the limit of its drive; more depth does more all the same.
    on_drive: bool,
    /// Other work spoils these loads, counted from 1.
    noisy: Vec<usize>,
    /// Folders whose OSDs run.
    up: BTreeSet<String>,
}

fn option<'a>(argv: &'a [String], name: &str) -> Option<&'a str> {
    let at = argv.iter().position(|word| word == name)?;
    argv.get(at + 1).map(String::as_str)
}

impl Fake {
    fn load(&mut self, argv: &[String]) -> End {
        assert!(self.up.contains(option(argv, "--dir").unwrap()), "the OSDs must run: {argv:?}");
        self.loads += 1;
        if self.stop_at_load == Some(self.loads - 1) {
            return End::Cancelled;
        }
        if self.fail_load.as_ref().is_some_and(|word| argv.contains(word)) {
            return End::Failed("it hangs".into());
        }
        let pace = if self.slower_from.is_some_and(|load| self.loads > load) { 0.8 } else { 1.0 };
        let iops = option(argv, "--rate").map_or(pace * 1000.0, |rate| rate.parse().unwrap());
        let depth = option(argv, "--iodepth").and_then(|depth| depth.parse::<f64>().ok()).unwrap_or(1.0);
        let iops = if self.on_drive { iops * depth } else { iops };
        let latency = json!({"mean": 100.0, "stddev": self.stddev, "percentile": {"99.000000": iops * 1e6}});
        let mut result =
            json!({"jobs": [{"read": {"iops": iops, "bw_bytes": iops * 4096.0, "clat_ns": latency}}]});
        if self.on_drive {
            result["carmine"] = json!({"verdict": "DEVICE", "verdict_reason": "it was reached", "iops": iops, "osd_iops": iops,
                "iops_per_drive": iops});
        }
        if self.noisy.contains(&self.loads) {
            result["carmine"]["marks"] = json!(["NOISY: other work"]);
        }
        write_whole(Path::new(option(argv, "--json").unwrap()), result.to_string().as_bytes()).unwrap();
        End::Ok
    }

    fn start(&mut self, step: &BoundedCommand) -> End {
        let dir = option(&step.argv, "--dir").unwrap().to_owned();
        assert!(!self.up.contains(&dir), "started twice: {:?}", step.argv);
        if step.what == What::Prepare && self.fail_prepare {
            return End::Failed("no space".into());
        }
        if step.what == What::Start && self.fail_start.as_ref().is_some_and(|word| step.argv.contains(word)) {
            return End::Failed("osd.0 has ended".into());
        }
        std::fs::create_dir_all(&dir).unwrap();
        self.up.insert(dir);
        End::Ok
    }

    fn count(&self, command: &str) -> usize {
        self.argv.iter().filter(|argv| argv[1] == command).count()
    }
}

impl Executor for Fake {
    fn run(&mut self, step: &BoundedCommand, log: &Path) -> End {
        self.argv.push(step.argv.clone());
        self.clock_s += 1.0;
        let _ = write_whole(log, b"said something\n");
        let dir = option(&step.argv, "--dir").unwrap().to_owned();
        match step.argv[1].as_str() {
            "up" => self.start(step),
            "bench" if step.what == What::Load => self.load(&step.argv),
            "down" => {
                self.up.remove(&dir);
                End::Ok
            }
            "destroy" => {
                self.up.remove(&dir);
                let _ = std::fs::remove_dir_all(&dir);
                End::Ok
            }
            "baseline" => {
                write_whole(Path::new(option(&step.argv, "--json").unwrap()), b"{}").unwrap();
                End::Ok
            }
            _ => End::Ok,
        }
    }

    fn unix_s(&self) -> f64 {
        self.clock_s
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.clock_s += time.as_secs_f64();
        true
    }
}

struct Bed {
    dir: tempfile::TempDir,
    plan: Plan,
    devices: Vec<String>,
    ignore_drift: bool,
}

impl Bed {
    fn new(text: &str) -> Bed {
        Bed {
            dir: tempfile::tempdir().unwrap(),
            plan: Plan::parse("p", &format!("name = \"p\"\n{text}")).unwrap(),
            devices: Vec::new(),
            ignore_drift: false,
        }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn go(&self, fake: &mut Fake) -> (Ending, Vec<Event>) {
        let machine = Machine { devices: self.devices.clone(), ..described("1x16x1") };
        let expansion = expand(&self.plan, &machine).unwrap();
        let job = Job {
            plan: &self.plan,
            machine: &machine,
            options: Options {
                layouts: self.out().join("layouts"),
                keep_layouts: false,
                force_wipe: false,
                precondition: false,
                ignore_drift: self.ignore_drift,
                load_hosts: Vec::new(),
            },
            run: Run::create(
                self.out(),
                RunFile { format: RUN_FORMAT, name: "p".into(), ..RunFile::default() },
            )
            .unwrap(),
            points: expansion.points,
        };
        let mut events = Vec::new();
        let mut tell = |event| events.push(event);
        let ending = Sweep::new(job, fake, &mut tell).unwrap().run().unwrap();
        assert!(fake.up.is_empty(), "left running: {:?}", fake.up);
        (ending, events)
    }

    fn run(&self) -> Run {
        Run::open(self.out()).unwrap()
    }

    fn states(&self) -> Vec<Option<PointEnd>> {
        let run = self.run();
        run.points.iter().map(|point| run.state(point).unwrap().map(|s| s.state)).collect()
    }

    fn rates(&self) -> Vec<Option<f64>> {
        self.run().points.iter().map(|point: &Point| point.config.float("rate_iops")).collect()
    }
}

#[test]
fn all_points_run_and_each_restarts_the_osds_of_a_layout_that_is_made_once() {
    let bed = Bed::new("repeats = 2\n[axes]\nreactors = [1, 2]\n");
    let mut fake = Fake::default();
    assert_eq!(bed.go(&mut fake).0, Ending::Complete);
    assert_eq!(bed.states(), [Some(PointEnd::Done); 5]);
    let run = bed.run();
    assert!(run.file.complete && run.file.finished_unix_s.is_some());
    assert_eq!(run.file.drift, Some(0.0));
    assert_eq!((fake.count("up"), fake.count("destroy")), (1 + 5, 1), "made once, started for every point");
    assert_eq!(run.state(&run.points[4]).unwrap().unwrap().condition["loads"], 4);
    let script = std::fs::read_to_string(bed.out().join("commands.sh")).unwrap();
    assert!(
        script.contains("carmine up --dir")
            && script.contains(".fio0.json --name=")
            && script.contains("# by hand: rados -c")
    );
    assert!(!bed.out().join("layouts").exists());
}

#[test]
fn a_drive_that_does_more_at_another_point_is_no_limit() {
    let bed = Bed::new("[axes]\niodepth = [1, 2]\nreactors = [1, 2]\n");
    let (_, events) = bed.go(&mut Fake { on_drive: true, ..Fake::default() });
    let run = bed.run();
    for point in &run.points {
        let carmine = run.result(point).unwrap().unwrap().carmine;
        let is_best = point.config.number("iodepth") == Some(2);
        let want = if is_best { "DEVICE" } else { "UNKNOWN" };
        assert_eq!(carmine.verdict.as_deref(), Some(want), "{}", point.stem);
        assert_eq!(carmine.verdict_reason.contains("did 100 % more at blue_"), !is_best, "{carmine:?}");
    }
    assert!(events.iter().any(|e| matches!(e, Event::Note(text) if text.contains("not DEVICE"))));
}

#[test]
fn a_curve_runs_in_one_start() {
    let bed = Bed::new("curve = \"iodepth\"\n[axes]\nreactors = [1, 2]\niodepth = [1, 2, 4]\n");
    let mut fake = Fake::default();
    bed.go(&mut fake);
    assert_eq!((fake.count("up"), fake.loads), (1 + 2 + 1, 7));
}

#[test]
fn points_that_fail_are_recorded_and_the_others_run() {
    let bed = Bed::new("[axes]\nworkload = [\"randread4k\", \"randwrite4k\", \"seqread64k\"]\n");
    let mut fake = Fake { fail_load: Some("randwrite".into()), ..Fake::default() };
    let (ending, events) = bed.go(&mut fake);
    assert_eq!(ending, Ending::Complete);
    let run = bed.run();
    let failed = run.points.iter().find(|p| p.config.text("workload") == Some("randwrite4k")).unwrap();
    let state = run.state(failed).unwrap().unwrap();
    assert_eq!((state.state, state.error.as_deref()), (PointEnd::Failed, Some("load: it hangs")));
    assert_eq!(run.log(failed), "said something\n");
    let done: Vec<&Point> = run.points.iter().filter(|p| run.is_done(p)).collect();
    assert!(done.iter().all(|p| run.log(p).is_empty()) && done.len() >= 2);
    assert!(events.iter().any(|e| matches!(e, Event::Ended { state: PointEnd::Failed, .. })));
}

#[test]
fn a_start_that_fails_does_not_spoil_its_layout() {
    let bed = Bed::new("[axes]\nosd_wrap = [\"none\", \"false\"]\n");
    let mut fake = Fake { fail_start: Some("false".into()), ..Fake::default() };
    bed.go(&mut fake);
    let run = bed.run();
    for point in &run.points {
        assert_eq!(run.is_done(point), point.config.text("osd_wrap") == Some("none"), "{}", point.stem);
    }
    assert_eq!(
        fake.argv.iter().filter(|argv| argv.contains(&"always".to_owned())).count(),
        1,
        "prefilled once"
    );
}

#[test]
fn a_layout_that_can_not_be_made_is_tried_once() {
    let bed = Bed::new("repeats = 3\n[axes]\nreactors = [1, 2]\n");
    let mut fake = Fake { fail_prepare: true, ..Fake::default() };
    bed.go(&mut fake);
    assert!(bed.states().iter().all(|state| *state == Some(PointEnd::Failed)));
    assert_eq!(fake.count("up"), 1);
}

#[test]
fn a_sweep_that_was_stopped_goes_on_where_it_was() {
    let bed = Bed::new("[axes]\nreactors = [1, 2, 3]\n");
    let mut first = Fake { stop_at_load: Some(1), ..Fake::default() };
    assert_eq!(bed.go(&mut first).0, Ending::Stopped);
    assert_eq!(bed.states(), [Some(PointEnd::Done), None, None, None]);
    assert!(!bed.run().file.complete);
    let mut second = Fake::default();
    assert_eq!(bed.go(&mut second).0, Ending::Complete);
    assert_eq!(bed.states(), [Some(PointEnd::Done); 4]);
    assert_eq!(second.loads, 3);
    assert_eq!(second.count("up"), 3, "the layout is not made again");
    assert_eq!(second.argv[0][1], "down", "what a killed sweep may have left is stopped first");
}

#[test]
fn named_devices_hold_one_layout_and_the_next_may_overwrite_it() {
    let mut bed = Bed::new("order = \"fixed\"\n[axes]\nosds = [1, 2]\npool_size = 1\n");
    bed.devices = vec!["/dev/a".into(), "/dev/b".into()];
    let made = |fake: &Fake| -> Vec<(String, bool)> {
        let ups = fake.argv.iter().filter(|argv| argv[1] == "up" && argv.contains(&"--devs".to_owned()));
        ups.map(|argv| {
            (option(argv, "--devs").unwrap().to_owned(), argv.contains(&"--force-wipe".to_owned()))
        })
        .collect()
    };
    let mut first = Fake { stop_at_load: Some(0), ..Fake::default() };
    assert_eq!(bed.go(&mut first).0, Ending::Stopped);
    // The data that was on the devices before was not this run's.
    assert_eq!(made(&first), [("/dev/a".into(), false), ("/dev/a".into(), false)]);
    let mut second = Fake::default();
    assert_eq!(bed.go(&mut second).0, Ending::Complete);
    let two = "/dev/a,/dev/b";
    let wanted = [("/dev/a", false), (two, true), (two, false), ("/dev/a", true), ("/dev/a", false)];
    assert_eq!(made(&second), wanted.map(|(devices, wiped)| (devices.to_owned(), wiped)));
    assert_eq!(second.count("destroy"), 3, "each layout makes room for the next");
    assert!(!bed.out().join("layouts").exists());
}

#[test]
fn a_point_that_ends_the_sweep_itself_is_given_up() {
    let bed = Bed::new("[axes]\nreactors = [1]\n");
    let layouts = bed.out().join("layouts");
    std::fs::create_dir_all(&layouts).unwrap();
    let stem = "blue_1osd_1reactor_default_size1_randread4k_qd1_r0";
    write_whole(&layouts.join("attempts.json"), json!({ stem: 3 }).to_string().as_bytes()).unwrap();
    bed.go(&mut Fake::default());
    let run = bed.run();
    let state = run.state(&run.points[0]).unwrap().unwrap();
    assert_eq!(state.state, PointEnd::Failed);
    assert!(state.error.unwrap().contains("3 times"));
    assert!(run.is_done(&run.points[1]));
}

#[test]
fn open_loop_rates_are_percentages_of_the_measured_capacity() {
    let bed = Bed::new("curve = \"rate_percent\"\n[axes]\nrate_percent = [0, 10, 110]\n");
    bed.go(&mut Fake::default());
    assert_eq!(bed.rates(), [None, Some(100.0), Some(1100.0), None]);
}

#[test]
fn without_the_capacity_its_rates_fail() {
    let bed = Bed::new("curve = \"rate_percent\"\n[axes]\nrate_percent = [0, 10]\n");
    bed.go(&mut Fake { fail_load: Some("randread".into()), ..Fake::default() });
    let run = bed.run();
    assert!(run.state(&run.points[1]).unwrap().unwrap().error.unwrap().contains("capacity"));
}

#[test]
fn the_search_closes_in_on_the_target_and_repeats_what_misses_it() {
    let bed = Bed::new(
        "curve = \"search_step\"\nsearch_p99 = \"300ms\"\n[axes]\nsearch_step = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n",
    );
    // The fake's p99 in milliseconds is the rate: 300 operations per second are just good.
    bed.go(&mut Fake::default());
    // Four steps are kept to measure both ends three times.
    let rates = [500.0, 500.0, 250.0, 375.0, 375.0, 312.5, 312.5, 250.0, 250.0, 312.5];
    let rates: Vec<Option<f64>> = rates.into_iter().map(Some).collect();
    assert_eq!(bed.rates(), [vec![None], rates, vec![None]].concat());
}

#[test]
fn early_exit_leaves_the_rest_of_a_curve_out() {
    let text = "curve = \"iodepth\"\nearly_exit = true\n[axes]\niodepth = [1, 2, 4]\n";
    let bed = Bed::new(text);
    bed.go(&mut Fake { stddev: 60.0, ..Fake::default() });
    assert_eq!(bed.states()[..3], [Some(PointEnd::Done), Some(PointEnd::Skipped), Some(PointEnd::Skipped)]);
    let bed = Bed::new(&text.replace("early_exit = true\n", ""));
    bed.go(&mut Fake { stddev: 60.0, ..Fake::default() });
    assert_eq!(bed.states(), [Some(PointEnd::Done); 4]);
}

#[test]
fn one_baseline_serves_equal_loads_of_the_same_minutes() {
    let bed =
        Bed::new("repeats = 2\n[axes]\nreactors = [1, 2]\nworkload = [\"randread4k\", \"randwrite4k\"]\n");
    let mut fake = Fake::default();
    bed.go(&mut fake);
    assert_eq!(fake.count("baseline"), 2);
    let run = bed.run();
    assert!(run.points.iter().all(|point| run.baseline_file(point).is_file()));
}

/// Stems of the points that were added to the plan's, and what the user was told of them.
fn added(bed: &Bed, fake: &mut Fake) -> (Vec<String>, Vec<String>) {
    let planned = expand(&bed.plan, &described("1x16x1")).unwrap().points.len();
    let (ending, events) = bed.go(fake);
    assert_eq!(ending, Ending::Complete);
    let notes = events.into_iter().filter_map(|event| match event {
        Event::Note(text) if text.starts_with("other work") => Some(text),
        _ => None,
    });
    (bed.run().points[planned..].iter().map(|point| point.stem.clone()).collect(), notes.collect())
}

const THRICE: &str = "repeats = 3\norder = \"fixed\"\n[axes]\nreactors = [1, 2]\n";

#[test]
fn what_other_work_spoilt_is_measured_again_until_it_has_an_answer() {
    let bed = Bed::new(THRICE);
    // The second load of the first round, and its first spare repeat.
    let mut fake = Fake { noisy: vec![2, 8], ..Fake::default() };
    let (stems, notes) = added(&bed, &mut fake);
    let two = "blue_1osd_2reactor_default_size1_randread4k_qd1";
    assert_eq!(stems, [format!("{two}_r3"), format!("{two}_r4")]);
    assert!(notes[0].contains("of 1 setting,") && notes[0].contains("repeat 4 of at most 5"), "{notes:?}");
    assert!(bed.states().iter().all(|state| *state == Some(PointEnd::Done)));
    let dat = std::fs::read_to_string(bed.out().join("points.dat")).unwrap();
    assert!(dat.contains(&format!("{two}_r4 ")), "{dat}");
    // A sweep that goes on with this run finds it done.
    let mut second = Fake::default();
    assert_eq!((added(&bed, &mut second).0, second.loads), (stems, 0));
}

#[test]
fn repeats_beyond_the_plans_are_few_and_only_where_they_can_help() {
    let bed = Bed::new(THRICE);
    let (stems, _) = added(&bed, &mut Fake { noisy: (1..100).collect(), ..Fake::default() });
    assert_eq!(stems, [""; 0], "two more would not be three clean ones");
    let (stems, _) = added(&bed, &mut Fake::default());
    assert_eq!(stems, [""; 0], "its results stay those of the first sweep");
    let always = Fake { noisy: vec![2, 8, 9], ..Fake::default() };
    assert_eq!(added(&Bed::new(THRICE), &mut { always }).0.len(), 2, "then it has no answer");
    let none = Bed::new(&format!("spare_repeats = 0\n{THRICE}"));
    assert_eq!(added(&none, &mut Fake { noisy: vec![2], ..Fake::default() }).0, [""; 0]);
}

#[test]
fn arms_of_a_comparison_are_measured_side_by_side_again() {
    let bed = Bed::new(&format!("compare = \"reactors\"\n{THRICE}"));
    added(&bed, &mut Fake { noisy: vec![2], ..Fake::default() });
    let run = bed.run();
    let last: Vec<_> = run.points[7..].iter().map(|p| (p.repeat, p.pair, p.arm.clone().unwrap())).collect();
    assert_eq!(last, [(3, Some(3), "reactors=1".to_owned()), (3, Some(3), "reactors=2".to_owned())]);
}

/// Points of ten minutes: the first one is run again after every third.
const LONG: &str = "repeats = 3\nruntime = \"600s\"\n[axes]\nreactors = [1, 2, 3, 4]\n";

#[test]
fn a_machine_that_drifts_stops_the_sweep_while_there_is_something_to_save() {
    let mut bed = Bed::new(LONG);
    let mut fake = Fake { slower_from: Some(2), ..Fake::default() };
    let (ending, _) = bed.go(&mut fake);
    let Ending::Drifted(change) = ending else { panic!("{ending:?}") };
    assert!((change + 0.2).abs() < 1e-9, "{change}");
    let run = bed.run();
    assert!(!run.file.complete && (run.file.drift.unwrap() + 0.2).abs() < 1e-9);
    let left = bed.states().iter().filter(|state| state.is_none()).count();
    assert!(left > 4 && fake.loads == run.points.len() - left, "{left} of {} are left", run.points.len());
    // It goes on when it is told to.
    bed.ignore_drift = true;
    assert_eq!(bed.go(&mut Fake { slower_from: Some(0), ..Fake::default() }).0, Ending::Complete);
    assert!(bed.states().iter().all(|state| *state == Some(PointEnd::Done)));
}

#[test]
fn a_steady_machine_and_a_tolerant_plan_are_not_stopped() {
    assert_eq!(Bed::new(LONG).go(&mut Fake::default()).0, Ending::Complete);
    let tolerant = Bed::new(&format!("tolerance = 0.3\n{LONG}"));
    assert_eq!(tolerant.go(&mut Fake { slower_from: Some(2), ..Fake::default() }).0, Ending::Complete);
    // Short windows say nothing about a drift.
    let short = Bed::new(&format!("pause = \"15m\"\n{}", LONG.replace("600s", "5s")));
    assert_eq!(short.go(&mut Fake { slower_from: Some(2), ..Fake::default() }).0, Ending::Complete);
}
