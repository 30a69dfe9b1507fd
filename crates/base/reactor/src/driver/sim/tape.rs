//! [`Tape`]: what was asked of the simulated disks, in order; and from it the files that a power cut at any moment
//! could have left. A disk keeps what was flushed. Of the rest each write is there, or not, or is torn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Content, FileName};
use super::world::Key;
use crate::driver::mix;

/// Bytes of a sector, which a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// The fate of the writes that no flush covers when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unflushed {
    /// All are lost.
    Lost,
    /// All are there, those too that were not done.
    Kept,
    /// By this seed each is there, is not, or is torn: only some of its 512-byte sectors are.
    Random(u64),
}

/// A record of all changes of the simulated files since [`Sim::record`](crate::sim::Sim::record). Clones are handles of the
/// same record; a position in it is a moment.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    /// The files when the record began, all durable.
    base: BTreeMap<FileName, Content>,
    events: Vec<Event>,
    /// Operations that are not done, and their events.
    running: BTreeMap<(Key, u32), usize>,
}

enum Event {
    /// From now on the change may be on the disk.
    Began(Change),
    /// The change begun at that index is complete; `durable` if it survives without a flush.
    Done {
        began: usize,
        durable: bool,
    },
    FlushBegan(FileName),
    /// The flush that began there is done.
    Flushed {
        began: usize,
    },
    Mark,
}

struct Change {
    file: FileName,
    what: What,
}

/// A write that a power cut does not leave whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Path of the file on its node.
    pub path: PathBuf,
    /// Where the write was to begin, bytes.
    pub off: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Bytes of it that are there; 0: it is lost.
    pub left: u64,
}

enum What {
    /// The file itself: without it nothing else of it is there. A flush of its folder makes it durable.
    Made,
    Bytes(u64, Vec<u8>),
    Len(u64),
}

impl Tape {
    pub(super) fn new(base: BTreeMap<FileName, Content>) -> Tape {
        Tape(Arc::new(Mutex::new(Record { base, ..Record::default() })))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of events so far: the position of the next one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.record().events.len()
    }

    /// Nothing happened yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an event that means something to the caller only, and returns its position. A view of the first `n` events
    /// contains it if `n` is above this position.
    pub fn mark(&self) -> usize {
        let mut record = self.record();
        record.events.push(Event::Mark);
        record.events.len() - 1
    }

    /// Positions just before and just after each moment at which something became durable.
    #[must_use]
    pub fn boundaries(&self) -> Vec<usize> {
        let record = self.record();
        let durable =
            |event: &Event| matches!(event, Event::Flushed { .. } | Event::Done { durable: true, .. });
        let at = record.events.iter().enumerate().filter(|(_, event)| durable(event)).map(|(at, _)| at);
        let mut positions: Vec<usize> = at.flat_map(|at| [at, at + 1]).collect();
        positions.dedup();
        positions
    }

    /// A file came to be, by name only: its folder is not flushed.
    pub(super) fn made(&self, file: FileName) {
        let mut record = self.record();
        let began = record.events.len();
        record.events.push(Event::Began(Change { file, what: What::Made }));
        record.events.push(Event::Done { began, durable: false });
    }

    pub(super) fn write_began(&self, op: (Key, u32), file: FileName, off: u64, data: Vec<u8>) {
        self.began(op, Event::Began(Change { file, what: What::Bytes(off, data) }));
    }

    pub(super) fn set_len_began(&self, op: (Key, u32), file: FileName, len: u64) {
        self.began(op, Event::Began(Change { file, what: What::Len(len) }));
    }

    pub(super) fn flush_began(&self, op: (Key, u32), file: FileName) {
        self.began(op, Event::FlushBegan(file));
    }

    fn began(&self, op: (Key, u32), event: Event) {
        let mut record = self.record();
        let at = record.events.len();
        record.running.insert(op, at);
        record.events.push(event);
    }

    /// An operation is done, or is no more (then what it began may be there or not).
    pub(super) fn note_end(&self, op: (Key, u32), good: bool, durable: bool) {
        let mut record = self.record();
        let Some(began) = record.running.remove(&op).filter(|_| good) else { return };
        let event = match record.events.get(began) {
            Some(Event::FlushBegan(_)) => Event::Flushed { began },
            _ => Event::Done { began, durable },
        };
        record.events.push(event);
    }

