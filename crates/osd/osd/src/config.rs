//! The configuration that an OSD is given at its start.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use carmine_messenger::{Gate, MORE_BYTES, OUTPUT_BYTES};
use carmine_pgtypes::{STEP_BYTES, STEPS_MAX};
use carmine_types::{OsdId, Uuid};
use carmine_wire::frame::DATA_BYTES_MAX;

use crate::heartbeat::HeartbeatConfig;

/// Memory that the outputs of writes take in the log of a PG at most: beyond it those of the oldest are forgotten. So many bytes are
/// the longest outputs of the newest thousand requests of one operation.
pub(crate) const LOG_RETURNED_BYTES_MAX: usize = 160 << 10;
/// Memory that the log of a PG takes at most, about: some 350 bytes an entry, with its place in the index of requests.
pub const PG_LOG_BYTES: u64 = LogLimits::DEFAULT.entries_max() as u64 * 400 + LOG_RETURNED_BYTES_MAX as u64;
/// Longest object name and locator key, bytes (Ceph's osd_max_object_name_len).
pub(crate) const NAME_BYTES_MAX: usize = 2048;
/// Longest namespace, bytes (Ceph's osd_max_object_namespace_len).
pub(crate) const NAMESPACE_BYTES_MAX: usize = 256;
/// Largest object, bytes (Ceph's osd_max_object_size).
pub(crate) const OBJECT_BYTES_MAX: u64 = 128 << 20;
/// Bytes of data that one request may write, all operations together; also the largest object that is copied.
pub(crate) const REQUEST_BYTES_MAX: u64 = 128 << 20;
/// Largest input of a request, all operations together, and largest write of one operation, bytes (Ceph's osd_max_write_size).
pub(crate) const WRITE_BYTES_MAX: u64 = 90 << 20;
/// Bytes of the changes that one transaction carries at most ([`carmine_pgtypes::Transaction::bytes_max`]): data, xattrs, omap. What a request brings
/// fits by far; a copy of the largest object fits with its attributes. Whatever is accepted must reach the other
/// members, now and when it is repaired: with its log entry, in one message.
pub(crate) const TXN_BYTES_MAX: u64 = 156 << 20;
const _: () = assert!(WRITE_BYTES_MAX <= REQUEST_BYTES_MAX && REQUEST_BYTES_MAX <= TXN_BYTES_MAX);
/// Longest log entry, with the head of its message: names, and clones up to a snapshot set of 4 MiB.
const ENTRY_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(TXN_BYTES_MAX as usize + ENTRY_BYTES_MAX <= DATA_BYTES_MAX);
/// It has so few steps that its receiver decodes them.
const _: () = assert!(TXN_BYTES_MAX / STEP_BYTES <= STEPS_MAX as u64);
/// Bytes that the operations of one request may bring into memory beside its own: outputs, and patterns that are written over
/// and over. Clients read 90 MiB at once of a real Ceph.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 96 << 20;
const _: () = assert!(OUTPUT_BYTES_MAX as usize <= OUTPUT_BYTES);
const _: () = assert!(REQUEST_BYTES_MAX as usize <= MORE_BYTES);
/// Longest output of one operation of a write, bytes (Ceph's osd_max_write_op_reply_len).
pub(crate) const WRITE_OUTPUT_BYTES_MAX: usize = 64;
/// Bytes of notifications' texts that a shard keeps, and that wait to be sent to watchers; as many of the watchers' answers.
pub(crate) const NOTIFY_BYTES_MAX: usize = 16 << 20;
/// Name of the client by which OSDs copy objects from each other.
pub(crate) const COPY_CLIENT: &str = "osd-copy";
/// PGs of one shard that are repaired at the same time before they serve.
pub(crate) const REPAIRS_MAX: usize = 4;
/// Bytes of objects that a shard pushes to an OSD at the same time, of all its PGs: what clients do stands behind them, here, on the
/// connection, and in the log and on the drive of the member that takes them. So many keep a drive of 1 GB/s busy if an
/// answer takes 2 ms, as it does beside clients. One that does not answer keeps nothing from the others.
pub(crate) const PUSHED_BYTES_MAX: usize = 2 << 20;
/// Objects of more than one piece that a shard pushes at the same time beside clients, but for their last pieces. Writes to them wait
/// meanwhile: one that shared the bytes under way with others would be held for longer.
pub(crate) const LONG_PUSHES_MAX: usize = 1;
/// PGs of one shard whose removed snapshots are trimmed at the same time, …
pub(crate) const TRIMS_MAX: usize = 1;
/// … and objects of one PG (Ceph's osd_pg_max_concurrent_snap_trims).
pub(crate) const TRIM_OBJECTS_MAX: usize = 2;
/// PGs of one shard that are listed at the same time: a page of the longest names takes 17 MiB before it is cut.
pub(crate) const LISTS_MAX: usize = 4;
/// Operations that wait on one shard for a PG or a map, at the most; beyond it the newest are dropped and the client
/// sends them again when the map changes.
pub(crate) const WAITING_OPS_MAX: usize = 16 << 10;

