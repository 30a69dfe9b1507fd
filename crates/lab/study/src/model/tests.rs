//! Synthetic results from a known law: what is recovered, what is refused, what is checked.

use serde_json::{Value, json};

use super::*;

/// Settings of a synthetic load beside its reactors.
#[derive(Clone, Copy)]
struct Load {
    store: &'static str,
    depth: u32,
    /// Reactor time of an operation at one reactor, nanoseconds, and the part by which each added one raises it.
    one_ns: f64,
    growth: f64,
}

const CYAN: Load = Load { store: "cyan", depth: 16, one_ns: 4000.0, growth: 0.05 };

impl Load {
    fn iops(self, reactors: u32) -> f64 {
        f64::from(reactors) * 1e9 / (self.one_ns * (1.0 + self.growth * f64::from(reactors - 1)))
    }

    /// One repeat with this factor of noise; `carmine` is merged into the result's object.
    fn repeat(self, reactors: u32, factor: f64, carmine: &Value) -> Measured {
        let config = json!({"store": self.store, "iodepth": self.depth, "reactors": reactors, "jobs": reactors, "osds": 1, "seconds": 15});
        let iops = self.iops(reactors) * factor;
        let busy = f64::from(reactors) * 10.0 * 0.9;
        let mut object = json!({"verdict": "OSD", "in_process": true, "client_seconds": 10.0, "osds": [{"cpu_seconds":
            {"busy": busy, "spin": busy / 9.0, "sleep": 0.0, "wait": 0.0, "alien": 0.0}}]});
        object.as_object_mut().unwrap().extend(carmine.as_object().unwrap().clone());
        let result = json!({"jobs": [{"read": {"iops": iops}, "write": {}}], "carmine": object});
        Measured {
            config: serde_json::from_value(config).unwrap(),
            result: serde_json::from_value(result).unwrap(),
            ..Measured::default()
        }
    }

    fn thrice(self, reactors: u32, carmine: &Value) -> Vec<Measured> {
        [0.995, 1.005, 1.0].map(|factor| self.repeat(reactors, factor, carmine)).to_vec()
    }

    fn one_and_two(self) -> Vec<Measured> {
        [self.thrice(1, &json!({})), self.thrice(2, &json!({}))].concat()
    }
}

fn model(points: Vec<Measured>) -> Model {
    Model::new(&Arm { points, ..Arm::default() }, &[1, 2, 8, 64]).unwrap()
}

/// Why the only line has no prediction.
fn refused(points: Vec<Measured>) -> String {
    let model = model(points);
    assert!(model.lines.len() == 1 && model.lines[0].predictions.is_empty() && model.falsified_by.is_empty());
    model.lines[0].no_answer.clone().unwrap()
}

#[test]
fn a_known_law_is_recovered() {
    let model = model(CYAN.one_and_two());
    let line = &model.lines[0];
    let law = line.law.unwrap();
    assert!((law.growth - 0.05).abs() < 1e-6 && (law.one - 4000.0).abs() < 1.0, "{law:?}");
    for predicted in &line.predictions {
        let (truth, (low, high)) = (CYAN.iops(predicted.reactors), predicted.interval);
        assert!((predicted.iops / truth - 1.0).abs() < 1e-3 && low < truth && truth < high, "{predicted:?}");
        assert!(
            !predicted.is_drive_bound && predicted.iops_if_flat >= predicted.iops * 0.999,
            "{predicted:?}"
        );
    }
    let check = line.two_from_one.unwrap();
    assert!((check.error - 0.05).abs() < 1e-3, "without growth it is too high by the growth: {check:?}");
    let (work, idle) = (&line.parts[0], &line.parts[1]);
    assert_eq!((work.name.as_str(), idle.name.as_str()), ("reactors: work", "reactors: idle"));
    let sums = [work.one_ns + idle.one_ns, work.two_ns + idle.two_ns];
    assert!((sums[0] / 4000.0 - 1.0).abs() < 0.01 && (sums[1] / 4200.0 - 1.0).abs() < 0.01, "{sums:?}");
}

#[test]
fn marks_other_limits_and_few_repeats_are_no_answer() {
    let two = |carmine: &Value| [CYAN.thrice(1, &json!({})), CYAN.thrice(2, carmine)].concat();
    for (carmine, word) in [
        (json!({"marks": ["NOISY: a build"]}), "NOISY"),
        (json!({"marks": ["SMOKE: short"]}), "SMOKE"),
        (json!({"verdict": "CLIENT"}), "CLIENT"),
        (json!({"verdict": "DEVICE"}), "DEVICE"),
        (json!({"verdict": null}), "UNKNOWN"),
        (json!({"shared": true, "verdict": "SHARED"}), "SHARED"),
    ] {
        let why = refused(two(&carmine));
        assert_eq!(why, format!("at 2: 0 of 3 repeats clean ({word} 3), and it takes 3"));
    }
    assert!(refused(CYAN.one_and_two()[..5].to_vec()).contains("at 2: 2 of 2 repeats clean"));
    assert!(
        refused(CYAN.thrice(1, &json!({})))
            .contains("points at 1 and at 2 reactors, and there are those at 1")
    );
    let mut rated = CYAN.one_and_two();
    rated.iter_mut().for_each(|m| m.config.set("rate_iops", 100.0));
    assert!(refused(rated).contains("offered rate 3"));
}

