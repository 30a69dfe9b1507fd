//! The encoding of groups of transactions in the log (FORMAT.md §5).

use std::ops::Range;

use carmine_codec::{Decoder, Result};
use carmine_pgtypes::Transaction;
use carmine_reactor::Bytes;
use carmine_types::crc32c;

use crate::BLOCK_BYTES;
use crate::blue::meta::extents::get_block;

const MAGIC: &[u8; 8] = b"bluelog\n";
/// Bytes of a group's header.
pub(crate) const HEADER_BYTES: usize = 72;
/// Bytes of a record besides the transaction, written blocks, images and freed blocks.
const TXN_BYTES: usize = 4 + 4 * 4;
/// Bytes of a written block.
const WRITE_BYTES: usize = 5 + 4;
/// Bytes of a run of blocks, whether freed or with an image.
const RUN_BYTES: usize = 5 + 4;

/// Identifies a group: its lane, and the epoch of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupId {
    /// The label's `log_id`.
    pub(crate) log_id: u64,
    /// Grows with every mount.
    pub(crate) epoch: u64,
    pub(crate) lane: u16,
    /// From 1 in every epoch.
    pub(crate) seq: u64,
}

/// What was known to be durable when a header was written. If a mount finds less, data is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Groups of the lane up to this one.
    pub(crate) durable: u64,
    /// The key-value store's commits of the epoch up to this one.
    pub(crate) commits: u64,
}

impl Known {
    /// The maximum of both.
    pub(crate) fn max(self, other: Known) -> Known {
        Known { durable: self.durable.max(other.durable), commits: self.commits.max(other.commits) }
    }
}

/// The header of a group. One without transactions is a mark: it has no group and only records what is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub(crate) id: GroupId,
    pub(crate) known: Known,
    pub(crate) txns: u32,
    /// Bytes after the header.
    pub(crate) body_bytes: u32,
    /// CRC32C of those.
    pub(crate) body_crc: u32,
}

/// One transaction in the log, with the places of its blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedTxn {
    /// Its writes have their lengths, and no data.
    pub(crate) txn: Transaction,
    /// Blocks written outside the log, with their CRC32C, in the order of the transaction's steps. A transaction has these or
    /// images, not both.
    pub(crate) writes: Vec<(u64, u32)>,
    /// Blocks whose content is in the record, in the same order: first block, and the range of the content in the body.
    pub(crate) images: Vec<(u64, Range<usize>)>,
    /// Blocks freed by the transaction: first block, and how many.
    pub(crate) freed: Vec<(u64, u32)>,
}

impl LoggedTxn {
    /// The blocks that the transaction's steps wrote, with their checksums, in order. `body` is its group's.
    pub(crate) fn placed(&self, body: &[u8]) -> Vec<(u64, u32)> {
        let mut placed = self.writes.clone();
        for (block, range) in &self.images {
            let content = body.get(range.clone()).unwrap_or_default();
            let blocks =
                content.chunks_exact(BLOCK_BYTES as usize).map(|block| crc32c::raw(crc32c::SEED, block));
            placed.extend((*block..).zip(blocks));
        }
        placed
    }
}

/// The parts of a transaction that a shard puts into the log.
pub(crate) struct TxnParts<'a> {
    /// The transaction, encoded.
    pub(crate) txn: &'a [u8],
    pub(crate) writes: &'a [(u64, u32)],
    /// First block and content of each run.
    pub(crate) images: &'a [(u64, &'a [Bytes])],
    pub(crate) freed: &'a [u64],
}

/// Most bytes of the record of a transaction of `txn` bytes with these numbers of blocks.
pub(crate) fn txn_bytes(txn: usize, writes: usize, image_blocks: usize, freed: usize) -> usize {
    TXN_BYTES
        + txn
        + WRITE_BYTES * writes
        + (RUN_BYTES + BLOCK_BYTES as usize) * image_blocks
        + RUN_BYTES * freed
}

