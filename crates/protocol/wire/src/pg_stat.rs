//! The statistics of a PG (`pg_stat_t`), as its primary tells them to a manager, or to the embedded monitor in its place.
//!
//! Every field has Ceph's name: tools read these names in `ceph pg dump -f json`.

use std::collections::BTreeMap;

use carmine_codec::coded;
use carmine_types::{Epoch, Eversion, PgId, ScrubStamp, UTime};

use crate::osdmap::IntervalSet;

/// Declares the counters of an object_stat_sum_t in the order in which they lie: those before the four 32-bit ones, and those after.
macro_rules! stat_sum {
    ($($first:ident)*; $($small:ident)*; $($last:ident)*) => {
        coded! {
            /// Counters of objects and operations (object_stat_sum_t). `num_object_copies` are the copies that there should be,
            /// and `num_objects_degraded` and `num_objects_misplaced` count copies as well.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct ObjectStatSum: versioned "object_stat_sum", 20, compat 14, oldest 20 {
                $(pub $first: i64,)*
                $(pub $small: i32,)*
                $(pub $last: i64,)*
            }
        }

        impl ObjectStatSum {
            /// All counters by name.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, i64)> {
                [
                    $((stringify!($first), self.$first),)*
                    $((stringify!($small), i64::from(self.$small)),)*
                    $((stringify!($last), self.$last),)*
                ]
                .into_iter()
            }

            /// Adds another sum.
            pub fn add(&mut self, other: &ObjectStatSum) {
                $(self.$first = self.$first.saturating_add(other.$first);)*
                $(self.$small = self.$small.saturating_add(other.$small);)*
                $(self.$last = self.$last.saturating_add(other.$last);)*
            }
        }
    };
}

stat_sum! {
    num_bytes num_objects num_object_clones num_object_copies num_objects_missing_on_primary num_objects_degraded
    num_objects_unfound num_read num_read_kb num_write num_write_kb num_scrub_errors num_objects_recovered
    num_bytes_recovered num_keys_recovered num_shallow_scrub_errors num_deep_scrub_errors num_objects_dirty num_whiteouts
    num_objects_omap num_objects_hit_set_archive num_objects_misplaced num_bytes_hit_set_archive num_flush num_flush_kb
    num_evict num_evict_kb num_promote;
    num_flush_mode_high num_flush_mode_low num_evict_mode_some num_evict_mode_full;
    num_objects_pinned num_objects_missing num_legacy_snapsets num_large_omap_objects num_objects_manifest num_omap_bytes
    num_omap_keys num_objects_repaired
}

coded! {
    /// A sum, and sums by categories of objects, which nobody has any more (object_stat_collection_t).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ObjectStats: versioned "object_stat_collection", 2, compat 2, oldest 2 {
        pub sum: ObjectStatSum [u32],
    }
}

coded! {
    /// An OSD, and its shard of an erasure-coded PG.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct PgShard: versioned "pg_shard", 1, compat 1, oldest 1 {
        pub osd: i32,
        pub shard: i8,
    }
}

