//! `carmine bench`: loads a testbed or a peer, measures it, and keeps the result with the files beside it.

mod controller;
mod hosted;
mod room;
mod setup;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use carmine_load::hosted::{Latency, Tool};
use carmine_load::profile::{Profile, ProfileMode};
use carmine_load::report::{self, CacheState, LatencyHistograms, Report};
use carmine_load::verdict::MoreLoad;
use carmine_load::window::{DrainWindow, Samples, Window};
use carmine_load::{JobResult, LoadSpec, SAMPLE_NS};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};
use carmine_testbed::process::Neighbour;
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{write_json, write_whole};
use carmine_topology::Grid;
use carmine_types::counted;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use serde_json::{Value, json};

use crate::Doctor;
use crate::profile::Recording;
pub use hosted::require_tool;
use setup::Setup;

/// A load's end.
struct Outcome {
    /// The load as it was made.
    spec: LoadSpec,
    result: JobResult,
    /// The window, or why there is none.
    measured: Result<Window>,
    /// Blocks that the verify state knows.
    known_blocks: u64,
    seen: Seen,
    /// `None`: our own generator.
    told: Option<Told>,
}

/// Observations beside the figures.
#[derive(Default)]
struct Seen {
    marks: Vec<String>,
    /// The OSDs' background work between the prefill and the ramp.
    settled: Option<DrainWindow>,
    samples: Option<Samples>,
    /// The recording of `perf`, or why there is none; `None` if nobody asked.
    profiled: Option<Result<Recording, String>>,
}

/// The parts of a result that a stock tool tells in its own way.
struct Told {
    /// Of a tool that keeps no histogram.
    latency: Option<Latency>,
    /// `fio version` of the result.
    version: String,
    /// `jobs` of the result.
    jobs: Value,
    /// `carmine.client` of the result.
    client: Value,
}

/// Loads a testbed or a peer and prints, and keeps, what was measured. `cancel` ends it early.
///
/// The exit code is 0 if it measured and every block was right, 1 after errors or wrong blocks.
///
/// # Errors
/// The load cannot be made as asked, or gave no measurement.
pub fn run(args: BenchArgs, cancel: &AtomicBool, doctor: Doctor) -> Result<ExitCode> {
    for (option, path) in [("--json", &args.json), ("--samples", &args.samples)] {
        if let Some(path) = path {
            check_writable(option, path)?;
        }
    }
    let setup = Setup::prepare(args, doctor)?;
    let args = &setup.args;
    print(&setup.grid().render())?;
    let neighbour = neighbour(&setup.plan.grid)?;
    let is_own = args.client == Tool::Carmine;
    let outcome = if is_own { controller::run(&setup, cancel) } else { hosted::run(&setup, cancel) }?;
    if let (Some(path), Some(_)) = (&args.verify_state, &setup.state) {
        let blocks = counted(outcome.known_blocks as usize, "block");
        note(&format!("verify state of {blocks} in {}", path.display()));
    }
    let mut context = setup.context(&outcome.spec, &outcome.seen);
    let result = &outcome.result;
    let window = outcome.measured.map_err(|error| error.context(failure(result)))?;
    if args.confirm {
        context.setting.more_load = Some(more_load(&setup, cancel, result.ops(), &window)?);
    }
    let mut report = report::report(&outcome.spec, result, &window, context);
    if let Some((mode, recorded)) = args.profile.zip(outcome.seen.profiled) {
        report.profile = Some(profile(mode, recorded, args.json.as_deref(), &outcome.spec.summary()));
        if mode == ProfileMode::OnCpu {
            report = report.with_stages();
        }
    }
    let latency = outcome.told.as_ref().and_then(|told| told.latency).map(|latency| {
        report.latency_histogram = LatencyHistograms::default();
        format!("latency   mean {:.1} us, max {:.1} us\n", latency.mean_ns / 1e3, latency.max_ns / 1e3)
    });
    print(&(report::table(result, &report) + &latency.unwrap_or_default()))?;
    if let (Some(path), Some(samples)) = (&args.samples, outcome.seen.samples) {
        let samples = with_load(samples, result, report.window_seconds);
        let text = serde_json::to_string(&samples).context("cannot make the JSON of the samples")?;
        write_whole(path, format!("{text}\n").as_bytes())?;
    }
    if let Some(path) = &args.json {
        let mut value = result_json(&setup, result, &report, outcome.told)?;
        value["carmine"]["neighbour"] = json!(neighbour.as_ref().map(Neighbour::report));
        write_json(path, &value)?;
    }
    let wrong = result.errors + result.abandoned + result.verify.mismatches;
    let good = wrong == 0 && (is_own || result.ops() > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file of `--json`.
fn result_json(setup: &Setup, result: &JobResult, report: &Report, told: Option<Told>) -> Result<Value> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut value = report::result_json(&report.load, result, report, now_s);
    value["carmine"]["peer"] = setup.about_json()?;
    if let Some(told) = told {
        value["fio version"] = told.version.into();
        value["jobs"] = told.jobs;
        value["carmine"]["client"] = told.client;
    }
    Ok(value)
}

/// Starts the neighbour of a testbed that has one; it ends when it is dropped.
fn neighbour(grid: &Grid) -> Result<Option<Neighbour>> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let neighbour = Neighbour::start(&program, &grid.neighbour)?;
    if neighbour.is_some() {
        note(&format!("a neighbour keeps CPUs {} busy", grid.neighbour));
    }
    Ok(neighbour)
}

