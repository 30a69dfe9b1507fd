//! Values in the key-value store (FORMAT.md §4): a version byte, the fields, a CRC32C over key and value.

use carmine_types::{Epoch, Eversion, ObjectId, OsdId, ReqId, UTime, crc32c};

use super::extents::{Entry, Extents, SHARD_BLOCKS};
use super::keys;
use crate::{LogEntry, LogOp, ObjectMeta, PgInfo, StoreError};

/// Version of all values of this form.
const VERSION: u8 = 1;

/// Block numbers are stored in five bytes.
pub(crate) const BLOCKS_MAX: u64 = 1 << 40;

/// Ends a value: `out[key_start..]` holds the key and the value so far.
fn seal(out: &mut Vec<u8>, key_start: usize) {
    let crc = crc32c::raw(crc32c::SEED, out.get(key_start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Reads fields; every getter fails at the end of the bytes.
struct Fields<'a> {
    rest: &'a [u8],
    key: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Checks checksum and version.
    fn open(key: &'a [u8], value: &'a [u8]) -> Result<Fields<'a>, StoreError> {
        let damaged = |why: String| Err(StoreError::damaged(keys::printable(key), why));
        let Some((body, sum)) = value.split_last_chunk::<4>() else {
            return damaged(format!("a value of {} bytes holds no checksum", value.len()));
        };
        let (expected, found) = (u32::from_le_bytes(*sum), crc32c::raw(crc32c::raw(crc32c::SEED, key), body));
        if expected != found {
            return damaged(format!("checksum {found:#010x} of the value should be {expected:#010x}"));
        }
        match body.split_first() {
            Some((&VERSION, rest)) => Ok(Fields { rest, key }),
            Some((version, _)) => damaged(format!("version {version}, and this program knows {VERSION}")),
            None => damaged("the value is empty".to_owned()),
        }
    }

    fn fail<T>(&self, why: &str) -> Result<T, StoreError> {
        Err(StoreError::damaged(keys::printable(self.key), why))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => self.fail("the value is cut short"),
        }
    }

    fn u8(&mut self) -> Result<u8, StoreError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.fail("a flag is neither 0 nor 1"),
        }
    }

    fn u16(&mut self) -> Result<u16, StoreError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, StoreError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, StoreError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<Box<[u8]>, StoreError> {
        let len = usize::from(self.u16()?);
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head.into())
            }
            None => self.fail("the value is cut short"),
        }
    }

    fn eversion(&mut self) -> Result<Eversion, StoreError> {
        Ok(Eversion { epoch: self.u32()?, version: self.u64()? })
    }

    fn utime(&mut self) -> Result<UTime, StoreError> {
        Ok(UTime { sec: self.u32()?, nsec: self.u32()? })
    }

    fn end(self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { self.fail("the value has bytes left over") }
    }
}

fn push_eversion(out: &mut Vec<u8>, version: Eversion) {
    out.extend_from_slice(&version.epoch.to_le_bytes());
    out.extend_from_slice(&version.version.to_le_bytes());
}

fn push_utime(out: &mut Vec<u8>, time: UTime) {
    out.extend_from_slice(&time.sec.to_le_bytes());
    out.extend_from_slice(&time.nsec.to_le_bytes());
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Names are at most 2 KiB in RADOS; `Blue::submit` refuses what does not fit.
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes.get(..usize::from(bytes.len() as u16)).unwrap_or_default());
}

/// Appends an onode's value after its key.
pub(crate) fn push_onode(out: &mut Vec<u8>, key_start: usize, meta: &ObjectMeta) {
    out.push(VERSION);
    out.extend_from_slice(&meta.size.to_le_bytes());
    push_eversion(out, meta.version);
    out.extend_from_slice(&meta.user_version.to_le_bytes());
    push_utime(out, meta.mtime);
    out.extend_from_slice(&0u16.to_le_bytes()); // number of attributes: none in this form
    seal(out, key_start);
}

