//! Messages between the monitor and its clients. The structures hold the layouts of the fronts; data segments (command
//! input and output) travel beside them.

use carmine_codec::coded;
use carmine_types::{Epoch, UTime, Uuid};

use crate::handshake::auth_method;
use crate::header::{messages, priority};
use crate::{Decoder, Encoder, EntityAddrVec, EntityName, Front, Result, kinds};

/// The 18 bytes that many of them begin with: a map version that the sender knows is all that is used of them. The
/// session's monitor and its transaction id are not.
pub(crate) mod paxos {
    use carmine_codec::{Decoder, Encoder, Result};

    pub(crate) const BYTES_MIN: usize = 18;

    pub(crate) fn put(version: &u64, e: &mut Encoder<'_>) {
        e.u64(*version);
        e.i16(-1);
        e.u64(0);
    }

    pub(crate) fn get(d: &mut Decoder<'_>) -> Result<u64> {
        let version = d.u64()?;
        d.i16()?;
        d.u64()?;
        Ok(version)
    }
}

// Requests of a client to its monitor, and the answers: subscriptions, options, versions of maps, commands.

/// Bit of [`Subscription::flags`]: send one and forget the subscription.
pub const ONETIME: u8 = 1;

coded! {
    /// One thing subscribed to.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Subscription {
        /// "config", "monmap", "mgrmap", "osdmap"; unknown names are to be ignored.
        pub what: String,
        /// The first version wanted; 0 for the current one.
        pub start: u64,
        /// [`ONETIME`].
        pub flags: u8,
    }
}

impl Subscription {
    pub fn new(what: &str, start: u64, onetime: bool) -> Subscription {
        Subscription { what: what.to_owned(), start, flags: if onetime { ONETIME } else { 0 } }
    }
}

messages! {
    /// MMonSubscribe v3: "send me these maps, now and when they change".
    pub struct Subscribe: MON_SUBSCRIBE, 3, compat 1 {
        /// Real clients write them ascending by name.
        pub what: Vec<Subscription>,
        pub hostname: String,
    }

    /// MConfig: options that the monitor pushes to a client, which waits for this message even if it is empty.
    #[derive(Default)]
    pub struct ConfigMsg: CONFIG, 1, compat 1, priority MON_REPLY {
        /// Option and value.
        pub options: Vec<(String, String)>,
    }

    /// MAuth: a request of the authentication on a session that stands.
    pub struct Auth: AUTH, 1, compat 1 {
        pub version: u64 = paxos,
        /// The method: 2, cephx.
        pub protocol: u32,
        pub payload: Vec<u8>,
        /// Of the map of monitors that the sender has; nobody looks at it.
        pub monmap_epoch: Epoch,
    }

    /// MAuthReply.
    pub struct AuthReply: AUTH_REPLY, 1, compat 1, priority MON_REPLY {
        pub protocol: u32,
        /// 0 or a negative errno.
        pub result: i32,
        pub global_id: u64,
        pub payload: Vec<u8>,
        /// For people.
        pub text: String,
    }

    /// MMonGetOSDMap: "send me these epochs of the OSDMap", both ends of each range included; zeros: none.
    #[derive(Default)]
    pub struct GetOsdMap: MON_GET_OSDMAP, 1, compat 1 {
        pub version: u64 = paxos,
        pub full_first: Epoch,
        pub full_last: Epoch,
        pub inc_first: Epoch,
        pub inc_last: Epoch,
    }

    /// MMonGetVersion: "which version of this map is the newest?"
    pub struct GetVersion: MON_GET_VERSION, 1, compat 1 {
        /// Chosen by the client; the reply echoes it (header tids are 0).
        pub handle: u64,
        /// "osdmap".
        pub what: String,
    }

    /// MMonGetVersionReply. The client then waits for that version: never name one that is not delivered.
    pub struct GetVersionReply: MON_GET_VERSION_REPLY, 2, compat 2, priority MON_REPLY {
        pub handle: u64,
        pub newest: u64,
        pub oldest: u64,
    }

    /// MMonCommand: `{"prefix": "osd pool ls", ...}`. Its data segment is the command's input.
    pub struct Command: MON_COMMAND, 1, compat 1 {
        /// Map version that the client knows.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// One JSON object, as a string.
        pub cmd: Vec<String>,
    }

    /// MMonCommandAck. Its data segment is the command's output; the header echoes the command's tid.
    pub struct CommandAck: MON_COMMAND_ACK, 1, compat 1, priority MON_REPLY {
        pub version: u64 = paxos,
        /// 0 or a negative errno.
        pub result: i32,
        /// For people.
        pub status: String,
        /// The command's.
        pub cmd: Vec<String>,
    }
}

