//! Attributes of objects: xattrs, omap with its header, and who watches.
//!
//! They live in an object beside the head ([`ObjectId::attrs`]) of the same PG, as a log of changes (`record`), so that
//! they change in the same transaction as the data, replicas get the same bytes, and a repair copies them like any
//! object. One change appends one record; when more than half of the log is overtaken it is written anew. What a shard
//! has read of them stays in its [`AttrsCache`]; only the primary of a PG reads them at all.
//!
//! A request works on a [`View`]: what is stored, and what it has changed so far.

mod cache;
pub(crate) mod fuzz;
mod record;
mod view;

use std::collections::BTreeMap;
use std::rc::Rc;

use carmine_reactor::{Bytes, Payload};
use carmine_store::TxnOp;
use carmine_types::{ObjectId, PgId, errno};
use carmine_wire::osd_op::ANSWER_BYTES;
use smallvec::{SmallVec, smallvec};

pub(crate) use cache::AttrsCache;
use view::Delta;
pub(crate) use view::View;

use crate::pg::{read_healed, store_failed};
use crate::shard::OsdShard;

/// Most bytes of names and values of one object.
pub(crate) const ATTRS_BYTES_MAX: usize = 32 << 20;
/// A log is written anew when it is twice as long as what it says, and longer than this.
const LOG_BYTES_MIN: u64 = 16 << 10;

/// The kinds of attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Xattr,
    Omap,
    /// Who watches: global id and cookie.
    Watcher,
}

impl Kind {
    const COUNT: usize = 3;
    const ALL: [Kind; Kind::COUNT] = [Kind::Xattr, Kind::Omap, Kind::Watcher];
}

/// All attributes of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attrs {
    maps: [BTreeMap<Box<[u8]>, Bytes>; Kind::COUNT],
    omap_header: Bytes,
    /// Bytes of one record with all of it, about.
    bytes: usize,
    /// Bytes of the log.
    log_bytes: u64,
}

impl Attrs {
    fn map(&self, kind: Kind) -> &BTreeMap<Box<[u8]>, Bytes> {
        &self.maps[kind as usize]
    }

    /// Makes a change.
    fn apply(&mut self, delta: Delta) {
        if delta.reset {
            *self = Attrs { log_bytes: self.log_bytes, ..Attrs::default() };
        }
        if let Some(header) = delta.omap_header {
            self.bytes = self.bytes + header.len() - self.omap_header.len();
            self.omap_header = header;
        }
        for ((map, changes), cleared) in self.maps.iter_mut().zip(delta.changes).zip(delta.cleared) {
            if cleared {
                self.bytes -= map.iter().map(|(key, value)| entry_bytes(key, value)).sum::<usize>();
                map.clear();
            }
            for (key, value) in changes {
                if let Some(old) = map.remove(&key) {
                    self.bytes -= entry_bytes(&key, &old);
                }
                if let Some(value) = value {
                    self.bytes += entry_bytes(&key, &value);
                    map.insert(key, value);
                }
            }
        }
    }

    /// The change that makes all of it out of nothing.
    fn whole(&self) -> Delta {
        let copy = |map: &BTreeMap<Box<[u8]>, Bytes>| {
            map.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
        };
        Delta {
            reset: true,
            cleared: [false; Kind::COUNT],
            changes: self.maps.each_ref().map(copy),
            omap_header: Some(self.omap_header.clone()),
        }
    }
}

/// Bytes of a name and its value in a record.
fn entry_bytes(name: &[u8], value: &Bytes) -> usize {
    name.len() + value.len() + record::ENTRY_BYTES
}