pub(crate) fn decode_onode(key: &[u8], value: &[u8]) -> Result<ObjectMeta, StoreError> {
    let mut fields = Fields::open(key, value)?;
    let meta = ObjectMeta {
        size: fields.u64()?,
        version: fields.eversion()?,
        user_version: fields.u64()?,
        mtime: fields.utime()?,
    };
    if meta.size > crate::OBJECT_BYTES_MAX {
        return fields.fail("the size is above the largest possible");
    }
    if fields.u16()? != 0 {
        return fields.fail("attributes are not part of this form");
    }
    fields.end()?;
    Ok(meta)
}

/// Appends the value of a piece of a block map after its key.
pub(crate) fn push_extents(out: &mut Vec<u8>, key_start: usize, extents: &Extents) {
    out.push(VERSION);
    out.push(extents.entries().len() as u8);
    for entry in extents.entries() {
        out.extend_from_slice(entry.block().to_le_bytes().get(..5).unwrap_or_default());
        out.extend_from_slice(&entry.crc().to_le_bytes());
    }
    seal(out, key_start);
}

pub(crate) fn decode_extents(key: &[u8], value: &[u8]) -> Result<Extents, StoreError> {
    let mut fields = Fields::open(key, value)?;
    let count = usize::from(fields.u8()?);
    if count > SHARD_BLOCKS {
        return fields.fail("it has more entries than a piece of a block map can have");
    }
    let mut extents = Extents::default();
    for index in 0..count {
        let [a, b, c, d, e] = fields.array()?;
        let block = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let crc = fields.u32()?;
        extents.set(index, Entry::new(block, crc));
    }
    fields.end()?;
    Ok(extents)
}

/// Appends a PG info's value after its key.
pub(crate) fn push_info(out: &mut Vec<u8>, key_start: usize, info: &PgInfo) {
    out.push(VERSION);
    push_eversion(out, info.last_update);
    push_eversion(out, info.log_tail);
    out.extend_from_slice(&info.last_epoch_started.0.to_le_bytes());
    out.extend_from_slice(&info.same_interval_since.0.to_le_bytes());
    let acting = info.acting.get(..usize::from(u16::MAX)).unwrap_or(&info.acting);
    out.extend_from_slice(&(acting.len() as u16).to_le_bytes());
    for osd in acting {
        out.extend_from_slice(&osd.0.to_le_bytes());
    }
    out.push(u8::from(info.incomplete));
    seal(out, key_start);
}

pub(crate) fn decode_info(key: &[u8], value: &[u8]) -> Result<PgInfo, StoreError> {
    let pg = keys::decode_pg(key)?;
    let mut fields = Fields::open(key, value)?;
    let mut info = PgInfo {
        pg,
        last_update: fields.eversion()?,
        log_tail: fields.eversion()?,
        last_epoch_started: Epoch(fields.u32()?),
        same_interval_since: Epoch(fields.u32()?),
        acting: Vec::new(),
        incomplete: false,
    };
    for _ in 0..fields.u16()? {
        info.acting.push(OsdId(fields.u32()?));
    }
    info.incomplete = match fields.rest.is_empty() {
        // Written before the flag was: such a copy had a log and no epoch.
        true => info.last_epoch_started == Epoch(0) && info.last_update != Eversion::ZERO,
        false => fields.flag()?,
    };
    fields.end()?;
    Ok(info)
}

/// Appends a log tail's value after its key.
pub(crate) fn push_tail(out: &mut Vec<u8>, key_start: usize, tail: Eversion) {
    out.push(VERSION);
    push_eversion(out, tail);
    seal(out, key_start);
}

pub(crate) fn decode_tail(key: &[u8], value: &[u8]) -> Result<Eversion, StoreError> {
    let mut fields = Fields::open(key, value)?;
    let tail = fields.eversion()?;
    fields.end()?;
    Ok(tail)
}

