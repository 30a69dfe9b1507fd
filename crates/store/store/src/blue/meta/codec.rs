//! Values in the key-value store (FORMAT.md §4): a version byte, the value's encoding, a CRC32C over key and value.

use carmine_codec::{Decoder, Encoder, Result as Decoded};
use carmine_pgtypes::{LogEntry, OBJECT_BYTES_MAX, ObjectMeta, PgInfo};
use carmine_types::{Eversion, SpgId, crc32c};

use crate::StoreError;
use crate::blue::device::PIECE_BLOCKS;
use crate::blue::meta::extents::{Entry, Extents, get_block};
use crate::blue::meta::keys;
use crate::kv::KvBatch;

/// Version of all values of this form.
const VERSION: u8 = 2;

/// Bytes of an entry of a block map.
const ENTRY_BYTES: usize = 9;
/// Flag in the first byte of a piece of a block map: it was copied by a clone.
const COPY: u8 = 0x80;

/// Appends a value after its key, which begins at `out[key_start]`.
pub(crate) fn push(out: &mut Vec<u8>, key_start: usize, encode: impl FnOnce(&mut Encoder<'_>)) {
    out.push(VERSION);
    encode(&mut Encoder::new(out));
    let crc = crc32c::raw(crc32c::SEED, out.get(key_start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Checks a value and decodes it.
pub(crate) fn open<'a, T>(
    key: &[u8],
    value: &'a [u8],
    decode: impl FnOnce(&mut Decoder<'a>) -> Decoded<T>,
) -> Result<T, StoreError> {
    let damaged = |why: String| Err(StoreError::damaged(keys::printable(key), why));
    let Some((body, sum)) = value.split_last_chunk::<4>() else {
        return damaged(format!("a value of {} bytes holds no checksum", value.len()));
    };
    let (expected, found) = (u32::from_le_bytes(*sum), crc32c::raw(crc32c::raw(crc32c::SEED, key), body));
    if expected != found {
        return damaged(format!("checksum {found:#010x} of the value should be {expected:#010x}"));
    }
    match body.split_first() {
        Some((&VERSION, rest)) => {
            Decoder::all(rest, "value", decode).or_else(|error| damaged(error.to_string()))
        }
        Some((version, _)) => damaged(format!("version {version}, and this program knows {VERSION}")),
        None => damaged("the value is empty".to_owned()),
    }
}

/// Reads an onode's value.
pub(crate) fn decode_onode(key: &[u8], value: &[u8]) -> Result<ObjectMeta, StoreError> {
    let meta = open::<ObjectMeta>(key, value, |d| d.get())?;
    if meta.size > OBJECT_BYTES_MAX {
        return Err(StoreError::damaged(keys::printable(key), "the size is above the largest possible"));
    }
    Ok(meta)
}

/// Appends the value of a piece of a block map after its key.
pub(crate) fn push_extents(out: &mut Vec<u8>, key_start: usize, extents: &Extents) {
    let entries = extents.entries();
    // All at once, since nearly every write encodes one of these.
    let mut bytes = [[0; ENTRY_BYTES]; PIECE_BLOCKS];
    for (out, entry) in bytes.iter_mut().zip(entries) {
        let [a, b, c, d, e, ..] = entry.block().to_le_bytes();
        let [f, g, h, i] = entry.crc().to_le_bytes();
        *out = [a, b, c, d, e, f, g, h, i];
    }
    push(out, key_start, |e| {
        e.u8(entries.len() as u8 | if extents.is_copy() { COPY } else { 0 });
        e.bytes(bytes.as_flattened().get(..entries.len() * ENTRY_BYTES).unwrap_or_default());
        if extents.parts() != 0 {
            e.u64(extents.parts());
        }
    });
}

pub(crate) fn decode_extents(key: &[u8], value: &[u8]) -> Result<Extents, StoreError> {
    let (entries, is_copy, parts) = open(key, value, |d| {
        let first = d.u8()?;
        let entries = d.items((first & !COPY).into(), |d| Ok(Entry::new(get_block(d)?, d.u32()?)))?;
        // Few pieces have any.
        let parts = if d.is_empty() { 0 } else { d.u64()? };
        Ok((entries, first & COPY != 0, parts))
    })?;
    if entries.len() > PIECE_BLOCKS {
        let why = "it has more entries than a piece of a block map can have";
        return Err(StoreError::damaged(keys::printable(key), why));
    }
    let mut extents = Extents::default();
    for (index, entry) in entries.into_iter().enumerate() {
        extents.set(index, entry);
    }
    let extents = extents.with_parts(parts);
    Ok(if is_copy { extents.copy() } else { extents })
}

pub(crate) fn decode_info(key: &[u8], value: &[u8]) -> Result<PgInfo, StoreError> {
    let info = open::<PgInfo>(key, value, |d| d.get())?;
    if info.pg != keys::decode_pg(key)? {
        return Err(StoreError::damaged(keys::printable(key), "it is the info of another PG"));
    }
    Ok(info)
}

pub(crate) fn decode_tail(key: &[u8], value: &[u8]) -> Result<Eversion, StoreError> {
    open(key, value, |d| d.eversion())
}

/// Sets an entry of a PG's log, as a run of one.
pub(crate) fn put_log(batch: &mut KvBatch, pg: SpgId, entry: &LogEntry) {
    batch.put_with(|out| keys::push_log(out, pg, entry.version), |out, at| push(out, at, |e| e.put(entry)));
}

/// The entries of a run of a PG's log, encoded; `None` if the value is damaged.
pub(crate) fn log_entries<'a>(key: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    open(key, value, |d| d.bytes(d.remaining())).ok()
}

/// Reads a run of a PG's log: at least one entry, the last of which is that of the key.
pub(crate) fn decode_log(key: &[u8], value: &[u8]) -> Result<Vec<LogEntry>, StoreError> {
    let entries = open::<Vec<LogEntry>>(key, value, |d| {
        let mut entries = Vec::new();
        while !d.is_empty() {
            entries.push(d.get()?);
        }
        Ok(entries)
    })?;
    let last = keys::decode_log(key)?;
    if entries.last().is_none_or(|entry| entry.version != last) {
        return Err(StoreError::damaged(keys::printable(key), "its last entry is that of another version"));
    }
    if !entries.is_sorted_by(|a, b| a.version < b.version) {
        return Err(StoreError::damaged(keys::printable(key), "its entries are not in order"));
    }
    Ok(entries)
}

/// Reads the value of an omap key, or an omap header.
pub(crate) fn decode_omap<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], StoreError> {
    open(key, value, |d| d.bytes(d.remaining()))
}

/// Reads the log's epoch ([`keys::LOG_EPOCH`]).
pub(crate) fn decode_epoch(key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
    open(key, value, |d| d.u64())
}

/// Appends the position of a lane after its key: everything up to group `seq` of `epoch` is in the key-value store.
pub(crate) fn push_position(out: &mut Vec<u8>, key_start: usize, epoch: u64, seq: u64) {
    push(out, key_start, |e| {
        e.u64(epoch);
        e.u64(seq);
    });
}

/// Epoch and group.
pub(crate) fn decode_position(key: &[u8], value: &[u8]) -> Result<(u64, u64), StoreError> {
    open(key, value, |d| Ok((d.u64()?, d.u64()?)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::blue::device::BLOCKS_MAX;
    use carmine_types::{LogOp, ObjectId, PgId, ReqId, SpgId, UTime};
    use proptest::prelude::*;

    fn value(key: &[u8], push: impl FnOnce(&mut Vec<u8>, usize)) -> Vec<u8> {
        let mut out = b"before".to_vec();
        out.extend_from_slice(key);
        push(&mut out, 6);
        out.split_off(6 + key.len())
    }

    fn sealed(key: &[u8], encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
        value(key, |out, at| push(out, at, encode))
    }

    fn pg() -> SpgId {
        PgId::new(3, 9).into()
    }

    pub(crate) fn entry(version: Eversion) -> LogEntry {
        LogEntry {
            version,
            prior: Eversion::ZERO,
            reqid: ReqId { client: 7, inc: 1, tid: 2 },
            oid: ObjectId::head(3, b"space", b"", b"name").into(),
            op: LogOp::Modify,
            user_version: 1,
            result: 0,
            mtime: UTime::ZERO,
            clones: Box::default(),
            returned: None,
        }
    }

    proptest! {
        #[test]
        fn extents_round_trip(entries in prop::collection::vec((0usize..PIECE_BLOCKS, 0..BLOCKS_MAX, any::<u32>()), 0..PIECE_BLOCKS),
                              is_copy in any::<bool>()) {
            let mut extents = Extents::default();
            for (index, block, crc) in entries {
                extents.set(index, Entry::new(block, crc));
            }
            let extents = if is_copy { extents.copy() } else { extents };
            let value = value(b"Xkey", |out, at| push_extents(out, at, &extents));
            prop_assert_eq!(decode_extents(b"Xkey", &value).unwrap(), extents);
        }

        #[test]
        fn omap_values_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let value = sealed(b"Mkey", |e| e.bytes(&bytes));
            prop_assert_eq!(decode_omap(b"Mkey", &value).unwrap(), &bytes);
        }

        #[test]
        fn random_and_mutated_values_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<usize>(),
                                                           version in any::<(u32, u64)>()) {
            let version = Eversion::new(version.0, version.1);
            let key = keys::log(pg(), version);
            // Once as they are, once with a valid checksum, so that the fields are decoded.
            for value in [&bytes, &sealed(&key, |e| e.bytes(&bytes))] {
                let _ = (decode_log(&key, value), decode_onode(&key, value), decode_extents(&key, value));
                let _ = (decode_info(&key, value), decode_tail(&key, value), decode_omap(&key, value));
            }
            let mut value = sealed(&key, |e| e.put(&entry(version)));
            prop_assert_eq!(decode_log(&key, &value).unwrap(), [entry(version)]);
            let at = at % value.len();
            value[at] ^= 1 << (at % 8);
            prop_assert!(decode_log(&key, &value).is_err());
        }
    }

    #[test]
    fn a_value_under_another_key_is_damaged() {
        let value = sealed(b"Oa", |e| e.put(&ObjectMeta::default()));
        assert!(decode_onode(b"Oa", &value).is_ok());
        let error = decode_onode(b"Ob", &value).unwrap_err().to_string();
        assert!(error.contains("Ob") && error.contains("checksum"), "{error}");
    }

    #[test]
    fn a_value_that_contradicts_its_key_is_damaged() {
        let of = |key: &[u8], info: &PgInfo| decode_info(key, &sealed(key, |e| e.put(info)));
        let key = keys::pg(keys::PG_INFO, pg());
        let info = PgInfo { pg: pg(), incomplete: true, ..PgInfo::default() };
        assert_eq!(of(&key, &info).unwrap(), info);
        let other = PgInfo { pg: SpgId { shard: 1, ..pg() }, ..info };
        assert!(of(&key, &other).unwrap_err().to_string().contains("another PG"));
        let key = keys::log(pg(), Eversion::new(1, 2));
        let value = sealed(&key, |e| e.put(&entry(Eversion::new(1, 3))));
        assert!(decode_log(&key, &value).unwrap_err().to_string().contains("another version"));
        let run = |versions: [u64; 3]| {
            let entries = versions.map(|version| entry(Eversion::new(1, version)));
            decode_log(&key, &sealed(&key, |e| entries.iter().for_each(|entry| e.put(entry))))
        };
        assert_eq!(run([0, 1, 2]).unwrap().len(), 3);
        assert!(run([1, 0, 2]).unwrap_err().to_string().contains("not in order"));
        assert!(decode_log(&key, &sealed(&key, |_| ())).is_err(), "a run without entries");
        let huge = ObjectMeta { size: OBJECT_BYTES_MAX + 1, ..ObjectMeta::default() };
        assert!(decode_onode(b"Oa", &sealed(b"Oa", |e| e.put(&huge))).is_err());
    }
}
