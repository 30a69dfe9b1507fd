//! What an OSD is told at its start.

use std::net::{IpAddr, SocketAddr};

use carmine_messenger::{Gate, MORE_BYTES, OUTPUT_BYTES};
use carmine_types::{OsdId, Uuid};

/// Log entries that a PG keeps for detecting resends, as in Ceph.
pub(crate) const LOG_ENTRIES_MIN: usize = 3000;
/// Entries beyond [`LOG_ENTRIES_MIN`] that are dropped at once: trimming one by one would double the metadata writes.
pub(crate) const LOG_TRIM_BATCH: usize = 256;
/// Memory that the log of a PG takes at most, about: some 350 bytes an entry, with its place in the index of requests.
pub const PG_LOG_BYTES: u64 = (LOG_ENTRIES_MIN + LOG_TRIM_BATCH) as u64 * 400;
/// Longest object name and locator key, bytes (Ceph's osd_max_object_name_len).
pub(crate) const NAME_BYTES_MAX: usize = 2048;
/// Longest namespace, bytes (Ceph's osd_max_object_namespace_len).
pub(crate) const NAMESPACE_BYTES_MAX: usize = 256;
/// Most operations in one request.
pub(crate) const OPS_PER_REQUEST_MAX: usize = 64;
/// Largest object, bytes. Ceph's osd_max_object_size was this until 2017; since then it is 128 MiB.
pub(crate) const OBJECT_BYTES_MAX: u64 = 128 << 30;
/// Bytes that one request may write, all operations together; also the largest object that is copied.
pub(crate) const REQUEST_BYTES_MAX: u64 = 128 << 20;
/// Largest write of one operation, bytes (Ceph's osd_max_write_size).
pub(crate) const WRITE_BYTES_MAX: u64 = 90 << 20;
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
/// PGs of one shard that are repaired at the same time: each has at most 4 MiB under way.
pub(crate) const REPAIRS_MAX: usize = 4;
/// PGs of one shard that are listed at the same time: a page of the longest names takes 17 MiB before it is cut.
pub(crate) const LISTS_MAX: usize = 4;
/// Operations that wait on one shard for a PG or a map, at the most; beyond it the newest are dropped and the client
/// sends them again when the map changes.
pub(crate) const WAITING_OPS_MAX: usize = 16 << 10;

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
    /// Memory for requests of clients and their answers, of each reactor.
    pub request_bytes_per_shard: usize,
}

impl OsdConfig {
    /// Bytes that requests in flight may have themselves; a large answer and one that nobody expected are beside them.
    pub(crate) fn input_bytes(&self) -> usize {
        let all = self.request_bytes_per_shard;
        all.saturating_sub(OUTPUT_BYTES + MORE_BYTES).max(all / 4)
    }
}

/// How many connections an OSD lets in: on the public port, and apart from those on the reactors' own ports, where other OSDs
/// stay, so that a crowd of clients does not take their places. (An OSD asks on the public port once which ports there are.)
#[derive(Clone, Debug)]
pub struct Gates {
    pub(crate) public: Gate,
    pub(crate) own: Gate,
}

impl Gates {
    /// Of a process that may have so many files open (`ulimit -n`): more than half of them are left for the store and for
    /// connections to others. Key-value stores fail for good when they cannot open a file.
    pub fn within(open_files: usize) -> Gates {
        let part = |part: usize| Gate::new((open_files / part).clamp(1, CONNECTIONS_MAX));
        Gates { public: part(4), own: part(8) }
    }
}
