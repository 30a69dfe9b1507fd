//! Arms as they come from runs and files, compared.

use std::path::{Path, PathBuf};

use carmine_stats::{Outcome, Verdict};
use serde_json::{Value, json};

use super::*;
use crate::archive::{
    Build, Chart, Comparison, Config, Direction, Job, LatencyNs, Point, PointEnd, PointState, RUN_FORMAT,
    Run, RunFile, write_whole,
};

const PAIRS: u32 = 8;

/// A result with this many IOPS, whose other figures follow from it.
fn result(iops: f64) -> Value {
    let p99 = (1e9 / iops) as u64;
    json!({
        "jobs": [{"read": {"iops": iops, "bw_bytes": 4096.0 * iops}, "write": {"iops": 0.0}}],
        "carmine": {
            "iops": iops,
            "osd_cpu_us_per_op": 2e5 / iops,
            "flush_mode": "fdatasync",
            "plan": {"store": "blue", "reactors": 1},
            "grid": {"osds": [{"osd": 0, "reactors": [{"cpu": 1}]}]},
            "latency_histogram": {"read": {"count": 100, "sum": 100 * p99, "squares": 0.0, "min": p99, "max": p99,
                                           "buckets": [[p99, 100]]}},
        },
    })
}

/// Runs of 1 and 2 reactors, each `PAIRS` times, `factor` times as fast, with noise of 1 %.
fn arm(name: &str, factor: f64, set: impl Fn(&mut Config, &mut Value)) -> Arm {
    let mut arm = Arm { name: name.to_owned(), ..Arm::default() };
    for (reactors, turn) in [1u32, 2].into_iter().flat_map(|r| (0..PAIRS).map(move |turn| (r, turn))) {
        let wobble = 1.0 + 0.01 * f64::sin(f64::from(turn) * 2.0 + factor * 10.0);
        let mut config = Config::default();
        config.set("reactors", reactors);
        let mut value = result(1e5 * f64::from(reactors) * factor * wobble);
        set(&mut config, &mut value);
        let result = serde_json::from_value(value).unwrap();
        arm.points.push(Measured {
            name: format!("r{reactors}_{turn}"),
            path: PathBuf::new(),
            config,
            turn,
            result,
        });
    }
    arm
}

fn plain(name: &str, factor: f64) -> Arm {
    arm(name, factor, |_, _| ())
}

#[test]
fn a_slowdown_is_rejected_in_every_figure_and_a_speedup_is_not() {
    let judged = compare(&plain("base", 1.0), &plain("new", 0.9), 0.05).unwrap();
    assert!(
        judged.verdict == Verdict::Rejected && judged.differences.is_empty() && judged.warnings.is_empty(),
        "{judged:?}"
    );
    // Two configurations, three figures: nobody measured the machine's CPU.
    assert_eq!(judged.rows.len(), 6);
    for row in &judged.rows {
        let want = (&Outcome::Different { within: false }, Verdict::Rejected);
        assert_eq!((&row.outcome, row.verdict), want, "{row:?}");
        assert_eq!(row.pairs, PAIRS as usize);
        let ratio = row.comparison.unwrap().ratio;
        let want = if row.more_is_better { 0.9 } else { 1.0 / 0.9 };
        assert!((ratio / want - 1.0).abs() < 0.02, "{row:?}");
    }
    assert_eq!(
        (judged.rows[0].config.as_str(), judged.rows[3].config.as_str()),
        ("reactors 1", "reactors 2")
    );
    let faster = compare(&plain("base", 0.9), &plain("new", 1.0), 0.05).unwrap();
    assert_eq!((faster.verdict, faster.pairs_to_decide), (Verdict::Accepted, None));
}

#[test]
fn a_difference_that_is_surely_within_the_tolerance_is_accepted() {
    let judged = compare(&plain("base", 1.0), &plain("new", 0.97), 0.10).unwrap();
    assert_eq!(judged.verdict, Verdict::Accepted);
    assert!(judged.rows.iter().all(|r| r.outcome == Outcome::Different { within: true }));
    let same = compare(&plain("base", 1.0), &plain("new", 1.0), 0.05).unwrap();
    assert!(same.rows.iter().all(|r| r.outcome == Outcome::Equal { tolerance: 0.05 }), "{same:?}");
}

