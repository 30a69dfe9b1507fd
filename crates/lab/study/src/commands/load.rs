//! The load of a point: `carmine bench` and `carmine baseline`, what its generator cannot do, and the same by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_load::hosted::{self, ClusterAccess, Tool, check, fio, rados};
use carmine_load::{Arrivals, LoadSpec, Rw};

use super::{BoundedCommand, What, shell_line};
use crate::archive::{Config, Point};
use crate::plan::{Workload, workload};

/// Bytes of an object (as `carmine bench` makes them).
const OBJECT_BYTES: u64 = 4 << 20;
/// Open loop: so many may be in flight before arrivals wait.
const OPEN_LOOP_IODEPTH: u64 = 256;
/// Connecting and draining.
pub(super) const AROUND_S: f64 = 60.0;
/// Recording a profile, and reading the stacks of busy OSDs.
const PROFILE_S: f64 = 180.0;
/// A prefill that is slower than this hangs.
pub(super) const SLOW_BYTES_PER_S: f64 = 10e6;
/// The bytes that `carmine bench` loads by default.
const SIZE_BYTES: u64 = 1 << 30;
/// Longest window of each of the two baselines.
const BASELINE_WINDOW_S: f64 = 5.0;

/// Where a point's files go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFiles {
    pub json: PathBuf,
    pub samples: PathBuf,
    /// A baseline that was measured.
    pub baseline: Option<PathBuf>,
}

/// The workload of a configuration; one whose name is not known is the first.
pub(super) fn shape_of(config: &Config) -> Workload {
    config.text("workload").and_then(workload).unwrap_or(crate::plan::WORKLOADS[0])
}

/// Percentage of reads where both are mixed.
fn read_percent(config: &Config) -> u8 {
    config.number("read_percent").and_then(|percent| u8::try_from(percent).ok()).unwrap_or(50)
}

/// Bytes of an operation.
pub(super) fn bs_bytes(config: &Config) -> u64 {
    config.number("bs_bytes").unwrap_or_else(|| shape_of(config).bs_bytes)
}

/// Bytes that the load spreads over.
pub(crate) fn size_bytes(config: &Config) -> u64 {
    let objects = config.number("objects").map(|objects| objects * OBJECT_BYTES);
    config.number("size_bytes").or(objects).unwrap_or(SIZE_BYTES)
}

/// Length of the window, seconds.
pub(crate) fn seconds(config: &Config) -> f64 {
    config.float("seconds").unwrap_or(10.0)
}

