//! The operations apart from plain data: attributes, comparisons, class methods, watches. They work on the same state of a
//! request as the plain ones, and may have effects to carry out after it is done.

mod checksum;
mod compare;
mod copy;
mod copy_get;
mod data;
mod omap;
mod tmap;
mod watches;
mod xattr;

use std::ops::Range;
use std::rc::Rc;

use carmine_codec::{DecodeError, Decoder, Encoder};
use carmine_pgtypes::ObjectMeta;
use carmine_reactor::Payload;
use carmine_types::{UTime, errno};
use carmine_wire::osd_op::{OsdOp, ops};

use super::exec::{ObjectState, Told};
use super::snaps::{self, CloneChange, Writing};
use crate::cls;
use crate::error::{OpError, refuse_if};
use crate::op::{ClientOp, Origin};
use crate::pg::copies::Objects;
use crate::pg::{Pg, family};
use crate::shard::OsdShard;
use crate::watch::{Notification, Registered, WatcherId};

pub(crate) use data::METHOD_BYTES_MAX;
pub(crate) use omap::OmapView;
pub(in crate::pg) use xattr::WATCHER;

/// State of a request that only these operations need.
#[derive(Default)]
pub(crate) struct Extra {
    /// The object's omap, once it is used.
    pub(in crate::pg) omap: Option<OmapView>,
    /// The object's bytes, once a class method wants them.
    pub(crate) data: Option<Vec<u8>>,
    /// Parts of the object's bytes loaded for class methods.
    pub(in crate::pg) parts: Vec<(Range<u64>, Payload)>,
    /// The watchers according to the xattrs, if they were loaded.
    pub(in crate::pg) watchers: Vec<(WatcherId, Registered)>,
    /// Effects to carry out once the request is done.
    pub(in crate::pg) effects: Vec<Effect>,
    /// The object's snapshots, for a write that knows of snapshots.
    pub(in crate::pg) writing: Option<Box<Writing>>,
    /// The clones that it changes.
    pub(in crate::pg) clones: Vec<CloneChange>,
    /// Bytes of the steps that change attributes.
    pub(in crate::pg) attr_bytes: u64,
    /// The time of the modification, if it is not the request's.
    pub(in crate::pg) mtime: Option<UTime>,
    /// Number of names that class methods have generated.
    names: u32,
}

/// One operation of a request, and what it works with.
#[derive(Clone, Copy)]
struct Operation<'a> {
    objects: Objects<'a>,
    client: &'a ClientOp,
    op: &'a OsdOp,
    input: &'a Payload,
}

/// Executes an operation whose input is this range of the request's data.
///
/// # Errors
/// Its errno.
pub(in crate::pg) async fn step(
    osd: &OsdShard,
    pg: &Pg,
    op: &ClientOp,
    state: &mut ObjectState<'_>,
    request: &OsdOp,
    input: Range<usize>,
) -> Result<Told, OpError> {
    let input = op.data.slice(input.start, input.len());
    let operation = Operation { objects: pg.objects(osd), client: op, op: request, input: &input };
    // The data that it would read is not in the store yet.
    refuse_if(state.is_rolled_back() && reads_attrs(request.code), errno::EOPNOTSUPP)?;
    let output = match request.code {
        ops::ROLLBACK => {
            snaps::roll_back(osd, pg, state, request.snap().snapid).await.map(|()| Payload::new())
        }
        ops::MAPEXT | ops::CMPEXT | ops::WRITE_SAME | ops::LIST_SNAPS => data::step(operation, state).await,
        ops::CHECKSUM => checksum::step(operation, state).await,
        ops::CMP_XATTR => return xattr::compared(state, request, &input.to_vec()),
        ops::GET_XATTR | ops::GET_XATTRS | ops::SET_XATTR | ops::RM_XATTR => {
            xattr::step(operation, state).await
        }
        ops::OMAP_GET_KEYS
        | ops::OMAP_GET_VALS
        | ops::OMAP_GET_HEADER
        | ops::OMAP_GET_VALS_BY_KEYS
        | ops::OMAP_CMP
        | ops::OMAP_SET_VALS
        | ops::OMAP_SET_HEADER
        | ops::OMAP_CLEAR
        | ops::OMAP_RM_KEYS
        | ops::OMAP_RM_RANGE => omap::step(operation, state).await,
        ops::WATCH | ops::NOTIFY | ops::NOTIFY_ACK | ops::LIST_WATCHERS => watches::step(operation, state),
        ops::COPY_GET => copy_get::get(operation, state).await,
        ops::COPY_FROM | ops::COPY_FROM2 => copy::from(operation, state).await.map(|()| Payload::new()),
        ops::TMAP_UPDATE => tmap::update(operation, state).await.map(|()| Payload::new()),
        ops::CACHE_PIN | ops::CACHE_UNPIN | ops::CACHE_FLUSH | ops::CACHE_EVICT | ops::CACHE_TRY_FLUSH => {
            Err(OpError::new(errno::EINVAL)) // no pool is a cache
        }
        ops::CALL => return cls::call(operation.objects, op, state, request, &input.to_vec()).await,
        code => {
            osd.refuse(&format!("operation {} ({code:#x})", ops::name(code)));
            Err(OpError::new(errno::EOPNOTSUPP))
        }
    };
    output.map(|output| (0, output))
}

