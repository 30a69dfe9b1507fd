//! Methods of `rbd_trash`: images on their way out.

use carmine_types::{UTime, errno};
use carmine_wire::{DecodeError, Decoder, Encoder};

use super::super::handle::{Handle, decode, stored};
use super::super::{Done, Method, read, write};
use super::done;
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    write("trash_add", add),
    write("trash_remove", remove),
    read("trash_list", list),
    read("trash_get", get),
    write("trash_state_set", set_state),
];

const PREFIX: &[u8] = b"id_";

/// TrashImageSpec.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spec {
    /// By whom: user, mirroring, migration, removal.
    source: u8,
    name: Vec<u8>,
    deleted: UTime,
    deferred_to: UTime,
    /// 0 normal; others while it is moved or removed.
    state: u8,
}

impl Spec {
    fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.envelope(2, 1, |e| {
                e.u8(self.source);
                e.blob(&self.name);
                e.utime(self.deleted);
                e.utime(self.deferred_to);
                e.u8(self.state);
            });
        })
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Spec, DecodeError> {
        let envelope = d.envelope("trash entry", 2)?;
        let mut d = envelope.body;
        let (source, name) = (d.u8()?, d.blob()?.to_vec());
        let (deleted, deferred_to) = (d.utime()?, d.utime()?);
        let state = if envelope.version >= 2 { d.u8()? } else { 0 };
        Ok(Spec { source, name, deleted, deferred_to, state })
    }
}

fn key(id: &[u8]) -> Vec<u8> {
    [PREFIX, id].concat()
}

fn add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, spec) = decode(input, |d| Ok((d.blob()?, Spec::decode(d)?)))?;
    if h.omap(&key(id)).is_some() {
        return Err(OpError::of(errno::EEXIST));
    }
    h.set_omap(&key(id), spec.encode());
    done()
}

fn remove(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.blob())?;
    h.omap(&key(id)).ok_or(OpError::of(errno::ENOENT))?;
    h.remove_omap(&key(id));
    done()
}

fn list(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
    let page = h.omap_page(PREFIX, after, max);
    Ok(Encoder::collect(|e| {
        e.vec(page, |e, (id, spec)| {
            e.blob(&id);
            e.bytes(&spec);
        });
    }))
}

fn get(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.blob())?;
    h.omap(&key(id)).map(|spec| spec.to_vec()).ok_or(OpError::of(errno::ENOENT))
}

/// ESTALE: it is neither in the state that is expected nor in the new one.
fn set_state(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, state, expected) = decode(input, |d| Ok((d.blob()?, d.u8()?, d.u8()?)))?;
    let value = h.omap(&key(id)).ok_or(OpError::of(errno::ENOENT))?;
    let mut spec = stored(&value, Spec::decode)?;
    if spec.state == expected {
        spec.state = state;
        h.set_omap(&key(id), spec.encode());
    } else if spec.state != state {
        return Err(OpError::of(errno::ESTALE));
    }
    done()
}