/// Loads once more, with more load, and tells what that gave.
fn more_load(setup: &Setup, cancel: &AtomicBool, ops: u64, measured: &Window) -> Result<MoreLoad> {
    let (more, what) = setup.with_more_load();
    let outcome = controller::run(&more, cancel)?;
    let window = outcome.measured.context("the load that should confirm the limiter")?;
    let rate = |ops: u64, window: &Window| ops as f64 * 1e9 / window.wall_ns.max(1) as f64;
    let (iops, before) = (rate(outcome.result.ops(), &window), rate(ops, measured));
    let own_cpus = setup.client_cpus().len() >= more.spec.numjobs as usize;
    let ratio = if before > 0.0 { iops / before } else { 0.0 };
    Ok(MoreLoad { what, iops, ratio, own_cpus: own_cpus || setup.args.in_process })
}

/// Says how a load went that ended without a measurement.
fn failure(result: &JobResult) -> String {
    match &result.first_error {
        Some(error) => {
            format!("the load failed ({}, first: {error})", counted(result.errors as usize, "error"))
        }
        None => "the load was not measured".to_owned(),
    }
}

/// Finds out before the load, not after it, that the result can't be kept.
fn check_writable(option: &str, path: &Path) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        let (path, parent) = (path.display(), parent.display());
        bail!(Usage(format!("{option} {path}: there is no folder {parent}")));
    }
    Ok(())
}

/// Draws the recording and writes the picture; a picture that cannot be had is a note, not an error. `json`: the result's file.
fn profile(mode: ProfileMode, taken: Result<Recording, String>, json: Option<&Path>, load: &str) -> Profile {
    let path = path(mode, json);
    let drawn = taken.and_then(|recording| {
        note("reading the profile");
        recording.draw(load)
    });
    let written = drawn.and_then(|(picture, profile)| {
        write_whole(&path, &picture).map_err(|e| e.to_string())?;
        let svg = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Profile { svg, ..profile })
    });
    written.unwrap_or_else(|why| {
        note(&format!("no flamegraph: {why}"));
        Profile::missing(mode, why)
    })
}

/// `DIR/NAME.MODE.svg` beside `DIR/NAME.json`.
fn path(mode: ProfileMode, json: Option<&Path>) -> PathBuf {
    let name = format!("{mode}.svg");
    json.map_or_else(|| PathBuf::from(&name), |json| json.with_extension(&name))
}

/// The file of `--samples`: what the sampler saw, with what the generator counted in the same seconds. The two windows begin within
/// milliseconds of each other.
fn with_load(mut samples: Samples, result: &JobResult, window_s: f64) -> Samples {
    samples.put("iops", per_second(&result.iops_samples(window_s)));
    for (name, stats) in [("read_iops", &result.read), ("write_iops", &result.write)] {
        if stats.ops > 0 {
            samples.put(name, per_second(&stats.iops_samples(window_s)));
        }
    }
    for (name, percent) in [("p50_ns", 50.0), ("p99_ns", 99.0)] {
        samples.put(name, result.seconds.percentiles(percent));
    }
    samples
}

