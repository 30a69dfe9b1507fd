//! The monitor's order to create PGs, with the history of each, and the primary's word that one was created.

use std::collections::{BTreeMap, BTreeSet};

use carmine_codec::{Coded, coded};
use carmine_types::{Epoch, PgId, ScrubStamp, SpgId, UTime};

use crate::header::messages;
use crate::mon_msg::paxos;
use crate::pg_stat::PgShard;
use crate::{DecodeError, Decoder, Encoder, Result};

messages! {
    /// MOSDPGCreate2 v2: monitor → acting primary, "create these PGs, if you do not have them".
    pub struct PgCreate: OSD_PG_CREATE2, 2, compat 1, oldest 2, priority MON_REPLY {
        /// The monitor's map.
        pub epoch: Epoch,
        /// By PG: when its pool was created.
        pub pgs: BTreeMap<SpgId, (Epoch, UTime)>,
        /// By PG: what happened since then. Other OSDs may have served it meanwhile.
        pub histories: BTreeMap<SpgId, (PgHistory, PastIntervals)>,
    }

    /// MOSDPGCreated: primary → monitor, this PG is active.
    pub struct PgCreated: OSD_PG_CREATED, 1, compat 1 {
        /// Ceph's OSDs send 0.
        pub version: u64 = paxos,
        pub pg: PgId,
    }
}

coded! {
    /// `pg_history_t`: what all copies of a PG agree on in the end.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PgHistory: versioned "pg_history", 10, compat 4, oldest 10 {
        pub epoch_created: Epoch,
        pub last_epoch_started: Epoch,
        pub last_epoch_clean: Epoch,
        pub last_epoch_split: Epoch,
        /// First epoch of the current interval.
        pub same_interval_since: Epoch,
        /// First epoch since which `up` is the same.
        pub same_up_since: Epoch,
        /// First epoch since which the acting primary is the same.
        pub same_primary_since: Epoch,
        pub last_scrub: ScrubStamp,
        pub last_deep_scrub: ScrubStamp,
        pub last_clean_scrub_stamp: UTime,
        pub last_epoch_marked_full: Epoch,
        /// First epoch of the last interval in which it was active, …
        pub last_interval_started: Epoch,
        /// … and of the last one in which it was clean.
        pub last_interval_clean: Epoch,
        pub epoch_pool_created: Epoch,
        /// Upper bound of how long an earlier primary may still serve reads: seconds, …
        pub prior_readable_until_ub_s: u32,
        /// … and the rest.
        pub prior_readable_until_ub_ns: u32,
    }
}

coded! {
    /// An interval that may have served clients.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PastInterval: versioned "past interval", 1, compat 1, oldest 1 {
        pub first: Epoch,
        pub last: Epoch,
        pub acting: BTreeSet<PgShard>,
    }
}

/// `PastIntervals`: the intervals of a PG since it was last known to be clean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastIntervals {
    /// First epoch of all of them; zero: there are none.
    pub first: Epoch,
    /// Their last epoch.
    pub last: Epoch,
    /// All members of their acting sets.
    pub all_participants: BTreeSet<PgShard>,
    /// Those that may have served clients, oldest first.
    pub intervals: Vec<PastInterval>,
}

impl PastIntervals {
    /// Adds the interval that has just ended. One that may have served clients makes those before it superfluous whose acting sets
    /// have all of its members: who asks one of these OSDs hears of the earlier interval as well.
    pub fn add(&mut self, ended: PastInterval, may_have_served: bool) {
        assert!(ended.first > self.last && ended.first <= ended.last, "{ended:?} comes after {}", self.last);
        if self.first == Epoch(0) {
            self.first = ended.first;
        }
        self.last = ended.last;
        self.all_participants.extend(&ended.acting);
        if may_have_served {
            self.intervals.retain(|before| !ended.acting.is_subset(&before.acting));
            self.intervals.push(ended);
        }
    }
}

/// The only form that is left: intervals that served nobody are left out.
const COMPACT: u8 = 2;

impl Coded for PastIntervals {
    const BYTES_MIN: usize = 29;

    fn put(&self, e: &mut Encoder<'_>) {
        e.envelope(1, 1, |e| {
            e.u8(COMPACT);
            e.envelope(1, 1, |e| {
                e.epoch(self.first);
                e.epoch(self.last);
                e.put(&self.all_participants);
                e.put(&self.intervals);
            });
        });
    }

