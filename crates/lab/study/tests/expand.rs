//! Expansion: which points, in which order, under which names.
#![allow(clippy::disallowed_methods)] // golden files are read and written

mod common;

use carmine_study::archive::PointKind;
use carmine_study::expand::{Expansion, Machine, dry_run, expand, fitted, show_plan, summary};
use carmine_study::plan::{Overrides, Plan, SHIPPED, shipped};
use common::described;

fn run(shape: &str, text: &str) -> Expansion {
    let plan = Plan::parse("test.toml", text).unwrap();
    expand(&plan, &described(shape)).unwrap()
}

fn stems(expansion: &Expansion) -> Vec<&str> {
    expansion.points.iter().map(|p| p.point.stem.as_str()).collect()
}

#[test]
fn coupled_axes_follow_the_others() {
    let expansion = run(
        "1x16x1",
        "name = \"p\"\norder = \"fixed\"\n[axes]\nosds = [1, 3]\nreactors = 2\npgs = \"100 * osds\"\njobs = \"osds\"\niodepth = \"16 * reactors\"\n",
    );
    let of = |at: usize, axis| expansion.points[at].point.config.number(axis).unwrap();
    assert_eq!((of(0, "pgs"), of(0, "jobs"), of(0, "iodepth"), of(0, "pool_size")), (128, 1, 32, 1));
    assert_eq!((of(1, "pgs"), of(1, "jobs"), of(1, "iodepth"), of(1, "pool_size")), (256, 3, 32, 3));
    assert_eq!(expansion.points[1].point.layout, "blue_3osd_size3_pgs256");
}

#[test]
fn points_are_named_by_the_operations_that_run() {
    let expansion = run(
        "1x16x1",
        "name = \"p\"\norder = \"fixed\"\n[axes]\nworkload = \"randread4k\"\nbs_bytes = [4096, \"64K\", \"4M\"]\n",
    );
    let names: Vec<&str> = stems(&expansion).into_iter().filter_map(|stem| stem.split('_').nth(5)).collect();
    assert_eq!(names, ["randread4k", "randread64k", "randread4m", "randread4k"]);
    let one = run(
        "1x16x1",
        "name = \"p\"\n[axes]\nworkload = [\"randread4k\", \"seqread64k\"]\nbs_bytes = \"16K\"\n",
    );
    assert!(stems(&one).iter().all(|stem| stem.contains("read16k_qd1")), "{:?}", stems(&one));
}

