//! The answers from the studies' archives, with machines and figures that are only described.

mod common;

use std::time::Duration;

use carmine_study::answer::answer;
use carmine_study::archive::{
    Config, PointEnd, PointKind, PointState, RUN_FORMAT, Run, RunFile, write_whole,
};
use carmine_study::expand::expand;
use carmine_study::plan::{Overrides, shipped};
use common::described;
use serde_json::{Value, json};

/// What is answered, and how its points were measured.
struct Case<'a> {
    /// Name of a shipped plan.
    plan: &'a str,
    shape: &'a str,
    repeats: u32,
    window: Duration,
    /// A mark of all points.
    mark: Option<&'a str>,
    /// What the first point gives when it is run again, by what it gave the first time.
    again: f64,
}

const QUIET: Case<'_> = Case {
    plan: "study-1",
    shape: "2x28x2",
    repeats: 3,
    window: Duration::from_secs(10),
    mark: None,
    again: 1.0,
};

/// The answer of a study with three repeats of 10 s, whose points gave what `iops` says.
fn answered(study: u8, shape: &str, iops: impl Fn(&Config, u32) -> f64) -> Vec<String> {
    Case { plan: &format!("study-{study}"), shape, ..QUIET }.answer(iops)
}

impl Case<'_> {
    fn answer(&self, iops: impl Fn(&Config, u32) -> f64) -> Vec<String> {
        let plan = shipped(self.plan).unwrap().unwrap();
        let quick = Overrides {
            quick: true,
            repeats: Some(self.repeats),
            runtime: Some(self.window),
            ..Overrides::default()
        };
        let plan = plan.with(&quick).unwrap();
        let expansion = expand(&plan, &described(self.shape)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (name, question) = (plan.name.clone(), plan.question.clone());
        let file = RunFile { format: RUN_FORMAT, name, question, study: plan.study, ..RunFile::default() };
        let search_p99_ms = plan.search_p99.map(|p99| p99.as_secs_f64() * 1e3);
        let file =
            RunFile { comparison: expansion.comparison.clone(), chart: plan.chart, search_p99_ms, ..file };
        let writer = Run::create(dir.path(), file).unwrap();
        writer.save().unwrap();
        writer.save_points(expansion.points.iter().map(|planned| planned.point.clone()).collect()).unwrap();
        for planned in &expansion.points {
            let (point, grid) = (&planned.point, serde_json::to_value(&planned.grid).unwrap());
            let factor = if point.kind == PointKind::Again { self.again } else { 1.0 };
            let mut result = result(factor * iops(&point.config, point.repeat), &grid);
            result["carmine"]["marks"] = json!(self.mark.into_iter().collect::<Vec<_>>());
            write_whole(&writer.point_file(point, "json"), result.to_string().as_bytes()).unwrap();
            let state = PointState {
                state: PointEnd::Done,
                error: None,
                started_unix_s: 1,
                seconds: 1.0,
                attempts: 1,
                condition: Value::Null,
            };
            writer.save_state(point, &state).unwrap();
        }
        answer(&Run::open(dir.path()).unwrap()).unwrap()
    }
}

/// The OSDs use 8.6 of 40 CPUs, the clients 4.9.
fn result(iops: f64, grid: &Value) -> Value {
    let latency = json!({"mean": 1e6, "max": 5e7, "percentile": {"99.000000": 2e6}});
    let per_core = json!({"allocated": iops / 40.0, "used": iops / 8.6});
    let carmine =
        json!({"iops_per_core": per_core, "client_cores_used": 11.0, "grid": grid, "verdict": "OSD"});
    json!({"jobs": [{"read": {"iops": iops, "bw_bytes": iops * 4e6, "clat_ns": latency}}], "carmine": carmine})
}

#[test]
fn cpus_are_weighed_against_no_limit() {
    let told = answered(3, "2x28x2", |config, _| match config.float("cpus") {
        Some(cpus) => 1000.0 * cpus.min(3.0),
        None => 4000.0,
    });
    assert!(told[0].starts_with("Study 3: How many CPUs"), "{told:?}");
    let better = "no limit is better than the best limit (3 CPUs): +33 % (95 %: +33 % to +33 %)";
    assert!(told[0].ends_with(better), "{told:?}");
    let row = told.iter().find(|line| line.contains("1 CPU 1000 IOPS")).unwrap();
    let rest = "2 CPUs 2000 (+100 %), 3 CPUs 3000 (+200 %), 8 CPUs 3000 (+200 %), no limit 4000 (+300 %)";
    assert!(row.contains(rest), "{row}");
}

