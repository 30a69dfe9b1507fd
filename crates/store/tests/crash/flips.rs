//! Bit rot after a power cut: any bit of the device. What is read is right or an error, and nothing panics.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_reactor::Shard;
use carmine_reactor::sim::{Sim, Unflushed};
use carmine_store::blue::{MountOptions, fsck};
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreError, StoreShared, pg_bits};

use crate::common::*;
use crate::work::{History, Life, PGS, path, pg_of};

/// How a store with a flipped bit fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not mounted.
    ByMount,
    /// A read, or fsck, told of it.
    ByRead,
    /// It hit nothing that anybody wants.
    Nowhere,
}

/// Flips one bit, drawn by `random`, in a page that was written, and reads everything.
///
/// # Errors
/// Wrong data, a lost acknowledgement, a panic: in words.
pub fn flip(life: &Life, at: usize, random: u64) -> Result<Found, String> {
    let sim = Sim::new(random);
    sim.restore(&life.tape, at, Unflushed::Kept);
    let disk = sim.disk("osd", &path());
    let pages = disk.find(&[]);
    let page = pages[(random % pages.len() as u64) as usize];
    disk.flip(page + (random >> 20) % 4096, (random >> 40) as u8);
    let kv = MemKv::new();
    kv.commit(&life.kv.left(at, Unflushed::Kept), true).map_err(|error| error.to_string())?;
    let kv: Arc<dyn Kv> = Arc::new(kv);
    let histories = Rc::new(life.histories.clone());
    let (found, done) = (Rc::new(RefCell::new(Found::ByMount)), Rc::new(Cell::new(false)));
    let (out, flag) = (Rc::clone(&found), Rc::clone(&done));
    let node = sim.node("osd", 1, move |shard| {
        let (kv, histories, out, flag) =
            (Arc::clone(&kv), Rc::clone(&histories), Rc::clone(&out), Rc::clone(&flag));
        async move {
            let options = MountOptions { cache_bytes_per_shard: 1 << 20, ..MountOptions::default() };
            if let Ok(shared) = BlueShared::mount(&shard, &path(), kv, options).await {
                let found = examine(&shard, &shared, &histories).await;
                *out.borrow_mut() = found;
            }
            flag.set(true);
        }
    });
    let result = sim.run(|| done.get(), Duration::from_secs(600)).map_err(|error| error.to_string());
    sim.kill(node);
    result.map(|()| *found.borrow()).map_err(|error| format!("bit of page {page}: {error}"))
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
    let mut model = Model::default();
    history.submitted[..last].iter().for_each(|txn| model.apply(txn));
    let Ok(listed) = store.list(pg, pg_bits(pg.ps, pg_num), None, 1000).await else { return 1 };
    let mut errors = 0;
    for oid in &listed {
        let (bytes, meta) = model.objects.get(oid).unwrap_or_else(|| panic!("{oid} was never there"));
        match store.stat(oid).await {
            Ok(found) => assert_eq!(found, Some(*meta), "{oid}"),
            Err(_) => errors += 1,
        }
        // Piece by piece, so that one bad block hides no other.
        for (n, wanted) in bytes.chunks(4096).enumerate() {
            match store.read(oid, n as u64 * 4096, 4096).await {
                Ok(found) => assert!(found.to_vec() == wanted, "{oid} has wrong data at {}", n * 4096),
                Err(StoreError::NotFound(_)) => panic!("{oid} is listed and not found"),
                Err(_) => errors += 1,
            }
        }
    }
    errors
}