/// Inside an OSD a reactor that waits has the load that each of more would have; from outside it has what the client gives it.
#[test]
fn load_from_outside_must_keep_the_reactors_busy() {
    let waits = |inside: bool| {
        let carmine = json!({"verdict": "WAIT", "in_process": inside});
        let mut points = [CYAN.thrice(1, &carmine), CYAN.thrice(2, &carmine)].concat();
        points.iter_mut().for_each(|m| m.config.set("jobs", 1));
        model(points).lines[0].no_answer.clone()
    };
    assert_eq!(waits(true), None);
    assert!(waits(false).unwrap().contains("WAIT 3"));
}

#[test]
fn a_drift_beyond_the_tolerance_is_no_answer() {
    let mut points = CYAN.one_and_two();
    points[5] = CYAN.repeat(2, 1.1, &json!({}));
    assert!(refused(points).starts_with("the machine drifted by 10.6 %"));
}

#[test]
fn results_of_two_builds_are_refused() {
    let mut points = CYAN.one_and_two();
    points[0].result.carmine.setting.origin.host = "other".to_owned();
    let error = Model::new(&Arm { points, ..Arm::default() }, &[1]).unwrap_err().to_string();
    assert!(error.contains("several builds or machines"), "{error}");
}

#[test]
fn larger_sizes_hold_or_falsify() {
    let with = |factor: f64| {
        let larger = [1.0, 1.001, 0.999].map(|noise| CYAN.repeat(8, factor * noise, &json!({})));
        model([CYAN.one_and_two(), larger.to_vec()].concat())
    };
    let good = with(1.0);
    assert_eq!((good.falsified().count(), good.lines[0].larger.len()), (0, 1));
    let bad = with(0.5);
    let (_, check) = bad.falsified().next().unwrap();
    assert!(check.reactors == 8 && (check.error - 1.0).abs() < 0.01, "{check:?}");
    let few = model([CYAN.one_and_two(), vec![CYAN.repeat(8, 0.5, &json!({}))]].concat());
    assert_eq!(few.falsified().count(), 0);
    assert!(
        few.lines[0].unsupported[0].starts_with("at 8: 1 of 1 repeat clean"),
        "{:?}",
        few.lines[0].unsupported
    );
}

#[test]
fn held_out_values_are_predicted_from_the_growth_of_the_others() {
    let deep = Load { depth: 64, one_ns: 3000.0, ..CYAN };
    let blue = Load { store: "blue", growth: 0.15, one_ns: 9000.0, ..CYAN };
    let points: Vec<Measured> = [CYAN, deep, blue].into_iter().flat_map(Load::one_and_two).collect();
    let model = model(points);
    let held = |name: &str| model.held_out.iter().find(|held| held.held_out == name).unwrap().clone();
    assert_eq!(
        model.lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
        ["iodepth 16 store cyan", "iodepth 64 store cyan", "iodepth 16 store blue"]
    );
    let of_blue = held("store blue");
    assert!((of_blue.growth_of_others - 0.05).abs() < 1e-6 && of_blue.lines == 1, "{of_blue:?}");
    assert!((of_blue.worst_error - (1.15 / 1.05 - 1.0)).abs() < 1e-6, "{of_blue:?}");
    let of_16 = held("iodepth 16");
    assert!((of_16.growth_of_others - 0.05).abs() < 1e-6 && of_16.lines == 2, "{of_16:?}");
    assert!((of_16.mean_error - of_blue.worst_error / 2.0).abs() < 1e-6, "{of_16:?}");
}

#[test]
fn a_measured_limit_of_the_drive_bounds_it() {
    // Two reactors reach half of the drive.
    let limit = CYAN.iops(2) * 2.0;
    let of = |reactors: u32| json!({"percent_of_device_limit": CYAN.iops(reactors) / limit * 100.0, "verdict": "WAIT"});
    let model = model([CYAN.thrice(1, &of(1)), CYAN.thrice(2, &of(2))].concat());
    let line = &model.lines[0];
    assert!((line.drive_limit_iops.unwrap() / limit - 1.0).abs() < 0.01);
    let bound: Vec<bool> = line.predictions.iter().map(|p| p.is_drive_bound).collect();
    assert_eq!(bound, [false, false, true, true]);
    assert!(line.predictions.iter().all(|p| p.iops <= limit * 1.01 && p.interval.1 <= limit * 1.01));
}
