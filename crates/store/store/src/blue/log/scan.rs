//! Reads the log at a mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::Path;

use carmine_reactor::Shard;

use crate::blue::device::data::{Device, io_error};
use crate::blue::device::label::LogArea;
use crate::blue::log::record::{GroupHeader, HEADER_BYTES, Known, LoggedTxn};
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

/// The content of the log.
#[derive(Default)]
pub(crate) struct Scanned {
    /// All complete groups of the epoch, wherever they are, including those that the key-value store already has.
    pub(crate) groups: Groups,
    /// By lane, what was known to be durable.
    pub(crate) known: BTreeMap<u16, Known>,
    /// The newest epoch found, if it is newer than the wanted one.
    pub(crate) newer_epoch: Option<u64>,
}

/// The log of a store as a mount reads it.
pub(crate) struct LogReader<'a> {
    pub(crate) shard: &'a Shard,
    /// Path of the log's device.
    pub(crate) path: &'a Path,
    pub(crate) device: &'a Device,
    pub(crate) area: LogArea,
    pub(crate) log_id: u64,
}

impl LogReader<'_> {
    /// Reads the content of the log of this epoch.
    pub(crate) async fn scan(&self, epoch: u64, progress: &mut Progress<'_>) -> Result<Scanned, StoreError> {
        let mut scanned = Scanned::default();
        for index in 0..self.area.segments {
            progress.at("segments of the log read", index as usize, self.area.segments as usize);
            let start = self.area.segment(index);
            // Each block of the last segment is written by itself.
            if index < self.area.group_segments() {
                let first = self.read(start, 1).await?;
                if is_of_another_life(self.log_id, epoch, &first) {
                    continue;
                }
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

/// Whether a segment that begins like this can hold nothing of this epoch or a newer one: it is blank, or was written earlier.
/// (If its first block was being overwritten when the store stopped, nothing after it was durable.)
fn is_of_another_life(log_id: u64, epoch: u64, first: &[u8]) -> bool {
    match GroupHeader::decode(first) {
        Some(header) => header.id.log_id != log_id || header.id.epoch < epoch,
        None => first.iter().all(|byte| *byte == 0),
    }
}

impl Scanned {
    /// Collects the groups and marks of a segment, which begins at block `start`.
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
                // Damaged or older; groups after it will show whether something is missing.
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

// How far the unflushed end of a lane can be believed (FORMAT.md §6).
//
// Data and log of a group are in flight together, so a group that was not known to be durable may be whole while data
// that it refers to is not. The lane then ends before it. But a block of the tail may also have been overwritten
// rightly: when a later group that is durable had freed it. So what must hold is the data that is still referred to at
// the end, and the end is the last place where all of it does.

/// Checks transactions in order, and remembers the last one after which all referenced data is intact.
#[derive(Default)]
pub(crate) struct Tail {
    /// Referenced blocks with the wrong content.
    bad: BTreeSet<u64>,
    seen: usize,
    good: usize,
}

impl Tail {
    /// Adds the next transaction; `holds` says whether a block has the right checksum.
    pub(crate) fn push(&mut self, txn: &LoggedTxn, mut holds: impl FnMut(u64, u32) -> bool) {
        for (block, crc) in &txn.writes {
            if !holds(*block, *crc) {
                self.bad.insert(*block);
            }
        }
        for (block, blocks) in &txn.freed {
            for block in *block..*block + u64::from(*blocks) {
                self.bad.remove(&block);
            }
        }
        self.seen += 1;
        if self.bad.is_empty() {
            self.good = self.seen;
        }
    }

    /// How many of the transactions are intact.
    pub(crate) fn believed(&self) -> usize {
        self.good
    }
}

// [`Progress`]: log lines about a long mount.

/// Time between two lines.
const EVERY_NS: u64 = 1_000_000_000;

/// Logs once a second how far a mount is.
pub(crate) struct Progress<'a> {
    shard: &'a Shard,
    said_ns: u64,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Progress<'a> {
        Progress { shard, said_ns: shard.now_ns() }
    }

    /// Reports that `done` of `all` are done; `what` says what. True if a line was logged.
    pub(crate) fn at(&mut self, what: impl Display, done: usize, all: usize) -> bool {
        let now_ns = self.shard.now_ns();
        let due = now_ns - self.said_ns >= EVERY_NS;
        if due {
            self.said_ns = now_ns;
            tracing::info!("{what}: {done} of {all}");
        }
        due
    }
}

// The report of a mount about the replay of the log.

/// The groups and transactions that a mount found in the log and replayed or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Lanes that had something to replay.
    pub lanes: u64,
    /// Groups replayed.
    pub groups: u64,
    /// Transactions replayed.
    pub txns: u64,
    /// Transactions that were in the log but whose data was not on the device: they had not been acknowledged.
    pub dropped_txns: u64,
    /// Blocks that were written from the log.
    pub blocks_written: u64,
    /// Nanoseconds.
    pub duration_ns: u64,
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReplayReport { lanes, groups, txns, dropped_txns, blocks_written, duration_ns } = self;
        write!(
            f,
            "{lanes} lanes, {groups} groups, {txns} transactions, {blocks_written} blocks written to their places, "
        )?;
        write!(f, "{dropped_txns} transactions without their data, in {:.3} s", *duration_ns as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use carmine_reactor::sim::Sim;

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
        // A group's header, and the last byte of a body.
        for (at, left) in [(20, vec![(4, 11)]), (BLOCK + HEADER_BYTES + 4999, vec![(3, 10)])] {
            let mut bad = segment.clone();
            bad[at] ^= 1;
            assert_eq!(found(&bad), left, "{at}");
            assert!(!is_of_another_life(5, 7, &bad));
        }
        // A group that claims to extend beyond the segment.
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

    fn txn(writes: &[u64], freed: &[u64]) -> LoggedTxn {
        LoggedTxn {
            writes: writes.iter().map(|block| (*block, 0)).collect(),
            freed: freed.iter().map(|block| (*block, 1)).collect(),
            ..LoggedTxn::default()
        }
    }

    fn believed(txns: &[LoggedTxn], lost: &[u64]) -> usize {
        let mut tail = Tail::default();
        txns.iter().for_each(|txn| tail.push(txn, |block, _| !lost.contains(&block)));
        tail.believed()
    }

    #[test]
    fn it_ends_before_the_first_that_lacks_data() {
        let txns = [txn(&[1], &[]), txn(&[], &[]), txn(&[2, 3], &[]), txn(&[4], &[])];
        assert_eq!(believed(&txns, &[]), 4);
        assert_eq!(believed(&txns, &[3]), 2);
        assert_eq!(believed(&txns, &[4]), 3);
        assert_eq!(believed(&txns, &[1]), 0);
    }

    #[test]
    fn a_block_that_was_freed_later_may_hold_something_else() {
        let txns = [txn(&[1], &[]), txn(&[2], &[1]), txn(&[3], &[]), txn(&[1], &[2])];
        assert_eq!(believed(&txns[..3], &[1]), 3, "overwritten by a transaction that is not in the log");
        assert_eq!(believed(&txns, &[1]), 3, "and by one whose data is not there");
        assert_eq!(believed(&txns, &[1, 2]), 0, "the one that freed it lacks its own data");
        assert_eq!(believed(&[txn(&[1, 2], &[1])], &[1]), 1, "written twice in one transaction");
    }

    #[test]
    fn it_is_said_once_a_second() {
        let sim = Sim::new(1);
        let said = Rc::new(Cell::new(None));
        let out = Rc::clone(&said);
        sim.node("osd", 1, move |shard| {
            let out = Rc::clone(&out);
            async move {
                let mut progress = Progress::new(&shard);
                let mut count = 0;
                for n in 0..35 {
                    shard.sleep(Duration::from_millis(100)).await;
                    count += usize::from(progress.at("groups", n, 35));
                }
                out.set(Some(count));
            }
        });
        sim.run(|| said.get().is_some(), Duration::from_secs(10)).unwrap();
        assert_eq!(said.get(), Some(3));
    }

    #[test]
    fn it_names_each_count_and_the_time() {
        let report = ReplayReport {
            lanes: 2,
            groups: 30,
            txns: 400,
            dropped_txns: 1,
            blocks_written: 5,
            duration_ns: 1_234_567_890,
        };
        assert_eq!(
            report.to_string(),
            "2 lanes, 30 groups, 400 transactions, 5 blocks written to their places, 1 transactions without their data, in 1.235 s"
        );
    }
}
