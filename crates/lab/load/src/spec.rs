//! What load is wanted: fio's words, checked once before anything starts.

use std::fmt;

use carmine_types::counted;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Requests in flight of one job, at most.
const IODEPTH_MAX: u32 = 16_384;
/// Jobs, at most: each is a thread.
const NUMJOBS_MAX: u32 = 1024;
/// A block, at most: one RADOS operation carries it.
const BS_MAX: u64 = 16 << 20;
/// Objects, at most: their names and sequence numbers are held in memory.
const OBJECTS_MAX: u64 = 1 << 22;

carmine_types::words! {
    /// Mix and order of operations.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
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
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Arrivals: "way of arriving" {
        /// Evenly spaced.
        #[default]
        Fixed = "fixed",
        /// Independent arrivals: exponential gaps.
        Poisson = "poisson",
    }
}

carmine_types::words! {
    /// Connections of the cluster client.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Route: "route" {
        /// One connection per (OSD, reactor): no hop.
        #[default]
        Direct = "direct",
        /// One connection per OSD, as a stock client has.
        Single = "single",
    }
}

carmine_types::words! {
    /// When objects are written before the load starts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Prefill: "answer" {
        /// Objects that are missing or too small, unless the load writes them in order itself; all of them if blocks are
        /// verified and nothing is known about them.
        #[default]
        Auto = "auto",
        Always = "always",
        Never = "never",
    }
}

/// A load that can't be made as asked.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    #[error("{what} {text}: {why}")]
    Value { what: &'static str, text: String, why: String },
}

carmine_types::defaults! {
    /// One load, for all its jobs together, and the options of `bench` that make it. Defaults are fio's where fio has any.
    #[derive(clap::Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// Operations in flight of each job; with --rate, the most that may be in flight
        #[arg(
            long,
            value_name = "N",
            default_value = "1",
            default_value_if("rate", clap::builder::ArgPredicate::IsPresent, "256")
        )]
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
        #[serde(default)]
        pub io_bytes: Option<u64>,
        /// Bytes of one object
        #[arg(id = "object_size", long = "object-size", alias = "object_size", value_name = "SIZE", default_value = "4m", value_parser = parse_bytes)]
        pub object_size_bytes: u64 = 4 << 20,
        /// The same seed gives the same operations
        #[arg(long, alias = "randseed", value_name = "N", default_value_t = 1)]
        pub seed: u64 = 1,
        /// direct (one connection per OSD and reactor) or single (one per OSD, as stock clients have)
        #[arg(long, value_name = "ROUTE", default_value = "direct")]
        pub route: Route,
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
        /// Read every block that --verify-state knows to be written once, check it, and end
        #[arg(long, requires = "verify_state")]
        pub verify_only: bool,
        /// With fio-rbd: images that the bytes of --size are dealt to; the jobs load them in turn
        #[arg(long, value_name = "N", default_value_t = 1)]
        #[serde(default = "one")]
        pub volumes: u32 = 1,
        /// With fio-rados and fio-rbd: processes that the jobs are dealt to (rados-bench has one for each job)
        #[arg(long, value_name = "N", default_value_t = 1)]
        #[serde(default = "one")]
        pub processes: u32 = 1,
        /// Tells the verified blocks of this load from those of earlier ones with the same seed; kept in the state file.
        #[arg(skip)]
        #[serde(default)]
        pub generation: u64,
        /// Keeps the latencies of each second, for time series.
        #[arg(skip)]
        #[serde(default)]
        pub keep_seconds: bool,
    }
}

