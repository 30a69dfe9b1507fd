//! The values that go into a store and come out of it.

use carmine_reactor::Payload;
use carmine_types::{Epoch, Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, UTime};
use smallvec::SmallVec;

/// What a store knows of an object besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Bytes.
    pub size: u64,
    /// PG version of the last modification.
    pub version: Eversion,
    /// Version that clients see.
    pub user_version: u64,
    /// Time of the last modification, as the client or the OSD gave it.
    pub mtime: UTime,
}

/// One entry of a PG's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Version of this modification; unique and rising within the PG.
    pub version: Eversion,
    /// Version of the object before it; zero if it did not exist.
    pub prior: Eversion,
    /// The client's request, by which a resend is detected.
    pub reqid: ReqId,
    /// The object.
    pub oid: ObjectId,
    /// What was done.
    pub op: LogOp,
    /// Version that clients see.
    pub user_version: u64,
    /// Result that the client was given (0 or a negative errno).
    pub result: i32,
    /// Time of the modification.
    pub mtime: UTime,
}

/// What a PG remembers of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgInfo {
    /// The PG.
    pub pg: PgId,
    /// Version of the newest modification.
    pub last_update: Eversion,
    /// The log holds what is newer than this.
    pub log_tail: Eversion,
    /// Epoch in which the PG was last activated.
    pub last_epoch_started: Epoch,
    /// Epoch since which the acting set is the same.
    pub same_interval_since: Epoch,
    /// The acting set, primary first.
    pub acting: Vec<OsdId>,
    /// Objects are being copied here, or replaced, behind the log: until an activation ends this, the copy must not lead
    /// and does not count as one.
    pub incomplete: bool,
}

/// What [`Store::load_pg`](crate::Store::load_pg) finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgState {
    /// The PG's info; `last_update` and `log_tail` already follow the log.
    pub info: PgInfo,
    /// The log, oldest first.
    pub log: Vec<LogEntry>,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub enum TxnOp {
    /// Creates the object, if it does not exist.
    Touch {
        /// The object.
        oid: ObjectId,
    },
    /// Writes bytes; creates and extends the object as needed. A gap before `off` reads as zeros.
    Write {
        /// The object.
        oid: ObjectId,
        /// Offset in bytes.
        off: u64,
        /// The bytes.
        data: Payload,
        /// `crc32c::raw(crc32c::SEED, data)`, if the caller knows it (the frame's data checksum is this value).
        /// It is believed, and saves computing it when `data` is exactly one block.
        crc: Option<u32>,
    },
    /// Makes bytes zero. Never changes the size: what lies behind the end is ignored; an object that does not exist
    /// stays so.
    Zero {
        /// The object.
        oid: ObjectId,
        /// Offset in bytes.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Sets the size; creates the object as needed. New bytes are zeros.
    Truncate {
        /// The object.
        oid: ObjectId,
        /// The new size in bytes.
        size: u64,
    },
    /// Removes the object, if it exists.
    Remove {
        /// The object.
        oid: ObjectId,
    },
    /// The blocks that hold these bytes were lost in the copy that this one is made from: reading them is an error until
    /// they are overwritten whole. What lies behind the end of the object is ignored. Only `blue` can keep that.
    Lose {
        /// The object.
        oid: ObjectId,
        /// Offset in bytes.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Sets versions and time; creates the object as needed.
    SetMeta {
        /// The object.
        oid: ObjectId,
        /// PG version of this modification.
        version: Eversion,
        /// Version that clients see.
        user_version: u64,
        /// Time of the modification.
        mtime: UTime,
    },
}

impl TxnOp {
    /// The object that the op changes.
    #[must_use]
    pub fn oid(&self) -> &ObjectId {
        match self {
            TxnOp::Touch { oid }
            | TxnOp::Write { oid, .. }
            | TxnOp::Zero { oid, .. }
            | TxnOp::Truncate { oid, .. }
            | TxnOp::Remove { oid }
            | TxnOp::Lose { oid, .. }
            | TxnOp::SetMeta { oid, .. } => oid,
        }
    }

    /// Bytes of data that the op carries.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        match self {
            TxnOp::Write { data, .. } => data.len() as u64,
            _ => 0,
        }
    }
}

/// Changes that become visible, and durable, together.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The PG; transactions of one PG become durable in the order of their submission.
    pub pg: PgId,
    /// Number of low hash bits that the PG's objects share: [`pg_bits`].
    pub bits: u32,
    /// Changes of objects, in order. All objects lie in `pg`, which [`Store::submit`](crate::Store::submit) asserts.
    pub ops: SmallVec<[TxnOp; 2]>,
    /// Entries to append to the PG's log; their objects lie in `pg`, too.
    pub log: SmallVec<[LogEntry; 1]>,
    /// Drops log entries up to and including this version. Costs about as much as one more entry: do it for many
    /// entries at once (every 64th, say).
    pub log_trim_to: Option<Eversion>,
    /// Drops log entries after this version, before `log` is appended: another copy of the PG did not go through them.
    /// Give `info` too: `last_update` falls, and `log_tail` is what it says.
    pub log_rewind_to: Option<Eversion>,
    /// New PG info. Log entries and trimming move `last_update` and `log_tail` by themselves: give this only when
    /// something else changes.
    pub info: Option<PgInfo>,
    /// Forgets the PG's info and log: for one whose objects are removed and whose pool is gone.
    pub forget_pg: bool,
}

impl Transaction {
    /// An empty transaction of this PG, whose objects share so many low bits of their hashes.
    #[must_use]
    pub fn new(pg: PgId, bits: u32) -> Transaction {
        Transaction { pg, bits, ..Transaction::default() }
    }