#[test]
fn a_circle_and_an_unknown_name_are_errors() {
    for (axes, part) in [("jobs = \"pgs\"\npgs = \"jobs\"", "in turn"), ("jobs = \"disks\"", "drives")] {
        let plan = Plan::parse("p", &format!("name = \"p\"\n[axes]\n{axes}\n")).unwrap();
        let error = expand(&plan, &described("1x4x1")).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn arms_are_interleaved_and_paired_and_every_repeat_is_a_round() {
    let expansion = run(
        "2x8x1",
        "name = \"p\"\nrepeats = 2\ncompare = \"balance\"\n[axes]\nbalance = [\"osd\", \"socket\"]\nosds = 2\nreactors = 2\npool_size = 1\n",
    );
    let order: Vec<(String, u32, u32)> = expansion
        .points
        .iter()
        .filter(|p| p.point.kind == PointKind::Point)
        .map(|p| (p.point.arm.clone().unwrap(), p.point.repeat, p.point.pair.unwrap()))
        .collect();
    let row = |arm: &str, repeat, pair| (format!("balance={arm}"), repeat, pair);
    // Mirrored: neither arm is always the later one.
    assert_eq!(order, [row("osd", 0, 0), row("socket", 0, 0), row("socket", 1, 1), row("osd", 1, 1)]);
    let comparison = expansion.comparison.unwrap();
    assert_eq!(comparison.arms, ["balance=osd", "balance=socket"]);
}

#[test]
fn a_steady_drift_favours_no_arm() {
    let expansion = run(
        "2x8x1",
        "name = \"p\"\nrepeats = 5\ncompare = \"poll\"\n[axes]\npoll = [\"poll\", \"sleep\"]\niodepth = [1, 4, 16, 64]\n",
    );
    let places = |arm: &str| -> usize {
        let of_arm = expansion.points.iter().filter(|p| p.point.arm.as_deref() == Some(arm));
        of_arm.map(|p| p.point.index).sum()
    };
    assert_eq!(places("poll=poll"), places("poll=sleep"));
}

#[test]
fn when_nothing_fits_all_reasons_are_told() {
    let plan = Plan::parse("p", "name = \"p\"\n[axes]\nosds = [2, 3]\nreactors = [2, 4]\nclient = [\"own\", \"rados-bench\"]\nworkload = \"randrw4k\"\n").unwrap();
    let error = expand(&plan, &described("1x2x1")).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().skip(1).collect();
    assert_eq!(lines.len(), 5, "{error}");
    assert!(
        lines.iter().any(|line| line.starts_with("4 x can not be done: --client rados-bench: --rw randrw")),
        "{error}"
    );
    assert!(error.contains("1 x does not fit: too few CPUs: 2 OSDs x 2 reactors"), "{error}");
    assert!(error.contains("1 x does not fit: too few CPUs: 3 OSDs x 4 reactors"), "{error}");
}

#[test]
fn settings_of_a_peer_make_no_other_folder_of_our_own() {
    let text = "name = \"p\"\ncompare = \"peer\"\n[axes]\npeer = [\"none\", \"ceph\"]\npeer_build = \"/b\"\npeer_opt.osd_op_num_shards = [2, 4]\n";
    let expansion = run("1x8x1", text);
    let mut layouts: Vec<&str> = expansion.points.iter().map(|p| p.point.layout.as_str()).collect();
    layouts.sort_unstable();
    layouts.dedup();
    assert_eq!(layouts.iter().filter(|name| name.contains("peerceph")).count(), 2, "{layouts:?}");
    assert_eq!(layouts.len(), 3, "{layouts:?}");
}

#[test]
fn the_first_point_is_run_again_at_the_end() {
    let expansion = run("1x8x1", "name = \"p\"\n[axes]\nreactors = [1, 2, 3]\n");
    let (first, last) = (&expansion.points[0].point, &expansion.points[3].point);
    assert_eq!((last.kind, &last.config), (PointKind::Again, &first.config));
    assert_eq!(last.stem, format!("{}_again", first.stem));
}

#[test]
fn the_seed_shuffles_configurations_but_not_a_curve() {
    let text = |seed| {
        format!(
            "name = \"p\"\nseed = {seed}\ncurve = \"iodepth\"\n[axes]\nreactors = [1, 2, 3, 4, 5]\niodepth = [1, 16, 4]\n"
        )
    };
    let (one, same, other) = (run("1x16x1", &text(1)), run("1x16x1", &text(1)), run("1x16x1", &text(2)));
    assert_eq!(stems(&one), stems(&same));
    assert_ne!(stems(&one), stems(&other));
    for curve in one.points[..15].chunks(3) {
        let depths: Vec<u64> = curve.iter().map(|p| p.point.config.number("iodepth").unwrap()).collect();
        assert_eq!(depths, [1, 16, 4]);
        assert!(curve.iter().all(|p| p.point.curve == curve[0].point.curve));
    }
}

#[test]
fn stems_are_unique() {
    let expansion =
        run("1x8x1", "name = \"p\"\nrepeats = 3\n[axes]\nosd_env = [\"A=1:2\", \"A=1-2\", \"A=3\"]\n");
    let mut names = stems(&expansion);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), count), (10, 10));
}

#[test]
fn what_does_not_fit_is_left_out_unless_cpus_may_be_shared() {
    let text = "name = \"p\"\n[axes]\nreactors = [1, 2, 4]\n";
    let expansion = run("1x2x1", text);
    assert_eq!(expansion.points.len(), 2, "one point and its repetition at the end");
    assert_eq!(expansion.dropped.len(), 2);
    assert!(expansion.dropped.iter().all(|d| d.word == "does not fit"), "{:?}", expansion.dropped);
    let shared = run("1x2x1", &text.replace("[axes]", "overprovisioned = true\n[axes]"));
    assert_eq!(shared.points.len(), 4);
    assert!(shared.points.iter().any(|p| p.grid.shared));
}

