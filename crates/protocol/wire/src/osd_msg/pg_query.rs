//! What classic OSDs ask each other, and other OSDs of a PG's past, when a PG gets other members; and the answer.

use carmine_codec::coded;
use carmine_types::{Epoch, Eversion, PgId, SpgId, UTime};

use super::pg_create::{PastIntervals, PgHistory};
use crate::header::messages;
use crate::osdmap::IntervalSet;
use crate::pg_stat::PgStat;
use crate::pgls::HObject;

messages! {
    /// MOSDPGQuery2 v1: primary → OSD, what do you have of this PG? It is sent once in an interval.
    pub struct PgQuery2: OSD_PG_QUERY2, 1, compat 1, priority MON_REPLY {
        /// The PG, with the shard of the OSD that is asked.
        pub pg: SpgId,
        pub question: PgQuestion,
    }

    /// MOSDPGNotify2 v1: OSD → primary, what it has of this PG; the answer to a question for [`PgQuestion::INFO`].
    pub struct PgNotify2: OSD_PG_NOTIFY2, 1, compat 1, priority MON_REPLY {
        /// The PG, with the shard of the OSD that asked.
        pub pg: SpgId,
        pub answer: PgAnswer,
    }
}

coded! {
    /// `pg_query_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PgQuestion: versioned "pg_query", 3, compat 3, oldest 3 {
        /// [`PgQuestion::INFO`], or a question for a part of the log.
        pub kind: i32,
        /// Entries of the log from here on are asked for.
        pub since: Eversion,
        /// What the asker knows of the past.
        pub history: PgHistory,
        /// The asker's map.
        pub epoch_sent: Epoch,
        /// Shard of the OSD that is asked, …
        pub to: i8,
        /// … and of the one that asks.
        pub from: i8,
    }
}

impl PgQuestion {
    /// Asks for the info, which is not to be followed by the log.
    pub const INFO: i32 = 0;
}

coded! {
    /// `pg_notify_t`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgAnswer: versioned "pg_notify", 3, compat 2, oldest 3 {
        /// The map under which it was asked: the asker drops answers to what it asked in an interval before.
        pub query_epoch: Epoch,
        /// The sender's map.
        pub epoch_sent: Epoch,
        pub info: PgInfo,
        /// Shard of the OSD that asked, …
        pub to: i8,
        /// … and of the one that answers.
        pub from: i8,
        pub past: PastIntervals,
    }
}

coded! {
    /// `pg_info_t`: what a classic OSD has of a PG.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgInfo: versioned "pg_info", 32, compat 26, oldest 32 {
        pub pg: PgId,
        /// Its newest change, …
        pub last_update: Eversion,
        /// … up to which it lacks no object.
        pub last_complete: Eversion,
        pub log_tail: Eversion,
        /// As OSDs before Jewel ordered objects: nobody reads it.
        pub old_last_backfill: HObject,
        pub stats: PgStat,
        pub history: PgHistory,
        pub purged_snaps: IntervalSet,
        pub last_epoch_started: Epoch,
        pub last_user_version: u64,
        pub hit_sets: HitSets,
        pub shard: i8,
        /// It has the objects before this one: all, or none.
        pub last_backfill: HObject,
        /// In today's order of objects.
        pub last_backfill_bitwise: bool,
        pub last_interval_started: Epoch,
    }
}

impl PgInfo {
    /// The info of an OSD that has nothing of a PG. It says that it lacks all objects: one that seems to be complete, though it is
    /// as old as an empty log, may be taken for a copy that needs no more than the log.
    #[must_use]
    pub fn nothing(pg: SpgId) -> PgInfo {
        PgInfo {
            pg: pg.pgid,
            last_update: Eversion::ZERO,
            last_complete: Eversion::ZERO,
            log_tail: Eversion::ZERO,
            old_last_backfill: HObject::min(),
            stats: PgStat::default(),
            history: PgHistory::default(),
            purged_snaps: IntervalSet::default(),
            last_epoch_started: Epoch(0),
            last_user_version: 0,
            hit_sets: HitSets::default(),
            shard: pg.shard,
            last_backfill: HObject::min(),
            last_backfill_bitwise: true,
            last_interval_started: Epoch(0),
        }
    }
}

coded! {
    /// `pg_hit_set_history_t`: what pools of cache tiers have.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct HitSets: versioned "pg_hit_set_history", 1, compat 1, oldest 1 {
        pub last_update: Eversion,
        pub last_stamp: UTime,
        pub newest: HitSet,
        pub others: Vec<HitSet>,
    }
}

coded! {
    /// `pg_hit_set_info_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct HitSet: versioned "pg_hit_set_info", 2, compat 1, oldest 2 {
        pub begin: UTime,
        pub end: UTime,
        pub version: Eversion,
        pub in_gmt: bool,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Front;
    use crate::testing::{any_bytes, round_trip};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn both_ways(pool: i64, ps: u32, shard: i8, kind: i32, epoch: u32, hit_sets in 0..3usize, bytes: Vec<u8>) {
            let (pg, epoch) = (SpgId { pgid: PgId::new(pool, ps), shard }, Epoch(epoch));
            let history = PgHistory { epoch_created: epoch, ..PgHistory::default() };
            let question =
                PgQuestion { kind, history: history.clone(), epoch_sent: epoch, to: shard, ..PgQuestion::default() };
            round_trip(PgQuery2 { pg, question });
            let others = vec![HitSet { in_gmt: true, ..HitSet::default() }; hit_sets];
            let hit_sets = HitSets { others, ..HitSets::default() };
            let info = PgInfo { history, hit_sets, last_backfill: HObject::max(), ..PgInfo::nothing(pg) };
            let past = PastIntervals { first: epoch, ..PastIntervals::default() };
            round_trip(PgNotify2 {
                pg,
                answer: PgAnswer { query_epoch: epoch, epoch_sent: epoch, info, to: -1, from: shard, past },
            });
            any_bytes::<PgQuery2>(&bytes);
            any_bytes::<PgNotify2>(&bytes);
        }

        /// Bytes that are nearly right get further into the structures than any.
        #[test]
        fn damaged_bytes(at in 0..900usize, value: u8) {
            let answer = PgAnswer {
                query_epoch: Epoch(1),
                epoch_sent: Epoch(2),
                info: PgInfo::nothing(PgId::new(1, 2).into()),
                to: -1,
                from: -1,
                past: PastIntervals::default(),
            };
            let mut front = PgNotify2 { pg: PgId::new(1, 2).into(), answer }.to_front();
            let at = at % front.len();
            front[at] = value;
            any_bytes::<PgNotify2>(&front);
            let mut front =
                PgQuery2 { pg: PgId::new(1, 2).into(), question: PgQuestion::default() }.to_front();
            let at = at % front.len();
            front[at] = value;
            any_bytes::<PgQuery2>(&front);
        }
    }

    #[test]
    fn who_has_nothing_is_no_candidate_for_anything() {
        let info = PgInfo::nothing(SpgId { pgid: PgId::new(1, 2), shard: 3 });
        assert!(info.last_backfill.is_min(), "to be chosen as a member it would have to be complete");
        assert_eq!((info.last_update, info.last_epoch_started, info.shard), (Eversion::ZERO, Epoch(0), 3));
        assert_eq!(info.history.epoch_created, Epoch(0), "to the asker it does not exist");
    }
}
