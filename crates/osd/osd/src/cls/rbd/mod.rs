//! Class `rbd`: block images, their snapshots and clones. An image is described by the omap of its header object, under
//! the keys that Ceph uses; the names of images are in the omap of `rbd_directory`.

mod data;
mod directory;
mod header;
mod object_map;
mod parents;
mod records;
mod snapshots;
mod trash;

use carmine_reactor::Bytes;
use carmine_types::errno;
use carmine_wire::Encoder;

use super::handle::{Handle, decode};
use super::{Done, Method, read, without_object, write};
use crate::error::OpError;

/// Tables of the class.
pub(super) const METHODS: &[&[Method]] = &[
    directory::METHODS,
    header::METHODS,
    snapshots::METHODS,
    parents::METHODS,
    object_map::METHODS,
    data::METHODS,
    trash::METHODS,
    SETTINGS,
    NOT_HERE,
];

/// Settings of an image or a pool: any keys and values.
const SETTINGS: &[Method] = &[
    without_object(read("metadata_list", settings)),
    read("metadata_get", |h, input| find(h, SETTING, input).map(|value| text(&value))),
    write("metadata_set", set_settings),
    write("metadata_remove", |h, input| remove_key(h, SETTING, input)),
];

/// Methods of features that are not implemented, which tools call for every image and pool: mirroring, groups, migration. The
/// answers are those of a pool where the feature was never used.
const NOT_HERE: &[Method] = &[
    read("mirror_uuid_get", |_, _| Err(OpError::new(errno::ENOENT))),
    read("mirror_mode_get", |_, _| Err(OpError::new(errno::ENOENT))),
    read("mirror_image_get", |_, _| Err(OpError::new(errno::ENOENT))),
    read("mirror_image_get_image_id", |_, _| Err(OpError::new(errno::ENOENT))),
    write("mirror_image_remove", |_, _| Err(OpError::new(errno::ENOENT))),
    // No image is being migrated.
    read("migration_get", |h, _| {
        Err(OpError::new(if number(h, "features")?.is_some() { errno::EINVAL } else { errno::ENXIO }))
    }),
    read("group_dir_list", |_, _| Err(OpError::new(errno::ENOENT))),
];

/// The prefix of the keys of settings.
const SETTING: &[u8] = b"metadata_";

/// The snapshot id of requests about no snapshot.
const NO_SNAP: u64 = u64::MAX - 1;

/// A u64 of the omap.
fn number(h: &mut Handle<'_, '_>, name: &str) -> Result<Option<u64>, OpError> {
    h.record(name.as_bytes())
}

fn u64_bytes(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// A length and the bytes.
fn text(value: &[u8]) -> Vec<u8> {
    Encoder::collect(|e| e.blob(value))
}

/// The outcome of a method without output.
fn done() -> Done {
    Ok(Vec::new())
}

/// The value of the key `prefix` + the input, or ENOENT.
fn find(h: &mut Handle<'_, '_>, prefix: &[u8], input: &[u8]) -> Result<Bytes, OpError> {
    let key = [prefix, decode(input, |d| d.blob())?].concat();
    h.omap(&key).ok_or(OpError::new(errno::ENOENT))
}

/// Removes the key `prefix` + the input; ENOENT if there is none.
fn remove_key(h: &mut Handle<'_, '_>, prefix: &[u8], input: &[u8]) -> Done {
    find(h, prefix, input)?;
    h.remove_omap(&[prefix, decode(input, |d| d.blob())?].concat());
    done()
}

/// A page of the keys with `prefix`, each with what `put` writes of its value: the input says after which key, and how many.
fn list(h: &mut Handle<'_, '_>, prefix: &[u8], input: &[u8], put: fn(&mut Encoder<'_>, &[u8])) -> Done {
    let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
    Ok(page(h, prefix, after, max, put))
}

fn page(
    h: &mut Handle<'_, '_>,
    prefix: &[u8],
    after: &[u8],
    max: u64,
    put: fn(&mut Encoder<'_>, &[u8]),
) -> Vec<u8> {
    let page = h.omap_page(prefix, after, max);
    Encoder::collect(|e| {
        e.vec(page, |e, (key, value)| {
            e.blob(&key);
            put(e, &value);
        });
    })
}

/// A limit of zero means all of them.
fn settings(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
    Ok(page(h, SETTING, after, if max == 0 { u64::MAX } else { max }, |e, value| e.blob(value)))
}

fn set_settings(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let given = decode(input, |d| d.map(8, |d| d.blob(), |d| d.blob()))?;
    h.touch();
    for (key, value) in given {
        h.set_omap(&[SETTING, key].concat(), value.to_vec());
    }
    done()
}
