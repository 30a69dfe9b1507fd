//! The log of an object's attributes, byte by byte. All numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the body |
//! | 4 | CRC32C of the body (Ceph's: the register starts at 0xffffffff and is not inverted at the end) |
//! | 1 | body: version, 1 |
//! | 1 | flags: 1 nothing before counts; 2, 4, 8: no xattr, omap, watcher before counts; 16: an omap header follows |
//! | 4 + n | the omap header, if there is one |
//! | | xattrs, omap, watchers, in this order, each: u32 count, count × (u32 length and name, u8 1 and u32 length and value, or u8 0 if it is removed) |
//!
//! Names ascend. Records follow each other without a gap; the object ends with the last one. It is written by
//! transactions only, so there is never a part of a record.

use std::collections::BTreeMap;

use carmine_reactor::Bytes;
use carmine_types::crc32c;
use carmine_wire::{DecodeError, Decoder, Encoder};

use super::view::Delta;
use super::{Attrs, Kind};

const VERSION: u8 = 1;
const RESET: u8 = 1;
/// Shifted by the kind.
const CLEARED: u8 = 2;
const HEADER: u8 = 16;
/// Length and checksum of the body.
const HEAD_BYTES: usize = 8;
/// Bytes of an entry beside its name and value.
pub(super) const ENTRY_BYTES: usize = 9;

pub(super) fn encode(delta: &Delta) -> Vec<u8> {
    let mut out = vec![0; HEAD_BYTES];
    let mut e = Encoder::new(&mut out);
    let cleared = Kind::ALL.iter().filter(|kind| delta.cleared[**kind as usize]);
    let mut flags = cleared.fold(0, |flags, kind| flags | CLEARED << *kind as u8);
    flags |= if delta.reset { RESET } else { 0 } | if delta.omap_header.is_some() { HEADER } else { 0 };
    e.u8(VERSION);
    e.u8(flags);
    if let Some(header) = &delta.omap_header {
        e.blob(header);
    }
    for changes in &delta.changes {
        e.vec(changes, |e, (name, value)| {
            e.blob(name);
            e.bool(value.is_some());
            if let Some(value) = value {
                e.blob(value);
            }
        });
    }
    let body = e.written_since(HEAD_BYTES);
    let (len, crc) = (body.len() as u32, crc32c::raw(crc32c::SEED, body));
    e.patch_u32(0, len);
    e.patch_u32(4, crc);
    out
}

/// The attributes after all records of a log.
pub(super) fn replay(log: &[u8]) -> Result<Attrs, DecodeError> {
    let mut attrs = Attrs::default();
    let mut d = Decoder::new(log, "attribute log");
    while !d.is_empty() {
        let (len, crc) = (d.u32()?, d.u32()?);
        let body = d.bytes(len as usize)?;
        if crc32c::raw(crc32c::SEED, body) != crc {
            return Err(DecodeError::BadValue { what: "checksum of an attribute record", value: crc.into() });
        }
        attrs.apply(Decoder::all(body, "attribute record", decode)?);
    }
    attrs.log_bytes = log.len() as u64;
    Ok(attrs)
}

fn decode(d: &mut Decoder<'_>) -> Result<Delta, DecodeError> {
    let (version, flags) = (d.u8()?, d.u8()?);
    if version != VERSION {
        return Err(DecodeError::BadValue { what: "attribute record version", value: version.into() });
    }
    let mut delta = Delta { reset: flags & RESET != 0, ..Delta::default() };
    if flags & HEADER != 0 {
        delta.omap_header = Some(bytes(d)?);
    }
    for kind in Kind::ALL {
        delta.cleared[kind as usize] = flags & CLEARED << kind as u8 != 0;
        let change = |d: &mut Decoder<'_>| Ok(if d.bool()? { Some(bytes(d)?) } else { None });
        let changes = d.map(5, |d| Ok(d.blob()?.into()), change)?;
        delta.changes[kind as usize] = BTreeMap::from_iter(changes);
    }
    Ok(delta)
}

fn bytes(d: &mut Decoder<'_>) -> Result<Bytes, DecodeError> {
    Ok(Bytes::from(d.blob()?.to_vec()))
}
