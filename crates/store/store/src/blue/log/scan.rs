//! Finding what stands in the log.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_reactor::Shard;

use crate::blue::device::data::{Device, io_error};
use crate::blue::device::label::LogArea;
use crate::blue::log::progress::Progress;
use crate::blue::log::record::{GroupHeader, HEADER_BYTES, Known};
use crate::{BLOCK_BYTES, StoreError};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes of one read: the largest buffer of the arena.
const READ_BYTES: u64 = 1 << 20;

/// A whole group, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// First block.
    pub(crate) block: u64,
    pub(crate) header: GroupHeader,
}

/// Groups by lane and number.
pub(crate) type Groups = BTreeMap<(u16, u64), Found>;

/// What stands in the log.
#[derive(Default)]
pub(crate) struct Scanned {
    /// All whole groups of the epoch, wherever they stand; also those that the key-value store has already.
    pub(crate) groups: Groups,
    /// By lane, what was known to be durable.
    pub(crate) known: BTreeMap<u16, Known>,
    /// The newest epoch of which there is anything, if it is newer than the one looked for.
    pub(crate) newer_epoch: Option<u64>,
}

/// The log of a store as a mount reads it.
pub(crate) struct LogReader<'a> {
    pub(crate) shard: &'a Shard,
    /// Of the device that it lies on.
    pub(crate) path: &'a Path,
    pub(crate) device: &'a Device,
    pub(crate) area: LogArea,
    pub(crate) log_id: u64,
}

impl LogReader<'_> {
    /// What stands in the log of this epoch.
    pub(crate) async fn scan(&self, epoch: u64, progress: &mut Progress<'_>) -> Result<Scanned, StoreError> {
        let mut scanned = Scanned::default();
        for index in 0..self.area.segments {
            progress.at("segments of the log read", index as usize, self.area.segments as usize);
            let start = self.area.segment(index);
            let first = self.read(start, 1).await?;
            if is_of_another_life(self.log_id, epoch, &first) {
                continue;
            }
            let segment = self.read(start, self.area.segment_blocks.into()).await?;
            scanned.segment(self.log_id, epoch, start, &segment);
        }
        Ok(scanned)
    }

    /// The body of a group that [`scan`](LogReader::scan) found.
    pub(crate) async fn body(&self, found: &Found) -> Result<Vec<u8>, StoreError> {
        let mut bytes = self.read(found.block, found.header.blocks()).await?;
        bytes.drain(..HEADER_BYTES.min(bytes.len()));
        bytes.truncate(found.header.body_bytes as usize);
        Ok(bytes)
    }

    /// Reads blocks; fewer at the end of the device.
    pub(crate) async fn read(&self, block: u64, blocks: u64) -> Result<Vec<u8>, StoreError> {
        let (mut at, end) = (block * BLOCK_BYTES, (block + blocks) * BLOCK_BYTES);
        let mut out = Vec::with_capacity((end - at) as usize);
        while at < end {
            let bytes = (end - at).min(READ_BYTES) as usize;
            let (result, buf) = self.device.read_at(self.shard.buf(bytes), bytes, at).await;
            let found = result.map_err(|error| io_error(self.path, "read the log of", &error))?;
            out.extend_from_slice(buf.get(..found).unwrap_or_default());
            if found < bytes {
                break;
            }
            at += bytes as u64;
        }
        Ok(out)
    }
}

/// Nothing of this epoch, or of a newer one, can be in a segment that begins like this: it is blank, or was written earlier.
/// (If its first block was being written anew when the store stopped, what came behind that was not durable.)
fn is_of_another_life(log_id: u64, epoch: u64, first: &[u8]) -> bool {
    match GroupHeader::decode(first) {
        Some(header) => header.id.log_id != log_id || header.id.epoch < epoch,
        None => first.iter().all(|byte| *byte == 0),
    }
}