/// How many entries the log of a PG has, and how many of them may be uncommitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Entries that are kept for detecting resends.
    entries_min: usize,
    /// Entries beyond those that are dropped at once: trimming one by one would double the metadata writes.
    trim_batch: usize,
}

impl LogLimits {
    /// As many as in Ceph.
    const DEFAULT: LogLimits = LogLimits::new(3000, 256);

    /// A log that keeps so many entries, and of which so many are dropped at once.
    ///
    /// # Panics
    /// One of them is zero.
    #[must_use]
    pub const fn new(entries_min: usize, trim_batch: usize) -> LogLimits {
        assert!(entries_min > 0 && trim_batch > 0, "a log keeps entries, and is trimmed");
        LogLimits { entries_min, trim_batch }
    }

    pub(crate) const fn entries_min(self) -> usize {
        self.entries_min
    }

    pub(crate) const fn trim_batch(self) -> usize {
        self.trim_batch
    }

    /// Length of the log at the most: no entry that is to go is uncommitted, for fewer than the log keeps are.
    const fn entries_max(self) -> usize {
        self.entries_min + self.trim_batch
    }

    /// Writes of clients that may be uncommitted at the same time. The other entries that the log keeps are for resends of
    /// requests whose answers were lost.
    pub(crate) const fn in_flight_max(self) -> usize {
        self.entries_min - self.entries_min / 3
    }
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits::DEFAULT
    }
}

/// Scrubs write without waiting for room, a few entries of a PG at the same time.
const _: () = assert!(LogLimits::DEFAULT.in_flight_max() + 100 < LogLimits::DEFAULT.entries_min());

/// Most connections on the public port.
const CONNECTIONS_MAX: usize = 4096;

/// An OSD's identity and addresses.
#[derive(Clone, Debug)]
pub struct OsdConfig {
    /// Its number in the map.
    pub id: OsdId,
    /// Identity of its store.
    pub uuid: Uuid,
    /// Where it listens: one public port for everybody and one for each reactor, all chosen by the kernel.
    pub listen: IpAddr,
    /// Changes at every start; part of its address.
    pub nonce: u32,
    /// The monitor.
    pub mon: SocketAddr,
    /// How many connections it lets in.
    pub gates: Gates,
    /// How it watches other OSDs.
    pub heartbeat: HeartbeatConfig,
    /// Memory for requests of clients and their answers, of each reactor.
    pub request_bytes_per_shard: usize,
    /// When scrubs run, and how fast.
    pub scrub: ScrubOptions,
    /// How much is recovered beside clients at the same time, and how fast.
    pub recovery: RecoveryOptions,
    /// The age from which an operation is slow.
    pub complaint: ComplaintTime,
    /// How long the logs of its PGs are.
    pub log: LogLimits,
}

impl OsdConfig {
    /// The OSD with this number where its monitor is, with the options' defaults and room for a thousand connections.
    #[must_use]
    pub fn with_defaults(mon: SocketAddr, id: OsdId, nonce: u32) -> OsdConfig {
        OsdConfig {
            id,
            uuid: Uuid([(id.0 as u8).wrapping_add(1); 16]),
            listen: mon.ip(),
            nonce,
            mon,
            gates: Gates::within(1 << 10),
            heartbeat: HeartbeatConfig::default(),
            request_bytes_per_shard: 64 << 20,
            scrub: ScrubOptions::default(),
            recovery: RecoveryOptions::default(),
            complaint: ComplaintTime::default(),
            log: LogLimits::default(),
        }
    }
}

/// osd_op_complaint_time: an operation that is not answered after this time is slow. It is written as seconds, with a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComplaintTime(pub Duration);

impl ComplaintTime {
    /// The option's name.
    pub const NAME: &str = "osd_op_complaint_time";
}

impl Default for ComplaintTime {
    fn default() -> ComplaintTime {
        ComplaintTime(Duration::from_secs(30))
    }
}

impl fmt::Display for ComplaintTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0.as_secs_f64())
    }
}

impl FromStr for ComplaintTime {
    type Err = String;

    fn from_str(text: &str) -> Result<ComplaintTime, String> {
        let seconds =
            text.parse::<f64>().ok().filter(|seconds| (0.0..=f64::from(u32::MAX)).contains(seconds));
        let seconds = seconds.ok_or_else(|| format!("{}={text}: give seconds, 0 or more", Self::NAME))?;
        Ok(ComplaintTime(Duration::from_secs_f64(seconds)))
    }
}