    fn get(d: &mut Decoder<'_>) -> Result<PastIntervals> {
        let mut outer = d.envelope("past intervals", 1)?.body;
        match outer.u8()? {
            COMPACT => {}
            // None at all, as an old OSD has it.
            0 => return Ok(PastIntervals::default()),
            other => {
                return Err(DecodeError::BadValue { what: "form of past intervals", value: other.into() });
            }
        }
        let mut d = outer.envelope("compact past intervals", 1)?.body;
        Ok(PastIntervals {
            first: d.epoch()?,
            last: d.epoch()?,
            all_participants: d.get()?,
            intervals: d.get()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_bytes, round_trip};

    fn members() -> impl Strategy<Value = BTreeSet<PgShard>> {
        prop::collection::btree_set(any::<(i32, i8)>(), 0..4)
            .prop_map(|set| set.into_iter().map(|(osd, shard)| PgShard { osd, shard }).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn both_ways(
            epoch: u32, pgs: Vec<(i64, u32, i8)>, sets in prop::collection::vec(members(), 0..4), bytes: Vec<u8>,
        ) {
            let epoch = Epoch(epoch);
            let intervals = sets.into_iter().map(|acting| PastInterval { first: epoch, last: epoch, acting });
            let past = PastIntervals { first: epoch, intervals: intervals.collect(), ..PastIntervals::default() };
            let history = PgHistory { epoch_created: epoch, prior_readable_until_ub_ns: 7, ..PgHistory::default() };
            let pgs: Vec<SpgId> =
                pgs.into_iter().map(|(pool, ps, shard)| SpgId { pgid: PgId::new(pool, ps), shard }).collect();
            round_trip(PgCreate {
                epoch,
                pgs: pgs.iter().map(|pg| (*pg, (epoch, UTime { sec: 1, nsec: 2 }))).collect(),
                histories: pgs.iter().map(|pg| (*pg, (history.clone(), past.clone()))).collect(),
            });
            round_trip(PgCreated { version: 0, pg: PgId::new(1, epoch.0) });
            any_bytes::<PgCreate>(&bytes);
            any_bytes::<PgCreated>(&bytes);
        }
    }

    fn members_of(osds: &[i32]) -> BTreeSet<PgShard> {
        osds.iter().map(|osd| PgShard { osd: *osd, shard: -1 }).collect()
    }

    /// Out of an MOSDPGNotify2 of Ceph 16.2.15: OSDs 0, 1 and 2 from epoch 20 to 23.
    #[test]
    fn past_intervals_have_ceph_s_layout() {
        let shard = |osd: u8| [1, 1, 5, 0, 0, 0, osd, 0, 0, 0, 0xff];
        let shards = [&[3, 0, 0, 0][..], &shard(0), &shard(1), &shard(2)].concat();
        let epochs = [20, 0, 0, 0, 23, 0, 0, 0];
        let mut bytes = [&[1, 1, 0x6b, 0, 0, 0, 2, 1, 1, 0x64, 0, 0, 0][..], &epochs, &shards].concat();
        bytes.extend([&[1, 0, 0, 0, 1, 1, 0x2d, 0, 0, 0][..], &epochs, &shards].concat());
        let mut past = PastIntervals::default();
        let acting = members_of(&[0, 1, 2]);
        past.add(PastInterval { first: Epoch(20), last: Epoch(23), acting }, true);
        assert_eq!(Encoder::collect(|e| e.put(&past)), bytes);
        assert_eq!(Decoder::all(&bytes, "past intervals", |d| d.get()), Ok(past));
    }

    #[test]
    fn a_count_that_cannot_be_is_refused() {
        let mut bytes = Encoder::collect(|e| e.put(&PastIntervals::default()));
        let end = bytes.len();
        bytes[end - 4..].fill(0xff);
        assert!(Decoder::all(&bytes, "past intervals", |d| d.get::<PastIntervals>()).is_err());
        bytes[6] = 1;
        let error = Decoder::all(&bytes, "past intervals", |d| d.get::<PastIntervals>()).unwrap_err();
        assert_eq!(error.to_string(), "form of past intervals: 0x1 is not a valid value");
    }

    #[test]
    fn an_interval_makes_those_before_it_superfluous_that_have_all_of_its_members() {
        let mut past = PastIntervals::default();
        let mut add = |first: u32, osds: &[i32], served| {
            let acting = members_of(osds);
            past.add(PastInterval { first: Epoch(first), last: Epoch(first + 1), acting }, served);
            past.intervals.iter().map(|interval| interval.first.0).collect::<Vec<_>>()
        };
        assert_eq!(add(1, &[0, 1], true), [1]);
        assert_eq!(add(3, &[1], false), [1], "it served nobody");
        assert_eq!(add(5, &[1, 2], true), [1, 5]);
        assert_eq!(add(7, &[2], true), [1, 7]);
        assert_eq!((past.first, past.last), (Epoch(1), Epoch(8)));
        assert_eq!(past.all_participants, members_of(&[0, 1, 2]));
    }
}
