//! The reference: what a store should hold, kept in the most obvious way.

use std::collections::BTreeMap;

use carmine_store::{LogEntry, ObjectMeta, PgInfo, PgState, Store, Transaction, TxnOp, pg_bits};
use carmine_types::{Eversion, ObjectId, PgId};

/// Every object whole, every PG's log as a list.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub objects: BTreeMap<ObjectId, (Vec<u8>, ObjectMeta)>,
    pgs: BTreeMap<PgId, Pg>,
}

#[derive(Clone, Debug, Default)]
struct Pg {
    info: PgInfo,
    tail: Eversion,
    log: Vec<LogEntry>,
}

impl Model {
    pub fn apply(&mut self, txn: &Transaction) {
        txn.ops.iter().for_each(|op| self.apply_op(op));
        if !txn.log.is_empty() || txn.log_trim_to.is_some() || txn.info.is_some() {
            self.pgs
                .entry(txn.pg)
                .or_insert_with(|| Pg { info: PgInfo { pg: txn.pg, ..PgInfo::default() }, ..Pg::default() });
        }
        let Some(pg) = self.pgs.get_mut(&txn.pg) else { return };
        if let Some(keep_to) = txn.log_rewind_to {
            pg.log.retain(|entry| entry.version <= keep_to);
            pg.tail = Eversion::ZERO;
        }
        if let Some(info) = &txn.info {
            pg.info = info.clone();
        }
        pg.log.extend(txn.log.iter().cloned());
        if let Some(to) = txn.log_trim_to {
            pg.log.retain(|entry| entry.version > to);
            pg.tail = pg.tail.max(to);
        }
        if txn.forget_pg {
            self.pgs.remove(&txn.pg);
        }
    }

    fn apply_op(&mut self, op: &TxnOp) {
        if let TxnOp::Remove { oid } = op {
            self.objects.remove(oid);
            return;
        }
        if let TxnOp::Zero { oid, .. } = op
            && !self.objects.contains_key(oid)
        {
            return;
        }
        let (bytes, meta) = self.objects.entry(op.oid().clone()).or_default();
        match op {
            TxnOp::Lose { .. } => unreachable!("the model's loads lose nothing"),
            TxnOp::Write { off, data, .. } if !data.is_empty() => {
                let (off, data) = (*off as usize, data.to_vec());
                if bytes.len() < off + data.len() {
                    bytes.resize(off + data.len(), 0);
                }
                bytes[off..off + data.len()].copy_from_slice(&data);
            }
            TxnOp::Zero { off, len, .. } => {
                let end = (off + len).min(bytes.len() as u64).max(*off) as usize;
                if let Some(part) = bytes.get_mut(*off as usize..end) {
                    part.fill(0);
                }
            }
            TxnOp::Truncate { size, .. } => bytes.resize(*size as usize, 0),
            TxnOp::SetMeta { version, user_version, mtime, .. } => {
                *meta = ObjectMeta { size: 0, version: *version, user_version: *user_version, mtime: *mtime };
            }
            TxnOp::Write { .. } | TxnOp::Touch { .. } | TxnOp::Remove { .. } => {}
        }
        meta.size = bytes.len() as u64;
    }

    /// Info and log of a PG; the info follows the log.
    #[must_use]
    pub fn pg(&self, id: PgId) -> Option<PgState> {
        let pg = self.pgs.get(&id)?;
        let mut info = pg.info.clone();
        info.log_tail = info.log_tail.max(pg.tail);
        let newest = pg.log.last().map_or(Eversion::ZERO, |entry| entry.version);
        info.last_update = info.last_update.max(info.log_tail).max(newest);
        Some(PgState { info, log: pg.log.clone() })
    }

    /// All PGs.
    #[must_use]
    pub fn pgs(&self) -> Vec<PgId> {
        self.pgs.keys().copied().collect()
    }

    /// Fails if the PG's info and log are not the model's. (They are read as they are durable.)
    pub async fn compare_pg(&self, store: &Store, pg: PgId) {
        assert_eq!(store.load_pg(pg).await.unwrap(), self.pg(pg), "{}, pg {pg}", store.kind());
    }

    /// Fails if the objects of this PG (of a pool of `pg_num`), their listing in pages, attributes, sizes and bytes are not
    /// the model's.
    pub async fn compare(&self, store: &Store, pg: PgId, pg_num: u32, page: usize) {
        let kind = store.kind();
        let here = |oid: &ObjectId| oid.pool == pg.pool && PgId::of_hash(pg.pool, oid.hash, pg_num) == pg;
        let wanted: Vec<&ObjectId> = self.objects.keys().filter(|oid| here(oid)).collect();
        let mut listed: Vec<ObjectId> = Vec::new();
        loop {
            // `from` is inclusive: the last one comes again.
            let part = store.list(pg, pg_bits(pg.ps, pg_num), listed.last(), page + 1).await.unwrap();
            let fresh: Vec<_> = part.into_iter().filter(|oid| listed.last() != Some(oid)).collect();
            if fresh.is_empty() {
                break;
            }
            listed.extend(fresh);
        }
        assert!(listed.iter().eq(wanted), "{kind}, pg {pg}: {listed:?}");
        for oid in &listed {
            let (bytes, meta) = &self.objects[oid];
            assert_eq!(store.stat(oid).await.unwrap(), Some(*meta), "{oid} on {kind}");
            let data = store.read(oid, 0, u64::MAX).await.unwrap().to_vec();
            assert_eq!(data.len(), bytes.len(), "{oid} on {kind}");
            let differ = data.iter().zip(bytes).position(|(a, b)| a != b);
            assert_eq!(differ, None, "{oid} differs there, on {kind}");
        }
    }
}