/// Writes fields one after the other; fields that do not fit are dropped, which is detected at the end.
pub(crate) struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Out<'a> {
    pub(crate) fn new(bytes: &'a mut [u8], at: usize) -> Out<'a> {
        Out { bytes, at }
    }

    /// The position of the next field; beyond the end if something did not fit.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn put(&mut self, field: &[u8]) {
        let end = self.at + field.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(field);
        }
        self.at = end;
    }

    fn block(&mut self, block: u64) {
        let [a, b, c, d, e, ..] = block.to_le_bytes();
        self.put(&[a, b, c, d, e]);
    }

    fn count(&mut self, count: usize) {
        self.put(&(count as u32).to_le_bytes());
    }

    /// Appends a transaction.
    pub(crate) fn txn(&mut self, txn: &TxnParts<'_>) {
        let start = self.at;
        self.count(0); // its length, see below
        self.count(txn.txn.len());
        self.count(txn.writes.len());
        self.count(txn.images.len());
        let runs = runs(txn.freed);
        self.count(runs.len());
        self.put(txn.txn);
        for (block, crc) in txn.writes {
            self.block(*block);
            self.put(&crc.to_le_bytes());
        }
        for (block, content) in txn.images {
            self.block(*block);
            let bytes: usize = content.iter().map(Bytes::len).sum();
            self.count(bytes / BLOCK_BYTES as usize);
            content.iter().for_each(|bytes| self.put(bytes));
        }
        for (block, blocks) in runs {
            self.block(block);
            self.put(&blocks.to_le_bytes());
        }
        let length = (self.at - start) as u32;
        if let Some(place) = self.bytes.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Neighbours as one run.
fn runs(blocks: &[u64]) -> Vec<(u64, u32)> {
    let mut out: Vec<(u64, u32)> = Vec::new();
    for block in blocks {
        match out.last_mut() {
            Some((start, count)) if *start + u64::from(*count) == *block => *count += 1,
            _ => out.push((*block, 1)),
        }
    }
    out
}

impl GroupHeader {
    /// Writes the header into the first bytes of `group`, whose body is there already.
    pub(crate) fn seal(id: GroupId, known: Known, txns: u32, body_bytes: usize, group: &mut [u8]) {
        let Some((head, rest)) = group.split_at_mut_checked(HEADER_BYTES) else { return };
        let body_crc = crc32c::raw(crc32c::SEED, rest.get(..body_bytes).unwrap_or_default());
        let mut out = Out::new(head, 0);
        out.put(MAGIC);
        out.put(&id.log_id.to_le_bytes());
        out.put(&id.epoch.to_le_bytes());
        out.put(&id.seq.to_le_bytes());
        out.put(&known.durable.to_le_bytes());
        out.put(&known.commits.to_le_bytes());
        out.put(&id.lane.to_le_bytes());
        out.put(&[0; 2]);
        out.put(&txns.to_le_bytes());
        out.put(&(body_bytes as u32).to_le_bytes());
        out.put(&body_crc.to_le_bytes());
        out.put(&[0; 4]);
        let crc = crc32c::raw(crc32c::SEED, head.get(..HEADER_BYTES - 4).unwrap_or_default());
        Out::new(head, HEADER_BYTES - 4).put(&crc.to_le_bytes());
    }

    /// Reads a header; `None` if these bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<GroupHeader> {
        let (fields, crc) = bytes.get(..HEADER_BYTES)?.split_last_chunk::<4>()?;
        if !fields.starts_with(MAGIC) || crc32c::raw(crc32c::SEED, fields) != u32::from_le_bytes(*crc) {
            return None;
        }
        let header = |d: &mut Decoder<'_>| -> Result<GroupHeader> {
            d.u64()?; // the magic
            let (log_id, epoch, seq) = (d.u64()?, d.u64()?, d.u64()?);
            let known = Known { durable: d.u64()?, commits: d.u64()? };
            let lane = d.u16()?;
            d.u16()?; // padding
            let (txns, body_bytes, body_crc) = (d.u32()?, d.u32()?, d.u32()?);
            let id = GroupId { log_id, epoch, lane, seq };
            Ok(GroupHeader { id, known, txns, body_bytes, body_crc })
        };
        header(&mut Decoder::new(fields, "group header")).ok()
    }

    /// Size of the group in blocks.
    pub(crate) fn blocks(&self) -> u64 {
        (HEADER_BYTES as u64 + u64::from(self.body_bytes)).div_ceil(BLOCK_BYTES)
    }

    /// Whether the body has the right checksum.
    pub(crate) fn holds(&self, body: &[u8]) -> bool {
        body.len() == self.body_bytes as usize && crc32c::raw(crc32c::SEED, body) == self.body_crc
    }
}

/// The transactions of a group's body; `None` if it cannot be decoded.
pub(crate) fn decode_txns(count: u32, body: &[u8]) -> Option<Vec<LoggedTxn>> {
    let decode = |d: &mut Decoder<'_>| d.items(count as usize, |d| decode_txn(d, body.len()));
    Decoder::all(body, "group", decode).ok()
}