/// Means of the samples of each whole second.
fn per_second(rates: &[f64]) -> Vec<Option<f64>> {
    let each = (1_000_000_000 / SAMPLE_NS) as usize;
    rates.chunks_exact(each).map(|chunk| Some(chunk.iter().sum::<f64>() / each as f64)).collect()
}

// Options of `carmine bench`, in fio's words.

/// The text below the options.
const AFTER_HELP: &str = "\
Cycles and instructions per operation come with --samples where perf can read the processor's counters.

Exit codes: 0 measured, and every block was right; 1 errors, wrong blocks, an OSD that died, or no measurement; 2 it cannot be
done as asked. --json and --samples write their files whole, or not at all.

The instrument's cost: on a 2-vCPU virtual machine with one OSD, --samples took 0.4 to 0.5 % of one core (every result has its
own figure), and the OSD's CPU time per operation was the same within noise: medians of 5 interleaved runs each 6.03 us with
samples, 6.05 us without (development build, machine busy with other things).";

/// Options of the bench, in fio's words.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    #[command(flatten)]
    load: LoadSpec,
    #[command(flatten)]
    fio: FioWords,
    /// Spread over this part of what the pool can hold, instead of --size, such as 80
    #[arg(long, value_name = "PERCENT", conflicts_with = "size", value_parser = clap::value_parser!(u8).range(1..=90))]
    pub(crate) fill: Option<u8>,
    /// Age the store: overwrite so many times the bytes of --size or --fill at random. Stores aged with the same options and
    /// seed got the same writes
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["rw", "io_size", "runtime", "verify_only", "in_process", "confirm"])]
    pub(crate) age: Option<f64>,
    /// File that keeps what was acknowledged, so that a later run can check it
    #[arg(long, value_name = "FILE")]
    pub(crate) verify_state: Option<PathBuf>,
    /// Load the PGs inside an OSD's process, without sockets: each reactor its own
    #[arg(long, conflicts_with_all = ["verify_state", "numjobs", "route"])]
    pub(crate) in_process: bool,
    /// With --in-process: the OSD
    #[arg(long, value_name = "ID", default_value_t = 0, requires = "in_process")]
    pub(crate) osd: u32,
    /// Load generator: carmine (this program), rados-bench, fio-rados or fio-rbd (the stock tools, on the client CPUs)
    #[arg(long, value_name = "TOOL", default_value = "carmine")]
    pub(crate) client: Tool,
    /// Pool that is loaded
    #[arg(long, value_name = "NAME", default_value = carmine_testbed::POOL_NAME)]
    pub(crate) pool: String,
    /// After the window, load for a moment with twice the generator threads (in-process: twice the depth): what that gives
    /// confirms or refutes the limiter
    #[arg(long, conflicts_with_all = ["rate", "verify", "verify_only", "verify_state"])]
    pub(crate) confirm: bool,
    /// File for samples of the window, one a second: CPUs, threads, memory, devices, network, sensors, and the load itself.
    /// They are taken by a thread on CPUs that no OSD uses; what it costs is in the result (`instrument_cores`)
    #[arg(long, value_name = "FILE", conflicts_with = "verify_only")]
    pub(crate) samples: Option<PathBuf>,
    /// A flamegraph of the OSDs by the program perf: oncpu (where CPU time goes) or offcpu (where threads wait). It is taken
    /// in some seconds of load before the window, and written beside --json as NAME.MODE.svg (without it: MODE.svg).
    /// Where perf cannot do it, a line says why, and the load is measured all the same
    #[arg(long, value_name = "MODE", conflicts_with = "verify_only")]
    pub(crate) profile: Option<ProfileMode>,
    /// Print where a microsecond goes: CPU time and waiting of each stage of an operation. CPU time comes from a profile, which
    /// is taken and drawn as with --profile oncpu, which prints them, too
    #[arg(long, conflicts_with = "verify_only")]
    pub(crate) stages: bool,
    /// Raw baselines to compare with: the file of `carmine baseline --json`
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// State of the OSDs' caches: cold (they have served nothing since their start; nothing is prefilled), onode-warm
    /// (the metadata of all objects is loaded first) or cached (the same load runs for a while first)
    #[arg(long, value_name = "STATE")]
    pub(crate) cache: Option<CacheState>,
    /// File for the result: fio's JSON, with an object `carmine` beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchArgs {
    /// The load that was asked for, not yet checked.
    pub(crate) fn spec(&self) -> LoadSpec {
        LoadSpec {
            verify: self.load.verify || self.load.verify_only || self.verify_state.is_some(),
            keep_seconds: self.samples.is_some(),
            ..self.load.clone()
        }
    }
}