/// How much an OSD recovers beside clients at the same time, and how fast: Ceph's options of these names, but for the last
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryOptions {
    /// osd_max_backfills: PGs that recover or backfill at the same time with this OSD as their primary, and as many with it
    /// as their replica.
    pub max_backfills: u32,
    /// osd_recovery_max_active: objects that this OSD pushes at the same time; each reactor has its part, at least one.
    pub max_active: u32,
    /// osd_backfill_retry_interval: pause before an OSD that was too full is asked again.
    pub retry_interval: Duration,
    /// Bytes that this OSD pushes in a second; each reactor has its part. 0: as many as it can.
    pub bytes_per_second: u64,
}

impl Default for RecoveryOptions {
    fn default() -> RecoveryOptions {
        RecoveryOptions {
            max_backfills: 1,
            max_active: 10,
            retry_interval: Duration::from_secs(30),
            bytes_per_second: 0,
        }
    }
}

impl RecoveryOptions {
    /// The options' names: Ceph's, and one of our own.
    pub const NAMES: [&str; 4] = [
        "osd_max_backfills",
        "osd_recovery_max_active",
        "osd_backfill_retry_interval",
        "osd_recovery_bytes_per_second",
    ];

    /// Sets one of [`NAMES`](Self::NAMES).
    ///
    /// # Errors
    /// The value is none for it, or there is no such option.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<u32>().map_err(|_| format!("{name}={value}: give a whole number"));
        let positive = || match number()? {
            0 => Err(format!("{name}={value}: give 1 or more")),
            number => Ok(number),
        };
        match name {
            "osd_max_backfills" => self.max_backfills = positive()?,
            "osd_recovery_max_active" => self.max_active = positive()?,
            "osd_backfill_retry_interval" => self.retry_interval = Duration::from_secs(number()?.into()),
            "osd_recovery_bytes_per_second" => {
                self.bytes_per_second =
                    value.parse().map_err(|_| format!("{name}={value}: give a whole number"))?;
            }
            _ => return Err(format!("there is no option {name}")),
        }
        Ok(())
    }

    /// The value of one of [`NAMES`](Self::NAMES).
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "osd_max_backfills" => self.max_backfills.to_string(),
            "osd_recovery_max_active" => self.max_active.to_string(),
            "osd_backfill_retry_interval" => self.retry_interval.as_secs().to_string(),
            "osd_recovery_bytes_per_second" => self.bytes_per_second.to_string(),
            _ => return None,
        })
    }

    /// Objects that each of so many reactors pushes at the same time.
    pub(crate) fn max_active_of(&self, reactors: u16) -> usize {
        (self.max_active as usize).div_ceil(usize::from(reactors.max(1))).max(1)
    }

    /// Bytes that each of so many reactors pushes in a second.
    pub(crate) fn bytes_per_second_of(&self, reactors: u16) -> u64 {
        match self.bytes_per_second {
            0 => u64::MAX,
            all => all.div_ceil(reactors.max(1).into()),
        }
    }
}

/// When scrubs run, and how fast: Ceph's options of these names, but for the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// osd_scrub_min_interval: a PG is scrubbed when its last scrub is this long ago and the reactor is not busy.
    pub min_interval: Duration,
    /// osd_scrub_max_interval: then it is scrubbed in any case.
    pub max_interval: Duration,
    /// osd_deep_scrub_interval: the scrub is a deep one when the last deep one is this long ago.
    pub deep_interval: Duration,
    /// osd_scrub_auto_repair: a scheduled deep scrub repairs what it finds.
    pub auto_repair: bool,
    /// osd_scrub_auto_repair_num_errors: unless there are more errors than this.
    pub auto_repair_errors_max: u64,
    /// Bytes that scrubs of one reactor read in a second.
    pub bytes_per_second: u64,
    /// osd_deep_scrub_large_omap_object_key_threshold: an omap with more keys is told of.
    pub large_omap_keys: u64,
    /// osd_deep_scrub_large_omap_object_value_sum_threshold: so is one with more bytes of values.
    pub large_omap_bytes: u64,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        const DAY: Duration = Duration::from_secs(86_400);
        ScrubOptions {
            min_interval: DAY,
            max_interval: DAY * 7,
            deep_interval: DAY * 7,
            auto_repair: false,
            auto_repair_errors_max: 5,
            bytes_per_second: 64 << 20,
            large_omap_keys: 200_000,
            large_omap_bytes: 1 << 30,
        }
    }
}

impl OsdConfig {
    /// Bytes that requests in flight may have themselves; a large answer and one that nobody expected are beside them.
    pub(crate) fn input_bytes(&self) -> usize {
        let all = self.request_bytes_per_shard;
        all.saturating_sub(OUTPUT_BYTES + MORE_BYTES).max(all / 4)
    }
}

