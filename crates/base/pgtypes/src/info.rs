//! [`PgInfo`]: what a PG remembers of itself.

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Result, coded};
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, PgId, ScrubStamp, SpgId, UTime};

use crate::{LogEntry, OsdSet, object};

/// A PG's persistent state (pg_info_t).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PgInfo {
    /// The PG.
    pub pg: SpgId,
    /// Number of PGs of its pool when this one was created or last split: it defines which objects belong to it. Zero: not noted yet.
    pub pg_num: u32,
    /// Version of the newest modification.
    pub last_update: Eversion,
    /// The log holds the entries after this version.
    pub log_tail: Eversion,
    /// Epoch in which the PG was last activated.
    pub last_epoch_started: Epoch,
    /// Epoch in which this copy was made. It has nothing of intervals that began before, unless it was activated since.
    pub made: Epoch,
    /// The map that this was written under, the interval, and those before.
    pub history: PgHistory,
    /// The acting set.
    pub acting: OsdSet,
    /// The read lease that this copy grants as a replica.
    pub promised: Promised,
    /// Objects are being copied here, or replaced, without log entries: until an activation ends this, the copy must not lead and
    /// does not count as complete.
    pub incomplete: bool,
    /// An incomplete copy lacks only objects that the log changed after this entry; zero: it may lack any.
    pub complete_to: Eversion,
    /// Of an incomplete copy with `complete_to`: how far its backfill has come. `complete_to` holds for the objects
    /// before this one; the copy may have any content for the others. `None`: it holds for all objects.
    pub last_backfill: Option<ObjectId>,
    /// Unfound objects: they have blocks that no member could provide while an OSD that was down might have them. The copies are
    /// complete except for these blocks.
    pub unfound: Vec<ObjectId>,
    /// Its last scrubs.
    pub scrubs: Scrubbed,
    /// When the last scrub that left no errors ended, if the last one left some; zero: there was none.
    pub clean_before: UTime,
    /// Epoch of the map with which the PG came to be: that of its pool, or a split. Zero: not noted.
    pub created: Epoch,
    /// Epoch of the map with which it was split last, or split off its parent; zero: never.
    pub split: Epoch,
}

impl PgInfo {
    /// When the last scrub that left no errors was; zero: there was none.
    #[must_use]
    pub fn last_clean_scrub(&self) -> UTime {
        if self.scrubs.errors == 0 { self.scrubs.last.time } else { self.clean_before }
    }

    /// Nothing of the copy was written down yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.history.epoch == Epoch(0)
            && self.last_epoch_started == Epoch(0)
            && self.made == Epoch(0)
            && !self.incomplete
    }

    /// It is noted when the PG was created or split.
    fn has_origin(&self) -> bool {
        (self.created, self.split) != (Epoch(0), Epoch(0))
    }

    /// The PG was scrubbed again.
    pub fn note_scrubbed(&mut self, scrubs: Scrubbed) {
        self.clean_before = if scrubs.errors == 0 { UTime::ZERO } else { self.last_clean_scrub() };
        self.scrubs = scrubs;
    }
}

/// A bit of the byte after `complete_to`: the position of a backfill follows.
const HAS_BACKFILL: u8 = 1;
/// A list of unfound objects follows. Few PGs ever have one.
const HAS_UNFOUND: u8 = 2;
/// `clean_before` follows after the scrubs.
const HAS_CLEAN: u8 = 4;
/// `created` and `split` follow at the end.
const HAS_ORIGIN: u8 = 8;

impl Coded for PgInfo {
    const BYTES_MIN: usize = pg_id::BYTES_MIN;

    fn put(&self, e: &mut Encoder<'_>) {
        pg_id::put(&self.pg, e);
        e.put(&self.pg_num);
        e.put(&self.last_update);
        e.put(&self.log_tail);
        e.put(&self.last_epoch_started);
        e.put(&self.made);
        e.put(&self.history);
        e.put(&self.acting);
        e.put(&self.promised);
        e.put(&self.incomplete);
        e.put(&self.complete_to);
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        e.u8(flag(self.last_backfill.is_some(), HAS_BACKFILL)
            | flag(!self.unfound.is_empty(), HAS_UNFOUND)
            | flag(self.clean_before != UTime::ZERO, HAS_CLEAN)
            | flag(self.has_origin(), HAS_ORIGIN));
        self.last_backfill.iter().for_each(|oid| object::put(oid, e));
        if !self.unfound.is_empty() {
            e.vec(&self.unfound, |e, oid| object::put(oid, e));
        }
        e.put(&self.scrubs);
        if self.clean_before != UTime::ZERO {
            e.utime(self.clean_before);
        }
        if self.has_origin() {
            e.put(&self.created);
            e.put(&self.split);
        }
    }

    fn get(d: &mut Decoder<'_>) -> Result<PgInfo> {
        let mut info = PgInfo {
            pg: pg_id::get(d)?,
            pg_num: d.get()?,
            last_update: d.get()?,
            log_tail: d.get()?,
            last_epoch_started: d.get()?,
            made: d.get()?,
            history: d.get()?,
            acting: d.get()?,
            promised: d.get()?,
            incomplete: d.get()?,
            complete_to: d.get()?,
            ..PgInfo::default()
        };
        let flags = d.u8()?;
        if flags & !(HAS_BACKFILL | HAS_UNFOUND | HAS_CLEAN | HAS_ORIGIN) != 0 {
            return Err(DecodeError::BadValue { what: "flags of a PG's info", value: flags.into() });
        }
        if flags & HAS_BACKFILL != 0 {
            info.last_backfill = Some(object::get(d)?);
        }
        if flags & HAS_UNFOUND != 0 {
            info.unfound = d.vec(object::BYTES_MIN, object::get)?;
        }
        info.scrubs = d.get()?;
        if flags & HAS_CLEAN != 0 {
            info.clean_before = d.utime()?;
        }
        if flags & HAS_ORIGIN != 0 {
            (info.created, info.split) = (d.get()?, d.get()?);
        }
        Ok(info)
    }
}

