//! Bit rot after a `kill -9`: any bit of the devices, and of each structure. Reads give the right data or an error,
//! acknowledged transactions are there or the store says that they are not, and nothing panics.

use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::pg_bits;
use carmine_reactor::Shard;
use carmine_reactor::sim::{Sim, SimDisk, Unflushed};
use carmine_store::blue::{MountOptions, fsck};
use carmine_store::{BlueShared, Kv, Store, StoreError, StoreShared};

use crate::common::*;
use crate::mix;
use crate::work::{Histories, History, Life, PGS, Start, live, on_node, path, pg_of, places};

const PAGE: u64 = 4096;
/// The first bytes of a group of the log, and the length of its header (FORMAT.md §5).
const GROUP: &[u8] = b"bluelog\n";
const HEADER_BYTES: u64 = 72;

/// The structure that the bit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Label,
    LabelCopy,
    WalLabel,
    LogHeader,
    LogRecord,
    Anything,
}

const PARTS: [Part; 6] =
    [Part::Label, Part::LabelCopy, Part::WalLabel, Part::LogHeader, Part::LogRecord, Part::Anything];

/// How a store with a flipped bit fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It is not mounted.
    ByMount,
    /// A read, or fsck, told of it.
    ByRead,
    /// It hit nothing that anybody wants, or something of which there is a copy.
    Nowhere,
}

/// A file, and a byte of it, in a part of the store; `None` if it has no such part.
fn place(life: &Life, sim: &Sim, part: Part, random: u64) -> Option<(PathBuf, u64)> {
    let one_of = |pages: &[u64]| (!pages.is_empty()).then(|| pages[(random % pages.len() as u64) as usize]);
    let within =
        |page: u64, bytes: Range<u64>| page + bytes.start + (random >> 20) % (bytes.end - bytes.start);
    let block = |page: u64, bytes: u64| Some((path(), within(page, 0..bytes)));
    let log = life.label.log_range();
    let log_path = life.log_path();
    let disk: SimDisk<'_> = sim.disk("osd", &log_path);
    let groups: Vec<u64> = disk.find(GROUP).into_iter().filter(|page| log.contains(page)).collect();
    match part {
        Part::Label => block(0, 100),
        Part::LabelCopy => block(life.label.size_bytes - PAGE, 100),
        Part::WalLabel => Some((life.wal.clone()?, within(0, 0..60))),
        Part::LogHeader => one_of(&groups).map(|page| (log_path, within(page, 0..HEADER_BYTES))),
        Part::LogRecord => one_of(&groups).map(|page| (log_path, within(page, HEADER_BYTES..PAGE))),
        Part::Anything => {
            let pages = sim.disk("osd", &path()).find(&[]);
            one_of(&pages).map(|page| (path(), within(page, 0..PAGE)))
        }
    }
}

/// Flips one bit, drawn by `random`, in a page that was written, and reads everything. `None` if there is no such part.
///
/// # Errors
/// Wrong data, a lost acknowledgement, a panic: in words.
fn flip(life: &Life, part: Part, random: u64) -> Result<Option<Found>, String> {
    let sim = Sim::new(random);
    let at = life.tape.len();
    sim.restore(&life.tape, at, Unflushed::Kept);
    let Some((file, byte)) = place(life, &sim, part, random) else { return Ok(None) };
    sim.disk("osd", &file).flip(byte, (random >> 40) as u8 % 8);
    // The page cache outlives the process; what the key-value store had in memory does not.
    let kv: Arc<dyn Kv> = Arc::new(life.kv.watch.left_kv(at, Unflushed::Lost));
    let histories = Rc::new(life.histories.clone());
    let found = on_node(&sim, 1, async move |shard| {
        let options = MountOptions { cache_bytes_per_shard: 1 << 20, ..MountOptions::default() };
        match BlueShared::mount(&shard, places(), kv, options).await {
            Ok(shared) => examine(&shard, &shared, &histories).await,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                Found::ByMount
            }
        }
    });
    found.map(Some).map_err(|error| format!("byte {byte} of {}: {error}", file.display()))
}

