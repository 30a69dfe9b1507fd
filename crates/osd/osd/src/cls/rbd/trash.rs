//! Methods of `rbd_trash`: images waiting to be removed.

use carmine_codec::coded;
use carmine_types::{UTime, errno};
use carmine_wire::Encoder;

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, read, write};
use super::{done, find, list, remove_key};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    write("trash_add", add),
    write("trash_remove", |h, input| remove_key(h, PREFIX, input)),
    read("trash_list", |h, input| list(h, PREFIX, input, |e, spec| e.bytes(spec))),
    read("trash_get", |h, input| find(h, PREFIX, input).map(|spec| spec.to_vec())),
    write("trash_state_set", set_state),
];

const PREFIX: &[u8] = b"id_";

coded! {
    /// TrashImageSpec.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Spec: versioned "trash entry", 2, compat 1, oldest 0 {
        /// Who moved it here: user, mirroring, migration, removal.
        source: u8,
        name: Vec<u8>,
        deleted: UTime,
        deferred_to: UTime,
        /// 0 normal; others while it is moved or removed.
        state: u8; since 2,
    }
}

fn key(id: &[u8]) -> Vec<u8> {
    [PREFIX, id].concat()
}

fn add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, spec) = decode(input, |d| Ok((d.blob()?, d.get::<Spec>()?)))?;
    refuse_if(h.omap(&key(id)).is_some(), errno::EEXIST)?;
    h.set_omap(&key(id), Encoder::collect(|e| e.put(&spec)));
    done()
}

/// ESTALE: it is neither in the expected state nor in the new one.
fn set_state(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, state, expected) = decode(input, |d| Ok((d.blob()?, d.u8()?, d.u8()?)))?;
    let mut spec: Spec = h.record(&key(id))?.ok_or(OpError::new(errno::ENOENT))?;
    if spec.state == expected {
        spec.state = state;
        h.set_omap(&key(id), Encoder::collect(|e| e.put(&spec)));
    } else if spec.state != state {
        return Err(OpError::new(errno::ESTALE));
    }
    done()
}
