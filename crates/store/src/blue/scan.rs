//! Finding what stands in the log.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_reactor::Shard;

use super::device::Device;
use super::label::Label;
use super::record::{GroupHeader, HEADER_BYTES};
use super::shared::io;
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

/// All whole groups of this epoch, wherever they stand; also those that the key-value store has already.
pub(crate) async fn scan(
    shard: &Shard,
    path: &Path,
    device: &Device,
    label: &Label,
    epoch: u64,
) -> Result<Groups, StoreError> {
    let mut groups = Groups::new();
    for index in 0..label.log.segments {
        let start = label.log.segment(index);
        let first = read(shard, path, device, start, 1).await?;
        if is_of_another_life(label, epoch, &first) {
            continue;
        }
        let segment = read(shard, path, device, start, label.log.segment_blocks.into()).await?;
        scan_segment(label, epoch, start, &segment, &mut groups);
    }
    Ok(groups)
}

/// Nothing of this epoch can be in a segment that begins like this: it is blank, or was written earlier. (If its first
/// block was being written anew when the store stopped, what came behind that was not durable.)
fn is_of_another_life(label: &Label, epoch: u64, first: &[u8]) -> bool {
    match GroupHeader::decode(first) {
        Some(header) => (header.id.generation, header.id.epoch) != (label.generation, epoch),
        None => first.iter().all(|byte| *byte == 0),
    }
}

fn scan_segment(label: &Label, epoch: u64, start: u64, segment: &[u8], groups: &mut Groups) {
    let mut at = 0;
    while let Some(rest) = segment.get(at..).filter(|rest| !rest.is_empty()) {
        let header = GroupHeader::decode(rest)
            .filter(|header| (header.id.generation, header.id.epoch) == (label.generation, epoch))
            .filter(|header| {
                let body = rest.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize);
                body.is_some_and(|body| header.holds(body))
            });
        at += match header {
            Some(header) => {
                let block = start + (at / BLOCK) as u64;
                groups.insert((header.id.lane, header.id.seq), Found { block, header });
                header.blocks() as usize * BLOCK
            }
            // Damaged or older; there may be more behind it, which then says whether something is missing.
            None => BLOCK,
        };
    }
}

/// The body of a group that [`scan`] found.
pub(crate) async fn body(
    shard: &Shard,
    path: &Path,
    device: &Device,
    found: &Found,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = read(shard, path, device, found.block, found.header.blocks()).await?;
    bytes.drain(..HEADER_BYTES.min(bytes.len()));
    bytes.truncate(found.header.body_bytes as usize);
    Ok(bytes)
}

/// Reads blocks; fewer at the end of the device.
pub(crate) async fn read(
    shard: &Shard,
    path: &Path,
    device: &Device,
    block: u64,
    blocks: u64,
) -> Result<Vec<u8>, StoreError> {
    let (mut at, end) = (block * BLOCK_BYTES, (block + blocks) * BLOCK_BYTES);
    let mut out = Vec::with_capacity((end - at) as usize);
    while at < end {
        let bytes = (end - at).min(READ_BYTES) as usize;
        let (result, buf) = device.read_at(shard.buf(bytes), bytes, at).await;
        let found = result.map_err(|error| io(path, "read the log of", &error))?;
        out.extend_from_slice(buf.get(..found).unwrap_or_default());
        if found < bytes {
            break;
        }
        at += bytes as u64;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blue::label::LogArea;
    use crate::blue::record::GroupId;
    use carmine_types::{OsdId, Uuid};

    fn label() -> Label {
        let log = LogArea { start: 10, segments: 1, segment_blocks: 4 };
        Label { fsid: Uuid([0; 16]), osd: OsdId(0), size_bytes: 1 << 20, generation: 5, log }
    }

    fn put(segment: &mut [u8], block: usize, epoch: u64, seq: u64, body_bytes: usize) {
        let id = GroupId { generation: 5, epoch, lane: 2, seq };
        GroupHeader::seal(id, seq - 1, 0, body_bytes, &mut segment[block * BLOCK..]);
    }

    #[test]
    fn whole_groups_are_found_behind_damaged_and_older_ones() {
        let mut segment = vec![0; 4 * BLOCK];
        put(&mut segment, 0, 7, 3, 10);
        put(&mut segment, 1, 7, 4, 5000);
        put(&mut segment, 3, 6, 5, 10);
        let found = |segment: &[u8]| {
            let mut groups = Groups::new();
            scan_segment(&label(), 7, 10, segment, &mut groups);
            groups.iter().map(|((_, seq), found)| (*seq, found.block)).collect::<Vec<_>>()
        };
        assert_eq!(found(&segment), [(3, 10), (4, 11)]);
        assert!(!is_of_another_life(&label(), 7, &segment) && is_of_another_life(&label(), 8, &segment));
        // Its header, and the last byte of a body.
        for (at, left) in [(20, vec![(4, 11)]), (BLOCK + HEADER_BYTES + 4999, vec![(3, 10)])] {
            let mut bad = segment.clone();
            bad[at] ^= 1;
            assert_eq!(found(&bad), left, "{at}");
            assert!(!is_of_another_life(&label(), 7, &bad));
        }
        // A group that claims to go on behind the segment.
        put(&mut segment, 3, 7, 5, 10);
        assert_eq!(found(&segment).len(), 3);
        segment.truncate(3 * BLOCK + HEADER_BYTES + 5);
        assert_eq!(found(&segment).len(), 2);
    }
}
