//! Runs every decoder of on-disk data over arbitrary bytes: none may panic, hang, or allocate as much as the bytes claim.

use std::path::Path;

use carmine_codec::Encoder;
use carmine_pgtypes::{LogEntry, ObjectChange, ObjectMeta, PgInfo, Sealed, Step, Transaction, Xattrs};
use carmine_types::{Epoch, Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, SpgId, UTime, Uuid, crc32c};

use crate::blue::device::label::{LogArea, VERSION};
use crate::blue::device::wal::WalLabel;
use crate::blue::log::record::{GroupHeader, GroupId, HEADER_BYTES, Known, Out, TxnParts, decode_txns};
use crate::blue::log::scan::Scanned;
use crate::blue::meta::extents::{Entry, Extents};
use crate::blue::meta::{checkpoint, codec, keys};
use crate::{BLOCK_BYTES, Label};

/// The id of the log whose groups are searched for.
const LOG_ID: u64 = 5;
const EPOCH: u64 = 2;
/// Bytes of a segment that is scanned.
const SEGMENT_BYTES: usize = 4 * BLOCK_BYTES as usize;

/// Decodes bytes as a label, as a segment of the log, and as a pair of the key-value store: the first byte is the length of
/// the key, then come key and value. Labels, groups and values are decoded as they are, and once more with checksums that
/// hold, so that their fields are reached.
pub fn decode_any(bytes: &[u8]) {
    decode_labels(bytes);
    if let Some(body) = bytes.len().checked_sub(4).and_then(|len| bytes.get(..len)) {
        decode_labels(&[body, &crc32c::raw(crc32c::SEED, body).to_le_bytes()].concat());
    }
    scan(bytes);
    scan(&with_sums(bytes));
    let Some((len, rest)) = bytes.split_first() else { return };
    let _ = decode_txns(u32::from(*len), rest);
    let Some((key, value)) = rest.split_at_checked(usize::from(*len)) else { return };
    decode_pair(key, value);
    let crc = crc32c::raw(crc32c::raw(crc32c::SEED, key), value);
    decode_pair(key, &[value, &crc.to_le_bytes()].concat());
}

fn decode_labels(bytes: &[u8]) {
    let _ = (Label::decode(Path::new("fuzz"), bytes), WalLabel::decode(bytes));
}

/// As a mount does with a segment: finds the groups, and decodes the transactions of each.
fn scan(bytes: &[u8]) {
    let mut segment = bytes.to_vec();
    segment.resize(SEGMENT_BYTES.max(bytes.len()), 0);
    let mut scanned = Scanned::default();
    scanned.segment(LOG_ID, EPOCH, 0, &segment);
    for found in scanned.groups.values() {
        let from = (found.block * BLOCK_BYTES) as usize + HEADER_BYTES;
        let body = segment.get(from..from + found.header.body_bytes as usize);
        let _ = decode_txns(found.header.txns, body.unwrap_or_default());
    }
}

/// The bytes as a group of this log, with a header that holds.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    let mut group = bytes.to_vec();
    group.resize(bytes.len().max(HEADER_BYTES), 0);
    let (len, txns) = (group.len() - HEADER_BYTES, group.first().copied().unwrap_or(0));
    let id = GroupId { log_id: LOG_ID, epoch: EPOCH, lane: 0, seq: 1 };
    GroupHeader::seal(id, Known::default(), u32::from(txns), len, &mut group);
    group
}

/// A group of one transaction with a bit of everything.
fn group() -> Vec<u8> {
    let mut txn = Transaction::new(PgId::new(1, 7).into(), 0);
    let steps = [Step::Write { off: 0, data: vec![7; 4096].into() }, Step::ClearOmap];
    let oid = ObjectId::head(1, b"space", b"key", b"name");
    let copy = Step::CloneFrom { from: oid.clone().into() };
    txn.changes.push(ObjectChange::new(ObjectId { snap: 4, ..oid.clone() }, [copy]));
    txn.changes.push(ObjectChange::new(oid, steps));
    let txn = Sealed::from(txn);
    let image = [carmine_reactor::Bytes::from(vec![7; BLOCK_BYTES as usize])];
    let images: [(u64, &[carmine_reactor::Bytes]); 1] = [(40, &image)];
    let parts = TxnParts { txn: txn.encoded(), writes: &[(20, 0xfeed)], images: &images, freed: &[4, 5, 9] };
    let mut bytes = vec![0; 2 * BLOCK_BYTES as usize];
    let mut out = Out::new(&mut bytes, HEADER_BYTES);
    out.txn(&parts);
    let len = out.at();
    bytes.truncate(len);
    let id = GroupId { log_id: LOG_ID, epoch: EPOCH, lane: 1, seq: 8 };
    GroupHeader::seal(id, Known { durable: 7, commits: 3 }, 1, len - HEADER_BYTES, &mut bytes);
    bytes
}

