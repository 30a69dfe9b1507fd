//! PGs: their infos and logs, and listing their objects.

use std::ops::Bound;
use std::sync::Arc;

use carmine_pgtypes::{PgInfo, PgState, pg_range};
use carmine_types::{Eversion, ObjectId, SpgId};

use super::{Blue, codec, keys};
use crate::StoreError;
use crate::kv::Kv;

/// Virtual time of a scan in the simulator.
const SIM_SCAN_NS: u64 = 50_000;

impl Blue {
    /// See [`crate::Store::list_pgs`].
    pub(crate) async fn list_pgs(&self) -> Result<Vec<SpgId>, StoreError> {
        self.feed_all().await?;
        let kv = Arc::clone(self.shared.kv());
        self.shard.alien(SIM_SCAN_NS, move || fetch_pgs(&*kv)).await
    }

    /// See [`crate::Store::load_pg`].
    pub(crate) async fn load_pg(&self, pg: SpgId) -> Result<Option<PgState>, StoreError> {
        self.feed_all().await?;
        let kv = Arc::clone(self.shared.kv());
        self.shard.alien(SIM_SCAN_NS, move || fetch_pg(&*kv, pg)).await
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
        // What is uncommitted is looked at before the scan: what becomes durable during it may be seen twice, never
        // not at all. Removed objects make a scan give less than it was asked for, so it goes on.
        while out.len() < max && start < end {
            let wanted = max - out.len();
            let overlay = self.overlay(&start, &end);
            let (kv, range) = (Arc::clone(self.shared.kv()), (start.clone(), end.clone()));
            let found =
                self.shard.alien(SIM_SCAN_NS, move || fetch_keys(&*kv, &range.0, &range.1, wanted)).await?;
            // If the scan was cut, what lies behind its last key is for the next one.
            let bound = found.last().filter(|_| found.len() >= wanted).cloned();
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

    /// Uncommitted comings and goings in a range of onode keys, in order.
    fn overlay(&self, start: &[u8], end: &[u8]) -> Vec<(Vec<u8>, bool)> {
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
            .collect()
    }
}

/// The keys found, with what the overlay adds and takes away up to `bound` (inclusive).
fn merge(found: Vec<Vec<u8>>, overlay: Vec<(Vec<u8>, bool)>, bound: Option<&[u8]>) -> Vec<Vec<u8>> {
    let overlay: Vec<_> =
        overlay.into_iter().filter(|(key, _)| bound.is_none_or(|bound| key.as_slice() <= bound)).collect();
    if overlay.is_empty() {
        return found;
    }
    let mut keys: std::collections::BTreeSet<Vec<u8>> = found.into_iter().collect();
    for (key, exists) in overlay {
        if exists {
            keys.insert(key);
        } else {
            keys.remove(&key);
        }
    }
    keys.into_iter().collect()
}

/// On an alien thread: up to `max` onode keys.
fn fetch_keys(kv: &dyn Kv, start: &[u8], end: &[u8], max: usize) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut keys = Vec::new();
    kv.scan(start, end, &mut |key, _| {
        keys.push(key.to_vec());
        keys.len() < max
    })?;
    Ok(keys)
}

/// Calls `each` for all pairs in a range, until it fails.
pub(crate) fn scan(
    kv: &dyn Kv,
    (start, end): (Vec<u8>, Vec<u8>),
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut result = Ok(());
    kv.scan(&start, &end, &mut |key, value| {
        result = each(key, value);
        result.is_ok()
    })?;
    result
}

/// On an alien thread: all PGs of which anything is known.
fn fetch_pgs(kv: &dyn Kv) -> Result<Vec<SpgId>, StoreError> {
    let mut pgs = Vec::new();
    scan(kv, keys::kind_range(keys::PG_INFO), |key, _| {
        pgs.push(keys::decode_pg(key)?);
        Ok(())
    })?;
    // A PG may have a log and no info. One step a PG: behind each found entry the next PG's log begins.
    let (mut start, end) = keys::kind_range(keys::PREFIX_PG_LOG);
    loop {
        let mut found = None;
        kv.scan(&start, &end, &mut |key, _| {
            found = Some(keys::decode_pg(key));
            false
        })?;
        let Some(pg) = found.transpose()? else { break };
        pgs.push(pg);
        start = keys::log_range(pg).1;
    }
    pgs.sort_unstable();
    pgs.dedup();
    Ok(pgs)
}

/// On an alien thread: a PG's info and log.
fn fetch_pg(kv: &dyn Kv, pg: SpgId) -> Result<Option<PgState>, StoreError> {
    let key = keys::pg(keys::PG_INFO, pg);
    let info = kv.get(&key)?.map(|value| codec::decode_info(&key, &value)).transpose()?;
    let key = keys::pg(keys::PG_TAIL, pg);
    let tail = kv.get(&key)?.map(|value| codec::decode_tail(&key, &value)).transpose()?;
    let mut log = Vec::new();
    scan(kv, keys::log_range(pg), |key, value| {
        log.push(codec::decode_log(key, value)?);
        Ok(())
    })?;
    if info.is_none() && tail.is_none() && log.is_empty() {
        return Ok(None);
    }
    let mut info = info.unwrap_or(PgInfo { pg, ..PgInfo::default() });
    info.log_tail = info.log_tail.max(tail.unwrap_or(Eversion::ZERO));
    info.last_update =
        info.last_update.max(info.log_tail).max(log.last().map_or(Eversion::ZERO, |entry| entry.version));
    Ok(Some(PgState { info, log }))
}