#[test]
fn strategies_on_one_node_are_refused_as_identical() {
    let plan = Plan::parse("p", "name = \"p\"\ncompare = \"balance\"\n[axes]\nbalance = [\"default\", \"osd\", \"socket\"]\nreactors = 2\n").unwrap();
    let error = expand(&plan, &described("1x8x1")).unwrap_err().to_string();
    assert!(error.contains("identical") && error.contains("same grid"), "{error}");
    assert!(expand(&plan, &described("2x8x1")).is_ok());
}

/// Eight OSDs on both threads of 16 cores: `default` and `osd` give them the same CPUs under other numbers.
fn balanced(arms: &str) -> Plan {
    let text = format!(
        "name = \"p\"\ncompare = \"balance\"\n[axes]\nbalance = [{arms}]\nsmt = \"on\"\nosds = 8\nreactors = 4\n"
    );
    Plan::parse("p", &text).unwrap()
}

#[test]
fn arms_that_differ_in_the_numbers_of_osds_only_are_identical() {
    let error = expand(&balanced("\"default\", \"osd\""), &described("2x28x2")).unwrap_err().to_string();
    for part in ["balance=osd gives the same grid as balance=default", "leave osd out"] {
        assert!(error.contains(part), "{error}");
    }
    // Two different arms remain: the later of the identical ones is left out.
    let plan = balanced("\"default\", \"osd\", \"socket\"");
    let expansion = expand(&plan, &described("2x28x2")).unwrap();
    assert_eq!(expansion.comparison.clone().unwrap().arms, ["balance=default", "balance=socket"]);
    let text = dry_run(&plan, &expansion);
    assert!(text.contains("1 x identical: balance=osd gives the same grid as balance=default"), "{text}");
    // Named devices are bound to the numbers of their OSDs, and may be nearer to one socket.
    let devices = (0..8).map(|n| format!("/dev/d{n}")).collect();
    let machine = Machine { devices, ..described("2x28x2") };
    assert_eq!(expand(&plan, &machine).unwrap().comparison.unwrap().arms.len(), 3);
}

#[test]
fn the_shipped_study_of_placement_compares_what_differs() {
    let plan = shipped("placement").unwrap().unwrap();
    let arms = |shape: &str| expand(&plan, &described(shape)).map(|e| e.comparison.unwrap().arms);
    assert_eq!(arms("2x28x2").unwrap(), ["balance=default", "balance=socket"]);
    // Sockets with several L3 caches: the fourth strategy is one of its own.
    assert!(arms("2x4x8x2").unwrap().contains(&"balance=l3".to_owned()), "{:?}", arms("2x4x8x2"));
    let error = arms("1x28x2").unwrap_err().to_string();
    assert!(error.contains("balance=osd gives the same grid as balance=default"), "{error}");
}

/// A cpuset and a quota of as many CPUs are compared under the same load, whatever the machine.
#[test]
fn cores_per_osd_loads_a_cpuset_as_it_loads_a_quota() {
    let plan = shipped("cores-per-osd").unwrap().unwrap();
    for shape in ["1x2x1", "1x8x1", "1x16x2", "2x28x2", "1x64x2"] {
        let expansion = expand(&plan, &described(shape)).unwrap();
        let mut in_flight = std::collections::BTreeMap::new();
        for planned in &expansion.points {
            let config = &planned.point.config;
            let number = |axis| config.number(axis).unwrap();
            let key = ["osds", "pool_size", "workload", "cpus"].map(|axis| config.show(axis));
            let operations = number("jobs") * number("iodepth");
            let first = *in_flight.entry(key).or_insert(operations);
            assert_eq!(operations, first, "{shape} {}", planned.point.stem);
            if config.text("confine") == Some("quota")
                && let Some(cpus) = config.number("cpus")
            {
                assert!(number("reactors") <= 2 * cpus, "{shape} {}", planned.point.stem);
            }
        }
    }
}

