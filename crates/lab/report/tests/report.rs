//! Reports of archives that a generator makes.
#![allow(clippy::disallowed_methods, reason = "tests read and write files")]

mod archive;

use std::fs;
use std::path::{Path, PathBuf};

use archive::Study;
use carmine_report::{Written, write_report};
use serde_json::{Value, json};

struct Made {
    dir: tempfile::TempDir,
    written: Written,
    html: String,
    text: String,
}

fn report(runs: &[PathBuf], dir: tempfile::TempDir) -> Made {
    let written = write_report(runs, None, &mut |_, _| ()).unwrap();
    let (html, text) =
        (fs::read_to_string(&written.html).unwrap(), fs::read_to_string(&written.markdown).unwrap());
    Made { dir, written, html, text }
}

fn made(study: &Study, change: impl Fn(&Path)) -> Made {
    let dir = tempfile::tempdir().unwrap();
    study.write(dir.path());
    change(dir.path());
    report(&[dir.path().to_path_buf()], dir)
}

/// `CARMINE_GOLDEN=write cargo test -p carmine-report golden` writes the file anew: read the difference before it is kept.
#[test]
fn tables_are_golden() {
    let made = made(&Study::SCALING, |_| ());
    let text = made.text.replace(&made.dir.path().display().to_string(), "RUN");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reactors.md");
    if std::env::var_os("CARMINE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    for (number, (got, want)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(got, want, "line {} of report.md differs from {}", number + 1, path.display());
    }
    assert_eq!(text.len(), golden.len(), "report.md is longer or shorter than {}", path.display());
}

#[test]
fn every_chart_stands_on_the_page_with_table_and_downloads() {
    let made = made(&Study { repeats: 5, arms: &["osd", "socket"], ..Study::SCALING }, |_| ());
    for id in [
        "scaling-randread4k",
        "scaling-per-core-randread4k",
        "curve-randread4k",
        "iops-per-core-randread4k",
        "mb-per-core-seqwrite64k",
        "cpu-randread4k",
        "stages-randread4k",
        "baseline-randread4k",
        "compare-iops-randread4k",
    ] {
        assert!(made.html.contains(&format!("<figure class=\"chart\" id=\"{id}\">")), "no chart {id}");
        for ending in ["svg", "csv"] {
            assert!(made.html.contains(&format!("download=\"{id}.{ending}\"")), "no download {id}.{ending}");
        }
    }
    for start in ["time-blue-1osd", "heat-blue-1osd", "place-randread4k-4-reactors"] {
        assert!(made.html.contains(&format!("id=\"{start}")), "no chart {start}…");
    }
    let charts = made.written.charts;
    assert_eq!(made.html.matches("<svg class=\"plot").count(), charts);
    assert_eq!(made.html.matches("<desc id=").count(), charts);
    assert!(made.text.contains("balance=socket against balance=osd"), "the comparison is in the headline");
}

/// Changes the object `carmine` of every result.
fn change_results(dir: &Path, change: impl Fn(&mut Value)) {
    for entry in fs::read_dir(dir.join("points")).unwrap().flatten() {
        let path = entry.path();
        let mut value: Value =
            serde_json::from_slice(&fs::read(&path).unwrap_or_default()).unwrap_or_default();
        if value.get("carmine").is_some() {
            change(&mut value["carmine"]);
            fs::write(path, value.to_string()).unwrap();
        }
    }
}

#[test]
fn cpu_time_is_divided_and_unknown_is_not_zero() {
    let study = Study { workloads: &[("randwrite4k", 4096)], ..Study::SCALING };
    let carmine = made(&study, |_| ());
    for part in ["reactors at work", "the kernel for reactors", "after the window (drain)"] {
        assert!(carmine.text.contains(&format!("| {part} (µs/op) |")), "no {part}");
    }
    assert!(carmine.text.contains("CPU time of the machine without the generator"));
    // A Ceph gives no clocks: only the kernel's total is known.
    let ceph = made(&study, |dir| {
        change_results(dir, |carmine| {
            let total = carmine["osds"][0]["cpu_seconds"]["kernel_total"].take();
            carmine["osds"][0]["cpu_seconds"] = json!({"busy": null, "alien": null, "kernel_total": total});
            carmine["drain"] = Value::Null;
        });
    });
    let table = ceph.text.split("### Where a microsecond of CPU goes").nth(1).unwrap();
    let table = table.split("\n### ").next().unwrap();
    assert!(table.contains("| OSDs, not divided (µs/op) |"), "{table}");
    assert!(!table.contains("reactors at work") && !table.contains("| 0.00 |"), "{table}");
}

