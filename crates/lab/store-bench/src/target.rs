//! A bare store as the target of a load: transactions as an OSD makes them, with a PG log.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_load::{LoadSpec, Target, TargetError, object_name};
use carmine_pgtypes::{LogEntry, ObjectChange, Step, Transaction, pg_bits};
use carmine_reactor::Payload;
use carmine_store::{Store, StoreError};
use carmine_types::{Eversion, LogOp, ObjectId, PgId, ReqId, UTime};

const POOL: i64 = 1;
const PGS: u32 = 32;
/// Entries that a PG's log keeps, and how many are dropped at once; the OSD's own figures.
const LOG_KEPT: u64 = 1000;
const LOG_TRIM: u64 = 64;

fn id_of(object: &str) -> ObjectId {
    ObjectId::head(POOL, b"", b"", object.as_bytes())
}

/// The shard that has the PG of an object.
pub(super) fn owner(spec: &LoadSpec, object: u32, shards: u32) -> u32 {
    PgId::of_hash(POOL, id_of(&object_name(spec, object)).hash, PGS).ps % shards.max(1)
}

/// One shard's part of a store.
pub(super) struct StoreTarget {
    store: Store,
    /// Last version of each PG; what an earlier load left is read once.
    versions: RefCell<BTreeMap<PgId, u64>>,
}

fn failed(error: StoreError) -> TargetError {
    TargetError(error.to_string())
}

impl StoreTarget {
    pub(super) fn new(store: &Store) -> StoreTarget {
        StoreTarget { store: store.clone(), versions: RefCell::default() }
    }

    /// Takes up a PG where an earlier load left it.
    async fn know(&self, pg: PgId) -> Result<(), TargetError> {
        if self.versions.borrow().contains_key(&pg) {
            return Ok(());
        }
        let state = self.store.load_pg(pg.into()).await.map_err(failed)?;
        let last = state.map_or(0, |state| state.info.last_update.version);
        // Another worker may have been here meanwhile, and have written since.
        self.versions.borrow_mut().entry(pg).or_insert(last);
        Ok(())
    }

    fn transaction(&self, pg: PgId, mut change: ObjectChange) -> Transaction {
        let mut versions = self.versions.borrow_mut();
        let last = versions.entry(pg).or_default();
        let prior = Eversion::new(1, *last);
        *last += 1;
        let version = Eversion::new(1, *last);
        let mtime = UTime { sec: 1, nsec: 0 };
        let mut txn = Transaction::new(pg.into(), pg_bits(pg.ps, PGS));
        change.steps.push(Step::SetMeta { version, user_version: *last, mtime });
        txn.log.push(LogEntry {
            version,
            prior,
            reqid: ReqId { client: 1, inc: 0, tid: *last },
            oid: Arc::clone(&change.oid),
            op: LogOp::Modify,
            user_version: *last,
            result: 0,
            mtime,
            clones: Box::default(),
            returned: None,
        });
        txn.changes.push(change);
        if *last > LOG_KEPT && last.is_multiple_of(LOG_TRIM) {
            txn.log_trim_to = Some(Eversion::new(1, *last - LOG_KEPT));
        }
        txn
    }
}

impl Target for StoreTarget {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        match self.store.read(&id_of(object), off, len).await {
            Err(StoreError::NotFound(_)) => Ok(Payload::new()),
            other => other.map_err(failed),
        }
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        let oid = id_of(object);
        let pg = PgId::of_hash(POOL, oid.hash, PGS);
        self.know(pg).await?;
        let change = ObjectChange::new(oid, [Step::Write { off, data }]);
        let prepared = self.store.prepare(std::slice::from_ref(&change)).await.map_err(failed)?;
        // No suspension between giving the version and submitting.
        let commit = self.store.submit(self.transaction(pg, change));
        drop(prepared);
        commit.await.map_err(failed)
    }

    async fn stat(&self, object: &str) -> Result<Option<u64>, TargetError> {
        Ok(self.store.stat(&id_of(object)).await.map_err(failed)?.map(|meta| meta.size))
    }
}