/// The slices of a host that also runs virtual machines: four CPUs of the system, some or no limit for the OSD, the rest for
/// the machines.
#[test]
fn slices_of_a_host_are_axes() {
    let text = "name = \"p\"\norder = \"fixed\"\n[axes]\nsystem_cpus = \"0-3\"\nclient_cpus = \"28-31\"\nreactors = 2\n\
                [[cases]]\nosd_cpus = [\"4-5\", \"4-7\"]\nneighbour_cpus = \"8-27\"\n[[cases]]\nbalance = \"none\"\n";
    let expansion = run("1x16x2", text);
    let osds = |at: usize| expansion.points[at].grid.allocated_cpus().to_string();
    assert_eq!([osds(0), osds(1), osds(2)], ["4-5", "4-5", "4-27"]);
    for planned in &expansion.points {
        let grid = &planned.grid;
        assert_eq!(
            (grid.system_cpus().to_string(), grid.client_cpus().to_string()),
            ("0-3".into(), "28-31".into())
        );
        assert!(!grid.shared, "{}", grid.render());
    }
    assert_eq!(expansion.points[0].grid.neighbour.to_string(), "8-27");
    assert!(expansion.points[2].grid.osds[0].floating.is_some());
}

/// The settings in which arms differ beside the axis.
fn confounds(expansion: &Expansion) -> Vec<&str> {
    let all = expansion.confounds.iter().flat_map(|confound| &confound.differences);
    all.map(|difference| difference.setting.as_str()).collect()
}

#[test]
fn the_shipped_comparisons_differ_in_nothing_but_their_axis() {
    for plan in SHIPPED {
        let parsed = shipped(plan.name).unwrap().unwrap();
        for shape in ["2x28x2", "2x4x8x2", "1x16x2", "1x8x1", "1x2x1"] {
            if let Ok(expansion) = expand(&parsed, &described(shape)) {
                assert!(
                    expansion.confounds.is_empty(),
                    "{} on {shape}: {:?}",
                    plan.name,
                    confounds(&expansion)
                );
            }
        }
    }
}

#[test]
fn what_is_computed_of_the_compared_axis_confounds() {
    let text = "name = \"p\"\ncompare = \"reactors\"\n[axes]\nreactors = [1, 4]\njobs = \"reactors\"\niodepth = \"16 * jobs\"\npgs = \"64 * reactors\"\n";
    let plan = Plan::parse("p", text).unwrap();
    let expansion = expand(&plan, &described("1x16x1")).unwrap();
    assert_eq!(confounds(&expansion), ["iodepth", "jobs", "pgs"]);
    let lists: Vec<String> = expansion.points.iter().map(|p| p.grid.client_cpus().to_string()).collect();
    assert!(lists.iter().all(|list| *list == lists[0]), "both arms have the same clients: {lists:?}");
    let text = dry_run(&plan, &expansion);
    let mark =
        "CONFOUNDED: reactors=1 / reactors=4: iodepth 16 / 64; jobs 1 / 4; pgs 64 / 256 (1 pair of points)";
    assert!(text.contains(mark), "{text}");
    // PGs per reactor differ, but because the compared axis does.
    let even: String = plan
        .text
        .lines()
        .filter(|line| !["jobs", "iodepth", "pgs"].iter().any(|axis| line.starts_with(axis)))
        .map(|line| format!("{line}\n"))
        .collect();
    let even = run("1x16x1", &even);
    assert!(even.confounds.is_empty(), "{:?}", even.confounds);
}

#[test]
fn arms_that_use_hardware_threads_otherwise_are_confounded() {
    // Three OSDs: two of them in one socket of four cores, whose second threads they need.
    let text = "name = \"p\"\ncompare = \"balance\"\n[axes]\nbalance = [\"osd\", \"socket\"]\nosds = 3\nreactors = 3\npool_size = 1\n";
    let expansion = run("2x6x2", text);
    let base = &expansion.confounds[0];
    assert!(confounds(&expansion).contains(&"reactors beside a busy hardware thread"), "{base}");
}

