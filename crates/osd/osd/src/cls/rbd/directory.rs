//! Methods of `rbd_directory` (names and ids of images), of `rbd_id.NAME`, and of `rbd_namespace`.

use carmine_types::errno;

use super::super::handle::{Handle, decode, stored};
use super::super::{Done, Method, read, with_data, write};
use super::{done, list, remove_key, text, u64_bytes};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    read("dir_list", |h, input| list(h, NAME, input, |e, id| e.bytes(id))),
    read("dir_get_id", |h, input| get(h, NAME, input)),
    read("dir_get_name", |h, input| get(h, ID, input)),
    write("dir_add_image", add),
    write("dir_remove_image", remove),
    write("dir_rename_image", rename),
    read("dir_state_assert", state_assert),
    write("dir_state_set", state_set),
    read("get_all_features", |_, _| Ok(u64_bytes(super::header::FEATURES_ALL))),
    with_data(read("get_id", get_id)),
    with_data(write("set_id", set_id)),
    write("namespace_add", namespace_add),
    write("namespace_remove", |h, input| remove_key(h, NAMESPACE, input)),
    read("namespace_list", |h, input| list(h, NAMESPACE, input, |_, _| {})),
];

const NAME: &[u8] = b"name_";
const ID: &[u8] = b"id_";
const NAMESPACE: &[u8] = b"name_";
/// States of a directory: images may be added, or not, since its namespace is being removed.
const STATE: &[u8] = b"state";
const STATE_READY: u8 = 0;
const STATE_CLOSED: u8 = 1;

/// The value of a name: a text.
fn look_up(h: &mut Handle<'_, '_>, prefix: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, OpError> {
    h.record(&[prefix, name].concat())
}

fn get(h: &mut Handle<'_, '_>, prefix: &[u8], input: &[u8]) -> Done {
    let name = decode(input, |d| d.blob())?;
    look_up(h, prefix, name)?.map(|value| text(&value)).ok_or(OpError::new(errno::ENOENT))
}

fn set_pair(h: &mut Handle<'_, '_>, name: &[u8], id: &[u8]) {
    h.set_omap(&[NAME, name].concat(), text(id));
    h.set_omap(&[ID, id].concat(), text(name));
}

/// EEXIST: the name is taken; EBADF: the id is.
fn add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (name, id) = decode(input, |d| Ok((d.blob()?, d.blob()?)))?;
    refuse_if(name.is_empty() || !is_id(id), errno::EINVAL)?;
    refuse_if(look_up(h, NAME, name)?.is_some(), errno::EEXIST)?;
    refuse_if(look_up(h, ID, id)?.is_some(), errno::EBADF)?;
    set_pair(h, name, id);
    done()
}

/// ESTALE: name and id belong to different images.
fn remove(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (name, id) = decode(input, |d| Ok((d.blob()?, d.blob()?)))?;
    take_pair(h, name, id)?;
    done()
}

fn take_pair(h: &mut Handle<'_, '_>, name: &[u8], id: &[u8]) -> Result<(), OpError> {
    let found_id = look_up(h, NAME, name)?.ok_or(OpError::new(errno::ENOENT))?;
    let found_name = look_up(h, ID, id)?.ok_or(OpError::new(errno::ENOENT))?;
    refuse_if(found_id != id || found_name != name, errno::ESTALE)?;
    h.remove_omap(&[NAME, name].concat());
    h.remove_omap(&[ID, id].concat());
    Ok(())
}

fn rename(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (from, to, id) = decode(input, |d| Ok((d.blob()?, d.blob()?, d.blob()?)))?;
    refuse_if(look_up(h, NAME, to)?.is_some(), errno::EEXIST)?;
    refuse_if(to.is_empty() || !is_id(id), errno::EINVAL)?;
    take_pair(h, from, id)?;
    set_pair(h, to, id);
    done()
}

fn state(h: &mut Handle<'_, '_>) -> u8 {
    h.omap(STATE).and_then(|value| value.first().copied()).unwrap_or(STATE_READY)
}

/// EBUSY: the directory is in another state.
fn state_assert(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wanted = decode(input, |d| d.u8())?;
    if state(h) == wanted { done() } else { Err(OpError::new(errno::EBUSY)) }
}

fn state_set(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    match decode(input, |d| d.u8())? {
        STATE_READY => {}
        // A directory that still has images stays open.
        STATE_CLOSED if !h.omap_page(NAME, b"", 1).is_empty() => return Err(OpError::new(errno::EBUSY)),
        STATE_CLOSED => {}
        _ => return Err(OpError::new(errno::EINVAL)),
    }
    h.set_omap(STATE, input.to_vec());
    done()
}

/// An id is letters and digits.
fn is_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}

fn get_id(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    refuse_if(h.data().is_empty(), errno::ENOENT)?;
    let id = stored(h.data(), |d| d.blob().map(<[u8]>::to_vec))?;
    Ok(text(&id))
}

/// Only once: EEXIST if there is one.
fn set_id(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    h.must_exist()?;
    let id = decode(input, |d| d.blob())?;
    refuse_if(!is_id(id), errno::EINVAL)?;
    refuse_if(!h.data().is_empty(), errno::EEXIST)?;
    h.write(0, text(id))?;
    done()
}

fn namespace_add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let key = [NAMESPACE, decode(input, |d| d.blob())?].concat();
    refuse_if(h.omap(&key).is_some(), errno::EEXIST)?;
    h.set_omap(&key, Vec::new());
    done()
}
