//! The configuration that an OSD is given at its start.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use carmine_caps::OsdCaps;
use carmine_client::Access;
use carmine_messenger::{Gate, MORE_BYTES, OUTPUT_BYTES, Peer};
use carmine_pgtypes::{STEP_BYTES, STEPS_MAX};
use carmine_types::{MonKind, OsdId, Uuid};
use carmine_wire::frame::DATA_BYTES_MAX;

use crate::auth::caps_of;
use crate::heartbeat::HeartbeatConfig;
use crate::options::RunOptions;
use crate::place::CrushPlace;

/// Most memory for outputs of writes in one PG's log; beyond it the oldest are dropped. Enough for the longest outputs of the
/// newest thousand requests with one operation each.
pub(crate) const LOG_RETURNED_BYTES_MAX: usize = 160 << 10;
/// Most memory of one PG's log, roughly: some 350 bytes an entry, including the index of requests.
pub const PG_LOG_BYTES: u64 = LogLimits::DEFAULT.entries_max() as u64 * 400 + LOG_RETURNED_BYTES_MAX as u64;
/// Longest object name and locator key, bytes (Ceph's osd_max_object_name_len).
pub(crate) const NAME_BYTES_MAX: usize = 2048;
/// Longest namespace, bytes (Ceph's osd_max_object_namespace_len).
pub(crate) const NAMESPACE_BYTES_MAX: usize = 256;
/// Largest object, bytes (Ceph's osd_max_object_size).
pub(crate) const OBJECT_BYTES_MAX: u64 = 128 << 20;
/// Most bytes that one request may write, all operations together; also the largest object that COPY_FROM copies.
pub(crate) const REQUEST_BYTES_MAX: u64 = 128 << 20;
/// Largest input of a request, all operations together, and largest write of one operation, bytes (Ceph's osd_max_write_size).
pub(crate) const WRITE_BYTES_MAX: u64 = 90 << 20;
/// Most bytes of changes in one transaction ([`carmine_pgtypes::Transaction::bytes_max`]): data, xattrs, omap. A client's request
/// is far smaller; a copy of the largest object fits, with its attributes. Every accepted change must reach the other members in
/// one message with its log entry, both at first and when it is repaired.
pub(crate) const TXN_BYTES_MAX: u64 = 156 << 20;
const _: () = assert!(WRITE_BYTES_MAX <= REQUEST_BYTES_MAX && REQUEST_BYTES_MAX <= TXN_BYTES_MAX);
/// Longest log entry, with the head of its message: names, and clones up to a snapshot set of 4 MiB.
const ENTRY_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(TXN_BYTES_MAX as usize + ENTRY_BYTES_MAX <= DATA_BYTES_MAX);
/// A receiver decodes at most `STEPS_MAX` steps.
const _: () = assert!(TXN_BYTES_MAX / STEP_BYTES <= STEPS_MAX as u64);
/// Bytes that one request's operations may add to memory besides its own data: outputs, and patterns that WRITESAME repeats.
/// Clients of a real Ceph read 90 MiB at once.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 96 << 20;
const _: () = assert!(OUTPUT_BYTES_MAX as usize <= OUTPUT_BYTES);
const _: () = assert!(REQUEST_BYTES_MAX as usize <= MORE_BYTES);
/// Longest output of one operation of a write, bytes (Ceph's osd_max_write_op_reply_len).
pub(crate) const WRITE_OUTPUT_BYTES_MAX: usize = 64;
/// Most bytes of notification texts that a shard keeps, including those still to be sent to watchers; the same for watchers'
/// answers.
pub(crate) const NOTIFY_BYTES_MAX: usize = 16 << 20;
/// Name of the client by which OSDs copy objects from each other.
pub(crate) const COPY_CLIENT: &str = "osd-copy";
/// PGs of one shard whose copies are repaired at the same time during peering.
pub(crate) const REPAIRS_MAX: usize = 4;
/// Bytes of pushed objects in flight from one shard to one OSD, over all PGs. Clients' operations queue after them here, on the
/// connection, and in the log and on the drive of the receiver. This many keep a drive of 1 GB/s busy at 2 ms an answer, the
/// usual time while clients are served. The limit is per OSD, so one that does not answer does not delay the others.
pub(crate) const PUSHED_BYTES_MAX: usize = 2 << 20;
/// Objects of more than one piece that a shard pushes at the same time while clients are served, not counting their last pieces.
/// Writes to such an object wait until it is pushed, and sharing the bytes in flight with others would make that longer.
pub(crate) const LONG_PUSHES_MAX: usize = 1;
/// PGs of one shard whose removed snapshots are trimmed at the same time, …
pub(crate) const TRIMS_MAX: usize = 1;
/// … and objects of one PG (Ceph's osd_pg_max_concurrent_snap_trims).
pub(crate) const TRIM_OBJECTS_MAX: usize = 2;
/// PGs of one shard that are listed at the same time: a page of the longest names has 17 MiB before it is cut.
pub(crate) const LISTS_MAX: usize = 4;
/// Most operations of one shard that wait for a PG or a map; beyond it the newest are dropped, and their clients resend them when
/// the map changes.
pub(crate) const WAITING_OPS_MAX: usize = 16 << 10;

