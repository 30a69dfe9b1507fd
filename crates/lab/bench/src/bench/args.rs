//! Options of `carmine bench`, in fio's words.

use std::path::PathBuf;

use carmine_load::LoadSpec;
use carmine_load::hosted::Tool;
use carmine_load::profile::ProfileMode;
use carmine_load::report::CacheState;
use carmine_testbed::DirArgs;
use clap::{Arg, Args};

/// The text below the options.
const AFTER_HELP: &str = "\
Cycles and instructions per operation come with --samples where perf can read the processor's counters.

While OSDs die and restart, the clients go on with the others; the result has the mark DIED and the longest pause.

Exit codes: 0 measured, and every block was right; 1 errors, wrong blocks, no running OSD left, or no measurement; 2 it cannot be
done as asked. --json and --samples write their files whole, or not at all.

The instrument's cost: on a 2-vCPU virtual machine with one OSD, --samples took 0.4 to 0.5 % of one core (every result has its
own figure), and the OSD's CPU time per operation was the same within noise: medians of 5 interleaved runs each were 6.03 us with
samples and 6.05 us without (development build, machine busy with other things).";

/// Options that a job file has for each of its jobs, or that its load cannot have.
const OF_JOBS: [&str; 24] = [
    "rw",
    "rwmixread",
    "bs",
    "bssplit",
    "random_distribution",
    "iodepth",
    "numjobs",
    "runtime",
    "ramp",
    "io_size",
    "seed",
    "rate",
    "arrivals",
    "route",
    "volumes",
    "processes",
    "verify",
    "verify_only",
    "verify_state",
    "fill",
    "age",
    "in_process",
    "confirm",
    "osd_out",
];

/// Options of the bench, in fio's words.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, args = fio_words())]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    #[command(flatten)]
    load: LoadSpec,
    /// fio's word for the client
    #[arg(long, hide = true, value_parser = one_of(&["rados", "rbd"], OF_ENGINES))]
    ioengine: Option<String>,
    /// Spread over this percentage of what the pool can hold, instead of --size, such as 80
    #[arg(long, value_name = "PERCENT", conflicts_with = "size", value_parser = clap::value_parser!(u8).range(1..=90))]
    pub(crate) fill: Option<u8>,
    /// Age the store: overwrite the bytes of --size or --fill this many times, at random. Stores aged with the same options and
    /// seed get the same writes
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["rw", "io_size", "runtime", "verify_only", "in_process", "confirm"])]
    pub(crate) age: Option<f64>,
    /// File that keeps what was acknowledged, so that a later run can check it
    #[arg(long, value_name = "FILE")]
    pub(crate) verify_state: Option<PathBuf>,
    /// Load the PGs inside an OSD's process, without sockets: each reactor loads its own
    #[arg(long, conflicts_with_all = ["verify_state", "numjobs", "route"])]
    pub(crate) in_process: bool,
    /// With --in-process: the OSD
    #[arg(long, value_name = "ID", default_value_t = 0, requires = "in_process")]
    pub(crate) osd: u32,
    /// Load generator: carmine (this program), rados-bench, fio-rados or fio-rbd (the stock tools, on the client CPUs)
    #[arg(long, value_name = "TOOL", default_value = "carmine")]
    pub(crate) client: Tool,
    /// Hosts on which `carmine load` waits, as HOST:PORT,...: the jobs are dealt to them, begin at once, and are reported together;
    /// this host only steers. See docs/hosts.md
    #[arg(
        long, value_name = "ADDR,...", value_delimiter = ',', num_args = 1,
        conflicts_with_all = ["in_process", "verify_state", "osd_out", "jobfile"]
    )]
    pub(crate) load_hosts: Vec<String>,
    /// Run the jobs of a job file of fio, with --client fio-rbd or fio-rados: the testbed's engine, pool and data are put over it. --size is
    /// that of the data where no job says its own
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_JOBS)]
    pub(crate) jobfile: Option<PathBuf>,
    /// With --jobfile: run only the jobs of this section
    #[arg(long, value_name = "NAME", requires = "jobfile")]
    pub(crate) section: Option<String>,
    /// Pool that is loaded
    #[arg(long, value_name = "NAME", default_value = carmine_testbed::POOL_NAME)]
    pub(crate) pool: String,
    /// After the window, load for a moment with twice the generator threads (in-process: twice the depth): the gain
    /// confirms or refutes the limiter
    #[arg(long, conflicts_with_all = ["rate", "verify", "verify_only", "verify_state"])]
    pub(crate) confirm: bool,
    /// Take this OSD out when the window begins, and in again behind it: clients beside a backfill. The result has the time until all
    /// PGs were clean, and the clients' p99 until then and after it (`recovery`)
    #[arg(long, value_name = "ID", conflicts_with_all = ["in_process", "confirm", "verify_only", "io_size"])]
    pub(crate) osd_out: Option<u32>,
    /// File for samples of the window, one a second: CPUs, threads, memory, devices, network, sensors, and the load itself.
    /// They are taken by a thread on CPUs that no OSD uses; its cost is in the result (`instrument_cores`)
    #[arg(long, value_name = "FILE", conflicts_with = "verify_only")]
    pub(crate) samples: Option<PathBuf>,
    /// Make a flamegraph of the OSDs with the program perf: oncpu (where CPU time goes) or offcpu (where threads wait). It is taken
    /// in a few seconds of load before the window, and written beside --json as NAME.MODE.svg (without it: MODE.svg).
    /// Where perf cannot do it, a line says why, and the load is measured without it
    #[arg(long, value_name = "MODE", conflicts_with = "verify_only")]
    pub(crate) profile: Option<ProfileMode>,
    /// Print where a microsecond goes: CPU time and waiting of each stage of an operation. CPU time comes from a profile, which
    /// is taken and drawn as with --profile oncpu; that option prints the stages, too
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
            keep_seconds: self.samples.is_some() || self.osd_out.is_some(),
            load_hosts: self.load_hosts.len() as u32,
            ..self.load.clone().in_units()
        }
    }

    /// Why fio's engine is not that of the client, if it is another.
    pub(crate) fn wrong_engine(&self) -> Option<&'static str> {
        match (self.ioengine.as_deref(), self.client) {
            (Some("rbd"), client) if client != Tool::FioRbd => Some("rbd: take --client fio-rbd"),
            (Some("rados"), Tool::FioRbd) => Some("rados: take --client fio-rados, or leave --client out"),
            _ => None,
        }
    }
}