const LARGE_OMAP_KEYS: &str = "osd_deep_scrub_large_omap_object_key_threshold";
const LARGE_OMAP_BYTES: &str = "osd_deep_scrub_large_omap_object_value_sum_threshold";

/// Least limit of bytes: with a lower one the answers of replicas would come too late.
const SCRUB_BYTES_MIN: u64 = 256 << 10;

impl ScrubOptions {
    /// The options' names: Ceph's, and one of our own.
    pub const NAMES: [&str; 8] = [
        "osd_scrub_min_interval",
        "osd_scrub_max_interval",
        "osd_deep_scrub_interval",
        "osd_scrub_auto_repair",
        "osd_scrub_auto_repair_num_errors",
        "osd_scrub_bytes_per_second",
        LARGE_OMAP_KEYS,
        LARGE_OMAP_BYTES,
    ];

    /// Sets one of [`NAMES`](Self::NAMES): intervals in seconds, `true` or `false`, numbers.
    ///
    /// # Errors
    /// The value is none for it, or there is no such option.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<u64>().map_err(|_| format!("{name}={value}: give a whole number"));
        let seconds = || number().map(Duration::from_secs);
        match name {
            "osd_scrub_min_interval" => self.min_interval = seconds()?,
            "osd_scrub_max_interval" => self.max_interval = seconds()?,
            "osd_deep_scrub_interval" => self.deep_interval = seconds()?,
            "osd_scrub_auto_repair" => {
                self.auto_repair =
                    value.parse().map_err(|_| format!("{name}={value}: give true or false"))?;
            }
            "osd_scrub_auto_repair_num_errors" => self.auto_repair_errors_max = number()?,
            "osd_scrub_bytes_per_second" if number()? < SCRUB_BYTES_MIN => {
                return Err(format!("{name}={value}: give {SCRUB_BYTES_MIN} or more"));
            }
            "osd_scrub_bytes_per_second" => self.bytes_per_second = number()?,
            LARGE_OMAP_KEYS => self.large_omap_keys = number()?,
            LARGE_OMAP_BYTES => self.large_omap_bytes = number()?,
            _ => return Err(format!("there is no option {name}")),
        }
        Ok(())
    }

    /// The value of one of [`NAMES`](Self::NAMES).
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "osd_scrub_min_interval" => self.min_interval.as_secs().to_string(),
            "osd_scrub_max_interval" => self.max_interval.as_secs().to_string(),
            "osd_deep_scrub_interval" => self.deep_interval.as_secs().to_string(),
            "osd_scrub_auto_repair" => self.auto_repair.to_string(),
            "osd_scrub_auto_repair_num_errors" => self.auto_repair_errors_max.to_string(),
            "osd_scrub_bytes_per_second" => self.bytes_per_second.to_string(),
            LARGE_OMAP_KEYS => self.large_omap_keys.to_string(),
            LARGE_OMAP_BYTES => self.large_omap_bytes.to_string(),
            _ => return None,
        })
    }
}

/// How many connections an OSD lets in: on the public port, and apart from those on the reactors' own ports and on those for
/// heartbeats, where other OSDs stay, so that a crowd of clients does not take their places. (An OSD asks on the public port
/// once which ports there are.)
#[derive(Clone, Debug)]
pub struct Gates {
    pub(crate) public: Gate,
    pub(crate) own: Gate,
    pub(crate) heartbeat: Gate,
}

impl Gates {
    /// Of a process that may have so many files open (`ulimit -n`): more than half of them are left for the store and for
    /// connections to others. Key-value stores fail for good when they cannot open a file.
    pub fn within(open_files: usize) -> Gates {
        let part = |part: usize| Gate::new((open_files / part).clamp(1, CONNECTIONS_MAX));
        Gates { public: part(4), own: part(8), heartbeat: part(16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrub_options_have_ceph_s_names() {
        let mut options = ScrubOptions::default();
        for name in ScrubOptions::NAMES {
            let value = match name {
                "osd_scrub_auto_repair" => "true",
                "osd_scrub_bytes_per_second" => "700000",
                _ => "7",
            };
            assert_eq!(options.set(name, value), Ok(()));
            assert!(options.set(name, "often").is_err_and(|why| why.contains(name)));
        }
        let seconds = Duration::from_secs(7);
        let wanted = ScrubOptions {
            min_interval: seconds,
            max_interval: seconds,
            deep_interval: seconds,
            auto_repair: true,
            auto_repair_errors_max: 7,
            bytes_per_second: 700_000,
            large_omap_keys: 7,
            large_omap_bytes: 7,
        };
        assert_eq!(options, wanted);
        assert!(options.set("osd_scrub_bytes_per_second", "1").is_err());
        assert!(options.set("osd_scrubs", "1").is_err());
    }
}