async fn examine(shard: &Shard, shared: &Arc<BlueShared>, histories: &[History]) -> Found {
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(shared)), shard).await.unwrap();
    let mut errors = 0;
    for (index, history) in histories.iter().enumerate() {
        errors += examine_pg(&store, index, history).await;
    }
    let told = fsck(shared, shard, true).await.map_or(1, |report| report.error_count);
    // A read that fails is never news to fsck.
    assert!(errors == 0 || told > 0, "{errors} reads failed, and fsck found nothing");
    if told > 0 { Found::ByRead } else { Found::Nowhere }
}

/// Number of reads that failed; those that did not are right.
async fn examine_pg(store: &Store, index: usize, history: &History) -> usize {
    let (pg, pg_num) = pg_of(index);
    let last = match store.load_pg(pg).await {
        Err(_) => return 1,
        Ok(Some(state)) => state.info.last_update.version as usize,
        Ok(None) if index as u32 == PGS => history.submitted.len(),
        Ok(None) => 0,
    };
    let acknowledged = history.acknowledged.len();
    assert!(
        last >= acknowledged,
        "pg {pg}: {acknowledged} was acknowledged, {last} is there, and nobody says so"
    );
    let mut model = Model::default();
    history.submitted[..last].iter().for_each(|txn| model.apply(txn));
    let Ok(listed) = store.list(pg, pg_bits(pg.pgid.ps, pg_num), None, 1000).await else { return 1 };
    assert!(listed.iter().eq(model.objects.keys()), "pg {pg}: {listed:?}");
    let mut errors = 0;
    for oid in &listed {
        let Object { bytes, meta, .. } = &model.objects[oid];
        match store.stat(oid).await {
            Ok(found) => assert_eq!(found.as_ref(), Some(meta), "{oid}"),
            Err(_) => errors += 1,
        }
        // Of the devices only the log has a part in an omap, and no mount takes that with a flipped bit.
        model.compare_omap(store, oid, 100).await;
        // Piece by piece, so that one bad block hides no other.
        for (n, wanted) in bytes.chunks(PAGE as usize).enumerate() {
            match store.read(oid, n as u64 * PAGE, PAGE).await {
                Ok(found) => assert!(found.to_vec() == wanted, "{oid} has wrong data at block {n}"),
                Err(StoreError::NotFound(_)) => panic!("{oid} is listed and not found"),
                Err(_) => errors += 1,
            }
        }
    }
    errors
}

/// Flipped bits at the end of random loads, so many in each part of each.
fn flips(loads: u64, each: u64) {
    for part in PARTS {
        let mut found = Vec::new();
        for seed in 0..loads {
            let life = live(seed, Start { life: None, histories: Histories::new() }, 12);
            for n in 0..each {
                let result = flip(&life, part, mix(seed << 32 | n));
                found.extend(result.unwrap_or_else(|error| panic!("load {seed}, {part:?} {n}: {error}")));
            }
        }
        let count = |wanted| found.iter().filter(|found| **found == wanted).count();
        let (mount, read, nowhere) = (count(Found::ByMount), count(Found::ByRead), count(Found::Nowhere));
        println!(
            "{part:?}: {mount} found by mount, {read} by reads and fsck, {nowhere} in nothing that is used"
        );
        match part {
            // The other copy serves, and fsck tells of the damaged one.
            Part::Label | Part::LabelCopy | Part::WalLabel => assert!(mount == 0 && read > 0 && nowhere == 0),
            Part::LogHeader | Part::LogRecord => assert!(mount > 0 && read == 0),
            Part::Anything => assert!(read > 0),
        }
    }
}

/// About 20 s.
#[test]
fn a_flipped_bit_is_never_data_and_never_loses_what_was_acknowledged() {
    flips(4, 15);
}

/// `cargo test --release -p carmine-store --test crash long_flips -- --ignored --nocapture`
#[test]
#[ignore = "minutes"]
fn long_flips() {
    flips(20, 200);
}