#[test]
fn the_first_point_is_run_again_every_half_hour() {
    let text = "name = \"p\"\nruntime = \"5m\"\nrepeats = 2\ncompare = \"poll\"\n[axes]\npoll = [\"poll\", \"sleep\"]\nreactors = [1, 2, 3, 4, 5, 6]\n";
    let expansion = run("1x16x1", text);
    let kinds: Vec<bool> = expansion.points.iter().map(|p| p.point.kind == PointKind::Again).collect();
    let breaks: Vec<usize> = (0..kinds.len()).filter(|at| kinds[*at]).collect();
    // Six points of five minutes; arms of a pair stay together.
    assert_eq!(breaks, [6, 13, 20, 27]);
    assert_eq!(expansion.points[13].point.stem, format!("{}_again2", expansion.points[0].point.stem));
}

#[test]
fn the_summary_fits_a_screen_and_equal_places_are_named_once() {
    for plan in SHIPPED {
        let parsed = shipped(plan.name).unwrap().unwrap();
        if let Ok(expansion) = expand(&parsed, &described("2x28x2")) {
            let text = dry_run(&parsed, &expansion);
            let (head, list) = text.split_once("\n\n").unwrap();
            assert!(head.lines().count() <= 24, "{head}");
            let grids = list.lines().filter(|line| line.trim_start().starts_with("osd.")).count();
            assert!(grids <= 4 * expansion.points.len().min(60), "{list}");
            assert!(list.contains("placed as"), "{list}");
        }
    }
}

#[test]
fn the_plan_is_shown_with_its_values_here() {
    let plan = shipped("curve").unwrap().unwrap();
    let expansion = expand(&plan, &described("2x28x2")).unwrap();
    let shown = show_plan(&plan, &expansion);
    assert!(shown.starts_with(plan.text.trim_end()) && shown.contains("\njobs               3\n"), "{shown}");
    let fitted = fitted(&plan, &expansion);
    assert!(fitted.contains("osds = \"drives min room\"  # here: 3\n"), "{fitted}");
    assert!(
        !fitted.contains("workload = [\"randread4k\", \"randwrite4k\", \"seqread64k\", \"seqwrite64k\"]  #")
    );
    let again = Plan::parse("fitted", &fitted).unwrap();
    assert_eq!(expand(&again, &described("2x28x2")).unwrap().points.len(), expansion.points.len());
}