fn decode_pair(key: &[u8], value: &[u8]) {
    let _ = (keys::decode_onode(key), keys::decode_extents(key), keys::decode_log(key), keys::decode_pg(key));
    let _ =
        (codec::decode_onode(key, value), codec::decode_extents(key, value), codec::decode_log(key, value));
    let _ = (codec::decode_info(key, value), codec::decode_tail(key, value));
    let _ = (keys::decode_omap(key), codec::decode_omap(key, value));
    let _ = (codec::decode_epoch(key, value), codec::decode_position(key, value), keys::decode_lane(key));
    checkpoint::decode_any(key, value);
}

/// A good input of each kind.
#[must_use]
pub fn decode_seeds() -> Vec<Vec<u8>> {
    let (pg, version, oid) =
        (SpgId::from(PgId::new(1, 7)), Eversion::new(3, 9), ObjectId::head(1, b"space", b"key", b"name"));
    let mut extents = Extents::default();
    for (n, block) in (5u64..14).enumerate() {
        extents.set(n * 2, Entry::new(block, 0xfeed));
    }
    let mut xattrs = Xattrs::default();
    xattrs.set(b"_name", b"value".to_vec().into());
    let mtime = UTime { sec: 5, nsec: 6 };
    let meta = ObjectMeta { size: 9999, version, user_version: 4, mtime, has_omap: true, xattrs };
    let info = PgInfo {
        pg,
        last_update: version,
        last_epoch_started: Epoch(2),
        acting: [OsdId(1), OsdId(2)].into(),
        incomplete: true,
        complete_to: version,
        last_backfill: Some(oid.clone()),
        ..PgInfo::default()
    };
    let entry = LogEntry {
        version,
        prior: Eversion::ZERO,
        reqid: ReqId { client: 4100, inc: 1, tid: 17 },
        oid: oid.clone().into(),
        op: LogOp::Modify,
        user_version: 4,
        result: 0,
        mtime,
        clones: Box::default(),
        returned: None,
    };
    let name = keys::oid_bytes(&oid);
    let label = Label {
        version: VERSION,
        fsid: Uuid([7; 16]),
        osd: OsdId(3),
        size_bytes: 1 << 30,
        generation: 5,
        revision: 1,
        log_id: LOG_ID,
        home: LogArea::beside_data(1 << 18),
        wal: Some((LogArea::on_own_device(1 << 10), 4 << 20)),
    };
    vec![
        label.encode(),
        WalLabel::for_store(&label).encode(),
        group(),
        sealed(keys::onode(&name), |e| e.put(&meta)),
        pair(keys::extents(&name, 1), |out, at| codec::push_extents(out, at, &extents)),
        pair(keys::extents(&name, 2), |out, at| codec::push_extents(out, at, &extents.copy())),
        sealed(keys::log(pg, version), |e| e.put(&entry)),
        sealed(keys::pg(keys::PG_INFO, pg), |e| e.put(&info)),
        sealed(keys::pg(keys::PG_TAIL, pg), |e| e.eversion(version)),
        sealed(keys::omap(&name, b"key"), |e| e.bytes(b"value")),
        pair(keys::lane(3), |out, at| codec::push_position(out, at, EPOCH, 8)),
    ]
}

fn sealed(key: Vec<u8>, encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    pair(key, |out, at| codec::push(out, at, encode))
}

fn pair(key: Vec<u8>, value: impl FnOnce(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut out = vec![key.len() as u8];
    out.extend_from_slice(&key);
    value(&mut out, 1);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn changed_seeds_are_errors_not_panics(seed in 0..decode_seeds().len(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
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
        let seeds = decode_seeds();
        assert!(Label::decode(Path::new("seed"), &seeds[0]).is_ok() && WalLabel::decode(&seeds[1]).is_ok());
        let mut scanned = Scanned::default();
        scanned.segment(LOG_ID, EPOCH, 0, &seeds[2]);
        let group = scanned.groups[&(1, 8)].header;
        assert_eq!(decode_txns(group.txns, &seeds[2][HEADER_BYTES..]).map(|txns| txns.len()), Some(1));
        for seed in seeds.iter().skip(3) {
            let (key, value) = seed[1..].split_at(usize::from(seed[0]));
            let good = [
                codec::decode_onode(key, value).is_ok(),
                codec::decode_extents(key, value).is_ok(),
                codec::decode_log(key, value).is_ok(),
                codec::decode_info(key, value).is_ok(),
                codec::decode_tail(key, value).is_ok(),
                codec::decode_position(key, value).is_ok(),
                codec::decode_omap(key, value).is_ok(),
            ];
            assert!(good.contains(&true), "{}", keys::printable(key));
        }
    }
}