    /// The files that a power cut after the first `at` events leaves.
    pub(crate) fn files(&self, at: usize, unflushed: Unflushed) -> BTreeMap<FileName, Content> {
        let record = self.record();
        let mut files = record.base.clone();
        let mut nameless = Vec::new();
        for (change, fate) in record.fates(at, unflushed) {
            if matches!((&change.what, fate), (What::Made, Fate::Absent)) {
                nameless.push(&change.file);
            }
            change.apply(files.entry(change.file.clone()).or_default(), fate);
        }
        nameless.into_iter().for_each(|file| drop(files.remove(file)));
        files
    }

    /// The writes that such a power cut does not leave whole.
    #[must_use]
    pub fn torn(&self, at: usize, unflushed: Unflushed) -> Vec<Torn> {
        let record = self.record();
        let mut torn = Vec::new();
        for (change, fate) in record.fates(at, unflushed) {
            let What::Bytes(off, data) = &change.what else { continue };
            let left: usize = sectors(data, fate).map(|(_, sector)| sector.len()).sum();
            if left < data.len() {
                let (path, len) = (change.file.1.clone(), data.len() as u64);
                torn.push(Torn { path, off: *off, len, left: left as u64 });
            }
        }
        torn
    }
}

impl Record {
    /// The changes among the first `at` events, and what becomes of each.
    fn fates(&self, at: usize, unflushed: Unflushed) -> impl Iterator<Item = (&Change, Fate)> {
        let seen = self.events.get(..at).unwrap_or(&self.events);
        let is_durable = durable(seen);
        seen.iter().enumerate().filter_map(move |(number, event)| {
            let Event::Began(change) = event else { return None };
            let fate = match unflushed {
                _ if is_durable.get(number) == Some(&true) => Fate::Whole,
                Unflushed::Lost => Fate::Absent,
                Unflushed::Kept => Fate::Whole,
                Unflushed::Random(seed) => Fate::draw(mix(seed ^ mix(number as u64))),
            };
            Some((change, fate))
        })
    }
}

/// For each event whether it is a change that is surely on the disk: written through, or done before a flush of its file
/// began that is done too.
fn durable(seen: &[Event]) -> Vec<bool> {
    let mut is_durable = vec![false; seen.len()];
    // By file or folder the place where the last complete flush began.
    let mut flushed: BTreeMap<(&str, &Path), usize> = BTreeMap::new();
    for event in seen {
        if let Event::Flushed { began } = event
            && let Some(Event::FlushBegan((node, path))) = seen.get(*began)
        {
            let place = flushed.entry((node, path)).or_default();
            *place = (*place).max(*began);
        }
    }
    for (at, event) in seen.iter().enumerate() {
        if let Event::Done { began, durable } = event
            && let Some(Event::Began(change)) = seen.get(*began)
            && let Some(slot) = is_durable.get_mut(*began)
        {
            *slot = *durable || flushed.get(&change.flushed_by()).is_some_and(|flush| at < *flush);
        }
    }
    is_durable
}

#[derive(Clone, Copy)]
pub(super) enum Fate {
    Absent,
    Whole,
    /// Only the first sectors, at least so many less than all as the number says.
    Cut(u64),
    /// Each sector by a coin.
    Holes(u64),
}

impl Fate {
    pub(super) fn draw(random: u64) -> Fate {
        match random % 8 {
            0..3 => Fate::Absent,
            3..6 => Fate::Whole,
            6 => Fate::Cut(mix(random)),
            _ => Fate::Holes(mix(random)),
        }
    }
}

impl Change {
    /// The file or folder whose flush covers the change.
    fn flushed_by(&self) -> (&str, &Path) {
        let (node, path) = &self.file;
        match (&self.what, path.parent()) {
            (What::Made, Some(folder)) => (node, folder),
            _ => (node, path),
        }
    }

    fn apply(&self, content: &mut Content, fate: Fate) {
        match (&self.what, fate) {
            (_, Fate::Absent) | (What::Made, _) => {}
            (What::Len(len), _) => content.set_len(*len),
            (What::Bytes(off, data), _) => {
                sectors(data, fate).for_each(|(at, sector)| content.put(off + at, sector));
            }
        }
    }
}