#[test]
fn studies_fit_every_machine() {
    let studies: Vec<Plan> =
        SHIPPED.iter().map(|p| shipped(p.name).unwrap().unwrap()).filter(|p| p.study.is_some()).collect();
    assert_eq!(studies.iter().map(|p| p.study.unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for plan in &studies {
        assert!(plan.question.ends_with('?'), "{}", plan.name);
        for shape in ["2x28x2", "1x16x2", "1x2x1"] {
            let expansion = expand(plan, &described(shape)).unwrap_or_else(|e| panic!("{shape}: {e}"));
            let clients: Vec<String> =
                expansion.points.iter().map(|p| p.grid.client_cpus().to_string()).collect();
            assert!(clients.iter().all(|list| *list == clients[0]), "{} on {shape}: {clients:?}", plan.name);
            assert!(expansion.points.iter().all(|p| !p.grid.shared), "{} on {shape}", plan.name);
            assert!(summary(plan, &expansion).contains(&plan.question));
        }
    }
}

#[test]
fn a_quick_look_keeps_four_values_and_says_so() {
    let plan = shipped("study-2").unwrap().unwrap();
    let full = expand(&plan, &described("2x28x2")).unwrap().points.len();
    let quick = plan.with(&Overrides { quick: true, ..Overrides::default() }).unwrap();
    let expansion = expand(&quick, &described("2x28x2")).unwrap();
    assert!(expansion.points.len() < full / 6, "{} of {full}", expansion.points.len());
    let text = summary(&quick, &expansion);
    assert!(text.contains("quick       iodepth keeps 1, 2, 16, 64 of 10 values"), "{text}");
    assert_eq!(expansion.comparison.unwrap().arms.len(), 3, "what is compared stays");
}

/// A CPU of these machines is a hardware thread, and there are half as many cores.
#[test]
fn hardware_threads_are_not_called_cores() {
    for plan in SHIPPED {
        let parsed = shipped(plan.name).unwrap().unwrap();
        if let Ok(expansion) = expand(&parsed, &described("2x28x2")) {
            let text = dry_run(&parsed, &expansion).replace(plan.name, "NAME");
            assert!(!text.contains("core"), "{}", text.lines().find(|l| l.contains("core")).unwrap());
        }
    }
}

#[test]
fn exclusions() {
    let expansion = run(
        "1x16x1",
        "name = \"p\"\n[axes]\nosds = [1, 2]\nreactors = [1, 4]\nstore = [\"blue\", \"cyan\"]\n[[exclude]]\nwhen = \"osds * reactors > 4\"\n[[exclude]]\nstore = \"cyan\"\nosds = 2\n",
    );
    assert_eq!(expansion.points.len() - 1, 8 - 2 - 1);
}

#[test]
fn named_devices_hold_one_layout_at_a_time() {
    let plan =
        Plan::parse("p", "name = \"p\"\nrepeats = 2\n[axes]\nosds = [1, 2, 3]\npool_size = 1\n").unwrap();
    let machine =
        Machine { devices: vec!["/dev/a".into(), "/dev/b".into(), "/dev/c".into()], ..described("1x8x1") };
    let expansion = expand(&plan, &machine).unwrap();
    let layouts: Vec<&str> = expansion.points.iter().map(|p| p.point.layout.as_str()).collect();
    let switches = layouts.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(switches <= 3, "{layouts:?}");
}

#[test]
fn a_study_says_before_the_start_what_stays_open() {
    let study = |number: u8, quick: bool, shape: &str| {
        let plan = shipped(&format!("study-{number}")).unwrap().unwrap();
        let plan = plan.with(&Overrides { quick, ..Overrides::default() }).unwrap();
        let expansion = expand(&plan, &described(shape)).unwrap();
        let said = summary(&plan, &expansion);
        expansion.no_answer.map(|open| {
            assert!(open.why.iter().all(|why| said.contains(why)), "{said}");
            (open.whole, open.why)
        })
    };
    assert_eq!(study(1, false, "2x28x2"), None);
    let (whole, why) = study(1, true, "2x28x2").unwrap();
    assert!(whole && why[0].contains("takes 3 repeats, and this is 1 repeat"), "{why:?}");
    assert!(why[1].contains("windows of 10 s, and these have 2 s"), "{why:?}");
    let (whole, why) = study(1, false, "1x2x1").unwrap();
    assert!(
        !whole && why[0].starts_with("cpuset, randread4k; cpuset, randwrite4k: of cpus only 1"),
        "{why:?}"
    );
    for (number, needs) in [(2, "two sockets"), (3, "one and with two CPUs"), (5, "CPUs for two OSDs")] {
        let (whole, why) = study(number, false, "1x2x1").unwrap();
        assert!(whole && why[0].contains(needs), "{why:?}");
    }
    let (whole, why) = study(5, false, "2x28x2:drives=3").unwrap();
    assert!(!whole && why[0].starts_with("5, 8, 12, 20, 32 OSDs on 3 drives"), "{why:?}");
    assert_eq!(study(5, false, "2x28x2:drives=32"), None);
}

/// Beginning and end: hundreds of points between them follow the same rules.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (head, tail) = (24.min(lines.len()), lines.len().saturating_sub(8));
    let middle = if tail > head { vec!["[…]"] } else { Vec::new() };
    let shown = lines[..head].iter().copied().chain(middle).chain(lines[tail.max(head)..].iter().copied());
    shown.map(|line| format!("{line}\n")).collect()
}

/// `UPDATE_GOLDEN=1 cargo test -p carmine-study --test expand` writes the files anew.
#[test]
fn shipped_plans_on_a_large_machine_and_on_a_small_one() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for shape in ["2x28x2", "1x2x1"] {
        for plan in SHIPPED {
            let parsed = shipped(plan.name).unwrap().unwrap();
            let text = match expand(&parsed, &described(shape)) {
                Ok(expansion) => shortened(&dry_run(&parsed, &expansion)),
                Err(error) => format!("{error}\n"),
            };
            let path = folder.join(format!("{}_{shape}.txt", plan.name));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let golden = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(text, golden, "{}: see UPDATE_GOLDEN above", path.display());
        }
    }
}