const OF_ENGINES: &str = "fio's engines rados and rbd are --client fio-rados or fio-rbd";

/// Each option, the values that are accepted (fio's flags are 1 if they have none), and the answer to all others.
const WORDS: [(&str, &[&str], &str); 12] = [
    ("time_based", &["1"], "bench always loads for --runtime; --io-size ends it after that many bytes"),
    ("group_reporting", &["1"], "bench always reports all jobs together"),
    ("direct", &["1"], "there is no page cache between bench and the OSDs"),
    ("thread", &["1"], "jobs are threads; --processes is for --client fio-rados and fio-rbd"),
    ("norandommap", &["1"], "bench draws every block anew, whatever was drawn before"),
    ("number_ios", &[], "bench counts bytes of all jobs: take --io-size, which is operations x --bs"),
    ("rate_iops", &[], "fio's rate is for each job; take --rate, which is for all jobs together"),
    ("rate_process", &[], "take --arrivals fixed or poisson"),
    ("name", &[], "leave it out: the job of the result is named after --rw"),
    ("filename", &[], "bench loads objects of a --pool; --size says how many bytes"),
    ("output", &[], "take --json FILE"),
    ("output-format", &[], "take --json FILE: it has fio's JSON"),
];

/// Options from command lines of fio's users that `bench` does not have: those that ask for what it does anyway are
/// accepted, the others are refused with what it has instead. Nothing of them is needed later.
fn fio_words() -> impl Iterator<Item = Arg> {
    WORDS.iter().map(|(name, taken, instead)| {
        let arg = Arg::new(*name).long(*name).hide(true).num_args(0..=1).default_missing_value("1");
        let arg = arg.value_parser(one_of(taken, instead));
        if *name == "time_based" { arg.conflicts_with("io_size") } else { arg }
    })
}

/// A parser of these words alone.
fn one_of(
    taken: &'static [&'static str],
    instead: &'static str,
) -> impl Fn(&str) -> Result<String, &'static str> + Clone {
    move |text| if taken.contains(&text) { Ok(text.to_owned()) } else { Err(instead) }
}

#[cfg(test)]
mod tests {
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
        let args = Cli::try_parse_from(words).map(|cli| cli.bench).map_err(|e| e.to_string())?;
        args.wrong_engine().map_or(Ok(()), |wrong| Err(wrong.to_owned()))?;
        Ok(args)
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
        let spec = parse("--rw=randrw --random_distribution=zipf:1.2 --bssplit=4k/60:64k/40").unwrap().spec();
        assert_eq!((spec.show_bs(), spec.bs_bytes), ("4k/60:64k/40".to_owned(), 4096));
        assert_eq!(spec.random_distribution.to_string(), "zipf:1.2");
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
            ("--random_distribution gauss:3", "zipf:THETA"),
            ("--random_distribution zipf:1.2:0.5", "`zipf:1.2:0.5`"),
            ("--bssplit 4k/60", "add up to 60"),
            ("--bssplit 4k/100 --bs 4k", "--bs"),
            ("--jobfile x.fio --rw read", "--rw"),
            ("--section a", "--jobfile"),
            ("--profile cpu", "offcpu"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
