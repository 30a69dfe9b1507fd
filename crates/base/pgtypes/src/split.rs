//! The split of a PG into parts: itself (the parent) and new PGs (its children), when the number of PGs of its pool rises.
//!
//! A part is one range of the objects' order, so no object changes. Each part keeps the versions of the whole log; entries of
//! other parts' objects become stubs, which change nothing and keep the log free of gaps.

use std::sync::Arc;

use carmine_types::{Epoch, Eversion, LogOp, ObjectId, PgId, ReqId, SpgId, UTime, is_mutated};

use crate::{LogEntry, Omaps, PgInfo, pg_bits, pg_contains};

/// Seeds of the children of PG `ps` when its pool grows from `old` to `new` PGs, rising. None, if it does not grow.
pub fn pg_children(ps: u32, old: u32, new: u32) -> impl Iterator<Item = u32> {
    // A child's seed has the parent's low bits. `pg_bits` counts them so that no seed below `old` but the parent's own has the same.
    (ps..new).step_by(1 << pg_bits(ps, old)).skip(1)
}

/// The seed of the PG that holds the objects of seed `ps` in a pool of `pg_num` PGs: `ps` itself if the pool has such a PG.
#[must_use]
pub fn pg_parent(ps: u32, pg_num: u32) -> u32 {
    PgId::of_hash(0, ps, pg_num).ps
}

/// Whether one or more splits made the first PG of the second one.
pub(crate) fn is_descendant(pg: SpgId, of: SpgId) -> bool {
    let (ps, parent) = (pg.pgid.ps, of.pgid.ps);
    // Each split adds one bit above the parent's.
    let is_below = ps > parent && pg_parent(ps, parent + 1) == parent;
    is_below && (pg.pgid.pool, pg.shard) == (of.pgid.pool, of.shard)
}

/// The first place in the order of a PG's objects. No client's object is there, since its name is empty.
#[must_use]
pub fn pg_first_object(pg: SpgId) -> ObjectId {
    ObjectId { shard: pg.shard, ..ObjectId::cursor(pg.pgid.pool, pg.pgid.ps) }
}

impl LogEntry {
    /// The entry as the log of this PG has it, whose objects share `bits` low bits of their hashes: a stub, if its object is
    /// another PG's. `first` is [`pg_first_object`] of the PG, which all stubs of a log share.
    #[must_use]
    pub fn stub_unless_in(self, pg: SpgId, bits: u32, first: &Arc<ObjectId>) -> LogEntry {
        if pg_contains(pg, bits, &self.oid) {
            return self;
        }
        // Two logs have an entry in common if version and request are equal.
        LogEntry { version: self.version, reqid: self.reqid, ..LogEntry::stub(first) }
    }

    /// A stub without a version and a request, in the log of the PG with this first object.
    pub(crate) fn stub(first: &Arc<ObjectId>) -> LogEntry {
        LogEntry {
            version: Eversion::ZERO,
            reqid: ReqId::default(),
            oid: Arc::clone(first),
            op: LogOp::Error,
            prior: Eversion::ZERO,
            user_version: 0,
            result: 0,
            mtime: UTime::ZERO,
            clones: Box::default(),
            returned: None,
        }
    }

    /// It stands for an entry of another part of a PG that was split ([`LogEntry::stub_unless_in`]): no answer to a resend is in it.
    #[must_use]
    pub fn is_stub(&self) -> bool {
        self.op == LogOp::Error && self.oid.name.is_empty()
    }
}

impl PgInfo {
    /// Low hash bits that the PG's objects share, by the pool's number of PGs when it was made or last split; `None` if that is not
    /// noted.
    #[must_use]
    pub fn bits(&self) -> Option<u32> {
        (self.pg_num > 0).then(|| pg_bits(self.pg.pgid.ps, self.pg_num))
    }

    /// The object is this PG's, by what its info says.
    pub(crate) fn contains(&self, oid: &ObjectId) -> bool {
        self.bits().is_some_and(|bits| pg_contains(self.pg, bits, oid))
    }

    /// The info of one part of this PG after a split: of itself or of the child `pg`. `pg_num` is the pool's new number of PGs, and
    /// `epoch` that of its map.
    ///
    /// A child's copy is a witness of the same intervals as its parent's, and bound by the same promises.
    ///
    /// # Panics
    /// If `pg` is no part of this PG.
    #[must_use]
    pub fn divide(&self, pg: SpgId, pg_num: u32, epoch: Epoch) -> PgInfo {
        let ps = pg.pgid.ps;
        let is_part = ps < pg_num
            && self.pg_num < pg_num
            && pg_parent(ps, self.pg_num) == self.pg.pgid.ps
            && (pg.pgid.pool, pg.shard) == (self.pg.pgid.pool, self.pg.shard);
        assert!(is_part, "PG {pg} of {pg_num} is no part of PG {} of {}", self.pg, self.pg_num);
        let bits = pg_bits(ps, pg_num);
        let mut part = PgInfo { pg, pg_num, split: epoch, ..self.clone() };
        if pg != self.pg {
            part.created = epoch;
            if is_mutated("made_by_split") {
                part.made = epoch;
            }
        }
        part.last_backfill = self.last_backfill.as_ref().and_then(|at| clip(at, pg, bits));
        part.unfound.retain(|oid| pg_contains(pg, bits, oid));
        // Unknown until the next deep scrub. The errors are both parts', until a scrub finds out whose they are.
        part.scrubs.omaps = Omaps::default();
        part
    }
}

/// A place in the order of objects, as the parent's backfill has passed what is before it, for one part: `None`, if all of
/// the part's objects are before it.
fn clip(at: &ObjectId, pg: SpgId, bits: u32) -> Option<ObjectId> {
    let first = pg_first_object(pg);
    if *at <= first {
        return Some(first);
    }
    pg_contains(pg, bits, at).then(|| at.clone())
}