fn one() -> u32 {
    1
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
        let ops = self.io_bytes? / self.bs_bytes.max(1);
        let jobs = u64::from(self.numjobs.max(1));
        Some(ops / jobs + u64::from(u64::from(job) < ops % jobs))
    }

    /// Checks every value against the others; nothing that is started later has to.
    pub fn check(&self) -> Result<(), SpecError> {
        let bad = |what: &'static str, text: &dyn fmt::Display, why: &str| {
            Err(SpecError::Value { what, text: text.to_string(), why: why.to_owned() })
        };
        if self.bs_bytes == 0 || self.bs_bytes > BS_MAX {
            return bad("--bs", &self.bs_bytes, "must be 1 byte to 16 MiB");
        }
        if self.io_bytes.is_some_and(|bytes| bytes < self.bs_bytes) {
            return bad(
                "--io-size",
                &self.io_bytes.unwrap_or(0),
                "is less than one operation (--bs); raise it",
            );
        }
        if self.io_bytes.is_some() && self.ramp_ms > 0 {
            return bad(
                "--ramp",
                &self.ramp_ms,
                "would do a part of --io-size unmeasured; leave one of the two out",
            );
        }
        if self.object_size_bytes == 0 || !self.object_size_bytes.is_multiple_of(self.bs_bytes) {
            return bad("--object-size", &self.object_size_bytes, "must be a multiple of --bs");
        }
        if self.size_bytes < self.object_size_bytes {
            return bad("--size", &self.size_bytes, "is less than one object (--object-size); raise it");
        }
        if self.objects() > OBJECTS_MAX {
            return bad("--size", &self.size_bytes, "is more than 4,194,304 objects; raise --object-size");
        }
        if self.iodepth == 0 || self.iodepth > IODEPTH_MAX {
            return bad("--iodepth", &self.iodepth, "must be 1 to 16384");
        }
        if self.numjobs == 0 || self.numjobs > NUMJOBS_MAX {
            return bad("--numjobs", &self.numjobs, "must be 1 to 1024");
        }
        if u64::from(self.numjobs) > self.objects() {
            let why =
                format!("each needs an object of its own and there are {}; raise --size", self.objects());
            return bad("--numjobs", &self.numjobs, &why);
        }
        for (what, n) in [("--volumes", self.volumes), ("--processes", self.processes)] {
            if n == 0 || n > self.numjobs {
                let why =
                    format!("must be 1 to {}, for each has a job of its own; raise --numjobs", self.numjobs);
                return bad(what, &n, &why);
            }
        }
        if self.rwmixread > 100 {
            return bad("--rwmixread", &self.rwmixread, "is a percentage");
        }
        if self.runtime_ms == 0 {
            return bad("--runtime", &"0", "must be above 0");
        }
        if let Some(rate) = self.rate_iops
            && !(rate > 0.0 && rate <= 1e9)
        {
            return bad("--rate", &rate, "must be above 0 and at most 1e9 operations per second");
        }
        if (self.verify || self.verify_only) && self.bs_bytes < crate::verify::HEADER_BYTES as u64 {
            return bad("--bs", &self.bs_bytes, "is too small for --verify, which needs 64 bytes");
        }
        Ok(())
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
        let mix =
            if self.rw == Rw::RandRw { format!(" ({} % reads)", self.rwmixread) } else { String::new() };
        let rate =
            self.rate_iops.map_or_else(String::new, |r| format!(", {r:.0} IOPS {} arrivals", self.arrivals));
        format!(
            "{}{mix} {}, iodepth {} x {}{rate}, {} in {}",
            self.rw,
            show_bytes(self.bs_bytes),
            self.iodepth,
            counted(self.numjobs as usize, "job"),
            show_bytes(self.objects() * self.object_size_bytes),
            counted(self.objects() as usize, "object"),
        )
    }
}

/// Parses bytes as fio does: `4k`, `4K`, `4KiB`, `1m`, `2g`, `1t` (powers of 1024) or plain bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        unit => return Err(format!("`{text}`: unknown unit `{unit}`; write bytes as 4096, 4k, 1m or 2g")),
    };
    let value = digits
        .parse::<u64>()
        .map_err(|_| format!("`{text}` is no size; write bytes as 4096, 4k, 1m or 2g"))?;
    value.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))
}