/// The next transaction of a body of `body_bytes`; `rest` is the undecoded part.
fn decode_txn(rest: &mut Decoder<'_>, body_bytes: usize) -> Result<LoggedTxn> {
    let length = rest.u32()? as usize;
    let fields = rest.bytes(length.saturating_sub(4))?;
    let end = body_bytes - rest.remaining();
    Decoder::all(fields, "record", |d| {
        let encoded = d.u32()? as usize;
        let [writes, images, freed] = d.get::<[u32; 3]>()?.map(|count| count as usize);
        let txn = d.bytes(encoded)?;
        let txn = Decoder::all(txn, "transaction in the log", Transaction::decode_without_data)?;
        let run = |d: &mut Decoder<'_>| Ok((get_block(d)?, d.u32()?));
        let writes = d.items(writes, run)?;
        let images = d.items(images, |d| {
            let (block, blocks) = run(d)?;
            let (at, bytes) = (end - d.remaining(), blocks as usize * BLOCK_BYTES as usize);
            d.bytes(bytes)?;
            Ok((block, at..at + bytes))
        })?;
        Ok(LoggedTxn { txn, writes, images, freed: d.items(freed, run)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_pgtypes::{ObjectChange, Sealed, Step};
    use carmine_types::{Eversion, ObjectId, PgId};
    use proptest::prelude::*;

    fn txn(n: u32) -> Sealed {
        let mut txn = Transaction::new(PgId::new(-2, n).into(), 0);
        let data = vec![1; 5000].into();
        let steps = [Step::Write { off: 0, data }, Step::Truncate { size: 9 }];
        txn.changes.push(ObjectChange::new(ObjectId::head(-2, b"", b"", b"o"), steps));
        txn.log_trim_to = Some(Eversion::new(3, n.into()));
        txn.into()
    }

    /// A group of `count` transactions, and its body's length.
    fn group(count: u32) -> (Vec<u8>, usize) {
        let image = [Bytes::from(vec![7; 4096]), Bytes::from(vec![8; 4096])];
        let images: [(u64, &[Bytes]); 1] = [(1 << 39, &image)];
        let mut bytes = vec![0; 64 << 10];
        let mut out = Out::new(&mut bytes, HEADER_BYTES);
        for n in 0..count {
            let (txn, writes) = (txn(n), [(n.into(), 5), (9, u32::MAX)]);
            let parts =
                TxnParts { txn: txn.encoded(), writes: &writes, images: &images, freed: &[4, 5, 6, 9, 8] };
            let before = out.at();
            out.txn(&parts);
            assert!(out.at() - before <= txn_bytes(txn.encoded().len(), 2, 2, 5));
        }
        let body = out.at() - HEADER_BYTES;
        GroupHeader::seal(id(), KNOWN, count, body, &mut bytes);
        bytes.truncate(HEADER_BYTES + body);
        (bytes, body)
    }

    const KNOWN: Known = Known { durable: 6, commits: 40 };

    fn id() -> GroupId {
        GroupId { log_id: 1, epoch: 2, lane: 3, seq: 7 }
    }

    #[test]
    fn groups_round_trip() {
        let (bytes, body) = group(3);
        let header = GroupHeader::decode(&bytes).unwrap();
        assert_eq!(
            (header.id, header.known, header.txns, header.body_bytes as usize),
            (id(), KNOWN, 3, body)
        );
        assert!(header.holds(&bytes[HEADER_BYTES..]));
        assert_eq!(header.blocks(), bytes.len().div_ceil(4096) as u64);
        let txns = decode_txns(3, &bytes[HEADER_BYTES..]).unwrap();
        for (n, logged) in (0u32..).zip(txns.clone()) {
            let (txn, wanted) = (logged, txn(n));
            assert_eq!(txn.txn.data_bytes(), 5000);
            assert_eq!(Sealed::from(txn.txn.clone()).encoded().as_slice(), wanted.encoded().as_slice());
            let crc = |byte: u8| crc32c::raw(crc32c::SEED, &[byte; 4096]);
            let placed = [(n.into(), 5), (9, u32::MAX), (1 << 39, crc(7)), ((1 << 39) + 1, crc(8))];
            assert_eq!(txn.placed(&bytes[HEADER_BYTES..]), placed);
            assert_eq!(txn.writes, [(n.into(), 5), (9, u32::MAX)]);
            let [(block, range)] = txn.images.as_slice() else { panic!("{:?}", txn.images) };
            let content = &bytes[HEADER_BYTES..][range.clone()];
            assert!(*block == 1 << 39 && content == [vec![7; 4096], vec![8; 4096]].concat());
            assert_eq!(txn.freed, [(4, 3), (9, 1), (8, 1)]);
        }
        assert_eq!(txns.len(), 3);
        assert!(
            decode_txns(2, &bytes[HEADER_BYTES..]).is_none()
                && decode_txns(4, &bytes[HEADER_BYTES..]).is_none()
        );
    }

    #[test]
    fn every_bit_counts() {
        let (good, _) = group(2);
        for bit in (0..good.len() * 8).step_by(7).chain(0..HEADER_BYTES * 8) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let header = GroupHeader::decode(&bad).filter(|header| header.holds(&bad[HEADER_BYTES..]));
            assert_eq!(header, None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn random_and_mutated_bodies_are_refused_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0u32..5,
                                                            at in any::<usize>(), value in any::<u8>()) {
            let _ = (GroupHeader::decode(&bytes), decode_txns(count, &bytes));
            let (mut good, _) = group(2);
            let at = HEADER_BYTES + at % (good.len() - HEADER_BYTES);
            good[at] = value;
            let _ = decode_txns(2, &good[HEADER_BYTES..]);
        }
    }
}
