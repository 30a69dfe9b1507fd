//! Class `rbd`: block images, as far as they need neither snapshots nor clones. What an image is stands in the omap of its
//! header object, under the names that Ceph uses; names of images in that of `rbd_directory`.

mod directory;
mod header;
mod metadata;
mod none;
mod object_map;
mod trash;

use carmine_wire::Encoder;

use super::handle::{Handle, stored};
use super::{Done, Method};
use crate::error::OpError;
use carmine_types::errno;

/// Tables of the class.
pub(super) const METHODS: &[&[Method]] = &[
    directory::METHODS,
    header::METHODS,
    metadata::METHODS,
    none::METHODS,
    object_map::METHODS,
    trash::METHODS,
];

/// The snapshot of requests that mean none.
const NO_SNAP: u64 = u64::MAX - 1;

/// A u64 of the omap.
fn number(h: &mut Handle<'_, '_>, name: &str) -> Result<Option<u64>, OpError> {
    let value = h.omap(name.as_bytes());
    value.map(|value| stored(&value, |d| d.u64())).transpose()
}

/// ENOENT for a snapshot: there are none.
fn no_snap(snap: u64) -> Result<(), OpError> {
    if snap == NO_SNAP { Ok(()) } else { Err(OpError::of(errno::ENOENT)) }
}

fn u64_bytes(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// A length and the bytes.
fn text(value: &[u8]) -> Vec<u8> {
    Encoder::collect(|e| e.blob(value))
}

/// What a method without output gives back.
fn done() -> Done {
    Ok(Vec::new())
}