/// Changes the IOPS of the points with this many reactors.
fn times(arm: &mut Arm, reactors: u64, factor: impl Fn(u32) -> f64) {
    for point in arm.points.iter_mut().filter(|p| p.config.number("reactors") == Some(reactors)) {
        let iops = point.result.iops() * factor(point.turn);
        point.result = serde_json::from_value(result(iops)).unwrap();
    }
}

#[test]
fn without_evidence_nothing_is_accepted() {
    let mut new = plain("new", 1.0);
    times(&mut new, 2, |turn| if turn.is_multiple_of(2) { 1.3 } else { 0.7 });
    let judged = compare(&plain("base", 1.0), &new, 0.05).unwrap();
    assert_eq!(judged.verdict, Verdict::Undecided, "{judged:?}");
    let (quiet, noisy): (Vec<&Row>, Vec<&Row>) = judged.rows.iter().partition(|r| r.config == "reactors 1");
    assert!(quiet.iter().all(|r| (r.verdict, r.pairs_to_decide) == (Verdict::Accepted, None)), "{quiet:?}");
    for row in &noisy {
        let detectable = row.comparison.unwrap().detectable;
        let want = (f64::from(PAIRS) * (detectable / 0.05).powi(2)).ceil() as usize;
        assert_eq!((row.verdict, row.pairs_to_decide), (Verdict::Undecided, Some(want)), "{row:?}");
    }
    assert_eq!(judged.pairs_to_decide, noisy.iter().filter_map(|r| r.pairs_to_decide).max());
    // A regression beside it still counts.
    times(&mut new, 1, |_| 0.8);
    assert_eq!(compare(&plain("base", 1.0), &new, 0.05).unwrap().verdict, Verdict::Rejected);
}