coded! {
    /// What a primary knows of its PG (pg_stat_t). Each stamp named `last_` and a state says when the PG was last seen in it: it is
    /// the time of the report while the state lasts, and in the first report after it.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PgStat: versioned "pg_stat", 26, compat 22, oldest 26 {
        /// Its newest change.
        pub version: Eversion,
        /// Rises with each report of an epoch.
        pub reported_seq: u64,
        pub reported_epoch: Epoch,
        /// The low half of its [`states`](PgStat::states).
        pub state: u32,
        pub log_start: Eversion,
        pub ondisk_log_start: Eversion,
        pub created: Epoch,
        pub last_epoch_clean: Epoch,
        pub parent: PgId,
        pub parent_split_bits: u32,
        pub last_scrub: ScrubStamp,
        pub stats: ObjectStats,
        /// Entries of its log.
        pub log_size: i64,
        pub ondisk_log_size: i64,
        pub up: Vec<i32>,
        pub acting: Vec<i32>,
        pub last_fresh: UTime,
        /// Its state changed.
        pub last_change: UTime,
        pub last_active: UTime,
        pub last_clean: UTime,
        pub last_unstale: UTime,
        pub mapping_epoch: Epoch,
        pub last_deep_scrub: ScrubStamp,
        /// Its objects are not all counted yet.
        pub stats_invalid: bool,
        pub last_clean_scrub_stamp: UTime,
        pub last_became_active: UTime,
        pub dirty_stats_invalid: bool,
        pub up_primary: i32,
        pub acting_primary: i32,
        pub omap_stats_invalid: bool,
        pub hitset_stats_invalid: bool,
        /// OSDs that have to come back before it can serve.
        pub blocked_by: Vec<i32>,
        pub last_undegraded: UTime,
        pub last_fullsized: UTime,
        pub hitset_bytes_stats_invalid: bool,
        pub last_peered: UTime,
        pub last_became_peered: UTime,
        pub pin_stats_invalid: bool,
        /// Removed snapshots that it has yet to trim.
        pub snaptrimq_len: u32,
        /// The high half of its [`states`](PgStat::states).
        pub state_high: u32,
        /// The removed snapshots of the map's queue of which no member has anything any more.
        pub purged_snaps: IntervalSet,
        pub manifest_stats_invalid: bool,
        /// While it is not clean: members that lack nothing. `ceph osd ok-to-stop` counts them.
        pub avail_no_missing: Vec<PgShard>,
        pub object_location_counts: BTreeMap<Vec<PgShard>, i32>,
    }
}

impl PgStat {
    /// The bits of all its states, see [`state`].
    #[must_use]
    pub fn states(&self) -> u64 {
        u64::from(self.state_high) << 32 | u64::from(self.state)
    }

    /// Sets the bits of all its states.
    pub fn set_states(&mut self, bits: u64) {
        (self.state, self.state_high) = (bits as u32, (bits >> 32) as u32);
    }

    /// It is in this state.
    #[must_use]
    pub fn is(&self, state: u64) -> bool {
        self.states() & state != 0
    }
}

/// The states of PGs: bits, and Ceph's words for them.
pub mod state {
    /// It serves clients.
    pub const ACTIVE: u64 = 1 << 1;
    /// All copies are whole.
    pub const CLEAN: u64 = 1 << 2;
    pub const DOWN: u64 = 1 << 4;
    pub const SCRUBBING: u64 = 1 << 8;
    /// Copies are missing.
    pub const DEGRADED: u64 = 1 << 10;
    /// A scrub found errors.
    pub const INCONSISTENT: u64 = 1 << 11;
    pub const PEERING: u64 = 1 << 12;
    pub const REPAIR: u64 = 1 << 13;
    pub const INCOMPLETE: u64 = 1 << 16;
    /// The OSDs that have it are not those that CRUSH wants.
    pub const REMAPPED: u64 = 1 << 18;
    pub const DEEP_SCRUB: u64 = 1 << 19;
    /// Fewer OSDs than copies.
    pub const UNDERSIZED: u64 = 1 << 23;
    /// It has members, and too few to serve clients.
    pub const PEERED: u64 = 1 << 25;
    pub const SNAPTRIM: u64 = 1 << 26;
    pub const SNAPTRIM_WAIT: u64 = 1 << 27;
    pub const LAGGY: u64 = 1 << 33;

    /// Bit and word, in the order in which Ceph writes them.
    const WORDS: [(u8, &str); 33] = [
        (17, "stale"),
        (0, "creating"),
        (1, "active"),
        (24, "activating"),
        (2, "clean"),
        (22, "recovery_wait"),
        (28, "recovery_toofull"),
        (14, "recovering"),
        (30, "forced_recovery"),
        (4, "down"),
        (5, "recovery_unfound"),
        (6, "backfill_unfound"),
        (23, "undersized"),
        (10, "degraded"),
        (18, "remapped"),
        (7, "premerge"),
        (8, "scrubbing"),
        (19, "deep"),
        (11, "inconsistent"),
        (12, "peering"),
        (13, "repair"),
        (15, "backfill_wait"),
        (20, "backfilling"),
        (31, "forced_backfill"),
        (21, "backfill_toofull"),
        (16, "incomplete"),
        (25, "peered"),
        (26, "snaptrim"),
        (27, "snaptrim_wait"),
        (29, "snaptrim_error"),
        (32, "failed_repair"),
        (33, "laggy"),
        (34, "wait"),
    ];

