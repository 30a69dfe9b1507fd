//! The object map of an image: 2 bits per object that say whether it exists.
//!
//! The object's bytes are: number of states u64, then the states, four in a byte, the first in the highest bits. Bits after the
//! last state are zero, so that equal maps have equal bytes.
//!
//! The map of an image of 960 TiB has 60 MiB. Methods that clients call for each new object read and write only the affected
//! bytes, and a map of absent objects is a hole.

use std::ops::Range;

use carmine_types::errno;
use carmine_wire::{DecodeError, Decoder, Encoder};

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, read, with_data, with_parts, write};
use super::done;
use crate::config::OUTPUT_BYTES_MAX;
use crate::error::{OpError, refuse_if};
use crate::pg::METHOD_BYTES_MAX;

/// No bytes have changed yet.
const NOTHING: Range<usize> = Range { start: usize::MAX, end: 0 };

pub(super) const METHODS: &[Method] = &[
    with_data(read("object_map_load", load)),
    write("object_map_save", save),
    with_parts(write("object_map_resize", resize)),
    with_parts(write("object_map_update", update)),
    with_data(write("object_map_snap_add", snap_add)),
    with_data(write("object_map_snap_remove", snap_remove)),
];

/// States: there is no object; there is one; there is one, unchanged since the last snapshot.
const NONE: u8 = 0;
const EXISTS: u8 = 1;
const EXISTS_CLEAN: u8 = 3;
/// Most objects of an image, as in Ceph: as many as fit in a map that is read at once.
const OBJECTS_MAX: u64 = 256_000_000;
/// Bytes of the number of states, which precedes the states.
const HEAD_BYTES: u64 = 8;
const _: () = assert!(HEAD_BYTES + OBJECTS_MAX.div_ceil(4) <= METHOD_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + OBJECTS_MAX.div_ceil(4) + 64 <= OUTPUT_BYTES_MAX);

fn bytes_of(len: u64) -> u64 {
    len.div_ceil(4)
}

/// The bytes that have these states.
fn place_of(states: &Range<u64>) -> Range<u64> {
    states.start / 4..bytes_of(states.end).max(states.start / 4)
}

fn shift(at: u64) -> u32 {
    6 - 2 * (at % 4) as u32
}

/// Changes these states by a function of each; `bytes` begins with the byte that has the first one. Returns the range of the
/// changed bytes.
fn change(bytes: &mut [u8], states: Range<u64>, new: impl Fn(u8) -> u8) -> Range<usize> {
    let of_byte = |byte: u8, within: Range<u64>| {
        within.fold(byte, |byte, at| {
            let old = byte >> shift(at) & 3;
            byte & !(3 << shift(at)) | (new(old) & 3) << shift(at)
        })
    };
    // Nearly all bytes change as a whole, and one of 256 ways.
    let whole: Vec<u8> = (0..=u8::MAX).map(|byte| of_byte(byte, 0..4)).collect();
    let (first, mut changed) = (states.start / 4, NOTHING);
    for (at, byte) in bytes.iter_mut().enumerate() {
        let begin = (first + at as u64) * 4;
        let within = states.start.max(begin) - begin..states.end.min(begin + 4).saturating_sub(begin);
        let old = *byte;
        *byte = if within == (0..4) {
            whole.get(usize::from(old)).copied().unwrap_or(old)
        } else {
            of_byte(old, within)
        };
        if *byte != old {
            changed = changed.start.min(at)..at + 1;
        }
    }
    if changed.is_empty() { 0..0 } else { changed }
}

/// The number of states in the stored map; `None`: the object has no bytes.
///
/// # Errors
/// EINVAL: it is no map.
fn stored_len(h: &mut Handle<'_, '_>) -> Result<Option<u64>, OpError> {
    let size = h.stored_size();
    if size == 0 {
        return Ok(None);
    }
    let head = h.bytes(0..HEAD_BYTES);
    let len = decode(&head, |d| d.u64())?;
    refuse_if(bytes_of(len).checked_add(HEAD_BYTES) != Some(size), errno::EINVAL)?;
    Ok(Some(len))
}

/// The whole map, which must exist.
///
/// # Errors
/// ENOENT; EINVAL: it is no map.
fn whole<'a>(h: &'a Handle<'_, '_>) -> Result<(u64, &'a [u8]), OpError> {
    refuse_if(h.data().is_empty(), errno::ENOENT)?;
    let read = |d: &mut Decoder<'_>| {
        let len = d.u64()?;
        Ok((len, usize::try_from(bytes_of(len)).unwrap_or(usize::MAX)))
    };
    let ((len, bytes), states) =
        decode(h.data(), read).map(|read| (read, h.data().get(HEAD_BYTES as usize..)))?;
    let states = states.filter(|states| states.len() == bytes).ok_or(OpError::new(errno::EINVAL))?;
    Ok((len, states))
}