    /// Every object that is named lies in the PG. Another PG's object may have another shard as its owner, and what two
    /// shards know of one object's blocks differs: both would free the same ones.
    pub(crate) fn assert_within_pg(&self) {
        self.ops.iter().for_each(|op| assert_in_pg(self.pg, self.bits, op.oid()));
        self.log.iter().for_each(|entry| assert_in_pg(self.pg, self.bits, &entry.oid));
    }
}

/// Space of a store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Room for data.
    pub total: u64,
    /// Taken.
    pub used: u64,
    /// Left for new writes (less what is kept back so that deleting always works).
    pub free: u64,
}

/// Counters of one shard's store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Transactions submitted.
    pub txns: u64,
    /// Transactions not durable yet.
    pub txns_in_flight: u64,
    /// Reads of objects.
    pub reads: u64,
    /// Writes to the device, and their bytes.
    pub device_writes: u64,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Reads from the device, and their bytes.
    pub device_reads: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Flushes of the device (`fdatasync`).
    pub flushes: u64,
    /// Groups written to the log.
    pub groups: u64,
    /// Bytes of those.
    pub log_bytes: u64,
    /// Blocks written to the log only to say what is durable.
    pub log_marks: u64,
    /// Times that a group waited for room in the log.
    pub log_waits: u64,
    /// Times that the key-value store was told to write its tables out, so that the log could be trimmed (the same for all
    /// shards).
    pub log_trims: u64,
    /// Transactions whose data went into the log first.
    pub deferred_txns: u64,
    /// Writes of such data to its place; they are in `device_writes` too.
    pub deferred_writes: u64,
    /// Transactions too large for the log, committed straight to the key-value store.
    pub around_log: u64,
    /// Transactions that were held back because the key-value store was behind.
    pub held_back: u64,
    /// Discards of freed space.
    pub discards: u64,
    /// Bytes of those.
    pub discard_bytes: u64,
    /// Batches that the key-value store was fed by the feeder of the process (the same for all shards).
    pub kv_commits: u64,
    /// Bytes of keys and values in those batches.
    pub kv_bytes: u64,
    /// Nanoseconds in the key-value store's commit (wall time; the same for all shards).
    pub kv_commit_ns: u64,
    /// CPU time of the alien threads that fed the key-value store and told it to write its tables out (the same for all
    /// shards). What the key-value store's own threads use is not in it.
    pub feeder_cpu_ns: u64,
    /// Objects found in the cache.
    pub cache_hits: u64,
    /// Objects that had to be loaded.
    pub cache_misses: u64,
    /// Estimated bytes of the cache.
    pub cache_bytes: u64,
    /// Blocks found in the cache of data.
    pub data_cache_hits: u64,
    /// Bytes of the cache of data.
    pub data_cache_bytes: u64,
    /// Blocks read ahead.
    pub readahead_blocks: u64,
    /// Blocks that a read found read ahead.
    pub readahead_hits: u64,
    /// Bytes copied to reach the alignment that the device needs, or to merge into a block.
    pub bytes_copied: u64,
    /// Times that a block's checksum was wrong.
    pub corrupt_blocks: u64,
    /// Times that the device did not give a block.
    pub unreadable_blocks: u64,
    /// Blocks that were given their content back from another copy.
    pub healed_blocks: u64,
}

/// Number of low hash bits that all objects of PG seed `ps` share while the pool has `pg_num` PGs. With it a PG is
/// the range of reversed hashes that start with the reversed `ps`, also when `pg_num` is no power of two.
#[must_use]
pub fn pg_bits(ps: u32, pg_num: u32) -> u32 {
    let bits = pg_num.max(1).next_power_of_two().trailing_zeros();
    // stable_mod: seeds whose other half (the highest bit set) does not exist yet keep that half's objects.
    let half = 1u64 << bits.saturating_sub(1);
    if bits > 0 && u64::from(ps) < half && u64::from(ps) + half >= u64::from(pg_num) {
        bits - 1
    } else {
        bits
    }
}

/// Whether an object lies in a PG whose objects share `bits` low bits of their hashes ([`pg_bits`]). With 0 bits the PG is
/// all of its pool, and its seed is 0.
#[must_use]
pub fn pg_contains(pg: PgId, bits: u32, oid: &ObjectId) -> bool {
    oid.pool == pg.pool && oid.hash & low_bits(bits) == pg.ps
}

pub(crate) fn assert_in_pg(pg: PgId, bits: u32, oid: &ObjectId) {
    assert!(pg_contains(pg, bits, oid), "object {oid} is not in PG {pg} of {bits} bits");
}

/// A mask of so many low bits.
fn low_bits(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0)
}

/// Reversed hashes of the PG: first and last, inclusive.
pub(crate) fn pg_range(ps: u32, bits: u32) -> (u32, u32) {
    let first = (ps & low_bits(bits)).reverse_bits();
    (first, first | u32::MAX.checked_shr(bits).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pg_is_one_range_of_reversed_hashes_for_every_pg_num() {
        for pg_num in 1..=40u32 {
            for i in 0..4000u32 {
                let hash = i.wrapping_mul(0x9e37_79b9);
                let pg = PgId::of_hash(1, hash, pg_num);
                for ps in 0..pg_num {
                    let (first, last) = pg_range(ps, pg_bits(ps, pg_num));
                    let inside = (first..=last).contains(&hash.reverse_bits());
                    assert_eq!(inside, ps == pg.ps, "hash {hash:x}, pg {ps} of {pg_num}");
                    let (id, oid) = (PgId::new(1, ps), ObjectId::cursor(1, hash));
                    assert_eq!(pg_contains(id, pg_bits(ps, pg_num), &oid), inside);
                    assert!(!pg_contains(id, pg_bits(ps, pg_num), &ObjectId { pool: 2, ..oid }));
                }
            }
        }
    }
}
