//! A position in the order of objects, in this crate's encodings: an object's id, or none, which sorts after all objects.

use carmine_codec::{Decoder, Encoder, Result};
use carmine_types::ObjectId;

use crate::object;

/// Bytes of the shortest encoding.
pub const BYTES_MIN: usize = 1;

/// Appends a position: u8 (1: an id follows), and the id.
pub fn put(place: &Option<ObjectId>, e: &mut Encoder<'_>) {
    e.u8(place.is_some().into());
    place.iter().for_each(|oid| object::put(oid, e));
}

/// Reads what [`put`] wrote.
///
/// # Errors
/// If the bytes are no position.
pub fn get(d: &mut Decoder<'_>) -> Result<Option<ObjectId>> {
    if d.bool()? { object::get(d).map(Some) } else { Ok(None) }
}