#[test]
fn settings_that_differ_are_listed_and_more_than_one_is_confounded() {
    let base = arm("base", 1.0, |config, _| config.set("store", "blue"));
    let mut new = arm("new", 1.0, |config, _| config.set("store", "cyan"));
    let one = compare(&base, &new, 0.05).unwrap();
    assert_eq!(
        one.differences,
        [Difference { setting: "store".into(), base: "blue".into(), new: "cyan".into() }]
    );
    assert!(one.warnings.is_empty(), "{:?}", one.warnings);
    new.facts.insert("kernel".into(), "7.0".into());
    let two = compare(&base, &new, 0.05).unwrap();
    assert_eq!(two.differences[1].new, "7.0");
    let mark = "CONFOUNDED: the arms differ in more than store, and a difference may come from any of these: kernel not recorded / 7.0";
    assert_eq!(two.warnings, [mark]);
    // A new build is one difference, though it has another version and another hash.
    let build = |n: &str| {
        let mut arm = plain(n, 1.0);
        let facts = [("git hash", n), ("carmine version", n)];
        arm.facts.extend(facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
        arm
    };
    assert!(compare(&build("1"), &build("2"), 0.05).unwrap().warnings.is_empty());
}

#[test]
fn clients_on_other_cpus_confound() {
    let with = |poll: &str, clients: usize| {
        let request = carmine_topology::PlanRequest { reactors: 2, ..Default::default() };
        let machine = carmine_topology::Topology::from_short("2x4x1").unwrap();
        let mut grid = carmine_topology::Grid::plan(&machine, &request).unwrap();
        grid.clients = machine.cpus()[8 - clients..]
            .iter()
            .map(|cpu| carmine_topology::ClientSlot { place: cpu.clone(), shared: false, smt_busy: false })
            .collect();
        let mut arm = arm(poll, 1.0, |config, value| {
            config.set("poll", poll);
            value["carmine"]["grid"] = serde_json::to_value(&grid).unwrap();
        });
        arm.compared = vec!["poll".into()];
        arm
    };
    let judged = compare(&with("poll", 2), &with("sleep", 5), 0.05).unwrap();
    assert!(
        judged.warnings[0].ends_with("client CPUs 6-7 (socket 1) / 3-7 (socket 0-1)"),
        "{:?}",
        judged.warnings
    );
    assert!(compare(&with("poll", 2), &with("sleep", 2), 0.05).unwrap().warnings.is_empty());
}

#[test]
fn arms_that_promise_something_else_are_refused() {
    let new = arm("new", 1.0, |_, value| value["carmine"]["flush_mode"] = json!("none"));
    let said = compare(&plain("base", 1.0), &new, 0.05).unwrap_err().to_string();
    assert!(said.contains("base and new have different flush modes (fdatasync and none)"), "{said}");
}

#[test]
fn strategies_that_come_to_the_same_are_refused() {
    let with = |name: &str| {
        let strategy = name.to_owned();
        arm(name, 1.0, move |config, _| config.set("balance", strategy.clone()))
    };
    let said = compare(&with("osd"), &with("socket"), 0.05).unwrap_err().to_string();
    assert!(said.contains("are identical"), "{said}");
    let moved = arm("socket", 1.0, |config, value| {
        config.set("balance", "socket");
        value["carmine"]["grid"]["osds"][0]["reactors"][0]["cpu"] = json!(0);
    });
    assert!(compare(&with("osd"), &moved, 0.05).is_ok());
}

#[test]
fn configurations_of_one_side_only_and_few_pairs_are_refused() {
    let mut new = plain("new", 1.0);
    new.points.retain(|p| p.config.number("reactors") == Some(1));
    let said = compare(&plain("base", 1.0), &new, 0.05).unwrap_err().to_string();
    assert!(said.contains("new has no counterpart of `reactors 2` (1 configurations)"), "{said}");
    let few = |name| {
        let mut arm = plain(name, 1.0);
        arm.points.retain(|p| p.turn < 4);
        arm
    };
    let said = compare(&few("base"), &few("new"), 0.05).unwrap_err().to_string();
    assert!(said.contains("at most 4 pairs are too few"), "{said}");
}

fn run_file(arms: &[&str], complete: bool) -> RunFile {
    RunFile {
        format: RUN_FORMAT,
        name: "ab".into(),
        carmine: Build { git_hash: "abc".into(), ..Build::default() },
        kernel: "6".into(),
        complete,
        comparison: Some(Comparison {
            axis: "poll".into(),
            arms: arms.iter().map(|a| (*a).to_owned()).collect(),
        }),
        chart: Chart::Compare,
        ..RunFile::default()
    }
}

/// A run with the arms `poll` and `sleep`, 6 pairs; the point with the index `failed` failed.
fn write_run(dir: &Path, complete: bool, failed: usize) -> Run {
    let writer = Run::create(dir, run_file(&["poll", "sleep"], complete)).unwrap();
    writer.save().unwrap();
    let points: Vec<Point> = (0..12)
        .map(|index| {
            let arm = ["poll", "sleep"][index % 2];
            let mut config = Config::default();
            config.set("poll", arm);
            let pair = Some(index as u32 / 2);
            Point {
                index,
                stem: format!("p{index}"),
                arm: Some(arm.into()),
                pair,
                config,
                ..Point::default()
            }
        })
        .collect();
    writer.save_points(points.clone()).unwrap();
    for point in &points {
        let state = if point.index == failed { PointEnd::Failed } else { PointEnd::Done };
        let error = (state == PointEnd::Failed).then(|| "the OSD died".to_owned());
        let ended =
            PointState { state, error, started_unix_s: 1, seconds: 1.0, attempts: 1, condition: Value::Null };
        writer.save_state(point, &ended).unwrap();
        if state == PointEnd::Done {
            let iops = if point.index % 2 == 0 { 1e5 } else { 8e4 + point.index as f64 };
            write_whole(&writer.point_file(point, "json"), result(iops).to_string().as_bytes()).unwrap();
        }
    }
    Run::open(dir).unwrap()
}

#[test]
fn arms_of_a_run_leave_failed_points_out() {
    let dir = tempfile::tempdir().unwrap();
    let run = write_run(dir.path(), true, 3);
    let (base, new) = arms_of_run(&run, None).unwrap();
    assert_eq!((base.points.len(), new.points.len()), (6, 5));
    let judged = compare(&base, &new, 0.05).unwrap();
    assert!(judged.verdict == Verdict::Rejected && judged.rows[0].pairs == 5);
    assert_eq!(judged.differences.len(), 1);
    assert!(judged.warnings.iter().any(|w| w == "left out: p3: the OSD died"), "{:?}", judged.warnings);
    assert!(
        judged.warnings.iter().any(|w| w.ends_with("no partner of the same turn: 1")),
        "{:?}",
        judged.warnings
    );
    let said = arms_of_run(&run, Some(("poll", "spin"))).unwrap_err().to_string();
    assert!(said.contains("no arm `spin`; its arms are: poll, sleep"), "{said}");
    let mut alone = run.clone();
    alone.file.comparison = None;
    let said = arms_of_run(&alone, Some(("base", "spin"))).unwrap_err().to_string();
    assert!(said.ends_with("no arm `base`; it has none, as its plan compares nothing"), "{said}");
}

#[test]
fn runs_that_are_not_complete_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = write_run(dir.path(), true, 99);
    std::fs::remove_file(dir.path().join("points/p7.state.json")).unwrap();
    let said = arm_of_run(&run).unwrap_err().to_string();
    assert!(said.contains("not run: 1 of its 12 points"), "{said}");
    let other = tempfile::tempdir().unwrap();
    let said = arm_of_run(&write_run(other.path(), false, 99)).unwrap_err().to_string();
    assert!(said.contains("not run: 0 of its 12 points"), "{said}");
}