#[test]
fn words_of_another_version_are_shown_as_they_are() {
    let study = Study { workloads: &[("randwrite4k", 4096)], ..Study::SCALING };
    let made = made(&study, |dir| {
        change_results(dir, |carmine| {
            carmine["verdict"] = "THERMAL".into();
            carmine["load"] = json!({"rw": "zonewrite"});
            carmine["cache_state"] = "lukewarm".into();
        });
    });
    assert!(!made.text.contains("can't be read"), "{}", made.text);
    assert!(
        made.text.contains("Limited by THERMAL: ") && made.text.contains("| lukewarm |"),
        "{}",
        made.text
    );
}

#[test]
fn the_threads_are_drawn_on_the_sockets() {
    let made = made(&Study::SOCKETS, |_| ());
    let head = made.html.split("id=\"headline\"").nth(1).unwrap().split("</section>").next().unwrap();
    // 40 reactors on consecutive CPUs, and an OSD in each socket in turn.
    assert_eq!(head.matches("class=\"plot sockets\"").count(), 2, "the arms beside each other");
    for seat in
        ["CPU 28 (socket 1, core 28): reactor 0 of OSD 1", "CPU 26 (socket 0, core 26): aliens of OSD 0-7"]
    {
        assert!(head.contains(&format!("aria-label=\"{seat}")), "no {seat}");
    }
    assert_eq!(head.matches("class=\"plot lines\"").count(), 1, "IOPS per core");
    assert_eq!(head.matches("class=\"plot rows\"").count(), 1, "where a microsecond goes");
    // Results of older versions do not have the machine.
    let old = self::made(&Study::SOCKETS, |dir| {
        change_results(dir, |carmine| drop(carmine["grid"].as_object_mut().unwrap().remove("machine")));
    });
    assert!(!old.html.contains("class=\"plot sockets\""));
}

#[test]
fn curves_that_level_off_below_the_osds_limit_are_suspected() {
    let depths = &[256, 512, 1024];
    let study = Study { arms: &["default", "osd"], reactors: &[5], depths, ..Study::SOCKETS };
    let usual = made(&study, |_| ());
    assert!(!usual.text.contains("The OSDs were not the limit"), "they use nearly all of their CPUs");
    let level = made(&study, |dir| {
        change_results(dir, |carmine| {
            carmine["iops_per_core"]["used"] = json!(carmine["iops"].as_f64().unwrap() / 8.6);
            carmine["client_cores_used"] = json!(4.9);
        });
    });
    let first = level.text.lines().find(|line| line.starts_with("- ")).unwrap();
    assert!(
        first.contains("The OSDs were not the limit") && first.contains("The suspect is the client"),
        "{first}"
    );
}

#[test]
fn words_are_explained_where_they_occur() {
    let made = made(&Study::SCALING, |_| ());
    let meaning = carmine_load::words::word("QD").unwrap().meaning;
    assert!(made.html.contains(&format!("<a class=\"word\" href=\"#words\" title=\"{meaning}\">QD</a>")));
    let words = made.text.split("\n## Words").nth(1).expect("a glossary");
    assert!(words.contains(&format!("| QD | verdict | {meaning} |")), "{words}");
    assert!(
        words.contains("| drain | term |") && !words.contains("| QUOTA |"),
        "only words that occur: {words}"
    );
    let bounded = made.text.split("The limit of each setting:").nth(1).expect("a table");
    let row = bounded.lines().find(|line| line.starts_with("| randread4k | QD |")).expect("a row");
    assert!(row.contains("3 of 6") && row.contains(meaning), "{row}");
}

#[test]
fn a_workload_is_named_by_the_operations_that_ran() {
    let made = made(&Study { workloads: &[("randread4k", 65536)], ..Study::SCALING }, |_| ());
    assert!(made.html.contains("id=\"scaling-randread64k\""), "a chart's name");
    assert!(made.text.contains("IOPS against reactors (all OSDs): randread64k"), "a chart's title");
    let setting = |line: &str| {
        line.split('|').map(str::trim).collect::<Vec<_>>() == ["", "workload", "randread64k", ""]
    };
    assert!(made.text.lines().any(setting), "the settings that all points share");
    // The generator's names of files have it still.
    let wrong = made.text.lines().find(|line| line.contains("randread4k") && !line.contains("blue_1osd"));
    assert_eq!(wrong, None);
}

