//! The answers from the studies' archives, with machines and figures that are only described.

mod common;

use carmine_study::answer::answer;
use carmine_study::archive::{Config, PointEnd, PointState, RUN_FORMAT, Run, RunFile, write_whole};
use carmine_study::expand::expand;
use carmine_study::plan::{Overrides, shipped};
use common::described;
use serde_json::{Value, json};

/// The answer of a study whose points gave what `iops` says.
fn answered(study: u8, shape: &str, repeats: u32, iops: impl Fn(&Config, u32) -> f64) -> Vec<String> {
    let plan = shipped(&format!("study-{study}")).unwrap().unwrap();
    let plan = plan.with(&Overrides { quick: true, repeats: Some(repeats), ..Overrides::default() }).unwrap();
    let expansion = expand(&plan, &described(shape)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (name, question) = (plan.name.clone(), plan.question.clone());
    let file = RunFile { format: RUN_FORMAT, name, question, study: plan.study, ..RunFile::default() };
    let file = RunFile { comparison: expansion.comparison.clone(), ..file };
    let writer = Run::create(dir.path(), file).unwrap();
    writer.save().unwrap();
    writer.save_text("plan.toml", &plan.text).unwrap();
    let points: Vec<_> = expansion.points.iter().map(|planned| planned.point.clone()).collect();
    writer.save_points(points.clone()).unwrap();
    for planned in &expansion.points {
        let point = &planned.point;
        let result = result(iops(&point.config, point.repeat), &serde_json::to_value(&planned.grid).unwrap());
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
    let told = answered(3, "2x28x2", 1, |config, _| match config.float("cpus") {
        Some(cpus) => 1000.0 * cpus.min(3.0),
        None => 4000.0,
    });
    assert!(told[0].starts_with("Study 3: How many CPUs"), "{told:?}");
    let better = "no limit is better than the best limit (3 CPUs): +33 %";
    assert!(told[1].ends_with(better), "{told:?}");
    let row = told.iter().find(|line| line.contains("1 CPU 1000 IOPS")).unwrap();
    assert!(row.contains("2 CPUs +100 %, 3 CPUs +200 %, 8 CPUs +200 %, no limit +300 %"), "{row}");
    assert!(told.last().unwrap().starts_with("SMOKE"), "{told:?}");
}

#[test]
fn strategies_differ_or_do_not() {
    let noise = |config: &Config, repeat: u32| {
        let depth = config.float("iodepth").unwrap();
        1.0 + 0.002 * ((depth + f64::from(repeat)) % 3.0)
    };
    let told = answered(2, "2x28x2", 3, |config, repeat| 1000.0 * noise(config, repeat));
    assert!(told[1].starts_with("It does not matter here"), "{told:?}");
    let told = answered(2, "2x28x2", 3, |config, repeat| {
        let slow = if config.text("balance") == Some("socket") { 0.8 } else { 1.0 };
        1000.0 * slow * noise(config, repeat)
    });
    assert!(told[1].starts_with("It matters here"), "{told:?}");
    assert!(
        told.iter().any(|line| line.contains("socket against default: different, IOPS -20 %")),
        "{told:?}"
    );
}

/// Both stores level off together while the OSDs are idle: the curves measured the client.
#[test]
fn curves_of_the_client_are_recognised() {
    let level = |config: &Config, _| if config.number("iodepth") == Some(1) { 175_000.0 } else { 180_000.0 };
    let told = answered(2, "2x28x2", 1, level);
    assert!(told.iter().any(|line| line.contains("suspected CLIENT")), "{told:?}");
}

#[test]
fn scaling_is_in_parts_of_proportional_and_pgs_have_their_worst_latency() {
    let told = answered(5, "2x28x2", 1, |config, _| 900.0 * config.float("osds").unwrap().powf(0.9));
    assert!(told[1].contains("x the OSDs gave") && told[1].contains("% of proportional"), "{told:?}");
    let told = answered(4, "2x28x2", 1, |config, _| 100.0 * config.float("pgs").unwrap().min(128.0));
    assert!(told[1].contains("128 is enough (more adds less than 5 %)"), "{told:?}");
    assert!(told.iter().any(|line| line.contains("worst latency 50 ms")), "{told:?}");
    let falls = |pgs: f64| if pgs > 128.0 { 64.0 } else { pgs };
    let told = answered(4, "2x28x2", 1, |config, _| falls(config.float("pgs").unwrap()));
    let expected = "from 16 to 2048 +300 %; 128 is enough; 2048 gives -50 % against the best";
    assert!(told[1].contains(expected), "{told:?}");
}

#[test]
fn what_is_not_measured_says_what_it_needs() {
    for (study, needs) in [(2, "two sockets"), (3, "CPUs for OSDs"), (5, "CPUs for two OSDs")] {
        let told = answered(study, "1x2x1", 1, |_, _| 1000.0);
        assert!(told[1].starts_with("not measured: needs") && told[1].contains(needs), "{told:?}");
    }
    let told = answered(1, "1x2x1", 1, |config, _| 1000.0 * config.float("cpus").unwrap_or(1.0));
    assert!(told[1].contains("from 0.5 to 1 +100 %"), "a quota of less than a CPU fits everywhere: {told:?}");
}
