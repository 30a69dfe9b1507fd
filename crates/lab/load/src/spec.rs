//! The load that is asked for: fio's words, checked once before anything starts.

use std::fmt::Display;
use std::str::FromStr;

use carmine_client::RouteMode;
use carmine_types::counted;
use clap::builder::ArgPredicate::IsPresent;
use serde::{Deserialize, Serialize};

use crate::bssplit::BlockSplit;
use crate::distribution::Distribution;
use crate::verify::HEADER_BYTES;

/// Requests in flight of one job, at most.
const IODEPTH_MAX: u32 = 16_384;
/// Jobs, at most: each is a thread.
const NUMJOBS_MAX: u32 = 1024;
/// A block, at most: one RADOS operation carries it.
pub(crate) const BS_MAX: u64 = 16 << 20;
/// Objects, at most: their names and sequence numbers are held in memory.
const OBJECTS_MAX: u64 = 1 << 22;

carmine_types::words! {
    /// Mix and order of operations.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Rw: "kind of load" {
        #[default]
        Read = "read",
        Write = "write",
        RandRead = "randread",
        RandWrite = "randwrite",
        /// Random, a mix of reads and writes.
        RandRw = "randrw",
    }
}

impl Arrivals {
    /// fio's word for it.
    pub(crate) fn of_fio(self) -> &'static str {
        if self == Arrivals::Fixed { "linear" } else { "poisson" }
    }
}

impl Rw {
    pub fn reads(self) -> bool {
        matches!(self, Rw::Read | Rw::RandRead | Rw::RandRw)
    }

    pub fn writes(self) -> bool {
        matches!(self, Rw::Write | Rw::RandWrite | Rw::RandRw)
    }

    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw)
    }
}

carmine_types::words! {
    /// How requests arrive when a rate is given.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Arrivals: "way of arriving" {
        /// Evenly spaced.
        #[default]
        Fixed = "fixed",
        /// Independent arrivals: exponential gaps.
        Poisson = "poisson",
    }
}

carmine_types::words! {
    /// When objects are written before the load starts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Prefill: "answer" {
        /// Objects that are missing or too small, unless the load writes them in order itself; all of them if blocks are
        /// verified and nothing is known about them.
        #[default]
        Auto = "auto",
        Always = "always",
        Never = "never",
    }
}

/// A rule of a load: whether it holds, and otherwise the option, its value, and why not.
pub(crate) type Rule<'a> = (bool, &'a str, &'a dyn Display, &'a str);