/// The attributes of an object, from the cache or the store.
///
/// # Errors
/// The errno for the client.
pub(crate) async fn load(osd: &OsdShard, pg: PgId, oid: &ObjectId) -> Result<Rc<Attrs>, i32> {
    if let Some(attrs) = osd.attrs.borrow().get(oid) {
        return Ok(attrs);
    }
    let (generation, at) = (osd.attrs.borrow().generation(), oid.attrs());
    let meta = osd.store.stat(&at).await.map_err(|error| store_failed(&error))?;
    let attrs = match meta {
        None => Attrs::default(),
        Some(meta) => {
            // A long log is there three times while it is read.
            let is_long = meta.size > ANSWER_BYTES;
            let _turn = if is_long { Some(osd.long_loads.acquire(1).await) } else { None };
            let log = read_healed(osd, &at, 0, meta.size).await.map_err(|error| store_failed(&error))?;
            record::replay(&log.to_vec()).map_err(|why| {
                tracing::error!("the attributes of {oid} are damaged: {why}");
                errno::EIO
            })?
        }
    };
    let attrs = Rc::new(attrs);
    osd.attrs.borrow_mut().insert(generation, pg, oid, Rc::clone(&attrs));
    Ok(attrs)
}

/// Steps of a transaction.
type Steps = SmallVec<[TxnOp; 2]>;

/// A change of attributes that goes into a transaction.
pub(crate) struct Change {
    base: Rc<Attrs>,
    delta: Delta,
    log_bytes: u64,
}

impl Change {
    /// The change that `view` holds, and the steps that store it; `None` without one. `exists` says whether the object is
    /// there when the request is done.
    ///
    /// # Errors
    /// E2BIG: more than an object may have.
    pub(crate) fn of(view: View, oid: &ObjectId, exists: bool) -> Result<Option<(Change, Steps)>, i32> {
        let (base, mut delta) = view.into_parts();
        if !exists {
            delta = Delta { reset: true, ..Delta::default() };
        }
        if delta.is_empty() {
            return Ok(None);
        }
        let oid = oid.attrs();
        if !exists {
            let steps = smallvec![TxnOp::Remove { oid }];
            return Ok(Some((Change { base, delta, log_bytes: 0 }, steps)));
        }
        let record = record::encode(&delta);
        let (old, grown) = (base.log_bytes, base.bytes + record.len());
        let is_long = old + record.len() as u64 > 2 * base.bytes as u64 + LOG_BYTES_MIN;
        if !delta.reset && !is_long && grown <= ATTRS_BYTES_MAX {
            let log_bytes = old + record.len() as u64;
            let steps = smallvec![TxnOp::Write { oid, off: old, data: Payload::from(record), crc: None }];
            return Ok(Some((Change { base, delta, log_bytes }, steps)));
        }
        let mut all = (*base).clone();
        all.apply(delta);
        if all.bytes > ATTRS_BYTES_MAX {
            return Err(errno::E2BIG);
        }
        if all.bytes == 0 {
            let change = Change { base: Rc::new(all), delta: Delta::default(), log_bytes: 0 };
            return Ok(Some((change, smallvec![TxnOp::Remove { oid }])));
        }
        let record = record::encode(&all.whole());
        let log_bytes = record.len() as u64;
        let write = TxnOp::Write { oid: oid.clone(), off: 0, data: Payload::from(record), crc: None };
        let change = Change { base: Rc::new(all), delta: Delta::default(), log_bytes };
        Ok(Some((change, smallvec![TxnOp::Remove { oid }, write])))
    }

    /// The transaction was submitted: from now on this is what is stored.
    pub(crate) fn submitted(self, osd: &OsdShard, pg: PgId, oid: &ObjectId) {
        let Change { mut base, delta, log_bytes } = self;
        let mut cache = osd.attrs.borrow_mut();
        // Out of the cache, so that it is changed in place and not copied.
        cache.remove(oid);
        let attrs = Rc::make_mut(&mut base);
        attrs.apply(delta);
        attrs.log_bytes = log_bytes;
        let generation = cache.generation();
        cache.insert(generation, pg, oid, base);
    }
}

#[cfg(test)]
mod tests;
