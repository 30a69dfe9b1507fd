//! Changes of pools by a client (creation, deletion, snapshots) and their statistics (`rados df`).

use carmine_types::{Epoch, Uuid};

use super::paxos;
use crate::header::messages;

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

    fn raw_envelope(d: &mut Decoder<'_>) -> Result<Vec<u8>> {
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