    /// The words of these bits, as `active+clean`; `unknown` if there are none.
    #[must_use]
    pub fn words(bits: u64) -> String {
        let set = WORDS.iter().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, word)| *word);
        let words: Vec<&str> = set.collect();
        if words.is_empty() { "unknown".to_owned() } else { words.join("+") }
    }

    /// The bits of these words; those that are none of Ceph's have none.
    #[must_use]
    pub fn bits(words: &str) -> u64 {
        let bit = |word: &str| WORDS.iter().find(|(_, known)| *known == word).map_or(0, |(bit, _)| 1 << bit);
        words.split('+').map(bit).fold(0, |all, bit| all | bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Encoder};

    /// A `pg_stat_t` of a ceph-osd 16.2.15 (an MPGStats of the capture `oracle2/mgr`), and the `ceph pg dump` of the same report.
    const BYTES: &[u8] = include_bytes!("../tests/data/pg-stat/2.7.bin");

    fn real() -> PgStat {
        Decoder::all(BYTES, "pg_stat", |d| d.get()).unwrap()
    }

    #[test]
    fn a_real_one_is_read_and_written_to_the_last_byte() {
        let stat = real();
        assert_eq!(Encoder::collect(|e| e.put(&stat)), BYTES);
        assert_eq!((stat.version, stat.reported_seq), (Eversion::new(16, 18), 33));
        assert_eq!(
            (stat.reported_epoch, stat.mapping_epoch, stat.created),
            (Epoch(16), Epoch(11), Epoch(11))
        );
        assert_eq!((stat.up.as_slice(), stat.acting.as_slice()), (&[1, 0][..], &[1, 0][..]));
        assert_eq!((stat.up_primary, stat.acting_primary, stat.log_size), (1, 1, 18));
        assert_eq!(state::words(stat.states()), "active+clean");
        let set: Vec<_> = stat.stats.sum.counters().filter(|(_, count)| *count != 0).collect();
        let expected = [
            ("num_bytes", 56_843),
            ("num_objects", 12),
            ("num_object_clones", 2),
            ("num_object_copies", 24),
            ("num_read", 4),
            ("num_read_kb", 25),
            ("num_write", 16),
            ("num_write_kb", 65),
            ("num_objects_dirty", 12),
            ("num_whiteouts", 1),
            ("num_objects_omap", 3),
        ];
        assert_eq!(set, expected);
    }

    #[test]
    fn states_have_cephs_words_in_cephs_order() {
        for words in [
            "active+clean",
            "active+recovering+undersized+degraded+remapped",
            "peering+wait",
            "active+clean+laggy",
        ] {
            assert_eq!(state::words(state::bits(words)), words);
        }
        assert_eq!(state::words(0x80106), "active+clean+scrubbing+deep");
        assert_eq!((state::words(0), state::bits("tea")), ("unknown".to_owned(), 0));
        let mut stat = PgStat::default();
        stat.set_states(state::ACTIVE | state::LAGGY);
        assert!(stat.is(state::LAGGY) && !stat.is(state::CLEAN));
        assert_eq!(stat.states(), state::bits("active+laggy"));
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut sum = ObjectStatSum { num_bytes: i64::MAX, num_objects: 1, ..ObjectStatSum::default() };
        sum.add(&ObjectStatSum { num_bytes: 1, num_objects: 2, ..ObjectStatSum::default() });
        assert_eq!((sum.num_bytes, sum.num_objects), (i64::MAX, 3));
    }
}
