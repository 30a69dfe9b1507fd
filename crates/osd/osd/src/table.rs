//! Which reactor owns which PG.

use std::collections::BTreeMap;

use carmine_reactor::ShardId;
use carmine_types::PgId;

/// The PGs that an OSD serves and the reactor that owns each. A PG stays with its reactor while the process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgTable {
    owners: BTreeMap<PgId, ShardId>,
}

impl PgTable {
    /// The owner of a PG.
    pub fn owner(&self, pg: PgId) -> Option<ShardId> {
        self.owners.get(&pg).copied()
    }

    /// PGs and owners, in order.
    pub fn iter(&self) -> impl Iterator<Item = (PgId, ShardId)> + '_ {
        self.owners.iter().map(|(pg, shard)| (*pg, *shard))
    }

    /// The table with these PGs added: each goes to the reactor that has the fewest so far, the first of them on a tie, so
    /// PGs that come at once are dealt evenly and in order.
    pub fn with(&self, pgs: impl Iterator<Item = PgId>, shards: u16) -> PgTable {
        let mut owners = self.owners.clone();
        let mut counts = self.counts(shards);
        for pg in pgs {
            if let std::collections::btree_map::Entry::Vacant(free) = owners.entry(pg) {
                let least = (0..shards).min_by_key(|s| counts[usize::from(*s)]).unwrap_or(0);
                counts[usize::from(least)] += 1;
                free.insert(ShardId(least));
            }
        }
        PgTable { owners }
    }

    /// The table without the PGs of pools that are gone.
    pub fn of_pools(mut self, exists: impl Fn(i64) -> bool) -> PgTable {
        self.owners.retain(|pg, _| exists(pg.pool));
        self
    }

    /// Number of PGs of each reactor.
    pub fn counts(&self, shards: u16) -> Vec<usize> {
        let mut counts = vec![0; usize::from(shards.max(1))];
        for shard in self.owners.values() {
            counts[usize::from(shard.0)] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgs_are_dealt_evenly_and_stay() {
        let pgs = |pool| (0..33).map(move |ps| PgId::new(pool, ps));
        let first = PgTable::default().with(pgs(1), 4);
        assert_eq!(first.counts(4), [9, 8, 8, 8]);
        let second = first.with(pgs(1).chain(pgs(2)), 4);
        assert!(first.iter().all(|(pg, shard)| second.owner(pg) == Some(shard)));
        let counts = second.counts(4);
        assert!(counts.iter().max().zip(counts.iter().min()).is_some_and(|(max, min)| max - min <= 1));
        assert_eq!(second.owner(PgId::new(3, 0)), None);
    }
}