impl Auth {
    /// A request of cephx.
    pub fn cephx(payload: Vec<u8>) -> Auth {
        Auth { version: 0, protocol: auth_method::CEPHX, payload, monmap_epoch: Epoch(0) }
    }
}

// Maps on their way to clients: the monitors', the OSDs' (both still encoded), the file systems'; the manager's is in `mgr_msg`.

messages! {
    /// MMonGetMap: "send the MonMap".
    pub struct GetMap: MON_GET_MAP, 1, compat 1 {}

    /// MMonMap.
    pub struct MonMapMsg: MON_MAP, 1, compat 1, priority MON_REPLY {
        /// An encoded MonMap.
        pub monmap: Vec<u8>,
    }

    /// MOSDMap v4: from a monitor, or from an OSD to a client with an old map.
    pub struct OsdMapMsg: OSD_MAP, 4, compat 3, oldest 3, priority MON_REPLY {
        pub fsid: Uuid,
        /// Encoded incrementals, ascending: each makes its epoch out of the one before.
        pub incrementals: Vec<(Epoch, Vec<u8>)>,
        /// Encoded full maps, ascending.
        pub full: Vec<(Epoch, Vec<u8>)>,
        /// Oldest epoch that the sender keeps.
        pub oldest: Epoch,
        pub newest: Epoch,
        /// Snaps removed in the gap, by pool: (start, length) pairs. Empty from us.
        pub gap_removed_snaps: Vec<(i64, Vec<(u64, u64)>)>; since 4,
    }
}

impl OsdMapMsg {
    /// One full map: any client understands it, whatever its epoch.
    pub fn full(fsid: Uuid, epoch: Epoch, map: Vec<u8>) -> OsdMapMsg {
        OsdMapMsg {
            fsid,
            incrementals: Vec::new(),
            full: vec![(epoch, map)],
            oldest: epoch,
            newest: epoch,
            gap_removed_snaps: Vec::new(),
        }
    }
}

/// MFSMap: a client that has a command for a metadata server waits for it. It is one without file systems and without
/// metadata servers, as Ceph's monitor sends it before anybody makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMapMsg {
    pub epoch: Epoch,
}

const FS_MAP_VERSION: u8 = 7;
const FS_MAP_COMPAT: u8 = 6;

impl Front for FsMapMsg {
    const KIND: u16 = kinds::FS_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.epoch(self.epoch);
        e.envelope(FS_MAP_VERSION, FS_MAP_COMPAT, |e| {
            e.epoch(self.epoch);
            e.u64(1); // the id of the first file system
            e.i32(-1); // the file system of clients that name none
            for _ in ["compatible", "compatible for readers", "incompatible"] {
                e.u64(0); // mask of features, and their names
                e.count(0);
            }
            e.bool(true); // several file systems may be made
            for _ in ["file systems", "roles", "standby servers", "their epochs"] {
                e.count(0);
            }
            e.bool(true);
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<FsMapMsg> {
        let epoch = d.epoch()?;
        d.envelope("fs map", FS_MAP_VERSION)?;
        Ok(FsMapMsg { epoch })
    }
}

// The cluster log.

coded! {
    /// A line of the cluster log.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LogEntry: versioned "log entry", 5, compat 4, oldest 5 {
        /// The author: the type of an entity, and its name.
        pub name: (u32, String),
        /// The same by number; -1 is not known.
        pub rank: EntityName,
        pub addrs: EntityAddrVec,
        pub stamp: UTime,
        /// Rises from line to line.
        pub seq: u64,
        /// One of [`log_level`].
        pub level: u16,
        pub text: String,
        /// "cluster" or "audit".
        pub channel: String,
    }
}

messages! {
    /// MLog: lines for a client that has subscribed to "log-info" or so.
    pub struct LogMsg: LOG, 1, compat 1, priority MON_REPLY {
        /// Rises from message to message; a client drops one that does not.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        pub entries: Vec<LogEntry>,
    }
}

/// Levels of lines, and their names.
pub mod log_level {
    pub const DEBUG: u16 = 0;
    pub const INFO: u16 = 1;
    pub const SEC: u16 = 2;
    pub const WARN: u16 = 3;
    pub const ERROR: u16 = 4;