/// The words of fio that both bench and baseline take.
fn shape(config: &Config) -> Vec<String> {
    let workload = shape_of(config);
    let mut words = vec![("--rw", workload.rw.to_string()), ("--bs", bs_bytes(config).to_string())];
    if workload.rw == carmine_load::Rw::RandRw {
        words.push(("--rwmixread", read_percent(config).to_string()));
    }
    words.push(("--size", size_bytes(config).to_string()));
    words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// Operations in flight of each job; with a rate, so many may be.
pub(super) fn iodepth(config: &Config) -> u64 {
    let depth = config.number("iodepth").unwrap_or(1);
    if config.float("rate_iops").is_some() { depth.max(OPEN_LOOP_IODEPTH) } else { depth }
}

pub(super) fn jobs(config: &Config) -> u64 {
    config.number("jobs").unwrap_or(1)
}

/// `--client`, where it is not our own.
pub(super) fn client(config: &Config) -> Vec<String> {
    match config.text("client").filter(|client| *client != "own") {
        Some(client) => vec!["--client".to_owned(), client.to_owned()],
        None => Vec::new(),
    }
}

/// `--volumes`, and a job for each: what the images are written by.
pub(super) fn volumes(config: &Config) -> Vec<String> {
    match config.show("volumes") {
        Some(n) => ["--volumes", &n, "--numjobs", &n].map(str::to_owned).to_vec(),
        None => Vec::new(),
    }
}

/// The flamegraph that is wanted.
fn profile(config: &Config) -> Option<&str> {
    config.text("profile").filter(|mode| *mode != "none")
}

/// A ramp would warm what is to be cold.
pub(super) fn ramp_of(config: &Config, ramp: Duration) -> Duration {
    if config.text("cache") == Some("cold") { Duration::ZERO } else { ramp }
}

/// The load of a point. `seed` is the same for the arms of a pair: they get the same operations.
pub fn load_step(
    layout: &Path,
    config: &Config,
    ramp: Duration,
    seed: u64,
    files: &LoadFiles,
) -> BoundedCommand {
    let mut argv =
        vec!["carmine".to_owned(), "bench".to_owned(), "--dir".to_owned(), layout.display().to_string()];
    argv.extend(shape(config));
    let mut put = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    put("--iodepth", iodepth(config).to_string());
    put("--numjobs", jobs(config).to_string());
    put("--runtime", milliseconds(seconds(config)));
    let ramp = ramp_of(config, ramp);
    put("--ramp", format!("{}ms", ramp.as_millis()));
    put("--seed", seed.to_string());
    for (axis, option) in
        [("volumes", "--volumes"), ("processes", "--processes"), ("route", "--route"), ("cache", "--cache")]
    {
        if let Some(word) = config.show(axis) {
            put(option, word);
        }
    }
    if let Some(rate) = config.float("rate_iops") {
        put("--rate", format!("{rate:.2}"));
        put("--arrivals", config.show("arrivals").unwrap_or_else(|| "poisson".to_owned()));
    }
    if let Some(mode) = profile(config) {
        put("--profile", mode.to_owned());
    }
    put("--json", files.json.display().to_string());
    put("--samples", files.samples.display().to_string());
    if let Some(baseline) = &files.baseline {
        put("--baseline", baseline.display().to_string());
    }
    argv.extend(client(config));
    let prefill_s = size_bytes(config) as f64 * config.float("pool_size").unwrap_or(1.0) / SLOW_BYTES_PER_S;
    let profile_s = if profile(config).is_some() { PROFILE_S } else { 0.0 };
    BoundedCommand::new(
        What::Load,
        argv,
        seconds(config) + ramp.as_secs_f64() + AROUND_S + prefill_s + profile_s,
    )
}

fn milliseconds(seconds: f64) -> String {
    format!("{}ms", (seconds * 1e3).round() as u64)
}

/// Both baselines of a point's load, beside its idle OSDs.
pub fn baseline_step(layout: &Path, config: &Config, json: &Path) -> BoundedCommand {
    let mut argv = ["carmine", "baseline", "--dir"].map(str::to_owned).to_vec();
    argv.push(layout.display().to_string());
    argv.extend(shape(config));
    let window_s = seconds(config).min(BASELINE_WINDOW_S);
    for (option, value) in [
        ("--iodepth", (iodepth(config) * jobs(config)).to_string()),
        ("--runtime", milliseconds(window_s)),
        ("--json", json.display().to_string()),
    ] {
        argv.extend([option.to_owned(), value]);
    }
    let scratch_s = size_bytes(config) as f64 / SLOW_BYTES_PER_S;
    BoundedCommand::new(What::Baseline, argv, AROUND_S + 2.0 * window_s + scratch_s)
}

/// The tool that makes the load of a point.
pub fn tool(config: &Config) -> Tool {
    match config.text("client") {
        Some("fio-rbd") => Tool::FioRbd,
        Some("fio-rados") => Tool::FioRados,
        Some("rados-bench") => Tool::RadosBench,
        _ => Tool::Carmine,
    }
}

/// True if a stock tool makes the load.
pub fn is_hosted(config: &Config) -> bool {
    tool(config) != Tool::Carmine
}

/// The load of a point in the generator's words; times and seed are not in it.
pub(super) fn load_spec(config: &Config) -> LoadSpec {
    let small = |axis: &str| config.number(axis).map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let workload = shape_of(config);
    let fixed = config.text("arrivals") == Some("fixed");
    LoadSpec {
        rw: workload.rw,
        rwmixread: read_percent(config),
        bs_bytes: bs_bytes(config),
        iodepth: u32::try_from(iodepth(config)).unwrap_or(u32::MAX),
        numjobs: u32::try_from(jobs(config)).unwrap_or(u32::MAX),
        size_bytes: size_bytes(config),
        rate_iops: config.float("rate_iops"),
        arrivals: if fixed { Arrivals::Fixed } else { Arrivals::Poisson },
        volumes: small("volumes"),
        processes: small("processes"),
        ..LoadSpec::default()
    }
}

/// The reason why the load of a point can't be made, found before anything is started.
pub(crate) fn refusal(config: &Config) -> Option<String> {
    let follows = |axis: &str| config.number(axis).is_some_and(|n| n > 0).then_some(1.0);
    let spec = load_spec(config);
    let rate_iops = spec.rate_iops.or(follows("rate_percent")).or(follows("search_step"));
    let spec = LoadSpec { rate_iops, ..spec };
    let aged = LoadSpec {
        rw: Rw::RandWrite,
        io_bytes: config.number("age").filter(|rounds| *rounds > 0).map(|rounds| rounds * spec.size_bytes),
        rate_iops: None,
        ..spec.clone()
    };
    if config.text("cache") == Some("cold") && tool(config) == Tool::RadosBench && spec.rw.reads() {
        return Some("cache = cold: rados-bench reads only what it wrote itself, which warms the caches; take another client".into());
    }
    if let Some(percent) = config.number("read_percent").filter(|_| spec.rw != Rw::RandRw) {
        return Some(format!(
            "read_percent = {percent}: {} mixes nothing; take randrw4k",
            shape_of(config).name
        ));
    }
    let check = |spec: &LoadSpec| spec.check().and_then(|()| hosted::check(tool(config), spec).map(drop));
    check(&spec).and_then(|()| check(&aged)).err().map(|error| error.to_string())
}

/// Pool of every testbed and peer.
const POOL: &str = "bench";

/// Commands of fio and of `rados bench` for the load of a point, against the layout while its OSDs run: what writes the data,
/// then the load itself, as `carmine bench --client` would run them. A point that loads rbd images has those, all others
/// have objects. What `rados bench` can't do has no command of it.
pub fn by_hand(layout: &Path, point: &Point, ramp: Duration, seed: u64) -> Vec<String> {
    let spec = LoadSpec {
        runtime_ms: (seconds(&point.config) * 1e3) as u64,
        ramp_ms: ramp_of(&point.config, ramp).as_millis() as u64,
        seed,
        ..load_spec(&point.config)
    };
    let place = ClusterAccess { conf: layout.join("ceph.conf").display().to_string(), pool: POOL.to_owned() };
    let engine = if tool(&point.config) == Tool::FioRbd { Tool::FioRbd } else { Tool::FioRados };
    let mut lines = Vec::new();
    if engine == Tool::FioRbd {
        let images = (0..spec.volumes.max(1)).map(|volume| fio::create_image(&spec, &place, volume));
        lines.extend(images.map(|args| line(&["rbd", "-c", &place.conf], args)));
    }
    // fio's engine rbd takes the configuration from the environment only.
    let conf = format!("CEPH_CONF={}", place.conf);
    let fio_line = |args| line(&["env", &conf, "fio"], args);
    let output = |what: &str| format!("{}.{what}.json", point.stem);
    lines.push(fio_line(fio::prefill_arguments(engine, &spec, &place, &output("fio-prefill"))));
    for process in 0..spec.processes.max(1) {
        let output = output(&format!("fio{process}"));
        lines.push(fio_line(fio::arguments(engine, &spec, &place, &output, process)));
    }
    if check(Tool::RadosBench, &LoadSpec { volumes: 1, processes: 1, ..spec.clone() }).is_ok() {
        for job in 0..spec.numjobs {
            if !spec.rw.writes() {
                lines.push(line(&["rados"], rados::prefill_arguments(&spec, &place, job)));
            }
            lines.push(line(&["rados"], rados::arguments(&spec, &place, job, spec.runtime_ms)));
        }
    }
    lines
}

fn line(head: &[&str], args: Vec<String>) -> String {
    let words: Vec<String> = head.iter().map(|word| (*word).to_owned()).chain(args).collect();
    shell_line(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Config, PointKind};
    use crate::commands::shell_line;

    fn config() -> Config {
        let mut config = Config::default();
        for (axis, value) in [("iodepth", 16_u64), ("jobs", 2), ("size_bytes", 1 << 20)] {
            config.set(axis, value);
        }
        config.set("workload", "randrw4k");
        config.set("seconds", 30.0);
        config
    }

    fn load(config: &Config) -> String {
        let files = LoadFiles { json: "j".into(), samples: "s".into(), baseline: Some("b".into()) };
        shell_line(&load_step(Path::new("/l"), config, Duration::from_secs(2), 7, &files).argv)
    }

    #[test]
    fn a_closed_loop() {
        assert_eq!(
            load(&config()),
            "carmine bench --dir /l --rw randrw --bs 4096 --rwmixread 50 --size 1048576 --iodepth 16 --numjobs 2 \
             --runtime 30000ms --ramp 2000ms --seed 7 --json j --samples s --baseline b"
        );
    }

    #[test]
    fn the_mix_is_an_axis() {
        let mut config = config();
        config.set("read_percent", 70);
        config.set("size_bytes", 64 << 20);
        assert!(load(&config).contains("--rw randrw --bs 4096 --rwmixread 70"), "{}", load(&config));
        assert_eq!((load_spec(&config).rwmixread, refusal(&config)), (70, None));
        config.set("workload", "randread4k");
        assert!(refusal(&config).unwrap().contains("take randrw4k"));
    }

    #[test]
    fn an_open_loop_may_have_many_in_flight() {
        let mut config = config();
        config.set("rate_iops", 1234.5);
        config.set("client", "fio-rados");
        let line = load(&config);
        assert!(
            line.contains("--iodepth 256") && line.contains("--rate 1234.50 --arrivals poisson"),
            "{line}"
        );
        assert!(line.ends_with("--client fio-rados"), "{line}");
    }

    #[test]
    fn a_profile_takes_its_time() {
        let mut config = config();
        config.set("profile", "none");
        assert!(!load(&config).contains("--profile"));
        config.set("profile", "offcpu");
        assert!(load(&config).contains(" --profile offcpu "), "{}", load(&config));
    }

    #[test]
    fn the_baseline_has_the_depth_of_all_jobs_and_is_short() {
        let line = shell_line(&baseline_step(Path::new("/l"), &config(), Path::new("b")).argv);
        assert_eq!(
            line,
            "carmine baseline --dir /l --rw randrw --bs 4096 --rwmixread 50 --size 1048576 --iodepth 32 --runtime \
             5000ms --json b"
        );
    }

    fn refused(axes: &[(&str, u64)], client: &str, workload: &str) -> Option<String> {
        let mut config = Config::default();
        config.set("client", client);
        config.set("workload", workload);
        axes.iter().for_each(|(axis, value)| config.set(axis, *value));
        refusal(&config)
    }

    #[test]
    fn what_is_cold_was_not_just_written() {
        let mut config = Config::default();
        config.set("client", "rados-bench");
        config.set("cache", "cold");
        assert!(refusal(&config).unwrap().starts_with("cache = cold"));
        config.set("client", "fio-rados");
        assert_eq!(refusal(&config), None);
    }

    #[test]
    fn what_a_client_can_not_do_is_known_before() {
        assert_eq!(refused(&[("age", 2), ("jobs", 4), ("volumes", 2)], "fio-rbd", "randrw4k"), None);
        assert_eq!(refused(&[("rate_percent", 0)], "rados-bench", "randread4k"), None);
        for (axes, client, workload, part) in [
            (&[("age", 2)][..], "rados-bench", "randread4k", "--age"),
            (&[("rate_percent", 10)], "rados-bench", "randread4k", "--rate"),
            (&[], "rados-bench", "randrw4k", "--rw randrw"),
            (&[("jobs", 2), ("volumes", 2)], "fio-rados", "randread4k", "--volumes 2"),
            (&[("volumes", 2)], "fio-rbd", "randread4k", "raise --numjobs"),
            (&[("jobs", 2), ("processes", 2)], "own", "randread4k", "--processes 2"),
            (&[("jobs", 32), ("size_bytes", 64 << 20)], "own", "randread4k", "--numjobs 32"),
        ] {
            let why = refused(axes, client, workload).unwrap_or_default();
            assert!(why.contains(part), "{axes:?} {client}: {why}");
        }
    }

    fn lines(axes: &[(&str, u64)], client: &str, workload: &str) -> Vec<String> {
        let mut config = Config::default();
        config.set("workload", workload);
        config.set("client", client);
        config.set("size_bytes", 64_u64 << 20);
        axes.iter().for_each(|(axis, value)| config.set(axis, *value));
        let point = Point {
            index: 0,
            stem: "a_point".into(),
            kind: PointKind::Point,
            arm: None,
            curve: None,
            repeat: 0,
            pair: None,
            layout: "l".into(),
            config,
        };
        by_hand(Path::new("/l"), &point, Duration::from_millis(500), 7)
    }

    #[test]
    fn a_point_of_objects_has_them_written_before_they_are_read() {
        let lines = lines(&[("iodepth", 16), ("jobs", 2)], "own", "randread4k");
        let [prefill, load, rados @ ..] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(prefill.contains("--ioengine=rados") && prefill.contains("--rw=write"), "{prefill}");
        for part in [
            "fio --output-format",
            "a_point.fio0.json",
            "--rw=randread",
            "--iodepth=16",
            "--numjobs=2",
            "--ramp_time=500ms",
            "--randseed=7",
        ] {
            assert!(load.contains(part), "no {part} in {load}");
        }
        assert_eq!(rados.len(), 4, "each job writes what it reads: {rados:?}");
        assert!(rados[1].starts_with("rados -c /l/ceph.conf -p bench bench 10 rand -t 16"), "{}", rados[1]);
    }

    #[test]
    fn a_point_of_images_has_the_engine_and_the_images() {
        let axes = [("volumes", 2), ("jobs", 4), ("processes", 2)];
        let lines = lines(&axes, "fio-rbd", "randrw4k");
        assert_eq!(lines.len(), 2 + 1 + 2, "two images, one prefill, two processes, no rados: {lines:?}");
        let create = "rbd -c /l/ceph.conf create --size 32M --image-feature layering bench/carmine-32m";
        assert_eq!(lines[..2], [create.to_owned(), format!("{create}-1")]);
        for line in &lines[2..] {
            assert!(line.starts_with("env CEPH_CONF=/l/ceph.conf fio "), "{line}");
            assert!(line.contains("--ioengine=rbd") && !line.contains("rados"), "{line}");
        }
        assert!(lines[3].contains("--rbdname=carmine-32m ") && !lines[3].contains("--rbdname=carmine-32m-1"));
        assert!(lines[4].contains("--rbdname=carmine-32m-1"), "{}", lines[4]);
    }

    #[test]
    fn a_rate_is_a_rate() {
        let lines = lines(&[("rate_iops", 1200), ("jobs", 2)], "own", "randwrite4k");
        assert!(lines[1].contains("--rate_iops=600 --rate_process=poisson"), "{}", lines[1]);
        assert!(!lines.iter().any(|line| line.starts_with("rados")), "it has no rate: {lines:?}");
    }
}
