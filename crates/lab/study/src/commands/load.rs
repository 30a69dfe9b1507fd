//! The load of a point: `carmine bench` and `carmine baseline`, the limits of its generator, and the commands that do the same by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_load::hosted::{self, ClusterAccess, Tool, fio, rados};
use carmine_load::{Arrivals, BlockSplit, Distribution, LoadSpec, Rw};

use super::{BoundedCommand, What, shell_line, words};
use crate::archive::{Config, Point};
use crate::plan::{Workload, workload};

/// Bytes of an object (as `carmine bench` makes them).
const OBJECT_BYTES: u64 = 4 << 20;
/// Open loop: this many may be in flight before arrivals wait.
const OPEN_LOOP_IODEPTH: u32 = 256;
/// Connecting and draining.
pub(super) const AROUND_S: f64 = 60.0;
/// Recording a profile, and reading the stacks of busy OSDs.
const PROFILE_S: f64 = 180.0;
/// An OSD that was out gets its data back.
const BACK_S: f64 = 310.0;
/// A prefill that is slower than this is taken to hang.
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

/// Bytes that the load spreads over.
pub(crate) fn size_bytes(config: &Config) -> u64 {
    let objects = config.number("objects").map(|objects| objects * OBJECT_BYTES);
    config.number("size_bytes").or(objects).unwrap_or(SIZE_BYTES)
}

/// Length of the window, seconds.
pub(crate) fn seconds(config: &Config) -> f64 {
    config.float("seconds").unwrap_or(10.0)
}

/// The load of a point in the generator's words, without ramp and seed. A workload whose name is not known reads at random.
pub(super) fn load_spec(config: &Config) -> LoadSpec {
    let count = |axis: &str| config.number(axis).map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let unknown = Workload { rw: Rw::RandRead, bs_bytes: 4096 };
    let workload = config.text("workload").and_then(workload).unwrap_or(unknown);
    let (rate_iops, depth) = (config.float("rate_iops"), count("iodepth"));
    let spec = LoadSpec {
        rw: workload.rw,
        rwmixread: config.number("read_percent").and_then(|n| u8::try_from(n).ok()).unwrap_or(50),
        bs_bytes: config.number("bs_bytes").unwrap_or(workload.bs_bytes),
        iodepth: if rate_iops.is_some() { depth.max(OPEN_LOOP_IODEPTH) } else { depth },
        numjobs: count("jobs"),
        runtime_ms: (seconds(config) * 1e3).round() as u64,
        size_bytes: size_bytes(config),
        rate_iops,
        arrivals: config.text("arrivals").and_then(|word| word.parse().ok()).unwrap_or(Arrivals::Poisson),
        volumes: count("volumes"),
        processes: count("processes"),
        object_size_bytes: config.number("object_size_bytes").unwrap_or(OBJECT_BYTES),
        bssplit: bssplit(config).and_then(|text| text.parse().ok()),
        random_distribution: popularity(config).and_then(|text| text.parse().ok()).unwrap_or_default(),
        ..LoadSpec::default()
    };
    spec.in_units()
}

/// The lengths of operations, if there are several.
fn bssplit(config: &Config) -> Option<&str> {
    config.text("bssplit").filter(|text| *text != "none")
}

fn popularity(config: &Config) -> Option<&str> {
    config.text("random_distribution")
}

/// Each size of objects has its own names.
pub(super) fn object_size(config: &Config) -> Vec<String> {
    words([("--object-size", config.show("object_size_bytes"))])
}

/// The same with ramp and seed. Cold caches get no ramp, which would warm them.
fn spec_of_run(config: &Config, ramp: Duration, seed: u64) -> LoadSpec {
    let is_cold = config.text("cache") == Some("cold");
    let ramp_ms = if is_cold { 0 } else { ramp.as_millis() as u64 };
    LoadSpec { ramp_ms, seed, ..load_spec(config) }
}