/// Each option, the values that are taken (fio's flags are 1 if they have none), and what is said to all others.
const WORDS: [(&str, &[&str], &str); 13] = [
    ("time_based", &["1"], "bench always loads for --runtime; --io-size ends it after so many bytes"),
    ("group_reporting", &["1"], "bench always reports all jobs together"),
    ("direct", &["1"], "there is no page cache between bench and the OSDs"),
    ("thread", &["1"], "jobs are threads; --processes is for --client fio-rados and fio-rbd"),
    ("norandommap", &["1"], "bench draws every block anew, whatever was drawn before"),
    ("ioengine", &["rados", "rbd"], "fio's engines rados and rbd are --client fio-rados or fio-rbd"),
    ("number_ios", &[], "bench counts bytes of all jobs: take --io-size, which is operations x --bs"),
    ("rate_iops", &[], "fio's is for each job; take --rate, which is for all jobs together"),
    ("rate_process", &[], "take --arrivals fixed or poisson"),
    ("name", &[], "leave it out: the job of the result is named after --rw"),
    ("filename", &[], "bench loads objects of a --pool: --size says how much of it"),
    ("output", &[], "take --json FILE"),
    ("output-format", &[], "take --json FILE: it has fio's JSON"),
];

/// Options that stand in the lines of fio's users and that `bench` does not have: those that say what it does anyway are
/// taken, the others are refused with what it has instead. Nothing of them is needed later.
#[derive(Clone, Debug)]
struct FioWords;