/// How long a PG's log is, and how many of its entries may be uncommitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Entries that are kept for detecting resends.
    entries_min: usize,
    /// Entries dropped by one trim: trimming one by one would double the metadata writes.
    trim_batch: usize,
}

impl LogLimits {
    /// As many as in Ceph.
    const DEFAULT: LogLimits = LogLimits::new(3000, 256);

    /// A log that keeps `entries_min` entries and is trimmed `trim_batch` entries at a time.
    ///
    /// # Panics
    /// If one of them is zero.
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

    /// Longest log. Entries due for trimming are committed, because fewer entries may be uncommitted than the log keeps.
    const fn entries_max(self) -> usize {
        self.entries_min + self.trim_batch
    }

    /// Most uncommitted writes of clients. The rest of the log is for resends of requests whose answers were lost.
    pub(crate) const fn in_flight_max(self) -> usize {
        self.entries_min - self.entries_min / 3
    }
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits::DEFAULT
    }
}

/// Repairs of scrubs do not wait for room, but a PG has only a few of them in flight.
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
    /// Where it listens in the same way for other OSDs, which replicate, recover and watch it there; `None`: at `listen`, too.
    pub cluster: Option<IpAddr>,
    /// Changes at every start; part of its address.
    pub nonce: u32,
    /// The monitors, of which one that answers is enough, its key, …
    pub access: Access,
    /// … and their kind: a real one closes the session at a message of Carmine's own.
    pub mon_kind: MonKind,
    /// Its place in the CRUSH map of a cluster that it has joined, which it asks for at each start; `None`: others give it one.
    pub crush: Option<CrushPlace>,
    /// How many connections it accepts.
    pub gates: Gates,
    /// The caps of who connects; `None`: it may do everything, as all do without authentication.
    pub caps_of: fn(&Peer) -> Option<Arc<OsdCaps>>,
    /// How it watches other OSDs.
    pub heartbeat: HeartbeatConfig,
    /// Memory for requests of clients and their answers, of each reactor.
    pub request_bytes_per_shard: usize,
    /// The first values of options that can change while it runs.
    pub options: RunOptions,
    /// How long the logs of its PGs are.
    pub log: LogLimits,
}

impl OsdConfig {
    /// The OSD with this number, on the address of its only monitor, with default options and room for a thousand connections.
    #[must_use]
    pub fn with_defaults(mon: SocketAddr, id: OsdId, nonce: u32) -> OsdConfig {
        OsdConfig {
            id,
            uuid: Uuid([(id.0 as u8).wrapping_add(1); 16]),
            listen: mon.ip(),
            cluster: None,
            nonce,
            access: vec![mon].into(),
            mon_kind: MonKind::Embedded,
            crush: None,
            gates: Gates::within(1 << 10),
            caps_of,
            heartbeat: HeartbeatConfig::default(),
            request_bytes_per_shard: 64 << 20,
            options: RunOptions::default(),
            log: LogLimits::default(),
        }
    }

    /// Its address on the cluster network, if that is another one.
    pub(crate) fn cluster_ip(&self) -> Option<IpAddr> {
        self.cluster.filter(|ip| *ip != self.listen)
    }
}

/// How much an OSD recovers at the same time while it serves clients, and how fast. All but the last are Ceph's options of these
/// names.
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

/// When scrubs run, and how fast. All but the last are Ceph's options of these names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// osd_scrub_min_interval: a PG is scrubbed when its last scrub is this long ago and the reactor is not busy.
    pub min_interval: Duration,
    /// osd_scrub_max_interval: a PG is scrubbed, however busy the reactor is, when its last scrub is this long ago.
    pub max_interval: Duration,
    /// osd_deep_scrub_interval: the scrub is a deep one when the last deep one is this long ago.
    pub deep_interval: Duration,
    /// osd_scrub_auto_repair: a scheduled deep scrub repairs what it finds.
    pub auto_repair: bool,
    /// osd_scrub_auto_repair_num_errors: more errors than this are not repaired automatically.
    pub auto_repair_errors_max: u64,
    /// Bytes that scrubs of one reactor read in a second.
    pub bytes_per_second: u64,
    /// osd_deep_scrub_large_omap_object_key_threshold: an omap with more keys is reported.
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
    /// Budget for the data of requests in flight; large answers are counted apart from it.
    pub(crate) fn input_bytes(&self) -> usize {
        let all = self.request_bytes_per_shard;
        all.saturating_sub(OUTPUT_BYTES + MORE_BYTES).max(all / 4)
    }
}

/// How many connections an OSD accepts on the public port and, separately, on the reactors' ports and the heartbeat ports, which
/// other OSDs use: a crowd of clients must not crowd them out. (An OSD connects to the public port once, to learn the other
/// ports.)
#[derive(Clone, Debug)]
pub struct Gates {
    pub(crate) public: Gate,
    pub(crate) own: Gate,
    pub(crate) heartbeat: Gate,
}

impl Gates {
    /// Limits for a process that may open this many files (`ulimit -n`). More than half are left for the store and for outgoing
    /// connections: key-value stores fail permanently when they cannot open a file.
    pub fn within(open_files: usize) -> Gates {
        let part = |part: usize| Gate::new((open_files / part).clamp(1, CONNECTIONS_MAX));
        Gates { public: part(4), own: part(8), heartbeat: part(16) }
    }
}
