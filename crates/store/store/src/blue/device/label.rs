//! The label in the first and the last block of the device (FORMAT.md §2).
//!
//! The key-value store has a copy, which is authoritative: a change of the label is one commit there, and increases its
//! `revision`. A mount that finds an older one on the device overwrites it; a newer one on the device means that the key-value
//! store has lost something.

use std::ops::Range;
use std::path::Path;

use carmine_codec::{DecodeError, Decoder, Encoder, coded};
use carmine_types::{OsdId, Uuid, crc32c};

use crate::blue::device::{BLOCKS_MAX, PIECE_BLOCKS};
use crate::{BLOCK_BYTES, StoreError};

const MAGIC: &[u8; 16] = b"carmine-blue\r\n\x1a\n";
/// Version of the whole format. A new one gets a golden store (`tests/golden.rs`), and the last Carmine that reads the
/// one before is named in [`refusal`], unless this one does.
pub(crate) const VERSION: u32 = 13;
/// The oldest version that is read. A store of an older one than [`VERSION`] becomes one of that when it is mounted.
const VERSION_MIN: u32 = 11;
/// Bytes before the checksum.
const BODY_BYTES: usize = 16 + 4 + 16 + 4 + 4 + 4 + 8 + 8 + 8 + 8 + 16 + 16;

/// The log takes this part of the device, …
const LOG_PART: u64 = 32;
/// … but at least this, …
const LOG_BYTES_MIN: u64 = 256 << 10;
/// … and at most this: it bounds the time of a mount after a crash.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Segments that the log is cut into, if they are neither too small nor too large.
const LOG_SEGMENTS: u64 = 64;
/// Bytes of the smallest segment, …
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// … and of the largest.
const SEGMENT_BYTES_MAX: u64 = 4 << 20;

coded! {
    /// Where a log lies on a device: consecutive segments of equal size.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct LogArea {
        /// First block.
        pub(crate) start: u64,
        pub(crate) segments: u32,
        /// Blocks of a segment.
        pub(crate) segment_blocks: u32,
    }
}

impl LogArea {
    /// The log of a device of `blocks` blocks: before the label at its end.
    pub(crate) fn beside_data(blocks: u64) -> LogArea {
        let bytes = (blocks * BLOCK_BYTES / LOG_PART).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
        let segment_blocks = (bytes / LOG_SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) / BLOCK_BYTES;
        let segments = bytes / BLOCK_BYTES / segment_blocks;
        let start = blocks.saturating_sub(1 + segments * segment_blocks);
        LogArea { start, segments: segments as u32, segment_blocks: segment_blocks as u32 }
    }

    /// The log of a device that holds nothing else, of `blocks` blocks: between the labels.
    pub(crate) fn on_own_device(blocks: u64) -> LogArea {
        let bytes = (blocks.saturating_sub(2) * BLOCK_BYTES).min(LOG_BYTES_MAX);
        let segment_blocks = (bytes / LOG_SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) / BLOCK_BYTES;
        let segments = bytes / BLOCK_BYTES / segment_blocks;
        LogArea { start: 1, segments: segments as u32, segment_blocks: segment_blocks as u32 }
    }

    /// Its blocks.
    pub(crate) fn blocks(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.segments) * u64::from(self.segment_blocks)
    }

    /// Whether it has blocks, and all of them lie before block `end`.
    fn has_blocks_before(&self, end: u64) -> bool {
        let blocks = u64::from(self.segments) * u64::from(self.segment_blocks);
        blocks > 0 && self.start.checked_add(blocks).is_some_and(|own_end| own_end <= end)
    }

    /// Number of segments that hold groups: all but the last one, which holds the lanes' witnesses.
    pub(crate) fn group_segments(&self) -> u32 {
        self.segments.saturating_sub(1)
    }

    /// The block in which a lane records how far it is durable, away from its groups. In the smallest logs several lanes share
    /// one.
    pub(crate) fn witness(&self, lane: u16) -> u64 {
        self.segment(self.group_segments()) + u64::from(lane) % u64::from(self.segment_blocks.max(1))
    }

    /// First block of a segment.
    pub(crate) fn segment(&self, index: u32) -> u64 {
        self.start + u64::from(index) * u64::from(self.segment_blocks)
    }
}

/// The owner of a device, and the device's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Version of the format: what the store may hold.
    pub(crate) version: u32,
    /// The cluster.
    pub fsid: Uuid,
    /// The OSD. With `fsid` and `generation` it identifies the store: the labels of the device and of the key-value store must
    /// agree.
    pub osd: OsdId,
    /// Bytes of the device in use, labels included.
    pub size_bytes: u64,
    /// Random number drawn at mkfs, so that a device of an earlier store of the same OSD is not mistaken for this one's.
    pub generation: u64,
    /// Grows with every change of the label.
    pub(crate) revision: u64,
    /// Random number drawn whenever the log is placed, so that the content of an older log is ignored.
    pub(crate) log_id: u64,
    /// Where the log may lie on the store's data device. Holds no data.
    pub(crate) home: LogArea,
    /// Where the log lies on a device of its own, and the bytes of that device; `None`: on the data device.
    pub(crate) wal: Option<(LogArea, u64)>,
}

