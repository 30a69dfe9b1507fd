//! An object's id in encodings of this crate.

use carmine_codec::{DecodeError, Decoder, Encoder, Result};
use carmine_types::ObjectId;

use crate::NAME_BYTES_MAX;

/// Bytes of an id with an empty name.
pub const BYTES_MIN: usize = 8 + 4 + 8 + 8 + 1 + 3 * 4;

/// Appends an id: pool, hash, snap, generation, shard, namespace, key, name.
pub fn put(oid: &ObjectId, e: &mut Encoder<'_>) {
    e.i64(oid.pool);
    e.u32(oid.hash);
    e.u64(oid.snap);
    e.u64(oid.generation);
    e.i8(oid.shard);
    e.blob(&oid.nspace);
    e.blob(&oid.key);
    e.blob(&oid.name);
}

/// Reads what [`put`] wrote.
///
/// # Errors
/// If the bytes are no id, or a part of the name is longer than [`NAME_BYTES_MAX`].
pub fn get<T: From<ObjectId>>(d: &mut Decoder<'_>) -> Result<T> {
    let cursor = ObjectId::cursor(d.i64()?, d.u32()?);
    let (snap, generation, shard) = (d.u64()?, d.u64()?, d.i8()?);
    let mut name = || -> Result<Box<[u8]>> {
        let name = d.blob()?;
        if name.len() > NAME_BYTES_MAX {
            let (len, limit) = (name.len() as u64, NAME_BYTES_MAX);
            return Err(DecodeError::TooLong { what: "name of an object", len, limit });
        }
        Ok(name.into())
    };
    let (nspace, key, name) = (name()?, name()?, name()?);
    Ok(ObjectId { nspace, key, name, snap, generation, shard, ..cursor }.into())
}
