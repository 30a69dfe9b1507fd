//! Values of PGs, each found by its number without a search. Two shards of one PG are two PGs here.

use carmine_types::SpgId;

/// A pool's values by the numbers of its PGs.
type Pool<T> = ((i64, i8), Vec<Option<T>>);

/// Values by PG, in order of pools, then shards, then numbers. The PGs of a pool are numbered from 0 on, and so a PG is found by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByPg<T> {
    /// By pool and shard, ascending: there are few.
    pools: Vec<Pool<T>>,
}

impl<T> Default for ByPg<T> {
    fn default() -> ByPg<T> {
        ByPg { pools: Vec::new() }
    }
}

impl<T> ByPg<T> {
    fn pool(&self, pg: SpgId) -> Result<usize, usize> {
        self.pools.binary_search_by_key(&(pg.pgid.pool, pg.shard), |(pool, _)| *pool)
    }

    /// The value of a PG, if it has one.
    #[inline]
    pub(crate) fn get(&self, pg: SpgId) -> Option<&T> {
        let (_, pgs) = self.pools.get(self.pool(pg).ok()?)?;
        pgs.get(pg.pgid.ps as usize)?.as_ref()
    }

    /// Sets the value of a PG of the map, which bounds the PGs of a pool.
    pub(crate) fn insert(&mut self, pg: SpgId, value: T) {
        let at = self.pool(pg).unwrap_or_else(|at| {
            self.pools.insert(at, ((pg.pgid.pool, pg.shard), Vec::new()));
            at
        });
        let (_, pgs) = &mut self.pools[at];
        let seed = pg.pgid.ps as usize;
        if pgs.len() <= seed {
            pgs.resize_with(seed + 1, || None);
        }
        pgs[seed] = Some(value);
    }

    /// Removes and returns the value of a PG.
    pub(crate) fn remove(&mut self, pg: SpgId) -> Option<T> {
        let at = self.pool(pg).ok()?;
        self.pools[at].1.get_mut(pg.pgid.ps as usize)?.take()
    }

    /// PGs and values, in that order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SpgId, &T)> {
        self.pools.iter().flat_map(|((pool, shard), pgs)| {
            let id = |ps| SpgId { pgid: carmine_types::PgId::new(*pool, ps), shard: *shard };
            (0..).zip(pgs).filter_map(move |(ps, value)| value.as_ref().map(|value| (id(ps), value)))
        })
    }

    /// The values, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// Removes and returns the values of all pools that no longer exist.
    pub(crate) fn remove_pools(&mut self, is_gone: impl Fn(i64) -> bool) -> Vec<T> {
        let gone = self.pools.extract_if(.., |((pool, _), _)| is_gone(*pool));
        gone.flat_map(|(_, pgs)| pgs.into_iter().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use carmine_types::PgId;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_an_ordered_map(pgs in prop::collection::vec((-1..4i64, -1..2i8, 0..40u32, any::<u8>()), 0..60), gone in -1..4i64) {
            let (mut by_pg, mut model) = (ByPg::default(), BTreeMap::new());
            for (pool, shard, ps, value) in pgs {
                by_pg.insert(SpgId { pgid: PgId::new(pool, ps), shard }, value);
                model.insert((pool, shard, ps), value);
            }
            let key = |id: SpgId| (id.pgid.pool, id.shard, id.pgid.ps);
            prop_assert!(by_pg.iter().map(|(id, value)| (key(id), value)).eq(model.iter().map(|(key, value)| (*key, value))));
            let taken: Vec<u8> = model.extract_if(.., |(pool, ..), _| *pool == gone).map(|(_, value)| value).collect();
            prop_assert_eq!(by_pg.remove_pools(|pool| pool == gone), taken);
            for (pool, shard) in (-2..5).flat_map(|pool| (-2..3).map(move |shard| (pool, shard))) {
                for ps in (0..=40).chain([u32::MAX]) {
                    let id = SpgId { pgid: PgId::new(pool, ps), shard };
                    prop_assert_eq!(by_pg.get(id), model.get(&key(id)));
                }
            }
        }
    }
}