/// Bytes of the smallest device of a log's own.
pub(crate) const WAL_BYTES_MIN: u64 = LOG_BYTES_MIN + 2 * BLOCK_BYTES;

/// Size of a separate log device that gives a store of `bytes` as much log as it would have on its data device.
pub(crate) fn wal_bytes(bytes: u64) -> u64 {
    (bytes / LOG_PART).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX) / BLOCK_BYTES * BLOCK_BYTES + 2 * BLOCK_BYTES
}

impl Label {
    /// Blocks of the device, labels included.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.size_bytes / BLOCK_BYTES
    }

    /// Where the log lies, on whichever device.
    pub(crate) fn log(&self) -> LogArea {
        self.wal.map_or(self.home, |(area, _)| area)
    }

    /// The log's range of bytes on its device.
    #[must_use]
    pub fn log_range(&self) -> Range<u64> {
        let blocks = self.log().blocks();
        blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES
    }

    /// Bytes in use of the device of the log's own, if it has one.
    #[must_use]
    pub fn wal_bytes(&self) -> Option<u64> {
        self.wal.map(|(_, bytes)| bytes)
    }

    /// Whether these blocks may hold data.
    pub(crate) fn holds_data(&self, block: u64, blocks: u64) -> bool {
        let Some(end) = block.checked_add(blocks) else { return false };
        let home = self.home.blocks();
        block > 0 && end < self.blocks() && (end <= home.start || block >= home.end)
    }

    /// Whether both are labels of one store, though perhaps of different revisions.
    pub(crate) fn is_of_same_store(&self, other: &Label) -> bool {
        (self.fsid, self.osd, self.generation) == (other.fsid, other.osd, other.generation)
    }

    /// The label's bytes, without padding.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let wal = self.wal.map(|(area, bytes)| LogArea { start: bytes, ..area });
        let mut out = Encoder::collect(|e| {
            e.bytes(MAGIC);
            e.u32(self.version);
            e.uuid(self.fsid);
            e.osd(self.osd);
            e.u32(BLOCK_BYTES as u32);
            e.u32(PIECE_BLOCKS as u32);
            e.put(&[self.size_bytes, self.generation, self.revision, self.log_id]);
            e.put(&self.home);
            e.put(&wal.unwrap_or_default());
        });
        let crc = crc32c::raw(crc32c::SEED, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a label; `place` is for the error.
    pub(crate) fn decode(place: &Path, bytes: &[u8]) -> Result<Label, StoreError> {
        let refuse = |why: &str| Err(StoreError::unusable(place, why));
        let mut d = Decoder::new(bytes, "label");
        let Ok(magic) = d.array() else {
            return refuse("it is too short for a label of blue");
        };
        if magic != *MAGIC {
            return refuse("it holds no store of type blue (the label's magic is missing)");
        }
        let Ok(version) = d.u32() else {
            return refuse("the label of blue is cut short");
        };
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return refuse(&refusal(version));
        }
        let sum =
            bytes.get(BODY_BYTES..).and_then(|tail| tail.first_chunk()).map(|sum| u32::from_le_bytes(*sum));
        let found = crc32c::raw(crc32c::SEED, bytes.get(..BODY_BYTES).unwrap_or_default());
        if sum != Some(found) {
            return refuse("the label of blue is damaged (wrong checksum)");
        }
        let mut read = || {
            let (fsid, osd, block, piece) = (d.uuid()?, d.osd()?, d.u32()?, d.u32()?);
            let [size_bytes, generation, revision, log_id] = d.get()?;
            let (home, wal) = d.get::<(LogArea, LogArea)>()?;
            let wal = (wal.start > 0).then_some((LogArea { start: 1, ..wal }, wal.start));
            Ok::<_, DecodeError>((
                block,
                piece,
                Label { version, fsid, osd, size_bytes, generation, revision, log_id, home, wal },
            ))
        };
        let fits = |area: &LogArea, bytes: u64| {
            let blocks = bytes / BLOCK_BYTES;
            let possible = bytes.is_multiple_of(BLOCK_BYTES) && (2..=BLOCKS_MAX).contains(&blocks);
            possible && area.start > 0 && area.start < blocks && area.has_blocks_before(blocks - 1)
        };
        match read() {
            Ok((block, piece, label))
                if u64::from(block) == BLOCK_BYTES
                    && piece as usize == PIECE_BLOCKS
                    && fits(&label.home, label.size_bytes)
                    && label.wal.is_none_or(|(area, bytes)| fits(&area, bytes)) =>
            {
                Ok(label)
            }
            _ => refuse("the label of blue has a layout that this program does not know"),
        }
    }
}