/// The first rule that does not hold, in words.
///
/// # Errors
/// There is one.
pub(crate) fn check_all<const N: usize>(rules: [Rule<'_>; N]) -> Result<(), String> {
    let wrong = rules.into_iter().find(|(holds, ..)| !holds);
    wrong.map_or(Ok(()), |(_, option, value, why)| Err(format!("{option} {value}: {why}")))
}

carmine_types::defaults! {
    /// One load, for all its jobs together, and the options of `bench` that make it. Defaults are fio's where fio has any.
    #[derive(clap::Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct LoadSpec {
        /// read, write, randread, randwrite or randrw
        #[arg(long, alias = "readwrite", value_name = "WORD", default_value = "read")]
        pub rw: Rw,
        /// Percentage of reads in randrw
        #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
        pub rwmixread: u8 = 50,
        /// Bytes of one operation, such as 4k or 1m
        #[arg(id = "bs", long = "bs", alias = "blocksize", value_name = "SIZE", default_value = "4k", value_parser = parse_bytes)]
        pub bs_bytes: u64 = 4096,
        /// Operations of several lengths, with the percentage of each, such as 4k/60:64k/40; a comma separates those of reads from
        /// those of writes
        #[arg(long, value_name = "SIZE/PERCENT:...", conflicts_with = "bs")]
        pub bssplit: Option<BlockSplit>,
        /// Popularity of the blocks that a random load touches: random (all alike), zipf:THETA, pareto:H, normal:DEVIATION or
        /// zoned:OPS/SIZE:OPS/SIZE (percentages). The popular ones of the first three lie scattered over all objects
        #[arg(long, alias = "random_distribution", value_name = "WORD", default_value_t)]
        pub random_distribution: Distribution,
        /// Operations in flight of each job; with --rate, the most that may be in flight
        #[arg(long, value_name = "N", default_value = "1", default_value_if("rate", IsPresent, "256"))]
        pub iodepth: u32 = 1,
        /// Jobs: threads of the generator, each with its own connections
        #[arg(long, value_name = "N", default_value_t = 1)]
        pub numjobs: u32 = 1,
        /// Length of the measured window, such as 10, 500ms or 2m
        #[arg(id = "runtime", long = "runtime", value_name = "TIME", default_value = "10", value_parser = parse_millis)]
        pub runtime_ms: u64 = 10_000,
        /// Load before the window
        #[arg(id = "ramp", long = "ramp", aliases = ["ramp_time", "ramp-time"], value_name = "TIME", default_value = "0", value_parser = parse_millis)]
        pub ramp_ms: u64,
        /// Bytes that the load spreads over, in whole objects
        #[arg(id = "size", long = "size", value_name = "SIZE", default_value = "1g", value_parser = parse_bytes)]
        pub size_bytes: u64 = 1 << 30,
        /// End after this many bytes of all jobs together instead of after --runtime: the same seed then gives the same
        /// operations, no more and no fewer
        #[arg(
            id = "io_size", long = "io-size", alias = "io_size", value_name = "SIZE", value_parser = parse_bytes,
            conflicts_with_all = ["runtime", "verify_only", "in_process", "confirm"]
        )]
        pub io_bytes: Option<u64>,
        /// Bytes of one object
        #[arg(id = "object_size", long = "object-size", alias = "object_size", value_name = "SIZE", default_value = "4m", value_parser = parse_bytes)]
        pub object_size_bytes: u64 = 4 << 20,
        /// The same seed gives the same operations
        #[arg(long, alias = "randseed", value_name = "N", default_value_t = 1)]
        pub seed: u64 = 1,
        /// direct (one connection per OSD and reactor) or single (one per OSD, as stock clients have)
        #[arg(long, value_name = "ROUTE", default_value = "direct")]
        pub route: RouteMode = RouteMode::Direct,
        /// Operations per second of all jobs together, regardless of the answers; latency counts from the intended start
        #[arg(id = "rate", long = "rate", value_name = "IOPS")]
        pub rate_iops: Option<f64>,
        /// With --rate: fixed or poisson
        #[arg(long, value_name = "WORD", default_value = "fixed", requires = "rate")]
        pub arrivals: Arrivals,
        /// Write the objects first, with incompressible data: auto (those that are missing), always or never
        #[arg(long, value_name = "WHEN", default_value = "auto")]
        pub prefill: Prefill,
        /// Write blocks that carry their own address and version, and check every block that is read
        #[arg(long)]
        pub verify: bool,
        /// Read once, and check, every block that --verify-state knows to be written, then end
        #[arg(long, requires = "verify_state")]
        pub verify_only: bool,
        /// With fio-rbd: images that the bytes of --size are dealt to; the jobs load them in turn
        #[arg(long, value_name = "N", default_value_t = 1)]
        pub volumes: u32 = 1,
        /// With fio-rados and fio-rbd: processes that the jobs are dealt to (rados-bench has one for each job)
        #[arg(long, value_name = "N", default_value_t = 1)]
        pub processes: u32 = 1,
        /// Hosts whose generators share the load; 0: this one makes it.
        #[arg(skip)]
        pub load_hosts: u32,
        /// Name and checksum of the job file whose jobs fio runs; then the other fields say what its jobs do together, as far as
        /// they can.
        #[arg(skip)]
        pub jobfile: Option<String>,
        /// Tells the verified blocks of this load from those of earlier ones with the same seed; kept in the state file.
        #[arg(skip)]
        pub generation: u64,
        /// Keeps the latencies of each second, for time series.
        #[arg(skip)]
        pub keep_seconds: bool,
    }
}

impl LoadSpec {
    /// True for a load that ends when its work is done, not when its time is over.
    pub fn ends_by_itself(&self) -> bool {
        self.verify_only || self.io_bytes.is_some()
    }

    /// Blocks that are read are checked.
    pub fn verifies(&self) -> bool {
        self.verify || self.verify_only
    }

    /// Operations of one job, if their number is given: the same for every run, so that the same seed gives the same
    /// operations, no more and no fewer.
    pub fn ops_of(&self, job: u32) -> Option<u64> {
        let ops = (self.io_bytes? as f64 / self.mean_bytes().max(1.0)) as u64;
        let jobs = u64::from(self.numjobs.max(1));
        Some(ops / jobs + u64::from(u64::from(job) < ops % jobs))
    }

    /// The same load with blocks of the length that its operations are multiples of.
    #[must_use]
    pub fn in_units(mut self) -> LoadSpec {
        if let Some(split) = &self.bssplit {
            self.bs_bytes = split.unit_bytes();
        }
        self
    }