    const NAMES: [&str; 5] = ["debug", "info", "sec", "warn", "error"];
    const TAGS: [&str; 5] = ["[DBG]", "[INF]", "[SEC]", "[WRN]", "[ERR]"];

    /// The level of this name.
    pub fn from_name(name: &str) -> Option<u16> {
        NAMES.iter().position(|known| *known == name).map(|at| at as u16)
    }

    /// How tools mark a line of this level.
    pub fn tag(level: u16) -> &'static str {
        TAGS.get(usize::from(level)).copied().unwrap_or("[???]")
    }
}

// Changes of pools by a client (creation, deletion, snapshots) and their statistics (`rados df`).

messages! {
    /// MPoolOp v4.
    pub struct PoolOp: POOL_OP, 4, compat 2 {
        /// Map version that the client knows.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// 0 for [`PoolOp::CREATE`].
        pub pool: u32,
        /// One of the constants of this type. Unused behind it: an owner.
        pub op: u32 [u64],
        pub snapid: u64,
        /// Of the pool or the snapshot. Unused behind it: an 8-bit rule.
        pub name: String [u8],
        pub crush_rule: i16,
    }
}

/// Values of [`PoolOp::op`].
impl PoolOp {
    pub const CREATE: u32 = 0x01;
    pub const DELETE: u32 = 0x02;
    pub const CREATE_SNAP: u32 = 0x11;
    pub const DELETE_SNAP: u32 = 0x12;
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

messages! {
    /// MPoolOpReply. The client waits for the map of its epoch.
    pub struct PoolOpReply: POOL_OP_REPLY, 1, compat 1, priority MON_REPLY {
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// 0 or a negative errno.
        pub result: i32,
        /// First map with the change.
        pub epoch: Epoch,
        /// For [`PoolOp::CREATE_UNMANAGED_SNAP`]: the new snap id, a u64.
        pub data: Option<Vec<u8>>,
    }

    /// MGetPoolStats.
    pub struct GetPoolStats: GET_POOL_STATS, 1, compat 1 {
        /// Map version that the client knows.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// Pool names.
        pub pools: Vec<String>,
    }

    /// MGetPoolStatsReply v2. A client takes an empty list: it then shows the totals only.
    pub struct GetPoolStatsReply: GET_POOL_STATS_REPLY, 2, compat 1, oldest 1, priority MON_REPLY {
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// Pool name, and its pool_stat_t, encoded (with its envelope).
        pub stats: Vec<(String, Vec<u8>)> = pool_stats,
        pub per_pool: bool; since 2,
    }
}

/// Names, each with the bytes of one versioned structure, head included.
mod pool_stats {
    use carmine_codec::{Decoder, Encoder, Result, basic::size};

    pub(super) const BYTES_MIN: usize = 4;

    pub(super) fn put(stats: &[(String, Vec<u8>)], e: &mut Encoder<'_>) {
        e.vec(stats, |e, (name, stat)| {
            e.str(name);
            e.bytes(stat);
        });
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<Vec<(String, Vec<u8>)>> {
        d.map(4 + size::ENVELOPE, |d| d.string(), raw_envelope)
    }

    pub(super) fn raw_envelope(d: &mut Decoder<'_>) -> Result<Vec<u8>> {
        let before = d.rest();
        d.envelope("pool_stat", u8::MAX)?;
        let taken = before.len() - d.remaining();
        Ok(before.get(..taken).unwrap_or(&[]).to_vec())
    }
}

messages! {
    /// MStatfs v2.
    pub struct StatFs: STATFS, 2, compat 1, oldest 1 {
        /// Map version that the client knows.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// One pool, or the whole cluster.
        pub pool: Option<i64>; since 2,
    }

    /// MStatfsReply.
    #[derive(Default)]
    pub struct StatFsReply: STATFS_REPLY, 1, compat 1, priority MON_REPLY {
        pub fsid: Uuid,
        pub version: u64,
        pub total_kib: u64,
        pub used_kib: u64,
        pub available_kib: u64,
        pub objects: u64,
    }
}

#[cfg(test)]
mod tests;