/// Appends a log entry's value after its key; the version is in the key.
pub(crate) fn push_log(out: &mut Vec<u8>, key_start: usize, entry: &LogEntry) {
    out.push(VERSION);
    push_eversion(out, entry.prior);
    out.extend_from_slice(&entry.reqid.client.to_le_bytes());
    out.extend_from_slice(&entry.reqid.inc.to_le_bytes());
    out.extend_from_slice(&entry.reqid.tid.to_le_bytes());
    out.push(match entry.op {
        LogOp::Modify => 1,
        LogOp::Delete => 2,
        LogOp::Error => 3,
    });
    out.extend_from_slice(&entry.user_version.to_le_bytes());
    out.extend_from_slice(&entry.result.to_le_bytes());
    push_utime(out, entry.mtime);
    out.extend_from_slice(&entry.oid.pool.to_le_bytes());
    out.extend_from_slice(&entry.oid.hash.to_le_bytes());
    out.extend_from_slice(&entry.oid.snap.to_le_bytes());
    push_bytes(out, &entry.oid.nspace);
    push_bytes(out, &entry.oid.key);
    push_bytes(out, &entry.oid.name);
    seal(out, key_start);
}

pub(crate) fn decode_log(key: &[u8], value: &[u8]) -> Result<LogEntry, StoreError> {
    let version = keys::decode_log(key)?;
    let mut fields = Fields::open(key, value)?;
    let prior = fields.eversion()?;
    let reqid = ReqId { client: fields.u64()?, inc: i32::from_le_bytes(fields.array()?), tid: fields.u64()? };
    let op = match fields.u8()? {
        1 => LogOp::Modify,
        2 => LogOp::Delete,
        3 => LogOp::Error,
        _ => return fields.fail("it is neither a modification, nor a removal, nor an error"),
    };
    let user_version = fields.u64()?;
    let result = i32::from_le_bytes(fields.array()?);
    let mtime = fields.utime()?;
    let oid = ObjectId {
        pool: i64::from_le_bytes(fields.array()?),
        hash: fields.u32()?,
        snap: fields.u64()?,
        nspace: fields.bytes()?,
        key: fields.bytes()?,
        name: fields.bytes()?,
    };
    fields.end()?;
    Ok(LogEntry { version, prior, reqid, oid, op, user_version, result, mtime })
}

/// Appends the log's epoch ([`keys::LOG_EPOCH`]) after its key.
pub(crate) fn push_epoch(out: &mut Vec<u8>, key_start: usize, epoch: u64) {
    out.push(VERSION);
    out.extend_from_slice(&epoch.to_le_bytes());
    seal(out, key_start);
}

pub(crate) fn decode_epoch(key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
    let mut fields = Fields::open(key, value)?;
    let epoch = fields.u64()?;
    fields.end()?;
    Ok(epoch)
}

/// Appends the position of a lane after its key: everything up to group `seq` of `epoch` is in the key-value store.
pub(crate) fn push_position(out: &mut Vec<u8>, key_start: usize, epoch: u64, seq: u64) {
    out.push(VERSION);
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
    seal(out, key_start);
}