/// Bytes as people write them: `4k`, `1m`, or the plain number.
pub fn show_bytes(bytes: u64) -> String {
    let units = [(1u64 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    match units.iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}

/// Parses a time as fio does, to milliseconds: plain seconds (also `0.5`), `500ms`, `10s`, `2m`, `1h`.
pub fn parse_millis(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &lower[digits.len()..] {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" => 60e3,
        "h" => 3600e3,
        unit => {
            return Err(format!("`{text}`: unknown unit `{unit}`; write times as 10, 500ms, 10s, 2m or 1h"));
        }
    };
    let value = digits
        .parse::<f64>()
        .map_err(|_| format!("`{text}` is no time; write it as 10, 500ms, 10s or 2m"))?;
    let millis = value * factor;
    // A year: what is longer is a typing error.
    if (0.0..=31_536_000_000.0).contains(&millis) {
        Ok(millis.round() as u64)
    } else {
        Err(format!("`{text}` is out of range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!(
            (parse_bytes("4k"), parse_bytes("4KiB"), parse_bytes("512")),
            (Ok(4096), Ok(4096), Ok(512))
        );
        assert_eq!(
            (parse_bytes("2g"), show_bytes(2 << 30), show_bytes(4096)),
            (Ok(2 << 30), "2g".into(), "4k".into())
        );
        assert_eq!(
            (parse_millis("10"), parse_millis("0.5"), parse_millis("250ms")),
            (Ok(10_000), Ok(500), Ok(250))
        );
        assert_eq!(parse_millis("2m"), Ok(120_000));
        for text in ["", "k", "4q", "-1", "99999999999t", "1.5k"] {
            assert!(parse_bytes(text).unwrap_err().contains(&format!("`{text}`")));
        }
        for text in ["", "ms", "4q", "-1", "1e99"] {
            assert!(parse_millis(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_is_singular() {
        let summary = |spec: LoadSpec| spec.summary();
        let one = summary(LoadSpec { size_bytes: 4 << 20, ..LoadSpec::default() });
        assert_eq!(one, "read 4k, iodepth 1 x 1 job, 4m in 1 object");
        let two = summary(LoadSpec { size_bytes: 8 << 20, numjobs: 2, ..LoadSpec::default() });
        assert_eq!(two, "read 4k, iodepth 1 x 2 jobs, 8m in 2 objects");
    }

    #[test]
    fn words_are_fios() {
        assert_eq!("randwrite".parse(), Ok(Rw::RandWrite));
        let error = "randwrites".parse::<Rw>().unwrap_err().to_string();
        assert!(error.contains("`randwrites`") && error.contains("randwrite or"), "{error}");
        assert_eq!(serde_json::to_string(&Rw::RandRw).unwrap(), "\"randrw\"");
    }

    #[test]
    fn checks_name_the_option() {
        type Change = fn(&mut LoadSpec);
        let cases: [(&str, Change); 11] = [
            ("--bs 0", |s| s.bs_bytes = 0),
            ("--object-size", |s| s.bs_bytes = 4097),
            ("--size 1", |s| s.size_bytes = 1),
            ("--iodepth 0", |s| s.iodepth = 0),
            ("--numjobs 300", |s| s.numjobs = 300),
            ("--volumes 3", |s| (s.volumes, s.numjobs) = (3, 2)),
            ("--processes 0", |s| s.processes = 0),
            ("--rwmixread 101", |s| s.rwmixread = 101),
            ("--runtime", |s| s.runtime_ms = 0),
            ("--rate", |s| s.rate_iops = Some(f64::NAN)),
            ("--verify", |s| (s.verify, s.bs_bytes) = (true, 32)),
        ];
        assert_eq!(LoadSpec::default().check(), Ok(()));
        for (part, change) in cases {
            let mut spec = LoadSpec::default();
            change(&mut spec);
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn bytes_round_trip(bytes: u64) {
            prop_assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn parsers_never_panic(text in "\\PC{0,20}") {
            let _ = (parse_bytes(&text), parse_millis(&text));
        }
    }
}