#[test]
fn different_runs_were_not_measured_in_turn() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let arm = |dir: &Path| {
        let mut arm = arms_of_run(&write_run(dir, true, 99), None).unwrap().0;
        arm.name = dir.display().to_string();
        arm
    };
    let judged = compare(&arm(one.path()), &arm(two.path()), 0.05).unwrap();
    assert!(judged.warnings[0].contains("not measured in turn"), "{:?}", judged.warnings);
}

#[test]
fn files_are_paired_in_their_order_and_rubbish_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: String, value: &Value| {
        let path = dir.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path
    };
    let files = |name: &str, iops: f64| -> Vec<PathBuf> {
        (0..5).map(|n| write(format!("{name}{n}.json"), &result(iops + f64::from(n)))).collect()
    };
    let arm = |name: &str, iops: f64| arm_of_files(name, &files(name, iops)).unwrap();
    let (base, new) = (arm("base", 1e5), arm("new", 8e4));
    assert_eq!((base.points[4].turn, base.points[0].config.text("store")), (4, Some("blue")));
    assert_eq!(compare(&base, &new, 0.05).unwrap().verdict, Verdict::Rejected);
    let empty = write("empty.json".into(), &json!({"jobs": []}));
    let said = arm_of_files("x", &[empty]).unwrap_err().to_string();
    assert!(said.contains("empty.json: it has no operations"), "{said}");
    assert!(arm_of_files("x", &[dir.path().join("absent")]).unwrap_err().to_string().contains("absent"));
    assert!(arm_of_files("x", &[]).unwrap_err().to_string().contains("none of its points was measured"));
}

fn with_histogram(values: &[(u64, u64)]) -> PointResult {
    let mut histogram = Histogram::new();
    values.iter().for_each(|(value, n)| histogram.record_n(*value, *n));
    let mut result = PointResult::default();
    result.carmine.latency_histogram.read = Some(histogram.to_sparse());
    result
}

#[test]
fn percentiles_come_from_merged_histograms() {
    // 99 % of the first are fast; 3 % of both together are slow: the mean of two p99 would be 5.5 us.
    let (one, two) = (with_histogram(&[(1000, 1000)]), with_histogram(&[(1000, 940), (10_000, 60)]));
    let p99 = merged_percentile(&[&one, &two], 99.0).unwrap();
    assert!((p99 / 10_000.0 - 1.0).abs() < 0.01, "{p99}");
    let alone = (METRICS[1].of)(&[&one]).unwrap();
    assert!((alone - 1.0).abs() < 0.01, "{alone}");
}

#[test]
fn without_histograms_only_a_single_result_has_a_percentile() {
    let clat_ns = LatencyNs { percentile: [("99.000000".to_owned(), 7000.0)].into(), ..LatencyNs::default() };
    let read = Direction { iops: 5.0, clat_ns, ..Direction::default() };
    let result = PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() };
    assert_eq!(merged_percentile(&[&result], 99.0), Some(7000.0));
    assert_eq!(merged_percentile(&[&result, &result], 99.0), None);
    assert_eq!(merged_percentile(&[&PointResult::default()], 99.0), None);
}
