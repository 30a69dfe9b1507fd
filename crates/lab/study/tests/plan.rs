//! Plan files: what is read, and how errors lead to the place that has to change.
#![allow(clippy::disallowed_methods)] // the page is read

mod common;

use std::time::Duration;

use carmine_study::expand::expand;
use carmine_study::plan::{Overrides, Plan, SHIPPED, shipped};
use common::described;

const SMALL: &str = "name = \"p\"\n\n[axes]\nosds = [1, 2]\nworkload = \"randread4k\"\n";

#[test]
fn a_small_plan_has_defaults() {
    let plan = Plan::parse("p.toml", SMALL).unwrap();
    assert_eq!((plan.repeats, plan.seed, plan.runtime), (1, 1, Duration::from_secs(30)));
    assert_eq!(plan.axes.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["osds", "workload"]);
    assert_eq!(plan.cases.len(), 1);
}

fn wrong(file: &str, text: &str) -> String {
    Plan::parse(file, text).unwrap_err().to_string()
}

#[test]
fn errors_name_file_line_key_and_what_to_do() {
    for (change, line, parts) in [
        (("osds = [1, 2]", "osds = [0]"), 4, vec!["osds = 0", "1 to 1024"]),
        (("osds = [1, 2]", "disks = 1"), 4, vec!["disks = 1", "no such axis", "--list"]),
        (("randread4k", "randread8k"), 5, vec!["workload", "randread8k", "randread4k"]),
        (("name = \"p\"", "name = \"p\"\nrepeat = 3"), 2, vec!["repeat", "repeats"]),
        (("name = \"p\"", "name = \"p\"\nrepeats = 0"), 2, vec!["repeats = 0", "1 to 1000"]),
        (("name = \"p\"", "name = \"p\"\nruntime = \"soon\""), 2, vec!["runtime = \"soon\"", "30s"]),
        (("name = \"p\"", "name = \"a/b\""), 1, vec!["name = \"a/b\"", "letters"]),
        (("name = \"p\"", "name = \"p\"\ncompare = \"poll\""), 2, vec!["compare = \"poll\"", "[axes]"]),
        (("osds = [1, 2]", "osds = [1, 2"), 4, vec![]),
    ] {
        let text = SMALL.replace(change.0, change.1);
        let shown = wrong("p.toml", &text);
        let place = if parts.is_empty() { "p.toml:".to_owned() } else { format!("p.toml:{line}: ") };
        assert!(shown.starts_with(&place), "{shown}");
        for part in parts {
            assert!(shown.contains(part), "{shown} should say {part}");
        }
    }
}

#[test]
fn an_error_in_a_case_has_the_line_of_the_case_and_axes_are_needed() {
    let text = format!("{SMALL}\n[[cases]]\npgs = 8\n\n[[cases]]\nosds = 0\n");
    let error = wrong("p.toml", &text);
    assert!(error.starts_with("p.toml:11: osds = 0: "), "{error}");
    let text = format!("{SMALL}\n[[exclude]]\nwhen = \"osds >\"\n");
    assert!(wrong("p.toml", &text).starts_with("p.toml:8: "));
    let error = wrong("p.toml", "name = \"p\"\n[[cases]]\nosds = 1\n");
    assert!(error.starts_with("p.toml: the plan has no [axes]"), "{error}");
}

#[test]
fn searches_need_a_target_and_their_curve() {
    let search = SMALL.replace("osds = [1, 2]", "search_step = [0, 1]");
    assert!(wrong("p", &search).contains("search_p99"));
    let lone = SMALL.replace("osds = [1, 2]", "rate_percent = [0, 50]");
    assert!(wrong("p", &lone).contains("curve = \"rate_percent\""));
}

#[test]
fn settings_of_a_peer_are_axes() {
    let text = format!("{SMALL}peer = \"ceph\"\npeer_opt.osd_op_num_shards = [4, 8]\n");
    let plan = Plan::parse("p", &text).unwrap();
    assert!(plan.has_axis("peer_opt.osd_op_num_shards"));
}

#[test]
fn the_command_line_wins() {
    let overrides = Overrides {
        seed: Some(9),
        runtime: Some(Duration::from_secs(5)),
        axes: vec![("client".into(), vec!["fio-rados".into()])],
        ..Overrides::default()
    };
    let plan = Plan::parse("p", SMALL).unwrap().with(&overrides).unwrap();
    assert_eq!((plan.seed, plan.runtime, plan.has_axis("client")), (9, Duration::from_secs(5), true));
    let wrong = Overrides { axes: vec![("peer".into(), vec!["gluster".into()])], ..Overrides::default() };
    assert!(plan.with(&wrong).unwrap_err().to_string().contains("ceph-tuned"));
}

#[test]
fn every_shipped_plan_is_good_and_says_what_it_asks() {
    for plan in SHIPPED {
        let parsed = shipped(plan.name).unwrap().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parsed.name, plan.name);
        assert!(!parsed.about.is_empty(), "{}", plan.name);
    }
    assert!(shipped("nonsense").is_none());
}

/// Every plan on the page of the plan language is one.
#[test]
fn the_examples_of_the_page_expand() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/plans.md")).unwrap();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
    assert!(examples.len() >= 8, "{}", examples.len());
    for text in examples {
        let plan = Plan::parse("docs/plans.md", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let expansion = expand(&plan, &described("1x8x2")).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert!(expansion.confounds.is_empty() && expansion.points.len() > 2, "{text}");
    }
    // Every key of a plan is in the page's table.
    for key in [
        "name",
        "question",
        "chart",
        "compare",
        "curve",
        "repeats",
        "pause",
        "seed",
        "tolerance",
        "latency_cap",
    ] {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}
