//! The object map of an image: 2 bits per object, whether it is there.
//!
//! The object's bytes are: number of states u64, then the states, four in a byte, the first in the highest bits.

use carmine_types::errno;
use carmine_wire::{DecodeError, Decoder, Encoder};

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, read, with_data, write};
use super::done;
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    with_data(read("object_map_load", load)),
    with_data(write("object_map_save", save)),
    with_data(write("object_map_resize", resize)),
    with_data(write("object_map_update", update)),
    with_data(write("object_map_snap_add", snap_add)),
    with_data(write("object_map_snap_remove", snap_remove)),
];

/// States: there is no object; there is; there was nothing changed in it since the last snapshot.
const EXISTS: u8 = 1;
const EXISTS_CLEAN: u8 = 3;
/// Most objects of an image, as in Ceph: what fits in a map that is read at once.
const OBJECTS_MAX: u64 = 256_000_000;
/// Largest map that is kept: its bytes.
const BYTES_MAX: u64 = 16 << 20;
/// The number of states in front of them.
const HEAD_BYTES: usize = 8;

/// 2-bit states.
struct Map {
    len: u64,
    bits: Vec<u8>,
}

fn bytes_of(len: u64) -> u64 {
    len.div_ceil(4)
}

impl Map {
    /// The map that is stored; an object without bytes has an empty one.
    fn of(h: &Handle<'_, '_>) -> Result<Map, OpError> {
        if h.data().is_empty() {
            return Ok(Map { len: 0, bits: Vec::new() });
        }
        let map = Decoder::all(h.data(), "object map", |d| {
            let len = d.u64()?;
            let bits = d.bytes(usize::try_from(bytes_of(len)).unwrap_or(usize::MAX))?.to_vec();
            Ok(Map { len, bits })
        });
        map.map_err(|error| OpError::because(errno::EINVAL, error))
    }

    /// The map that must be there: ENOENT.
    fn must(h: &Handle<'_, '_>) -> Result<Map, OpError> {
        if h.data().is_empty() { Err(OpError::of(errno::ENOENT)) } else { Map::of(h) }
    }

    fn get(&self, at: u64) -> u8 {
        Map::state(&self.bits, at)
    }

    fn state(bits: &[u8], at: u64) -> u8 {
        let byte = bits.get((at / 4) as usize).copied().unwrap_or(0);
        byte >> (6 - 2 * (at % 4)) & 3
    }

    fn set(&mut self, at: u64, state: u8) {
        let shift = 6 - 2 * (at % 4);
        if let Some(byte) = self.bits.get_mut((at / 4) as usize) {
            *byte = *byte & !(3 << shift) | (state & 3) << shift;
        }
    }

    fn encode(&self) -> Vec<u8> {
        [&self.len.to_le_bytes(), &self.bits[..]].concat()
    }
}

/// As BitVector<2> without checksums: header in an envelope with its length, states, an empty footer.
fn load(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let map = Map::must(h)?;
    Ok(Encoder::collect(|e| {
        e.with_len(|e| e.envelope(1, 1, |e| e.u64(map.len)));
        e.bytes(&map.bits);
        e.count(0);
    }))
}

/// A map as clients send it.
fn sent(input: &[u8]) -> Result<Map, OpError> {
    decode(input, |d| {
        let len = Decoder::all(d.blob()?, "object map", |d| d.envelope("object map", 1)?.body.u64())?;
        let bytes = usize::try_from(bytes_of(len)).map_err(|_| too_long(len))?;
        let map = Map { len, bits: d.bytes(bytes)?.to_vec() };
        d.blob()?; // checksums, or nothing
        Ok(map)
    })
}

fn save(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let map = sent(input)?;
    if bytes_of(map.len) > BYTES_MAX - HEAD_BYTES as u64 {
        return Err(OpError::of(errno::EFBIG));
    }
    h.write_full(map.encode())?;
    done()
}

fn too_long(len: u64) -> DecodeError {
    DecodeError::BadValue { what: "length of an object map", value: len }
}

/// New objects get the given state; those that go must have it, or the map is not what the client thinks (ESTALE).
fn resize(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (len, state) = decode(input, |d| Ok((d.u64()?, d.u8()?)))?;
    if len > OBJECTS_MAX || bytes_of(len) > BYTES_MAX - HEAD_BYTES as u64 {
        return Err(OpError::of(errno::EFBIG));
    }
    let mut map = Map::of(h)?;
    if (len..map.len).any(|at| map.get(at) != state) {
        return Err(OpError::of(errno::ESTALE));
    }
    let old = map.len;
    map.len = len;
    map.bits.resize(bytes_of(len) as usize, 0);
    (old..len).for_each(|at| map.set(at, state));
    // The bits behind the last state are zero, so that equal maps have equal bytes.
    (len..bytes_of(len) * 4).for_each(|at| map.set(at, 0));
    h.write_full(map.encode())?;
    done()
}

fn update(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (from, to, state, expected) = decode(input, |d| {
        let (from, to, state) = (d.u64()?, d.u64()?, d.u8()?);
        Ok((from, to, state, if d.bool()? { Some(d.u8()?) } else { None }))
    })?;
    // As Ceph: here alone an object that is not there is a wrong argument.
    let mut map = Map::must(h).map_err(|_| OpError::of(errno::EINVAL))?;
    if from > to || to > map.len {
        return Err(OpError::of(errno::ERANGE));
    }
    let (mut first, mut last) = (u64::MAX, 0);
    for at in from..to {
        let old = map.get(at);
        // An object that is there is so too if it is unchanged since a snapshot.
        let wanted = |want: u8| want == old || (want == EXISTS && old == EXISTS_CLEAN);
        if old != state && expected.is_none_or(wanted) {
            map.set(at, state);
            (first, last) = (first.min(at / 4), at / 4);
        }
    }
    if let Some(changed) = map.bits.get(first.min(usize::MAX as u64) as usize..=last as usize) {
        h.write(HEAD_BYTES as u64 + first, changed.to_vec())?;
    }
    done()
}

/// A snapshot was made: from here on no object has changed.
fn snap_add(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let mut map = Map::must(h)?;
    let old = map.bits.clone();
    (0..map.len).filter(|at| Map::state(&old, *at) == EXISTS).for_each(|at| map.set(at, EXISTS_CLEAN));
    store_changed(h, &map, &old)
}

/// A snapshot goes, whose map is sent: an object that had changed before it has changed since the one before it, too.
fn snap_remove(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let gone = sent(input)?;
    let mut map = Map::must(h)?;
    let old = map.bits.clone();
    let is_changed = |at: u64| at >= gone.len || gone.get(at) == EXISTS;
    let stale = |at: &u64| Map::state(&old, *at) == EXISTS_CLEAN && is_changed(*at);
    (0..map.len).filter(stale).for_each(|at| map.set(at, EXISTS));
    store_changed(h, &map, &old)
}

fn store_changed(h: &mut Handle<'_, '_>, map: &Map, old: &[u8]) -> Done {
    if map.bits != old {
        h.write_full(map.encode())?;
    }
    done()
}