    /// Bytes of the longest operation.
    pub fn longest_bytes(&self) -> u64 {
        self.bssplit.as_ref().map_or(self.bs_bytes, BlockSplit::longest_bytes)
    }

    /// Bytes of a read or a write in the mean.
    pub fn mean_bytes_of(&self, read: bool) -> f64 {
        self.bssplit.as_ref().map_or(self.bs_bytes as f64, |split| split.mean_bytes(read))
    }

    /// Bytes of an operation of this load in the mean.
    pub fn mean_bytes(&self) -> f64 {
        let reads = match self.rw {
            Rw::RandRw => f64::from(self.rwmixread) / 100.0,
            other => f64::from(u8::from(other.reads())),
        };
        reads * self.mean_bytes_of(true) + (1.0 - reads) * self.mean_bytes_of(false)
    }

    /// The lengths of the operations as people write them.
    pub fn show_bs(&self) -> String {
        if self.jobfile.is_some() {
            return "of the job file".to_owned();
        }
        self.bssplit.as_ref().map_or_else(|| show_bytes(self.bs_bytes), ToString::to_string)
    }

    /// Checks every value against the others; nothing that is started later has to.
    ///
    /// # Errors
    /// The first option that can't be as it is.
    pub fn check(&self) -> Result<(), String> {
        self.check_objects()?;
        // The other options of a job file's jobs are fio's to check.
        if self.jobfile.is_some() { Ok(()) } else { self.check_load() }
    }

    /// The options that the data depends on.
    fn check_objects(&self) -> Result<(), String> {
        let (size, object, objects) = (self.size_bytes, self.object_size_bytes, self.objects());
        check_all([
            (object > 0, "--object-size", &object, "must be above 0"),
            (objects > 0, "--size", &size, "is less than one object (--object-size); raise it"),
            (objects <= OBJECTS_MAX, "--size", &size, "is more than 4,194,304 objects; raise --object-size"),
        ])
    }

    fn check_load(&self) -> Result<(), String> {
        let LoadSpec { iodepth: depth, volumes, processes, rwmixread, runtime_ms, ramp_ms, .. } = *self;
        let (bs, object) = (self.bs_bytes, self.object_size_bytes);
        let (objects, jobs, rate) = (self.objects(), self.numjobs, self.rate_iops.unwrap_or(1.0));
        let longest = self.longest_bytes();
        let (is_sized, io) = (self.io_bytes.is_some(), self.io_bytes.unwrap_or(longest));
        let (split, popularity) = (self.show_bs(), &self.random_distribution);
        let is_even = *popularity == Distribution::Random;
        let unit = self.bssplit.as_ref().map_or(bs, BlockSplit::unit_bytes);
        let too_few = format!("each needs an object of its own and there are {objects}; raise --size");
        let no_job = format!("must be 1 to {jobs}, as each has a job of its own; raise --numjobs");
        let is_too_small = self.verifies() && bs < HEADER_BYTES as u64;
        check_all([
            ((1..=BS_MAX).contains(&bs), "--bs", &bs, "must be 1 byte to 16 MiB"),
            (bs == unit, "--bs", &bs, "leave out: --bssplit has the lengths of operations"),
            (
                is_even || self.rw.is_random(),
                "--random-distribution",
                popularity,
                "only random loads choose blocks; take --rw randread, randwrite or randrw",
            ),
            (io >= longest, "--io-size", &io, "is less than one operation (--bs); raise it"),
            (
                !is_sized || ramp_ms == 0,
                "--ramp",
                &ramp_ms,
                "leave out: a part of --io-size would be unmeasured",
            ),
            (object.is_multiple_of(bs), "--object-size", &object, "must be a multiple of --bs"),
            (
                object >= longest,
                "--bssplit",
                &split,
                "has operations longer than an object; raise --object-size",
            ),
            ((1..=IODEPTH_MAX).contains(&depth), "--iodepth", &depth, "must be 1 to 16384"),
            ((1..=NUMJOBS_MAX).contains(&jobs), "--numjobs", &jobs, "must be 1 to 1024"),
            (u64::from(jobs) <= objects, "--numjobs", &jobs, &too_few),
            ((1..=jobs).contains(&volumes), "--volumes", &volumes, &no_job),
            ((1..=jobs).contains(&processes), "--processes", &processes, &no_job),
            (rwmixread <= 100, "--rwmixread", &rwmixread, "is a percentage"),
            (runtime_ms > 0, "--runtime", &runtime_ms, "must be above 0"),
            (rate > 0.0 && rate <= 1e9, "--rate", &rate, "must be above 0 and at most 1e9 IOPS"),
            (!is_too_small, "--bs", &bs, "is too small for --verify, which needs 64 bytes"),
        ])
    }