#[test]
fn strategies_differ_or_do_not() {
    let noise = |config: &Config, repeat: u32| {
        let depth = config.float("iodepth").unwrap();
        1.0 + 0.002 * ((depth + f64::from(repeat)) % 3.0)
    };
    let told = answered(2, "2x28x2", |config, repeat| 1000.0 * noise(config, repeat));
    assert!(told[0].contains("? It does not matter here"), "{told:?}");
    let slow = |config: &Config, repeat: u32| {
        let slow = if config.text("balance") == Some("socket") { 0.8 } else { 1.0 };
        1000.0 * slow * noise(config, repeat)
    };
    let told = answered(2, "2x28x2", slow);
    assert!(told[0].contains("? It matters here"), "{told:?}");
    assert!(
        told.iter().any(|line| line.contains("socket against default: different, IOPS -20 %")),
        "{told:?}"
    );
    let drifted = Case { plan: "study-2", again: 0.7, ..QUIET }.answer(slow);
    assert!(drifted[0].contains("? no answer: "), "{drifted:?}");
}

/// Both stores level off together while the OSDs are idle: the curves measured the client.
#[test]
fn curves_of_the_client_are_recognised() {
    let level = |config: &Config, _| if config.number("iodepth") == Some(1) { 175_000.0 } else { 180_000.0 };
    let told = answered(2, "2x28x2", level);
    assert!(told.iter().any(|line| line.contains("suspected CLIENT")), "{told:?}");
}

#[test]
fn scaling_is_in_parts_of_proportional_and_pgs_have_their_worst_latency() {
    let told = answered(5, "2x28x2", |config, _| 900.0 * config.float("osds").unwrap().powf(0.9));
    assert!(told[0].contains("x the OSDs gave") && told[0].contains("% of proportional"), "{told:?}");
    let told = answered(4, "2x28x2", |config, _| 100.0 * config.float("pgs").unwrap().min(128.0));
    assert!(told[0].contains("128 is enough (more adds less than 5 %)"), "{told:?}");
    assert!(told.iter().any(|line| line.contains("worst latency 50 ms")), "{told:?}");
    let falls = |pgs: f64| if pgs > 128.0 { 64.0 } else { pgs };
    let told = answered(4, "2x28x2", |config, _| falls(config.float("pgs").unwrap()));
    let expected =
        "from 16 to 2048 +300 % (95 %: +300 % to +300 %); 128 is enough; 2048 gives -50 % against the best";
    assert!(told[0].contains(expected), "{told:?}");
}

#[test]
fn what_is_not_measured_says_what_it_needs() {
    for (study, needs) in [(2, "two sockets"), (3, "CPUs for OSDs"), (5, "CPUs for two OSDs")] {
        let told = answered(study, "1x2x1", |_, _| 1000.0);
        assert!(told[0].contains("? no answer: ") && told[0].contains(needs), "{told:?}");
    }
    let told = answered(1, "1x2x1", |config, _| 1000.0 * config.float("cpus").unwrap_or(1.0));
    assert!(told[0].contains("from 0.5 to 1 +100 %"), "a quota of less than a CPU fits everywhere: {told:?}");
}

/// `study 1 --quick` once began with "+8 %; it still rises" out of single SMOKE, NOISY points on a machine that drifted by 9.1 %.
#[test]
fn the_first_line_is_no_answer_where_the_points_support_none() {
    let rises = |config: &Config, repeat: u32| {
        let cpus = config.float("cpus").unwrap_or(1.0);
        1000.0 * (1.0 + 0.08 * cpus.min(1.0)) * (1.0 + 0.001 * f64::from(repeat))
    };
    let quiet = Case { shape: "1x2x1", ..QUIET };
    let cases = [
        (Case { window: Duration::from_secs(2), repeats: 1, ..quiet }, "0 of 1 repeat clean (SMOKE 1)"),
        (Case { repeats: 1, ..quiet }, "1 of 1 repeat clean, and it takes 3"),
        (Case { mark: Some("NOISY: a build"), ..quiet }, "0 of 3 repeats clean (NOISY 3)"),
        (Case { mark: Some("UNSTEADY: it fell"), ..quiet }, "0 of 3 repeats clean (UNSTEADY 3)"),
        (Case { again: 0.909, ..quiet }, "is below the machine's drift of 9.1 %"),
    ];
    for (case, why) in cases {
        let told = case.answer(rises);
        assert!(told[0].contains("? no answer: ") && told[0].contains(why), "{why}: {told:#?}");
        let is_answer = |line: &String| line.contains("still rises") || line.contains("is enough (");
        assert!(!told.iter().any(is_answer), "{told:#?}");
    }
    let told = quiet.answer(rises);
    assert!(told[0].contains("+4 %") || told[0].contains("is enough"), "{told:#?}");
}

#[test]
fn a_plan_without_a_question_says_whether_its_points_support_figures() {
    let told = Case { plan: "curve", ..QUIET }.answer(|_, _| 1000.0);
    assert_eq!(told[0], "16 settings, each with 3 clean repeats or more; the report has the figures");
    let told = Case { plan: "curve", repeats: 1, ..QUIET }.answer(|_, _| 1000.0);
    assert!(
        told[0].starts_with("no answer: no setting has repeats that support a figure: 1 of 1 repeat"),
        "{told:?}"
    );
}