/// Whether it may read the omap.
fn reads_attrs(code: u16) -> bool {
    matches!(
        code,
        ops::OMAP_GET_KEYS
            | ops::OMAP_GET_VALS
            | ops::OMAP_GET_HEADER
            | ops::OMAP_GET_VALS_BY_KEYS
            | ops::OMAP_CMP
            | ops::COPY_GET
            | ops::CALL
    )
}

impl ObjectState<'_> {
    /// A name that no write of the object has used before, for a class method: as in Ceph, made of the write's number, as far as
    /// it is known, and the name's.
    pub(crate) fn new_name(&mut self) -> String {
        let is_in_vain = self.is_in_vain();
        let write = self.was.as_ref().map_or(0, |was| was.version.version) + 1;
        let extra = self.extra.get_or_insert_default();
        extra.names += u32::from(!is_in_vain);
        format!("{write}.{}", extra.names)
    }

    /// The object's snapshots, as this write knows them.
    pub(in crate::pg) fn writing(&mut self) -> Option<&mut Writing> {
        self.extra.as_mut()?.writing.as_deref_mut()
    }

    fn is_rolled_back(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.writing.as_ref().is_some_and(|w| w.is_rolled_back()))
    }

    /// ENOENT if there is no object.
    pub(crate) fn must_exist(&self) -> Result<(), OpError> {
        if self.exists { Ok(()) } else { Err(OpError::new(errno::ENOENT)) }
    }

    /// The object before the request, perhaps a whiteout.
    pub(in crate::pg) fn stored(&self) -> Option<&ObjectMeta> {
        let writing = || self.extra.as_ref().and_then(|extra| extra.writing.as_deref());
        self.was.as_ref().or_else(|| writing()?.stored())
    }

    /// ENOENT if there was no object before the request.
    pub(crate) fn must_be_stored(&self) -> Result<(), OpError> {
        self.stored().map(|_| ()).ok_or(OpError::new(errno::ENOENT))
    }

    /// The newest snapshot context in which the object was written before this request; 0 for none. `None`: there is no object.
    ///
    /// # Errors
    /// EIO if the stored set of snapshots cannot be decoded.
    pub(crate) fn snap_seq(&self) -> Result<Option<u64>, OpError> {
        let set = self.was.as_ref().map(family::summary_of).transpose()?.flatten();
        Ok(self.exists.then(|| set.map_or(0, |set| set.seq)))
    }

    fn after(&mut self, effect: Effect) {
        self.extra.get_or_insert_default().effects.push(effect);
    }
}

/// Appends names and values, after their number.
fn put_pairs<K: AsRef<[u8]>, V: AsRef<[u8]>>(e: &mut Encoder<'_>, pairs: &[(K, V)]) {
    e.vec(pairs, |e, (name, value)| {
        e.blob(name.as_ref());
        e.blob(value.as_ref());
    });
}

/// Decodes an operation's whole input.
///
/// # Errors
/// EINVAL.
pub(crate) fn decode<'a, T>(
    input: &'a [u8],
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<T, OpError> {
    Decoder::all(input, "input of an operation", read).map_err(|error| OpError::because(errno::EINVAL, error))
}

// Effects of a request on the watches of its object; they take place when the request is executed.

/// One such effect.
pub(crate) enum Effect {
    /// The client watches over the connection that the request came through.
    Watch { id: WatcherId, registered: Registered },
    /// The client stops watching.
    Unwatch(WatcherId),
    /// The watchers are notified, and their answers are waited for.
    Notify(Notification),
    /// A watcher has answered.
    Answer { notify_id: u64, id: WatcherId, reply: Vec<u8> },
    /// The object is removed, and its watches end.
    Removed,
}

impl Extra {
    /// Carries out the effects of a request. `origin` is its connection, `version` the object's version as clients see it.
    pub(crate) fn take_effect(
        self,
        osd: &Rc<OsdShard>,
        pg: &Rc<Pg>,
        op: &ClientOp,
        origin: Option<Origin>,
        version: u64,
    ) {
        pg.add_registered_watchers(osd, &op.oid, self.watchers);
        for effect in self.effects {
            match effect {
                Effect::Watch { id, registered } => pg.watch(osd, &op.oid, id, registered, origin),
                Effect::Unwatch(id) => pg.unwatch(osd, &op.oid, id),
                Effect::Notify(notification) => pg.notify(osd, &op.oid, notification, origin, version),
                Effect::Answer { notify_id, id, reply } => pg.answer_notify(osd, notify_id, id, reply),
                Effect::Removed => pg.unwatch_all(osd, &op.oid),
            }
        }
    }
}