    /// Whole objects that the load spreads over.
    pub fn objects(&self) -> u64 {
        self.size_bytes.checked_div(self.object_size_bytes).unwrap_or(0)
    }

    /// Bytes of each of the volumes, in whole objects.
    pub fn volume_bytes(&self) -> u64 {
        self.objects() / u64::from(self.volumes.max(1)) * self.object_size_bytes
    }

    pub fn blocks_per_object(&self) -> u64 {
        self.object_size_bytes.checked_div(self.bs_bytes).unwrap_or(0)
    }

    /// The seed that verified blocks carry.
    pub fn block_seed(&self) -> u64 {
        self.seed ^ self.generation.rotate_left(32)
    }

    /// Requests in flight of all jobs, at most.
    pub fn depth_total(&self) -> u64 {
        u64::from(self.iodepth) * u64::from(self.numjobs)
    }

    /// One line for people: `randwrite 4k, iodepth 16 x 2 jobs, …`
    pub fn summary(&self) -> String {
        if let Some(jobfile) = &self.jobfile {
            let jobs = counted(self.numjobs as usize, "job");
            return format!(
                "job file {jobfile}: {} by up to {jobs} at once, {} in flight",
                self.rw,
                self.depth_total()
            );
        }
        let mix = Some(self.rwmixread).filter(|_| self.rw == Rw::RandRw);
        let mix = mix.map(|percent| format!(" ({percent} % reads)"));
        let rate = self.rate_iops.map(|rate| format!(", {rate:.0} IOPS {} arrivals", self.arrivals));
        let popularity =
            Some(&self.random_distribution).filter(|popularity| **popularity != Distribution::Random);
        let popularity = popularity.map(|popularity| format!(" {popularity}"));
        format!(
            "{}{}{} {}, iodepth {} x {}{}, {} in {}",
            self.rw,
            mix.unwrap_or_default(),
            popularity.unwrap_or_default(),
            self.show_bs(),
            self.iodepth,
            counted(self.numjobs as usize, "job"),
            rate.unwrap_or_default(),
            show_bytes(self.objects() * self.object_size_bytes),
            counted(self.objects() as usize, "object"),
        )
    }
}

/// Spellings of each unit of bytes, separated by spaces, and its size.
const UNITS: [(&str, u64); 5] =
    [(" b", 1), ("k kb kib", 1 << 10), ("m mb mib", 1 << 20), ("g gb gib", 1 << 30), ("t tb tib", 1 << 40)];

/// A number and the factor of its unit, one of `units`; `like` is an example for users who write another.
fn parse<T: FromStr>(text: &str, units: &[(&str, u64)], like: &str) -> Result<(T, u64), String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &lower[digits.len()..];
    let known = units.iter().find(|(names, _)| names.split(' ').any(|name| name == unit));
    let (_, factor) = known.ok_or_else(|| format!("`{text}`: unknown unit `{unit}`; write {like}"))?;
    Ok((digits.parse().map_err(|_| format!("`{text}` is not understood; write {like}"))?, *factor))
}

/// Parses bytes as fio does: `4k`, `4K`, `4KiB`, `1m`, `2g`, `1t` (powers of 1024) or plain bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (value, factor) = parse::<u64>(text, &UNITS, "bytes as 4096, 4k, 1m or 2g")?;
    value.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))
}

/// Bytes as people write them: `4k`, `1m`, or the plain number.
pub fn show_bytes(bytes: u64) -> String {
    let fits = |(_, size): &&(&str, u64)| bytes >= *size && bytes.is_multiple_of(*size);
    let (names, size) = UNITS.iter().rfind(fits).unwrap_or(&UNITS[0]);
    format!("{}{}", bytes / size, names[..1].trim())
}

/// Parses a time as fio does, to milliseconds: plain seconds (also `0.5`), `500ms`, `10s`, `2m`, `1h`.
pub fn parse_millis(text: &str) -> Result<u64, String> {
    let units = [("ms", 1), (" s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let (value, factor) = parse::<f64>(text, &units, "times as 10, 500ms, 10s, 2m or 1h")?;
    let millis = value * factor as f64;
    // A year: anything longer is a typing error.
    let is_time = (0.0..=31_536_000_000.0).contains(&millis);
    if is_time { Ok(millis.round() as u64) } else { Err(format!("`{text}` is out of range")) }
}

#[cfg(test)]
mod tests;
