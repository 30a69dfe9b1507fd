//! Settings of an image or a pool: any keys and values.

use carmine_types::errno;
use carmine_wire::Encoder;

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, read, write};
use super::{done, text};
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    read("metadata_list", list),
    read("metadata_get", get),
    write("metadata_set", set),
    write("metadata_remove", remove),
];

const PREFIX: &[u8] = b"metadata_";

fn list(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
    let page = h.omap_page(PREFIX, after, if max == 0 { u64::MAX } else { max });
    Ok(Encoder::collect(|e| {
        e.vec(page, |e, (key, value)| {
            e.blob(&key);
            e.blob(&value);
        });
    }))
}

fn get(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let key = decode(input, |d| d.blob())?;
    let value = h.omap(&[PREFIX, key].concat()).ok_or(OpError::of(errno::ENOENT))?;
    Ok(text(&value))
}

fn set(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    for (key, value) in decode(input, |d| d.map(8, |d| d.blob(), |d| d.blob()))? {
        h.set_omap(&[PREFIX, key].concat(), value.to_vec());
    }
    done()
}

fn remove(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let key = [PREFIX, decode(input, |d| d.blob())?].concat();
    h.omap(&key).ok_or(OpError::of(errno::ENOENT))?;
    h.remove_omap(&key);
    done()
}