/// As BitVector<2> without checksums: header in an envelope with its length, states, an empty footer.
fn load(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let (len, states) = whole(h)?;
    let mut out = Vec::with_capacity(states.len() + 32);
    let mut e = Encoder::new(&mut out);
    e.with_len(|e| e.envelope(1, 1, |e| e.u64(len)));
    e.bytes(states);
    e.count(0);
    Ok(out)
}

/// Decodes a map as clients send it: the number of its states, and the states.
fn decode_input(input: &[u8]) -> Result<(u64, &[u8]), OpError> {
    decode(input, |d| {
        let len = Decoder::all(d.blob()?, "object map", |d| d.envelope("object map", 1)?.body.u64())?;
        let too_long = DecodeError::BadValue { what: "length of an object map", value: len };
        let states = d.bytes(usize::try_from(bytes_of(len)).map_err(|_| too_long)?)?;
        d.blob()?; // checksums, or nothing
        Ok((len, states))
    })
}

fn save(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (len, states) = decode_input(input)?;
    refuse_if(len > OBJECTS_MAX, errno::EFBIG)?;
    h.write_full([&len.to_le_bytes(), states].concat())?;
    done()
}

/// New objects get the given state; removed ones must have it, otherwise the map is not what the client expects (ESTALE).
fn resize(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (len, state) = decode(input, |d| Ok((d.u64()?, d.u8()?)))?;
    refuse_if(len > OBJECTS_MAX, errno::EFBIG)?;
    let old = stored_len(h)?.unwrap_or(0);
    let (kept, first) = (len.min(old), len.min(old) / 4);
    let mut bytes = h.bytes(HEAD_BYTES + first..HEAD_BYTES + bytes_of(old).max(first));
    refuse_if(len < old && change(&mut bytes, len..old, |_| state) != (0..0), errno::ESTALE)?;
    h.resize(HEAD_BYTES + bytes_of(len))?;
    h.write(0, len.to_le_bytes().to_vec())?;
    if len >= old && state == NONE {
        return done(); // a hole
    }
    bytes.resize((bytes_of(len) - first) as usize, 0);
    // The new states; when shrinking, the rest of the last byte.
    let (end, state) = if len < old { (bytes_of(len) * 4, NONE) } else { (len, state) };
    let changed = change(&mut bytes, kept..end, |_| state);
    write_changed(h, first, &bytes, changed)
}

/// Writes the changed part of `bytes`, which are the states' bytes from `first` on.
fn write_changed(h: &mut Handle<'_, '_>, first: u64, bytes: &[u8], changed: Range<usize>) -> Done {
    if let Some(new) = bytes.get(changed.clone()).filter(|new| !new.is_empty()) {
        h.write(HEAD_BYTES + first + changed.start as u64, new.to_vec())?;
    }
    done()
}

fn update(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (from, to, state, expected) = decode(input, |d| {
        let (from, to, state) = (d.u64()?, d.u64()?, d.u8()?);
        Ok((from, to, state, if d.bool()? { Some(d.u8()?) } else { None }))
    })?;
    // As in Ceph: only here is a missing object an invalid argument.
    let len = stored_len(h)?.ok_or(OpError::new(errno::EINVAL))?;
    refuse_if(from > to || to > len, errno::ERANGE)?;
    let place = place_of(&(from..to));
    let mut bytes = h.bytes(HEAD_BYTES + place.start..HEAD_BYTES + place.end);
    // An existing object also matches if it is unchanged since a snapshot.
    let is_wanted =
        |old: u8| expected.is_none_or(|want| want == old || (want == EXISTS && old == EXISTS_CLEAN));
    let changed = change(&mut bytes, from..to, |old| if is_wanted(old) { state } else { old });
    write_changed(h, place.start, &bytes, changed)
}

/// A snapshot was made: all objects are unchanged since then.
fn snap_add(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let (len, states) = whole(h)?;
    let mut bytes = states.to_vec();
    let changed = change(&mut bytes, 0..len, |old| if old == EXISTS { EXISTS_CLEAN } else { old });
    write_changed(h, 0, &bytes, changed)
}

/// A snapshot is removed, and its map is sent: an object that had changed before it has also changed since the previous one.
fn snap_remove(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (gone_len, gone) = decode_input(input)?;
    let (len, states) = whole(h)?;
    let mut bytes = states.to_vec();
    let mut changed = NOTHING;
    for (at, byte) in bytes.iter_mut().enumerate() {
        let (old, gone) = (*byte, gone.get(at).copied().unwrap_or(0));
        let begin = at as u64 * 4;
        for state in begin..len.min(begin + 4) {
            let is_changed = state >= gone_len || gone >> shift(state) & 3 == EXISTS;
            if is_changed && old >> shift(state) & 3 == EXISTS_CLEAN {
                *byte = *byte & !(3 << shift(state)) | EXISTS << shift(state);
            }
        }
        if *byte != old {
            changed = changed.start.min(at)..at + 1;
        }
    }
    write_changed(h, 0, &bytes, if changed.is_empty() { 0..0 } else { changed })
}
