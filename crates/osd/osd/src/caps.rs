//! What clients may do by their caps, which is looked at before an operation is queued. Without authentication nobody has caps, and
//! everybody may do everything.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use carmine_caps::{Need, OsdCaps, Target, Verdict};
use carmine_messenger::{Connection, Peer};
use carmine_types::{Epoch, errno};
use carmine_wire::osd_op::{flags::watch, ops};
use carmine_wire::osdmap::OsdMap;

use crate::cls;
use crate::op::{ClientOp, Origin};
use crate::shard::OsdShard;

/// Most namespaces of which a client's verdicts are remembered.
const PLACES_MAX: usize = 16;

/// What limits a client, as it is told to all shards.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    caps: Arc<OsdCaps>,
    /// Where its connection comes from.
    addr: IpAddr,
}

impl Limits {
    /// `None` for a client that may do everything.
    pub(crate) fn new(peer: &Peer, caps: Option<Arc<OsdCaps>>) -> Option<Limits> {
        let addr = peer.sock.ip();
        caps.filter(|caps| !caps.allow_everything(Some(addr))).map(|caps| Limits { caps, addr })
    }
}

/// A client with caps, on one shard.
#[derive(Debug)]
pub(crate) struct Limited {
    limits: Limits,
    known: RefCell<Known>,
}

/// What is allowed for all objects of some namespaces, by the map of this epoch: pools may get other names and tags.
#[derive(Debug, Default)]
struct Known {
    epoch: Epoch,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    pool: i64,
    nspace: Box<[u8]>,
    /// Bits of [`bit_of`].
    needs: u8,
}

/// One bit for each need without methods.
fn bit_of(need: &Need<'_>) -> u8 {
    1 << (u8::from(need.read) | u8::from(need.write) << 1)
}

impl Known {
    fn place(&mut self, epoch: Epoch, op: &ClientOp) -> Option<&mut Place> {
        if self.epoch != epoch {
            *self = Known { epoch, places: Vec::new() };
        }
        let is_it = |place: &&mut Place| place.pool == op.oid.pool && place.nspace == op.oid.nspace;
        self.places.iter_mut().find(is_it)
    }

    fn add(&mut self, epoch: Epoch, op: &ClientOp, needs: u8) {
        if let Some(place) = self.place(epoch, op) {
            place.needs |= needs;
            return;
        }
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.push(Place { pool: op.oid.pool, nspace: op.oid.nspace.clone(), needs });
    }
}

impl Limited {
    pub(crate) fn new(limits: Limits) -> Limited {
        Limited { limits, known: RefCell::default() }
    }

    /// The errno of an operation that it may not do. As in Ceph, calls of unknown methods fail before.
    #[inline]
    fn refusal(&self, osd: &OsdShard, map: &OsdMap, op: &ClientOp) -> Result<(), i32> {
        let (mut need, mut calls) = (Need::default(), false);
        for op in &op.request.ops {
            match op.code {
                ops::CALL => calls = true,
                ops::WATCH if op.watch().op == watch::PING => need.read = true,
                code => need.add(code),
            }
        }
        if calls {
            need.methods = cls::needs(osd, op).map_err(|error| error.errno())?;
        } else {
            let mut known = self.known.borrow_mut();
            if known.place(map.epoch, op).is_some_and(|place| place.needs & bit_of(&need) != 0) {
                return Ok(());
            }
        }
        self.decide(map, op, &need)
    }

    #[inline(never)] // mostly it is known
    fn decide(&self, map: &OsdMap, op: &ClientOp, need: &Need<'_>) -> Result<(), i32> {
        let pool = op.oid.pool;
        let (Some(name), Some(entry)) = (map.pool_names.get(&pool), map.pools.get(&pool)) else {
            return Err(errno::EPERM);
        };
        let target = Target {
            pool: name,
            namespace: &op.oid.nspace,
            object: if op.oid.key.is_empty() { &op.oid.name } else { &op.oid.key },
            tags: &entry.application_metadata,
            client: Some(self.limits.addr),
        };
        match self.limits.caps.verdict(&target, need) {
            Verdict::Refused => Err(errno::EPERM),
            Verdict::Allowed => Ok(()),
            Verdict::AllowedForAll => {
                self.known.borrow_mut().add(map.epoch, op, bit_of(need));
                Ok(())
            }
        }
    }
}

impl OsdShard {
    /// The errno of a client's operation that its caps do not allow.
    #[inline]
    pub(crate) fn caps_refusal(&self, op: &ClientOp) -> Option<i32> {
        if !self.clients.borrow().has_limits() {
            return None;
        }
        self.limited_refusal(op)
    }

    #[inline(never)] // plain operations do not come here
    fn limited_refusal(&self, op: &ClientOp) -> Option<i32> {
        let origin = op.origin(self.shard.id())?; // without one it is the OSD's own
        let (clients, view) = (self.clients.borrow(), self.view.borrow());
        match (clients.limits(origin), view.as_ref()) {
            (Some(None), _) => None,
            (Some(Some(limited)), Some(view)) => limited.refusal(self, view.map(), op).err(),
            // Disconnected: nobody knows what it may do.
            _ => Some(errno::EPERM),
        }
    }

    /// Whether a client of this shard may do everything, which it needs for what is no operation on objects: questions of
    /// administrators, and messages of other OSDs.
    pub(crate) fn may_do_everything(&self, conn: &Connection) -> bool {
        let clients = self.clients.borrow();
        let origin = Origin { home: self.shard.id(), conn: conn.id() };
        !clients.has_limits() || matches!(clients.limits(origin), Some(None))
    }
}