/// The words of fio that both bench and baseline take. `lengths`: the option that has the bytes of operations.
fn shape(spec: &LoadSpec, lengths: (&'static str, String)) -> Vec<String> {
    words([
        ("--rw", Some(spec.rw.to_string())),
        (lengths.0, Some(lengths.1)),
        ("--rwmixread", (spec.rw == Rw::RandRw).then(|| spec.rwmixread.to_string())),
        ("--size", Some(spec.size_bytes.to_string())),
    ])
}

/// The load runs inside the OSD. Its objects have the names of our own client's.
pub(crate) fn is_inside(config: &Config) -> bool {
    config.text("client") == Some("in-process")
}

/// `--client`, where it is not our own.
pub(super) fn client(config: &Config) -> Vec<String> {
    words([("--client", config.show("client").filter(|client| client != "own" && !is_inside(config)))])
}

/// The hosts that make a point's load: the first of those that are there; none is this one.
fn hosts_of(config: &Config, hosts: &[String]) -> Option<String> {
    let count = config.number("load_hosts").unwrap_or(0) as usize;
    (count > 0).then(|| hosts[..count.min(hosts.len())].join(","))
}

/// The load of a point. `seed` is the same for the arms of a pair: they get the same operations.
pub fn load_step(
    bed: &Path,
    config: &Config,
    hosts: &[String],
    ramp: Duration,
    seed: u64,
    to: &LoadFiles,
) -> BoundedCommand {
    let spec = spec_of_run(config, ramp, seed);
    let profile = config.show("profile").filter(|mode| mode != "none");
    let path = |path: &PathBuf| Some(path.display().to_string());
    let out = (config.text("osd_out") == Some("last")).then(|| config.number("osds").unwrap_or(1) - 1);
    let back_s = if out.is_some() { BACK_S } else { 0.0 };
    let profile_s = if profile.is_some() { PROFILE_S } else { 0.0 };
    let prefill_s = size_bytes(config) as f64 * config.float("pool_size").unwrap_or(1.0) / SLOW_BYTES_PER_S;
    let window_s = (spec.runtime_ms + spec.ramp_ms) as f64 / 1e3;
    // Inside an OSD each reactor is a job.
    let (inside, jobs) = match is_inside(config) {
        true => (vec!["--in-process".to_owned()], None),
        false => (Vec::new(), Some(spec.numjobs.to_string())),
    };
    let options = words([
        ("--iodepth", Some(spec.iodepth.to_string())),
        ("--numjobs", jobs),
        ("--load-hosts", hosts_of(config, hosts)),
        ("--runtime", Some(format!("{}ms", spec.runtime_ms))),
        ("--ramp", Some(format!("{}ms", spec.ramp_ms))),
        ("--seed", Some(seed.to_string())),
        ("--volumes", config.show("volumes")),
        ("--processes", config.show("processes")),
        ("--random-distribution", popularity(config).map(str::to_owned)),
        ("--route", config.show("route")),
        ("--cache", config.show("cache")),
        ("--rate", spec.rate_iops.map(|rate| format!("{rate:.2}"))),
        ("--arrivals", spec.rate_iops.map(|_| spec.arrivals.to_string())),
        ("--osd-out", out.map(|osd| osd.to_string())),
        ("--profile", profile),
        ("--json", path(&to.json)),
        ("--samples", path(&to.samples)),
        ("--baseline", to.baseline.as_ref().and_then(path)),
    ]);
    let lengths = match &spec.bssplit {
        Some(split) => ("--bssplit", split.to_string()),
        None => ("--bs", spec.bs_bytes.to_string()),
    };
    let options = [shape(&spec, lengths), object_size(config), options, client(config), inside].concat();
    let limit_s = window_s + AROUND_S + prefill_s + profile_s + back_s;
    BoundedCommand::new(What::Load, "bench", bed, options, limit_s)
}

/// Both baselines of a point's load, beside its idle OSDs. `depths_of`: the result of an earlier one of the same kind of load.
pub fn baseline_step(bed: &Path, config: &Config, json: &Path, depths_of: Option<&Path>) -> BoundedCommand {
    let spec = load_spec(config);
    let window_s = seconds(config).min(BASELINE_WINDOW_S);
    let options = words([
        ("--iodepth", Some(spec.depth_total().to_string())),
        ("--runtime", Some(format!("{:.0}ms", window_s * 1e3))),
        ("--depths-of", depths_of.map(|path| path.display().to_string())),
        ("--json", Some(json.display().to_string())),
    ]);
    let limit_s = AROUND_S + 2.0 * window_s + spec.size_bytes as f64 / SLOW_BYTES_PER_S;
    let shape = shape(&spec, ("--bs", spec.bs_bytes.to_string()));
    BoundedCommand::new(What::Baseline, "baseline", bed, [shape, options].concat(), limit_s)
}

/// The tool that makes the load of a point.
pub fn tool(config: &Config) -> Tool {
    config.text("client").and_then(|client| client.parse().ok()).unwrap_or(Tool::Carmine)
}

/// True if a stock tool makes the load.
pub fn is_hosted(config: &Config) -> bool {
    tool(config) != Tool::Carmine
}

/// The reason why the axes of the load's lengths and popularity can't be as they are.
fn wrong_words(config: &Config) -> Option<String> {
    if let (Some(split), Some(bytes)) = (bssplit(config), config.number("bs_bytes")) {
        return Some(format!(
            "bs_bytes = {bytes}: bssplit = {split} has the lengths of operations; leave one out"
        ));
    }
    let wrong_split = bssplit(config).and_then(|text| text.parse::<BlockSplit>().err());
    let wrong_popularity = popularity(config).and_then(|text| text.parse::<Distribution>().err());
    let named = |axis: &'static str| move |why: String| format!("{axis}: {why}");
    wrong_split.map(named("bssplit")).or(wrong_popularity.map(named("random_distribution")))
}

/// The reason why a load inside the OSD can't be as its axes say.
fn wrong_inside(config: &Config) -> Option<String> {
    let count = |axis: &str| config.number(axis).unwrap_or(1);
    let (osds, reactors, jobs) = (count("osds"), count("reactors"), count("jobs"));
    let why = match () {
        () if !is_inside(config) => return None,
        () if osds > 1 => format!("osds = {osds}: it loads one OSD; take osds = 1"),
        () if jobs != reactors => format!("jobs = {jobs}: each reactor is a job; take jobs = \"reactors\""),
        () if config.get("route").is_some() => "route: it has no connections; leave it out".to_owned(),
        () if super::is_peer(config) => "peer: a peer's OSDs do not load themselves; leave it out".to_owned(),
        () => return None,
    };
    Some(format!("client = in-process, {why}"))
}

/// The reason why other hosts can't make the load of a point.
fn wrong_hosts(config: &Config) -> Option<String> {
    let hosts = config.number("load_hosts").filter(|hosts| *hosts > 0)?;
    let jobs = config.number("jobs").unwrap_or(1);
    let why = match () {
        () if is_inside(config) || is_hosted(config) => {
            "only our own generator has load hosts; take client = own".to_owned()
        }
        () if config.text("osd_out") == Some("last") => {
            "osd_out: its window begins when the OSD goes; take none".to_owned()
        }
        () if jobs < hosts => format!(
            "jobs = {jobs}: each host needs a job; take jobs = \"4 * load_hosts\", with load_hosts from 1 on"
        ),
        () => return None,
    };
    Some(format!("load_hosts = {hosts}, {why}"))
}

/// The reason why the load of a point can't be made, found before anything is started.
pub(crate) fn refusal(config: &Config) -> Option<String> {
    if let Some(why) = wrong_words(config).or_else(|| wrong_inside(config)).or_else(|| wrong_hosts(config)) {
        return Some(why);
    }
    let follows = |axis: &str| config.number(axis).is_some_and(|n| n > 0).then_some(1.0);
    let spec = load_spec(config);
    let rate_iops = spec.rate_iops.or(follows("rate_percent")).or(follows("search_step"));
    let spec = LoadSpec { rate_iops, ..spec };
    let aged = LoadSpec {
        rw: Rw::RandWrite,
        io_bytes: config.number("age").filter(|rounds| *rounds > 0).map(|rounds| rounds * spec.size_bytes),
        random_distribution: Distribution::Random,
        rate_iops: None,
        ..spec.clone()
    };
    if config.text("cache") == Some("cold") && tool(config) == Tool::RadosBench && spec.rw.reads() {
        return Some("cache = cold: rados-bench reads only what it wrote itself, and writing warms the caches; take another client".into());
    }
    if let Some(percent) = config.number("read_percent").filter(|_| spec.rw != Rw::RandRw) {
        let name = config.text("workload").unwrap_or_default();
        return Some(format!("read_percent = {percent}: {name} is not a mixed load; take randrw4k"));
    }
    let check = |spec: &LoadSpec| spec.check().and_then(|()| hosted::check(tool(config), spec).map(drop));
    check(&spec).and_then(|()| check(&aged)).err().map(|error| error.to_string())
}

/// Commands of fio and of `rados bench` for the load of a point, against the layout while its OSDs run: first those
/// that write the data, then the load itself, as `carmine bench --client` would run them. A point that loads rbd
/// images has images, all others have objects. Loads that `rados bench` can't make have no command for it.
pub fn by_hand(layout: &Path, point: &Point, ramp: Duration, seed: u64) -> Vec<String> {
    let spec = spec_of_run(&point.config, ramp, seed);
    let conf = layout.join("ceph.conf").display().to_string();
    let place = ClusterAccess { conf, pool: carmine_testbed::POOL_NAME.to_owned() };
    let conf = shell_line(std::slice::from_ref(&place.conf));
    let engine = if tool(&point.config) == Tool::FioRbd { Tool::FioRbd } else { Tool::FioRados };
    let line = |head: &str, args: Vec<String>| format!("{head} {}", shell_line(&args));
    let mut lines = Vec::new();
    if engine == Tool::FioRbd {
        let rbd = format!("rbd -c {conf}");
        lines.extend((0..spec.volumes).map(|volume| line(&rbd, fio::create_image(&spec, &place, volume))));
    }
    // fio's engine rbd takes the configuration from the environment only.
    let fio = format!("env CEPH_CONF={conf} fio");
    let output = |what: &str| format!("{}.{what}.json", point.stem);
    lines.push(line(&fio, fio::prefill_arguments(engine, &spec, &place, &output("fio-prefill"))));
    let process = |n: u32| line(&fio, fio::arguments(engine, &spec, &place, &output(&format!("fio{n}")), n));
    lines.extend((0..spec.processes).map(process));
    let plain = LoadSpec { volumes: 1, processes: 1, ..spec.clone() };
    if hosted::check(Tool::RadosBench, &plain).is_ok() {
        for job in 0..spec.numjobs {
            let prefill = (!spec.rw.writes()).then(|| rados::prefill_arguments(&spec, &place, job));
            let load = rados::arguments(&spec, &place, job, spec.runtime_ms, None);
            lines.extend(prefill.into_iter().chain([load]).map(|args| line("rados", args)));
        }
    }
    lines
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
        let hosts = ["a:7", "b:7", "c:7"].map(str::to_owned);
        shell_line(&load_step(Path::new("/l"), config, &hosts, Duration::from_secs(2), 7, &files).argv)
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
    fn inside_an_osd_each_reactor_is_a_job() {
        let mut config = config();
        config.set("client", "in-process");
        config.set("reactors", 2);
        config.set("size_bytes", 64 << 20);
        let line = load(&config);
        assert!(line.ends_with(" --in-process") && !line.contains("--client"), "{line}");
        assert!(line.contains("--iodepth 16 --runtime") && !line.contains("--numjobs"), "{line}");
        assert_eq!((refusal(&config), client(&config).len()), (None, 0));
        for (axis, value, part) in [
            ("jobs", serde_json::json!(1), "each reactor is a job"),
            ("osds", serde_json::json!(2), "osds = 2"),
            ("route", serde_json::json!("single"), "no connections"),
            ("peer", serde_json::json!("ceph"), "do not load themselves"),
        ] {
            let mut config = config.clone();
            config.set(axis, value);
            let why = refusal(&config).unwrap_or_default();
            assert!(why.starts_with("client = in-process, ") && why.contains(part), "{axis}: {why}");
        }
    }

    #[test]
    fn the_first_hosts_share_the_jobs() {
        let mut config = config();
        config.set("size_bytes", 64 << 20);
        config.set("load_hosts", 0);
        assert!(!load(&config).contains("--load-hosts"));
        config.set("load_hosts", 2);
        assert!(load(&config).contains("--numjobs 2 --load-hosts a:7,b:7 --runtime"), "{}", load(&config));
        assert_eq!(refusal(&config), None);
        for (axis, value, part) in [
            ("jobs", "1", "each host needs a job"),
            ("client", "fio-rbd", "client = own"),
            ("osd_out", "last", "take none"),
        ] {
            let mut config = config.clone();
            match value.parse::<u64>() {
                Ok(number) => config.set(axis, number),
                Err(_) => config.set(axis, value),
            }
            let why = refusal(&config).unwrap_or_default();
            assert!(why.starts_with("load_hosts = 2, ") && why.contains(part), "{axis}: {why}");
        }
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
    fn popularity_and_lengths_are_axes() {
        let mut config = config();
        config.set("size_bytes", 64 << 20);
        config.set("random_distribution", "zipf:1.2");
        config.set("bssplit", "4k/60:64k/40");
        let line = load(&config);
        assert!(line.contains("--rw randrw --bssplit 4k/60:64k/40 --rwmixread 50"), "{line}");
        assert!(line.contains(" --random-distribution zipf:1.2 "), "{line}");
        assert_eq!((load_spec(&config).bs_bytes, refusal(&config)), (4096, None));
        let baseline = baseline_step(Path::new("/l"), &config, Path::new("b"), None).argv;
        assert!(shell_line(&baseline).contains("--rw randrw --bs 4096 "), "{baseline:?}");
        for (axis, value, part) in [
            ("bssplit", "4k/60", "bssplit: `4k/60`"),
            ("random_distribution", "gauss", "random_distribution: `gauss`"),
            ("workload", "seqread64k", "--random-distribution zipf:1.2"),
            ("client", "rados-bench", "--random-distribution zipf:1.2"),
        ] {
            let mut config = config.clone();
            config.set(axis, value);
            let why = refusal(&config).unwrap_or_default();
            assert!(why.contains(part), "{axis} = {value}: {why}");
        }
        config.set("bs_bytes", 8192);
        assert!(refusal(&config).unwrap().contains("leave one out"));
        config.set("bssplit", "none");
        assert_eq!((load_spec(&config).bssplit, refusal(&config)), (None, None));
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
        let line = shell_line(&baseline_step(Path::new("/l"), &config(), Path::new("b"), None).argv);
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
        lines_of(config)
    }

    fn lines_of(config: Config) -> Vec<String> {
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
    fn popularity_and_lengths_are_in_the_lines_of_fio() {
        let mut config = Config::default();
        for (axis, value) in
            [("workload", "randread4k"), ("random_distribution", "zipf:1.2"), ("bssplit", "4k/60:64k/40")]
        {
            config.set(axis, value);
        }
        let lines = lines_of(config);
        assert!(
            lines[1].contains("--bssplit=4k/60:64k/40")
                && lines[1].contains("--random_distribution=zipf:1.2"),
            "{}",
            lines[1]
        );
        assert_eq!(lines.len(), 2, "rados bench draws evenly: {lines:?}");
    }

    #[test]
    fn a_rate_is_a_rate() {
        let lines = lines(&[("rate_iops", 1200), ("jobs", 2)], "own", "randwrite4k");
        assert!(lines[1].contains("--rate_iops=600 --rate_process=poisson"), "{}", lines[1]);
        assert!(!lines.iter().any(|line| line.starts_with("rados")), "it has no rate: {lines:?}");
    }
}