/// Epoch and group.
pub(crate) fn decode_position(key: &[u8], value: &[u8]) -> Result<(u64, u64), StoreError> {
    let mut fields = Fields::open(key, value)?;
    let position = (fields.u64()?, fields.u64()?);
    fields.end()?;
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_types::PgId;
    use proptest::prelude::*;

    fn value(key: &[u8], push: impl FnOnce(&mut Vec<u8>, usize)) -> Vec<u8> {
        let mut out = b"before".to_vec();
        out.extend_from_slice(key);
        push(&mut out, 6);
        out.split_off(6 + key.len())
    }

    prop_compose! {
        fn eversion()(epoch in any::<u32>(), version in any::<u64>()) -> Eversion { Eversion { epoch, version } }
    }
    prop_compose! {
        fn utime()(sec in any::<u32>(), nsec in any::<u32>()) -> UTime { UTime { sec, nsec } }
    }
    prop_compose! {
        fn entry()(version in eversion(), prior in eversion(), client in any::<u64>(), inc in any::<i32>(), tid in any::<u64>(),
                   kind in 0..3usize, user_version in any::<u64>(), result in any::<i32>(), mtime in utime(),
                   name in prop::collection::vec(any::<u8>(), 0..40), hash in any::<u32>(), snap in any::<u64>()) -> LogEntry {
            let oid = ObjectId { pool: 3, hash, nspace: [1].into(), key: name[name.len() / 2..].into(), name: name.into(), snap };
            let op = [LogOp::Modify, LogOp::Delete, LogOp::Error][kind];
            LogEntry { version, prior, reqid: ReqId { client, inc, tid }, oid, op, user_version, result, mtime }
        }
    }

    proptest! {
        #[test]
        fn log_entries_round_trip(entry in entry()) {
            let key = keys::log(PgId::new(3, 9), entry.version);
            prop_assert_eq!(decode_log(&key, &value(&key, |out, at| push_log(out, at, &entry))).unwrap(), entry);
        }

        #[test]
        fn onodes_round_trip(size in 0..=crate::OBJECT_BYTES_MAX, version in eversion(), user_version in any::<u64>(), mtime in utime()) {
            let meta = ObjectMeta { size, version, user_version, mtime };
            prop_assert_eq!(decode_onode(b"Okey", &value(b"Okey", |out, at| push_onode(out, at, &meta))).unwrap(), meta);
        }

        #[test]
        fn extents_round_trip(entries in prop::collection::vec((0usize..SHARD_BLOCKS, 0..BLOCKS_MAX, any::<u32>()), 0..SHARD_BLOCKS)) {
            let mut extents = Extents::default();
            for (index, block, crc) in entries {
                extents.set(index, Entry::new(block, crc));
            }
            let value = value(b"Xkey", |out, at| push_extents(out, at, &extents));
            prop_assert_eq!(decode_extents(b"Xkey", &value).unwrap(), extents);
        }

        #[test]
        fn infos_round_trip(last_update in eversion(), log_tail in eversion(), les in any::<u32>(), incomplete in any::<bool>(), acting in prop::collection::vec(any::<u32>(), 0..5)) {
            let info = PgInfo { pg: PgId::new(-1, 5), last_update, log_tail, last_epoch_started: Epoch(les),
                same_interval_since: Epoch(7), acting: acting.into_iter().map(OsdId).collect(), incomplete };
            let key = keys::pg(keys::PG_INFO, info.pg);
            prop_assert_eq!(decode_info(&key, &value(&key, |out, at| push_info(out, at, &info))).unwrap(), info.clone());
            let value = value(&key, |out, at| push_tail(out, at, last_update));
            prop_assert_eq!(decode_tail(&key, &value).unwrap(), last_update);
        }

        #[test]
        fn random_and_mutated_values_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<usize>(),
                                                           entry in entry()) {
            let key = keys::log(PgId::new(3, 9), entry.version);
            // Once as they are, once with a checksum that holds, so that the fields are reached.
            let sealed = value(&key, |out, at| { out.push(VERSION); out.extend_from_slice(&bytes); seal(out, at); });
            for value in [&bytes, &sealed] {
                let _ = (decode_log(&key, value), decode_onode(&key, value), decode_extents(&key, value));
                let _ = (decode_info(&key, value), decode_tail(&key, value));
            }
            let mut good = value(&key, |out, at| push_log(out, at, &entry));
            let at = at % good.len();
            good[at] ^= 1 << (at % 8);
            prop_assert!(decode_log(&key, &good).is_err());
        }
    }

    /// Stores of earlier versions end the value after the acting set.
    #[test]
    fn an_info_without_the_flag_is_read() {
        let mut info = PgInfo { pg: PgId::new(1, 5), last_update: Eversion::new(3, 4), ..PgInfo::default() };
        let key = keys::pg(keys::PG_INFO, info.pg);
        for (epoch, incomplete) in [(0, true), (7, false)] {
            info.last_epoch_started = Epoch(epoch);
            let mut old = value(&key, |out, at| push_info(out, at, &info));
            old.truncate(old.len() - 5);
            let old = value(&key, |out, at| {
                out.extend_from_slice(&old);
                seal(out, at);
            });
            assert_eq!(decode_info(&key, &old).unwrap(), PgInfo { incomplete, ..info.clone() });
        }
    }

    #[test]
    fn a_value_under_another_key_is_damaged() {
        let value = value(b"Oa", |out, at| push_onode(out, at, &ObjectMeta::default()));
        assert!(decode_onode(b"Oa", &value).is_ok());
        let error = decode_onode(b"Ob", &value).unwrap_err().to_string();
        assert!(error.contains("Ob") && error.contains("checksum"), "{error}");
    }
}