/// The sectors of a write that are there, and where in it each begins.
pub(super) fn sectors(data: &[u8], fate: Fate) -> impl Iterator<Item = (u64, &[u8])> {
    let all = data.len().div_ceil(SECTOR) as u64;
    let there = move |number: u64| match fate {
        Fate::Absent => false,
        Fate::Whole => true,
        Fate::Cut(random) => number < random % all.max(1),
        Fate::Holes(random) => mix(random ^ number).is_multiple_of(2),
    };
    let numbered = (0u64..).zip(data.chunks(SECTOR));
    numbered
        .filter(move |(number, _)| there(*number))
        .map(|(number, sector)| (number * SECTOR as u64, sector))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { node: 0, shard: 0 };

    fn file() -> FileName {
        ("node".to_owned(), "/file".into())
    }

    /// First bytes of the three blocks that the tests write.
    fn blocks(tape: &Tape, at: usize, unflushed: Unflushed) -> [u8; 3] {
        let files = tape.files(at, unflushed);
        let content = files.get(&file());
        [0u64, 4096, 8192].map(|off| content.map_or(0, |content| content.byte(off)))
    }

    fn write(tape: &Tape, op: u32, block: u64) {
        tape.write_began((KEY, op), file(), block * 4096, vec![block as u8 + 1; 4096]);
    }

    #[test]
    fn only_what_was_done_before_a_flush_began_is_durable() {
        let tape = Tape::default();
        write(&tape, 0, 0);
        tape.note_end((KEY, 0), true, false);
        write(&tape, 1, 1);
        tape.flush_began((KEY, 2), file());
        tape.note_end((KEY, 1), true, false);
        let before = tape.len();
        tape.note_end((KEY, 2), true, false);
        write(&tape, 3, 2);
        assert_eq!(tape.boundaries(), [before, before + 1]);
        assert_eq!(blocks(&tape, before, Unflushed::Lost), [0, 0, 0]);
        assert_eq!(blocks(&tape, before + 1, Unflushed::Lost), [1, 0, 0]);
        assert_eq!(blocks(&tape, usize::MAX, Unflushed::Lost), [1, 0, 0]);
        assert_eq!(blocks(&tape, usize::MAX, Unflushed::Kept), [1, 2, 3]);
        assert_eq!(blocks(&tape, 0, Unflushed::Kept), [0, 0, 0]);
    }

    #[test]
    fn a_write_through_covers_itself_only_and_a_failed_flush_nothing() {
        let tape = Tape::default();
        write(&tape, 0, 0);
        tape.note_end((KEY, 0), true, false);
        write(&tape, 1, 1);
        tape.note_end((KEY, 1), true, true);
        tape.flush_began((KEY, 2), file());
        tape.note_end((KEY, 2), false, false);
        assert_eq!(blocks(&tape, usize::MAX, Unflushed::Lost), [0, 2, 0]);
    }

    #[test]
    fn a_file_stays_only_if_its_folder_was_flushed() {
        let tape = Tape::default();
        tape.made(file());
        write(&tape, 0, 0);
        tape.note_end((KEY, 0), true, true);
        let before = tape.len();
        let is_there = |at, unflushed| tape.files(at, unflushed).contains_key(&file());
        assert!(!is_there(before, Unflushed::Lost) && is_there(before, Unflushed::Kept));
        let draws = |there| (0..60).any(|seed| is_there(before, Unflushed::Random(seed)) == there);
        assert!(draws(true) && draws(false));
        tape.flush_began((KEY, 1), (file().0, "/".into()));
        tape.note_end((KEY, 1), true, false);
        assert_eq!(blocks(&tape, usize::MAX, Unflushed::Lost), [1, 0, 0]);
    }

    #[test]
    fn seeds_draw_all_fates_and_the_same_one_again() {
        let tape = Tape::default();
        write(&tape, 0, 0);
        let image = |seed| {
            let files = tape.files(usize::MAX, Unflushed::Random(seed));
            let content = files.get(&file());
            (0..8)
                .map(|sector| content.is_some_and(|content| content.byte(sector * 512) != 0))
                .collect::<Vec<_>>()
        };
        let there: Vec<usize> =
            (0..60).map(|seed| image(seed).iter().filter(|there| **there).count()).collect();
        assert!(there.contains(&0) && there.contains(&8) && there.iter().any(|n| (1..8).contains(n)));
        assert!((0..60).all(|seed| image(seed) == image(seed)));
        // The report of torn writes agrees with the image.
        for (seed, there) in (0..60).zip(&there) {
            let torn = tape.torn(usize::MAX, Unflushed::Random(seed));
            let left = torn.first().map_or(4096, |torn| torn.left);
            assert_eq!(left, *there as u64 * 512, "seed {seed}: {torn:?}");
        }
    }
}