impl Scanned {
    /// Takes over what stands in a segment, which begins at block `start`.
    pub(crate) fn segment(&mut self, log_id: u64, epoch: u64, start: u64, segment: &[u8]) {
        let mut at = 0;
        while let Some(rest) = segment.get(at..).filter(|rest| !rest.is_empty()) {
            let header = GroupHeader::decode(rest).filter(|header| header.id.log_id == log_id);
            let header = header.filter(|header| {
                let body = rest.get(HEADER_BYTES..HEADER_BYTES.saturating_add(header.body_bytes as usize));
                body.is_some_and(|body| header.holds(body))
            });
            at += match header {
                Some(header) => {
                    self.header(epoch, start + (at / BLOCK) as u64, header);
                    header.blocks() as usize * BLOCK
                }
                // Damaged or older; there may be more behind it, which then says whether something is missing.
                None => BLOCK,
            };
        }
    }

    fn header(&mut self, epoch: u64, block: u64, header: GroupHeader) {
        if header.id.epoch > epoch {
            self.newer_epoch = self.newer_epoch.max(Some(header.id.epoch));
        }
        if header.id.epoch != epoch {
            return;
        }
        let known = self.known.entry(header.id.lane).or_default();
        *known = known.max(header.known);
        if header.txns > 0 {
            self.groups.insert((header.id.lane, header.id.seq), Found { block, header });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blue::log::record::GroupId;

    fn put(segment: &mut [u8], block: usize, epoch: u64, seq: u64, body_bytes: usize) {
        let id = GroupId { log_id: 5, epoch, lane: 2, seq };
        let known = Known { durable: seq - 1, commits: 2 * seq };
        GroupHeader::seal(id, known, u32::from(body_bytes > 0), body_bytes, &mut segment[block * BLOCK..]);
    }

    fn scan(epoch: u64, segment: &[u8]) -> Scanned {
        let mut scanned = Scanned::default();
        scanned.segment(5, epoch, 10, segment);
        scanned
    }

    fn found(segment: &[u8]) -> Vec<(u64, u64)> {
        scan(7, segment).groups.iter().map(|((_, seq), found)| (*seq, found.block)).collect()
    }

    #[test]
    fn whole_groups_are_found_behind_damaged_and_older_ones() {
        let mut segment = vec![0; 4 * BLOCK];
        put(&mut segment, 0, 7, 3, 10);
        put(&mut segment, 1, 7, 4, 5000);
        put(&mut segment, 3, 6, 5, 10);
        assert_eq!(found(&segment), [(3, 10), (4, 11)]);
        assert!(!is_of_another_life(5, 7, &segment) && is_of_another_life(5, 8, &segment));
        assert!(is_of_another_life(6, 7, &segment));
        // Its header, and the last byte of a body.
        for (at, left) in [(20, vec![(4, 11)]), (BLOCK + HEADER_BYTES + 4999, vec![(3, 10)])] {
            let mut bad = segment.clone();
            bad[at] ^= 1;
            assert_eq!(found(&bad), left, "{at}");
            assert!(!is_of_another_life(5, 7, &bad));
        }
        // A group that claims to go on behind the segment.
        put(&mut segment, 3, 7, 5, 10);
        assert_eq!(found(&segment).len(), 3);
        segment.truncate(3 * BLOCK + HEADER_BYTES + 5);
        assert_eq!(found(&segment).len(), 2);
    }

    #[test]
    fn marks_and_newer_epochs_are_noted_and_are_no_groups() {
        let mut segment = vec![0; 4 * BLOCK];
        put(&mut segment, 0, 7, 3, 10);
        put(&mut segment, 1, 7, 9, 0);
        let scanned = scan(7, &segment);
        assert_eq!(scanned.known[&2], Known { durable: 8, commits: 18 });
        assert_eq!((scanned.groups.len(), scanned.newer_epoch), (1, None));
        put(&mut segment, 2, 8, 1, 10);
        assert_eq!(scan(7, &segment).newer_epoch, Some(8));
        assert!(!is_of_another_life(5, 6, &segment), "a newer one is looked at");
        assert_eq!((scan(6, &segment).newer_epoch, scan(8, &segment).newer_epoch), (Some(8), None));
    }
}