#[test]
fn a_plan_that_varies_neither_size_nor_load_has_a_row_for_each_setting() {
    let made = made(&Study { reactors: &[2], depths: &[16], ..Study::SCALING }, |_| ());
    for id in ["iops-randread4k", "latency-seqwrite64k"] {
        assert!(made.html.contains(&format!("<figure class=\"chart\" id=\"{id}\">")), "no chart {id}");
    }
    assert!(!made.html.contains("id=\"scaling-") && !made.html.contains("id=\"curve-"));
}

#[test]
fn marks_tell_their_figures() {
    let made = made(&Study::SCALING, |_| ());
    let label = "aria-label=\"measured: reactors (all OSDs) 4, IOPS 154,";
    let labels: Vec<&str> =
        made.html.split("aria-label=\"").skip(1).filter_map(|l| l.split('"').next()).collect();
    assert!(made.html.contains(label), "a point of the scaling chart has its figures: {labels:?}");
    let bar = made
        .html
        .split("aria-label=\"")
        .any(|l| l.contains("reactors at work, CPU time per operation (µs) "));
    assert!(bar, "a part of a bar as well");
}

#[test]
fn points_that_are_not_drawn_are_files_and_said_to_be() {
    let made = made(&Study { repeats: 1, ..Study::SCALING }, |_| ());
    let drawn = made.html.matches("<figure class=\"chart\" id=\"time-").count();
    assert_eq!(drawn, 6, "of twelve that were measured, the first again among them");
    assert!(made.html.contains("The samples of 6 other points"), "it says what it leaves out: {}", made.text);
    let files = made.html.split("points not drawn").nth(1).unwrap().split("</details>").next().unwrap();
    assert_eq!(files.matches("download=\"").count(), 6);
    assert!(made.text.contains("as points/NAME.samples.json"));
}

#[test]
fn drives_are_shown_by_their_smart_logs() {
    let stem = "blue_1osd_1reactor_osd_size1_randread4k_qd4_r0";
    let title = "NVMe drives by their SMART logs";
    assert!(
        !made(&Study::SCALING, |_| ()).text.contains(title),
        "a machine without such drives has no table of them"
    );
    let log =
        |written: u64| json!({"percentage_used": 7, "temperature_c": 41, "data_units_written": written});
    let made = made(&Study::SCALING, |dir| {
        let path = dir.join(format!("points/{stem}.samples.json"));
        let mut samples: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        samples["nvme"] = json!([
            {"drive": "nvme0n1", "start": log(1_000), "end": log(3_000), "difference":
                {"percentage_used": 0, "temperature_c": 0, "data_units_written": 2_000}},
            {"drive": "nvme1n1", "missing": "nobody may read it"},
        ]);
        fs::write(path, samples.to_string()).unwrap();
    });
    let part = made.text.split(title).nth(1).expect("a table").split("\n### ").next().unwrap();
    assert!(part.contains("nvme1n1: nobody may read it."), "{part}");
    let row = part.lines().find(|line| line.contains("| nvme0n1 |")).expect("a row");
    assert_eq!(row, format!("| {stem} | nvme0n1 | 7 | 41 | 41 | 1,024.0 |"), "{part}");
    assert!(!part.contains("media errors"), "a figure that no drive reports is absent: {part}");
    assert!(made.html.contains(title));
}

#[test]
fn flamegraphs_are_linked_or_said_to_be_missing() {
    let stem = "blue_1osd_1reactor_osd_size1_randread4k_qd4_r0";
    let profile = |stem: &str, dir: &Path, profile: Value| {
        let path = dir.join(format!("points/{stem}.json"));
        let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        result["carmine"]["profile"] = profile;
        result["carmine"]["stages"] = json!({"stages": [
            {"stage": "receive", "cpu_ns": 1250.0, "wait_us": null},
            {"stage": "send", "cpu_ns": 1000.0, "wait_us": null},
            {"stage": "store", "cpu_ns": 700.0, "wait_us": 90.0},
        ]});
        fs::write(path, result.to_string()).unwrap();
    };
    let made = made(&Study::SCALING, |dir| {
        let hottest = json!([{"name": "crc32c<u8>", "percent": 31.4}]);
        let svg = format!("{stem}.oncpu.svg");
        fs::write(dir.join("points").join(&svg), "<svg/>").unwrap();
        profile(
            stem,
            dir,
            json!({"mode": "oncpu", "svg": svg, "missing": null, "stacks": 2345, "hottest": hottest}),
        );
        let (other, why) = (stem.replace("r0", "r1"), "perf is not installed: apt-get install linux-perf");
        profile(
            &other,
            dir,
            json!({"mode": "oncpu", "svg": null, "missing": why, "stacks": 0, "hottest": []}),
        );
    });
    assert!(
        made.html.contains(&format!("<a href=\"points/{stem}.oncpu.svg\">{stem}</a>")),
        "a link to the file"
    );
    assert!(made.html.contains("CPU time in crc32c&lt;u8&gt; 31 %"));
    assert!(made.html.contains("No flamegraph of 1 point: perf is not installed"));
    assert!(made.text.contains(&format!("](points/{stem}.oncpu.svg): on CPU, 2,345 stacks")));
    for part in ["Stages of an operation", "| sockets (µs/op) | ", "| 2.25 | "] {
        assert!(made.text.contains(part), "{part}");
    }
}