coded! {
    /// A replica's promise to help no other primary than this one, as stored at activation. Renewals never exceed this length, so
    /// after a restart it bounds how long the last promise may still hold.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Promised {
        /// The primary.
        pub holder: OsdId,
        /// Its interval.
        pub interval: Epoch,
        /// How long a promise lasts, milliseconds. Zero: there is none.
        pub length_ms: u32,
    }
}

coded! {
    /// The last scrubs of a PG and the remaining errors, as each member stores them. Of two records the one with the greater
    /// count is newer; wall clocks may jump.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Scrubbed {
        /// Number of completed scrubs.
        pub count: u64,
        /// The last one, deep or not.
        pub last: ScrubStamp,
        /// The last deep one.
        pub last_deep: ScrubStamp,
        /// Errors found and not repaired, …
        pub errors: u64,
        /// … and those of them that only a deep scrub detects.
        pub deep_errors: u64,
        /// As the last deep scrub counted them.
        pub omaps: Omaps,
    }
}

coded! {
    /// The omaps of a PG's objects.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Omaps {
        /// Objects that have keys, …
        pub objects: u64,
        /// … and those with too many keys.
        pub large: u64,
        /// Their total size.
        pub size: OmapSize,
    }
}

coded! {
    /// The keys of an omap, or of several, and the bytes of their values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OmapSize {
        pub keys: u64,
        pub bytes: u64,
    }
}

coded! {
    /// A PG's intervals, as an OSD stored them after it had seen the map of `epoch`.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PgHistory {
        /// The newest map that was seen. Zero: none, the PG is new here.
        pub epoch: Epoch,
        /// First epoch of the interval at that time.
        pub same_interval_since: Epoch,
        /// First epoch of the newest interval in which all copies were known to be whole.
        pub last_epoch_clean: Epoch,
        /// The intervals since then that may have served clients, oldest first.
        pub past: Vec<Interval>,
    }
}

coded! {
    /// A run of epochs in which the OSDs of a PG were the same, none of them was restarted, and clients may have been
    /// served (Ceph: `maybe_went_rw`).
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Interval {
        /// Its first epoch.
        pub first: Epoch,
        /// Its last epoch.
        pub last: Epoch,
        /// The acting set. Empty: unknown, because the monitor no longer has the maps.
        pub acting: OsdSet,
    }
}

/// A PG's info and log, as a store gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgState {
    /// The PG's info; `last_update` and `log_tail` agree with the log.
    pub info: PgInfo,
    /// The log, oldest first.
    pub log: Vec<LogEntry>,
}

/// A PG's id: pool, seed, shard.
pub mod pg_id {
    use super::*;

    /// Bytes of an id.
    pub const BYTES_MIN: usize = 8 + 4 + 1;

    /// Appends an id.
    pub fn put(pg: &SpgId, e: &mut Encoder<'_>) {
        e.i64(pg.pgid.pool);
        e.u32(pg.pgid.ps);
        e.i8(pg.shard);
    }

    /// Reads an id.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn get(d: &mut Decoder<'_>) -> Result<SpgId> {
        Ok(SpgId { pgid: PgId { pool: d.i64()?, ps: d.u32()? }, shard: d.i8()? })
    }
}

// The objects that belong to a PG.

/// Number of low hash bits that all objects of PG seed `ps` share while the pool has `pg_num` PGs. With it a PG is
/// the range of reversed hashes that start with the reversed `ps`, also when `pg_num` is no power of two.
#[must_use]
pub fn pg_bits(ps: u32, pg_num: u32) -> u32 {
    // The logarithm, rounded up.
    let bits = u32::BITS - (pg_num.max(1) - 1).leading_zeros();
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
pub fn pg_contains(pg: SpgId, bits: u32, oid: &ObjectId) -> bool {
    oid.pool == pg.pgid.pool && oid.hash & low_bits(bits) == pg.pgid.ps && oid.shard == pg.shard
}

/// Reversed hashes of a PG: first and last, inclusive.
#[must_use]
pub fn pg_range(ps: u32, bits: u32) -> (u32, u32) {
    let first = (ps & low_bits(bits)).reverse_bits();
    (first, first | u32::MAX.checked_shr(bits).unwrap_or(0))
}

/// A mask of so many low bits.
fn low_bits(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use carmine_types::PgId;

    use super::*;

    #[test]
    fn any_number_of_pgs_has_bits() {
        let bits = [0, 1, 2, 3, 4, 5, 1 << 31, (1 << 31) + 1, u32::MAX].map(|pg_num| pg_bits(0, pg_num));
        assert_eq!(bits, [0, 0, 1, 2, 2, 3, 31, 32, 32]);
        assert_eq!(pg_bits(1, 3), 1, "its other half does not exist yet");
    }

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
                    let (id, oid) = (SpgId::from(PgId::new(1, ps)), ObjectId::cursor(1, hash));
                    assert_eq!(pg_contains(id, pg_bits(ps, pg_num), &oid), inside);
                    assert!(!pg_contains(id, pg_bits(ps, pg_num), &ObjectId { pool: 2, ..oid.clone() }));
                    assert!(!pg_contains(id, pg_bits(ps, pg_num), &ObjectId { shard: 1, ..oid }));
                }
            }
        }
    }
}