/// Why a store of another format is not opened, and what to do with it.
fn refusal(version: u32) -> String {
    let it =
        format!("it holds a store of type blue in format {version}, and this program reads format {VERSION}");
    let reader = match version {
        10 => "Carmine at commit 0881fd71",
        9 => "Carmine at commit d096e003",
        8 => "Carmine at commit 5b35737b",
        7 => "Carmine at commit f2aab49c",
        6 => "Carmine at commit d0d46cd",
        5 => "Carmine at commit 13e2129",
        4 => "Carmine at commit a984eed",
        3 => "Carmine at commit e27986a",
        0..=2 => "a Carmine older than commit e27986a",
        _ => return format!("{it}: run the newer Carmine that wrote it"),
    };
    format!(
        "{it}. {reader} reads it. To go on with this program, make the OSD anew and let it recover from its replicas"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label() -> Label {
        Label {
            version: VERSION,
            fsid: Uuid([7; 16]),
            osd: OsdId(3),
            size_bytes: 1 << 30,
            generation: 99,
            revision: 5,
            log_id: 77,
            home: LogArea::beside_data(1 << 18),
            wal: None,
        }
    }

    fn with_wal() -> Label {
        let bytes = wal_bytes(1 << 30);
        Label { wal: Some((LogArea::on_own_device(bytes / BLOCK_BYTES), bytes)), ..label() }
    }

    #[test]
    fn labels_round_trip_and_every_bit_counts() {
        let place = Path::new("/dev/x");
        let good = label().encode();
        let mut block = good.clone();
        block.resize(4096, 0);
        assert_eq!(Label::decode(place, &block).unwrap(), label());
        assert_eq!(Label::decode(place, &with_wal().encode()).unwrap(), with_wal());
        for version in [11, 12] {
            let older = Label { version, ..label() };
            assert_eq!(Label::decode(place, &older.encode()).unwrap(), older);
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Label::decode(place, &bad).unwrap_err().to_string();
            assert!(error.contains("/dev/x"), "{error}");
        }
        for (version, remedy) in [
            (1, "replicas"),
            (3, "e27986a"),
            (4, "a984eed"),
            (5, "13e2129"),
            (6, "d0d46cd"),
            (7, "f2aab49c"),
            (8, "5b35737b"),
            (9, "d096e003"),
            (10, "0881fd71"),
            (14, "newer"),
        ] {
            let mut other = good.clone();
            other[16] = version;
            let error = Label::decode(place, &other).unwrap_err().to_string();
            assert!(error.contains(&format!("format {version}")) && error.contains("format 13"), "{error}");
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn the_log_fits_on_every_device() {
        for bytes in [4 << 20, (4 << 20) + 4096, 8 << 20, 100_000 * 4096, 1 << 30, 1 << 36, 1 << 44] {
            let blocks = bytes / BLOCK_BYTES;
            let log = LogArea::beside_data(blocks);
            assert_eq!(log.blocks().end, blocks - 1, "{log:?}");
            let taken = log.blocks().count() as u64 * BLOCK_BYTES;
            assert!(log.segments >= 16 && taken <= (bytes / 16).min(LOG_BYTES_MAX), "{log:?} of {bytes}");
            let alone = LogArea::on_own_device(wal_bytes(bytes) / BLOCK_BYTES);
            assert_eq!((alone.segments, alone.segment_blocks), (log.segments, log.segment_blocks));
        }
    }

    #[test]
    fn neither_labels_nor_the_log_hold_data() {
        let label = label();
        let home = label.home.blocks();
        for (block, blocks, holds) in [
            (0, 1, false),
            (1, 1, true),
            (home.start - 2, 2, true),
            (home.start - 2, 3, false),
            (home.end - 1, 1, false),
            (label.blocks() - 1, 1, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(label.holds_data(block, blocks), holds, "{block}, {blocks}");
        }
        // A store that was expanded has its log in the middle.
        let longer = Label { size_bytes: 2 * label.size_bytes, ..label.clone() };
        assert!(longer.holds_data(home.end, 2) && !longer.holds_data(home.end - 1, 2));
    }

    proptest! {
        #[test]
        fn random_bytes_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut with_magic = MAGIC.to_vec();
            with_magic.extend_from_slice(&bytes);
            prop_assert!(Label::decode(Path::new("x"), &bytes).is_err());
            prop_assert!(Label::decode(Path::new("x"), &with_magic).is_err());
        }
    }
}
