//! PGs: their infos and logs, and listing their objects.

use std::ops::Bound;

use carmine_pgtypes::{PgInfo, PgState, pg_range};
use carmine_reactor::Shard;
use carmine_types::{Eversion, ObjectId, SpgId};

use crate::StoreError;
use crate::blue::meta::index::{GrowingPages, MetaIndex, Scan};
use crate::blue::meta::{codec, keys};
use crate::blue::shard::Blue;

impl Blue {
    /// See [`crate::Store::list_pgs`].
    pub(crate) async fn list_pgs(&self) -> Result<Vec<SpgId>, StoreError> {
        self.feed_all().await?;
        fetch_pgs(self.shared.index(), &self.shard).await
    }

    /// See [`crate::Store::load_pg`].
    pub(crate) async fn load_pg(&self, pg: SpgId) -> Result<Option<PgState>, StoreError> {
        self.feed_all().await?;
        fetch_pg(self.shared.index(), &self.shard, pg).await
    }

    /// See [`crate::Store::load_info`].
    pub(crate) async fn load_info(&self, pg: SpgId) -> Result<PgInfo, StoreError> {
        self.feed_all().await?;
        let key = keys::pg(keys::PG_INFO, pg);
        let values = self.shared.index().load(&self.shard, vec![key.clone()]).await?;
        let info = values.into_iter().next().flatten().map(|value| codec::decode_info(&key, &value));
        Ok(info.transpose()?.unwrap_or_default())
    }

    /// See [`crate::Store::list`].
    pub(crate) async fn list(
        &self,
        pg: SpgId,
        bits: u32,
        from: Option<&ObjectId>,
        max: usize,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let (first, last) = pg_range(pg.pgid.ps, bits);
        let (mut start, end) = keys::hash_range(pg, first, last);
        if let Some(from) = from {
            start = start.max(keys::onode(&keys::oid_bytes(from)));
        }
        let mut out = Vec::new();
        // Uncommitted changes are read before the scan: an object fed to the index meanwhile may be seen twice, but is never
        // missed.
        let mut pages = GrowingPages::default();
        while out.len() < max && start < end {
            let pairs_max = pages.next(max - out.len());
            let overlay = self.overlay(&start, &end, pairs_max);
            let scan = Scan { start: start.clone(), end: end.clone(), pairs_max, keys_only: true };
            let page = self.shared.index().scan(&self.shard, scan).await?;
            let is_full = page.is_full;
            let found: Vec<Vec<u8>> = page.pairs.into_iter().map(|(key, _)| key).collect();
            // Keys after the last one of a full page are left for the next iteration.
            let scanned_to = found.last().filter(|_| is_full);
            let overlaid_to = overlay.last().filter(|_| overlay.len() == pairs_max).map(|(key, _)| key);
            let bound = scanned_to.into_iter().chain(overlaid_to).min().cloned();
            for key in merge(found, overlay, bound.as_deref()) {
                if out.len() < max {
                    out.push(keys::decode_onode(&key)?);
                }
            }
            match bound {
                Some(mut next) => {
                    next.push(0);
                    start = next;
                }
                None => break,
            }
        }
        Ok(out)
    }

    /// Uncommitted creations and removals in a range of onode keys, in order, at most `keys_max`.
    fn overlay(&self, start: &[u8], end: &[u8], keys_max: usize) -> Vec<(Vec<u8>, bool)> {
        let existence = self.existence.borrow();
        if existence.is_empty() {
            return Vec::new();
        }
        // `start` and `end` begin with the kind; the map's keys do not.
        let from = Bound::Included(start.get(1..).unwrap_or_default());
        existence
            .range::<[u8], _>((from, Bound::Unbounded))
            .map(|(oid, entry)| (keys::onode(oid), entry.exists))
            .take_while(|(key, _)| key.as_slice() < end)
            .take(keys_max)
            .collect()
    }
}

/// The keys found, plus those that the overlay adds, less those that it removes, up to `bound` (inclusive).
fn merge(mut found: Vec<Vec<u8>>, overlay: Vec<(Vec<u8>, bool)>, bound: Option<&[u8]>) -> Vec<Vec<u8>> {
    let is_within = |key: &[u8]| bound.is_none_or(|bound| key <= bound);
    found.retain(|key| is_within(key));
    if overlay.is_empty() {
        return found;
    }
    let mut keys: std::collections::BTreeSet<Vec<u8>> = found.into_iter().collect();
    for (key, exists) in overlay.into_iter().filter(|(key, _)| is_within(key)) {
        if exists {
            keys.insert(key);
        } else {
            keys.remove(&key);
        }
    }
    keys.into_iter().collect()
}

/// All PGs that have an info or a log.
async fn fetch_pgs(index: &MetaIndex, shard: &Shard) -> Result<Vec<SpgId>, StoreError> {
    let mut pgs = Vec::new();
    let each = async |key: &[u8], _: &[u8]| {
        pgs.push(keys::decode_pg(key)?);
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, keys::kind_range(keys::PG_INFO), each).await?;
    // A PG may have a log and no info. One step per PG: skip from each found entry to the next PG's log.
    let mut scan = Scan { pairs_max: 1, keys_only: true, ..Scan::new(keys::kind_range(keys::PREFIX_PG_LOG)) };
    loop {
        let page = index.scan(shard, scan.clone()).await?;
        let Some((key, _)) = page.pairs.first() else { break };
        let pg = keys::decode_pg(key)?;
        pgs.push(pg);
        scan.start = keys::log_range(pg).1;
    }
    pgs.sort_unstable();
    pgs.dedup();
    Ok(pgs)
}

/// A PG's info and log.
async fn fetch_pg(index: &MetaIndex, shard: &Shard, pg: SpgId) -> Result<Option<PgState>, StoreError> {
    let (info_key, tail_key) = (keys::pg(keys::PG_INFO, pg), keys::pg(keys::PG_TAIL, pg));
    let mut values = index.load(shard, vec![info_key.clone(), tail_key.clone()]).await?.into_iter();
    let info = values.next().flatten().map(|value| codec::decode_info(&info_key, &value)).transpose()?;
    let tail = values.next().flatten().map(|value| codec::decode_tail(&tail_key, &value)).transpose()?;
    let mut log = Vec::new();
    let is_known = info.is_some() || tail.is_some();
    let tail = tail.unwrap_or(Eversion::ZERO);
    let each = async |key: &[u8], value: &[u8]| {
        // The first run may begin with trimmed entries.
        log.extend(codec::decode_log(key, value)?.into_iter().filter(|entry| entry.version > tail));
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, keys::log_range(pg), each).await?;
    if !is_known && log.is_empty() {
        return Ok(None);
    }
    let mut info = info.unwrap_or(PgInfo { pg, ..PgInfo::default() });
    info.log_tail = info.log_tail.max(tail);
    info.last_update =
        info.last_update.max(info.log_tail).max(log.last().map_or(Eversion::ZERO, |entry| entry.version));
    Ok(Some(PgState { info, log }))
}
