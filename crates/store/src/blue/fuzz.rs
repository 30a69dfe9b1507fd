//! Every decoder of what lies on a disk, over any bytes: none may panic, hang, or allocate by what the bytes claim.

use std::path::Path;

use carmine_types::{Epoch, Eversion, ObjectId, OsdId, PgId, ReqId, UTime, Uuid, crc32c};

use super::extents::{Entry, Extents};
use super::label::LogArea;
use super::record::{GroupHeader, decode_txns};
use super::{codec, keys};
use crate::{Label, LogEntry, LogOp, ObjectMeta, PgInfo};

/// Decodes bytes as a label, as a group of the log, and as a pair of the key-value store: the first byte is the length of the key, then come key and
/// value. A value is decoded as it is, and once more with a checksum that holds, so that its fields are reached.
pub fn decode_any(bytes: &[u8]) {
    let _ = Label::decode(Path::new("fuzz"), bytes);
    let Some((len, rest)) = bytes.split_first() else { return };
    let _ = (GroupHeader::decode(bytes), decode_txns(u32::from(*len), rest));
    let Some((key, value)) = rest.split_at_checked(usize::from(*len)) else { return };
    decode_pair(key, value);
    let crc = crc32c::raw(crc32c::raw(crc32c::SEED, key), value);
    decode_pair(key, &[value, &crc.to_le_bytes()].concat());
}

fn decode_pair(key: &[u8], value: &[u8]) {
    let _ = (keys::decode_onode(key), keys::decode_extents(key), keys::decode_log(key), keys::decode_pg(key));
    let _ =
        (codec::decode_onode(key, value), codec::decode_extents(key, value), codec::decode_log(key, value));
    let _ = (codec::decode_info(key, value), codec::decode_tail(key, value));
    let _ = (codec::decode_epoch(key, value), codec::decode_position(key, value), keys::decode_lane(key));
}

/// A good input of each kind.
#[must_use]
pub fn decode_seeds() -> Vec<Vec<u8>> {
    let (pg, version, oid) =
        (PgId::new(1, 7), Eversion::new(3, 9), ObjectId::head(1, b"space", b"key", b"name"));
    let mut extents = Extents::default();
    for (n, block) in (5u64..14).enumerate() {
        extents.set(n * 2, Entry::new(block, 0xfeed));
    }
    let meta = ObjectMeta { size: 9999, version, user_version: 4, mtime: UTime { sec: 5, nsec: 6 } };
    let info = PgInfo {
        pg,
        last_update: version,
        last_epoch_started: Epoch(2),
        acting: vec![OsdId(1), OsdId(2)],
        ..PgInfo::default()
    };
    let entry = LogEntry {
        version,
        prior: Eversion::ZERO,
        reqid: ReqId { client: 4100, inc: 1, tid: 17 },
        oid: oid.clone(),
        op: LogOp::Modify,
        user_version: 4,
        result: 0,
        mtime: UTime { sec: 5, nsec: 6 },
    };
    let name = keys::oid_bytes(&oid);
    let label = Label {
        fsid: Uuid([7; 16]),
        osd: OsdId(3),
        size_bytes: 1 << 30,
        generation: 5,
        log: LogArea::of(1 << 18),
    };
    vec![
        label.encode(),
        pair(keys::onode(&name), |out, at| codec::push_onode(out, at, &meta)),
        pair(keys::extents(&name, 1), |out, at| codec::push_extents(out, at, &extents)),
        pair(keys::log(pg, version), |out, at| codec::push_log(out, at, &entry)),
        pair(keys::pg(keys::PG_INFO, pg), |out, at| codec::push_info(out, at, &info)),
        pair(keys::pg(keys::PG_TAIL, pg), |out, at| codec::push_tail(out, at, version)),
    ]
}

fn pair(key: Vec<u8>, value: impl FnOnce(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut out = vec![key.len() as u8];
    out.extend_from_slice(&key);
    value(&mut out, 1);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changed_seeds_are_errors_not_panics(seed in 0usize..6, changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
                                               cut in any::<usize>()) {
            let mut bytes = decode_seeds().remove(seed);
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(1 + cut % bytes.len());
            decode_any(&bytes);
        }

        #[test]
        fn random_bytes_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            decode_any(&bytes);
        }
    }

    #[test]
    fn seeds_are_good() {
        for seed in decode_seeds().iter().skip(1) {
            let (key, value) = seed[1..].split_at(usize::from(seed[0]));
            let good = [
                codec::decode_onode(key, value).is_ok(),
                codec::decode_extents(key, value).is_ok(),
                codec::decode_log(key, value).is_ok(),
                codec::decode_info(key, value).is_ok(),
                codec::decode_tail(key, value).is_ok(),
            ];
            assert!(good.contains(&true), "{}", keys::printable(key));
        }
    }
}