#[test]
fn the_page_fetches_nothing() {
    let made = made(&Study::SCALING, |_| ());
    for outside in ["src=", "http://", "https://", "url(", "@import"] {
        let found = made.html.replace("http://www.w3.org/2000/svg", "").matches(outside).count();
        assert_eq!(found, 0, "the page has {outside}");
    }
}

#[test]
fn text_of_the_data_is_text_on_the_page() {
    let name = "<script>alert('plan')</script>";
    let made = made(&Study { name, smoke: true, ..Study::SCALING }, |dir| {
        let plan = dir.join("plan.toml");
        fs::write(plan, "# </pre><script>alert('toml')</script> ```\n").unwrap();
    });
    assert_eq!(made.html.matches("<script>").count(), 1, "only the page's own script");
    assert!(made.html.contains("&lt;script&gt;alert('plan')") && !made.html.contains("<b>all</b>"));
    assert!(made.text.starts_with("# &lt;script>"), "nor in report.md");
}

#[test]
fn marked_points_are_seen_and_in_no_slope() {
    let made = made(&Study { smoke: true, ..Study::SCALING }, |_| ());
    let all = made.written.notices.join("\n");
    assert!(
        all.contains("0 of 47 measured points are clean") && all.contains("SHARED 47, SMOKE 47"),
        "{all}"
    );
    assert!(made.text.contains("no slope") && !made.text.contains("each further reactor adds"));
    assert!(!made.html.contains("id=\"iops-per-core"), "shared CPUs have no figure per core");
}

/// What was found is found by three clean repeats, or there is no answer.
#[test]
fn settings_with_too_few_clean_repeats_are_no_findings() {
    let found = |made: &Made| -> Vec<String> {
        let head = made.text.split("## What was found").nth(1).unwrap().split("\n### ").next().unwrap();
        head.lines().filter(|line| line.starts_with("- ")).map(str::to_owned).collect()
    };
    let few = found(&made(&Study { repeats: 2, ..Study::SCALING }, |_| ()));
    let why = "- randread4k: no answer: no setting has repeats that support a figure: 2 of 2 repeats clean, and it takes 3.";
    assert!(few.contains(&why.to_owned()), "{few:#?}");
    let noisy = found(&made(&Study::SCALING, |dir| {
        change_results(dir, |carmine| carmine["marks"] = json!(["NOISY: a build"]));
    }));
    for findings in [few, noisy] {
        let figure = |line: &String| line.contains("at most") || line.contains("adds");
        assert!(!findings.iter().any(figure), "{findings:#?}");
    }
}

#[test]
fn repeats_that_disagree_on_the_limiter_say_so() {
    let stem = "blue_1osd_4reactor_osd_size1_randread4k_qd64_r1";
    let made = made(&Study::SCALING, |dir| {
        let path = dir.join(format!("points/{stem}.json"));
        let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        result["carmine"]["verdict"] = "CLIENT".into();
        result["carmine"]["verdict_reason"] = "a generator thread was busy".into();
        fs::write(path, result.to_string()).unwrap();
    });
    let mixed = "OSD 3 of 4, CLIENT 1";
    assert!(made.text.contains(&format!("Limited by {mixed}: OSD: reactors were busy")), "the headline");
    assert!(
        made.text.contains(&format!("| randread4k | {mixed} | 1 of 6 | the repeats disagree |")),
        "the table"
    );
    assert!(made.text.contains(&format!("bounded at the largest size by {mixed}: OSD: ")), "the slope");
}