impl Args for FioWords {
    fn augment_args(command: Command) -> Command {
        WORDS.iter().fold(command, |command, (name, taken, instead)| {
            let check = move |text: &str| match taken.contains(&text) {
                true => Ok(text.to_owned()),
                false => Err(*instead),
            };
            let arg = Arg::new(*name).long(*name).hide(true);
            let arg = arg.num_args(0..=1).default_missing_value("1").value_parser(check);
            command.arg(if *name == "time_based" { arg.conflicts_with("io_size") } else { arg })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FioWords {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let client = matches.get_one::<Tool>("client").copied().unwrap_or_default();
        let wrong = match (matches.get_one::<String>("ioengine").map(String::as_str), client) {
            (Some("rbd"), client) if client != Tool::FioRbd => "rbd: take --client fio-rbd",
            (Some("rados"), Tool::FioRbd) => "rados: take --client fio-rados, or leave --client out",
            _ => return Ok(Self),
        };
        Err(Error::raw(ErrorKind::ArgumentConflict, format!("--ioengine {wrong}\n")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        Self::from_arg_matches(matches).map(|read| *self = read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_lies_beside_the_result() {
        let of = |json: Option<&str>| path(ProfileMode::OnCpu, json.map(Path::new)).display().to_string();
        assert_eq!(of(Some("points/a_qd1.6_r0.json")), "points/a_qd1.6_r0.oncpu.svg");
        assert_eq!(of(None), "oncpu.svg");
    }

    #[test]
    fn a_recording_that_failed_is_no_error() {
        let profile = profile(ProfileMode::OffCpu, Err("perf is not installed".into()), None, "randread");
        assert_eq!((profile.svg, profile.missing.as_deref()), (None, Some("perf is not installed")));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut samples = Samples { interval_ms: 1000, t_ms: vec![1000.0, 2000.0], ..Samples::default() };
        samples.put("osd_cores", vec![Some(0.5), None]);
        let mut result = JobResult::default();
        (0..2_000u64).for_each(|n| {
            result.read.record(4096, 5_000, n * 1_000_000);
            result.seconds.record(5_000, n * 1_000_000);
        });
        result.seconds.close();
        let samples = with_load(samples, &result, 2.4);
        let read: Samples = serde_json::from_value(serde_json::to_value(&samples).unwrap()).unwrap();
        assert_eq!(read.series["iops"], [Some(1000.0), Some(1000.0)]);
        assert_eq!((read.series["osd_cores"][1], read.interval_ms), (None, 1000));
        assert!(read.series["p99_ns"][1].is_some_and(|ns| (ns / 5_000.0 - 1.0).abs() < 0.01));
        assert!(!read.series.contains_key("write_iops"));
        assert_eq!(read.instrument, samples.instrument);
    }
}

#[cfg(test)]
mod args_tests {
    use carmine_load::{Arrivals, Rw};

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(words: &str) -> Result<BenchArgs, String> {
        let words = std::iter::once("bench").chain(words.split_ascii_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.bench).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_are_fios() {
        assert_eq!(parse("").unwrap().spec(), LoadSpec::default());
        let spec =
            parse("--rw randwrite --bs 64k --iodepth 16 --runtime 2m --ramp 500ms --seed 7").unwrap().spec();
        assert_eq!((spec.rw, spec.bs_bytes, spec.iodepth), (Rw::RandWrite, 65536, 16));
        assert_eq!((spec.runtime_ms, spec.ramp_ms, spec.seed), (120_000, 500, 7));
    }

    #[test]
    fn open_loop_may_have_many_in_flight() {
        let spec = parse("--rate 5000 --arrivals poisson").unwrap().spec();
        assert_eq!((spec.rate_iops, spec.iodepth, spec.arrivals), (Some(5000.0), 256, Arrivals::Poisson));
        assert_eq!(parse("--rate 5000 --iodepth 8").unwrap().spec().iodepth, 8);
        assert!(parse("--arrivals poisson").is_err());
    }

    #[test]
    fn lines_of_fio_are_taken_as_far_as_they_say_what_bench_does() {
        let line = "--readwrite=randread --blocksize=4k --iodepth=16 --size=64m --runtime=5 --ramp_time=1 --randseed=3 \
                    --ioengine=rados --direct=1 --time_based --group_reporting --thread --norandommap";
        let spec = parse(line).unwrap().spec();
        assert_eq!((spec.rw, spec.iodepth, spec.runtime_ms, spec.ramp_ms), (Rw::RandRead, 16, 5_000, 1_000));
        assert_eq!(spec.seed, 3);
        let spec = parse("--io_size=8m --object_size=1m --direct 1 --group_reporting=1").unwrap().spec();
        assert_eq!((spec.io_bytes, spec.object_size_bytes), (Some(8 << 20), 1 << 20));
        assert!(parse("--client fio-rbd --ioengine rbd").is_ok());
        for (words, part) in [
            ("--time_based=0", "--io-size"),
            ("--time_based --io_size=8m", "--io-size"),
            ("--group_reporting=0", "all jobs together"),
            ("--direct=0", "page cache"),
            ("--ioengine=libaio", "--client fio-rados or fio-rbd"),
            ("--ioengine=rbd", "--client fio-rbd"),
            ("--ioengine=rados --client fio-rbd", "--client fio-rados"),
            ("--number_ios=1000", "--io-size"),
            ("--rate_iops=1000", "--rate"),
            ("--filename=/dev/nvme0n1", "--pool"),
            ("--name=a", "--rw"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(part) && !error.contains("unexpected argument"), "{words}: {error}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for (words, part) in [
            ("--rw append", "append"),
            ("--bs 4q", "4q"),
            ("--runtime soon", "soon"),
            ("--route both", "both"),
            ("--verify-only", "--verify-state"),
            ("--in-process --numjobs 2", "--numjobs"),
            ("--rwmixread 101", "101"),
            ("--cache warm", "onode-warm"),
            ("--profile cpu", "offcpu"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
