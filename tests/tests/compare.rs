//! The comparison on real runs: equal arms are not called different, and a slowdown that was put into an OSD is found.
//! `scripts/truth` counts both on a machine with nothing else to do. Run by `scripts/test --all`.

use carmine_tests::truth::{Experiment, row};

/// Checks that hold on any machine, however busy: hence a large slowdown, and the figure that other processes affect
/// least.
fn a_slowdown_is_found_and_equal_arms_are_not_rejected() {
    let experiment = Experiment::new(60, "500ms");
    experiment.measure(0, [("base", false), ("same", false)], 6);
    let (code, _, same) = experiment.compare(0, "base", "same", "30%");
    // On a busy machine six pairs may be too few to tell.
    let expected = match same["verdict"].as_str() {
        Some("accepted") => 0,
        Some("undecided") if same["pairs_to_decide"].as_u64().is_none_or(|pairs| pairs > 6) => 3,
        _ => panic!("{same:#}"),
    };
    assert_eq!(code, Some(expected), "{same:#}");
    assert_eq!(row(&same, "iops")["pairs"], 6);
    assert_eq!(same["differences"], serde_json::json!([]), "{same:#}");
    experiment.measure(1, [("base", false), ("slow", true)], 6);
    let (code, _, slow) = experiment.compare(1, "base", "slow", "30%");
    let cpu = row(&slow, "osd_cpu_us_per_op");
    assert_eq!(code, Some(1), "{slow:#}");
    assert_eq!((&cpu["outcome"], &cpu["verdict"]), (&"different".into(), &"rejected".into()), "{slow:#}");
    assert!(cpu["comparison"]["ratio"].as_f64().is_some_and(|ratio| ratio > 1.5), "{cpu:#}");
}

carmine_testkit::measures!(a_slowdown_is_found_and_equal_arms_are_not_rejected);