#[test]
fn a_failed_point_has_its_error_and_its_log() {
    let made = made(&Study::SCALING, |_| ());
    let row = made.text.lines().find(|l| l.contains("| failed |")).expect("a row of the failed point");
    assert!(row.contains("osd.0 ended with signal 11"), "{row}");
    assert!(made.text.contains("osd.0: it fell"), "the end of its log");
}

#[test]
fn runs_are_compared_with_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let runs = ["before", "after"].map(|name| dir.path().join(name));
    let study = Study { repeats: 5, depths: &[64], ..Study::SCALING };
    study.write(&runs[0]);
    Study { speed: 0.9, ..study }.write(&runs[1]);
    let made = report(&runs, dir);
    assert!(made.text.contains("after against before") && made.text.contains("worse in"), "{}", made.text);
    assert!(made.text.contains("were not measured in turn"), "pairs of different runs share no minutes");
    assert!(made.written.html.starts_with(&runs[0]), "the report goes into the first run's folder");
}

#[test]
fn half_a_run_is_reported_with_what_is_missing() {
    let gone = "blue_1osd_2reactor_osd_size1_randread4k_qd4_r0";
    let made = made(&Study::SCALING, |dir| {
        fs::write(dir.join(format!("points/{gone}.json")), "{\"jobs\": [").unwrap();
        fs::write(dir.join("points/blue_1osd_1reactor_osd_size1_randread4k_qd4_r0.samples.json"), "[[")
            .unwrap();
        fs::remove_file(dir.join("points/blue_1osd_4reactor_osd_size1_randread4k_qd4_r1.state.json"))
            .unwrap();
        fs::remove_file(dir.join("commands.sh")).unwrap();
    });
    let all = made.written.notices.join("\n");
    assert!(all.contains("1 of 49 points did not run"), "{all}");
    assert!(all.contains(gone), "the bad file is named: {all}");
    assert!(made.text.contains("Samples can't be read") && made.text.contains("| unreadable |"));
}

#[test]
fn absurd_archives_make_a_report_or_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let here = || vec![dir.path().to_path_buf()];
    let error = write_report(&here(), None, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("run.json"), "{error}");
    Study::SCALING.write(dir.path());
    for (file, text) in [("points.json", "{\"points\": 7}"), ("run.json", "nonsense"), ("run.json", "[]")] {
        let before = fs::read(dir.path().join(file)).unwrap();
        fs::write(dir.path().join(file), text).unwrap();
        let error = write_report(&here(), None, &mut |_, _| ()).unwrap_err().to_string();
        assert!(error.contains(file), "{error}");
        fs::write(dir.path().join(file), before).unwrap();
    }
    fs::remove_file(dir.path().join("points.json")).unwrap();
    let written = write_report(&here(), None, &mut |_, _| ()).unwrap();
    assert_eq!((written.charts, written.points), (0, 0));
    assert!(written.notices.iter().any(|n| n.contains("points.json")), "{:?}", written.notices);
}

#[test]
fn absurd_figures_do_no_harm() {
    let made = made(&Study::SCALING, |dir| {
        for entry in fs::read_dir(dir.join("points")).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            let text = text
                .replace("\"idle\":[", "\"idle\":[null,1e308,-5,")
                .replace("\"min\":", "\"min\":1e300,\"was\":");
            let text = text
                .replace("\"window_seconds\":60.0", "\"window_seconds\":-1e308")
                .replace("\"t_ms\":[1000", "\"t_ms\":[1e308");
            fs::write(entry.path(), text).unwrap();
        }
    });
    assert!(made.html.ends_with("</html>"));
    assert!(!made.html.contains(">NaN") && !made.html.contains(">inf"));
}

/// Leaves examples for people to look at: `CARMINE_EXAMPLE=FOLDER cargo test -p carmine-report example -- --ignored`.
#[test]
#[ignore = "writes examples where CARMINE_EXAMPLE says"]
fn example() {
    let dir = PathBuf::from(std::env::var_os("CARMINE_EXAMPLE").expect("CARMINE_EXAMPLE names a folder"));
    let smoke = Study { smoke: true, ..Study::SCALING };
    for (name, study) in
        [("full", Study::FULL), ("scaling", Study::SCALING), ("sockets", Study::SOCKETS), ("smoke", smoke)]
    {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        study.write(&dir);
        println!("{:?}", write_report(&[dir], None, &mut |_, _| ()).unwrap());
    }
}
