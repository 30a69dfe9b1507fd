//! In-process load: submits operations to a shard's PGs without a socket.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use carmine_reactor::{Payload, sync::oneshot};
use carmine_types::{ObjectId, PgId, ReqId, UTime};
use carmine_wire::osd_op::{OpList, OsdRequest, flags};
use foldhash::fast::FixedState;

use crate::dispatch::route_op;
use crate::op::{ClientOp, LocalReply, ReplyTo};
use crate::shard::OsdShard;

/// The PGs of one pool that a shard owns and is primary of.
pub struct LocalPgs {
    osd: Rc<OsdShard>,
    pool: i64,
    /// Names seen, with their hashes.
    names: RefCell<HashMap<String, ObjectId, FixedState>>,
    next_tid: Cell<u64>,
}

impl LocalPgs {
    /// The shard's PGs of this pool.
    ///
    /// # Errors
    /// If there is no such pool, or no PG of it here.
    pub fn new(osd: &Rc<OsdShard>, pool: &str) -> Result<LocalPgs, String> {
        let view = osd.view().ok_or("the OSD has no map yet")?;
        let pool = view.map().pool_id(pool).ok_or_else(|| format!("there is no pool {pool:?}"))?;
        let local = LocalPgs { osd: Rc::clone(osd), pool, names: RefCell::default(), next_tid: Cell::new(1) };
        if osd.pgs.borrow().values().any(|pg| local.is_mine(pg.id.pgid)) {
            Ok(local)
        } else {
            Err(format!(
                "reactor {} has no primary PG of pool {pool}: give the pool more PGs",
                osd.shard.id().0
            ))
        }
    }

    fn is_mine(&self, pg: PgId) -> bool {
        let primary = self.osd.view().and_then(|view| view.acting_primary(pg));
        pg.pool == self.pool
            && primary == Some(self.osd.config.id)
            && self.osd.pg(self.osd.primary_part(pg)).is_some()
    }

    /// Whether this shard is primary of the object's PG.
    pub fn owns(&self, name: &str) -> bool {
        self.object(name).is_some()
    }

    fn object(&self, name: &str) -> Option<(PgId, ObjectId)> {
        let view = self.osd.view()?;
        let pg_num = view.map().pool(self.pool)?.pg_num;
        let known = self.names.borrow().get(name).cloned();
        let oid = known.unwrap_or_else(|| {
            let oid = ObjectId::head(self.pool, b"", b"", name.as_bytes());
            self.names.borrow_mut().insert(name.to_owned(), oid.clone());
            oid
        });
        let pg = PgId::of_hash(self.pool, oid.hash, pg_num);
        self.is_mine(pg).then_some((pg, oid))
    }

    /// Executes operations on an object.
    ///
    /// # Errors
    /// If its PG is not this shard's, or was lost meanwhile.
    pub async fn execute(&self, name: &str, ops: OpList, data: Payload) -> Result<LocalReply, String> {
        let (pg, oid) = self.object(name).ok_or_else(|| format!("{name} is not in a PG of this reactor"))?;
        let write = ops.iter().any(|op| op.is_write());
        let mode = if write { flags::CLIENT_WRITE } else { flags::CLIENT_READ };
        let mut request = OsdRequest::new(pg, self.osd.epoch(), mode, &oid, ops);
        request.mtime = UTime::from_unix(self.osd.shard.unix_now());
        let tid = self.next_tid.get();
        self.next_tid.set(tid + 1);
        let (tell, told) = oneshot::channel();
        // No client has this id: global ids count up from small numbers.
        let reqid = ReqId {
            client: u64::MAX - u64::from(self.osd.shard.id().0),
            inc: self.osd.config.nonce as i32,
            tid,
        };
        let now_ns = self.osd.shard.now_ns();
        route_op(&self.osd, ClientOp::new(request, reqid, data, now_ns, ReplyTo::Local(tell)));
        told.await.map_err(|_| "the operation was dropped: the PG went to another primary".into())
    }
}
