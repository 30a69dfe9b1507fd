//! Making and opening the store that the plan names.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use carmine_load::drive::StoreFacts;
use carmine_reactor::Shard;
use carmine_store::blue::{Fill, MountOptions, Place, Places, Slice};
use carmine_store::{Kv, StoreShared};
use carmine_testbed::drive::part_at;
use carmine_testbed::slice::{self, SliceLock};
use carmine_testbed::{Layout, Plan, Tuning, settle_wal, wal_places};
use carmine_types::{IoPath, OsdId, READAHEAD_BYTES, StoreKind};

use crate::memory::Memory;

/// Where the data of an OSD lies: all of its file or device, or its slice.
pub fn block_place(layout: &Layout, plan: &Plan, osd: OsdId) -> Place {
    let slice = plan.slice_of(osd);
    let slice = slice.map(|s| Slice { offset_bytes: s.offset_bytes, size_bytes: s.size_bytes });
    let path = layout.block(osd);
    // The file itself is what errors should name; a file that mkfs has yet to make is made through its link.
    Place { path: path.canonicalize().unwrap_or(path), slice, io_path: plan.tuning.io_path }
}

/// The same, and where its log may lie.
pub fn places(layout: &Layout, plan: &Plan, osd: OsdId) -> Places {
    // A log in a file beside a drive is what the setting says nothing about.
    let io_path = |path: &Path| if part_at(path).is_device { plan.tuning.io_path } else { IoPath::Block };
    let wal = wal_places(layout, osd);
    let wal = wal.iter().map(|path| Place { io_path: io_path(path), ..Place::from(path) }).collect();
    Places { block: block_place(layout, plan, osd), wal }
}

/// Locks the slice of an OSD that shares its device; hold it while the store is open.
pub fn lock_slice(layout: &Layout, plan: &Plan, osd: OsdId) -> anyhow::Result<Option<SliceLock>> {
    let Some(slice) = plan.slice_of(osd) else { return Ok(None) };
    Ok(Some(slice::lock(&layout.block(osd), slice)?))
}

/// Opens the metadata store of `blue`; `None` for the others. Blocks: call it before the reactors run. RocksDB's own
/// threads inherit the CPUs of the calling thread.
#[cfg(feature = "rocks")]
pub fn open_kv(layout: &Layout, plan: &Plan, osd: OsdId) -> anyhow::Result<Option<Arc<dyn Kv>>> {
    use carmine_kv_rocks::{RocksKv, RocksOptions, WRITE_BYTES_PER_S_OF_REACTOR};
    if plan.store != StoreKind::Blue {
        return Ok(None);
    }
    let memory = Memory::from_plan(plan);
    let options = RocksOptions {
        block_cache_bytes: memory.kv_cache,
        write_buffer_bytes: memory.kv_write_buffer,
        background_threads: plan.alien_threads.max(2),
        write_bytes_per_s: WRITE_BYTES_PER_S_OF_REACTOR * plan.cpu.reactors.max(1) as u64,
        untuned: None,
    };
    let kv = RocksKv::open(&layout.db(osd), options)?;
    Ok(Some(Arc::new(kv)))
}

/// Without RocksDB there is no `blue`.
#[cfg(not(feature = "rocks"))]
pub fn open_kv(_layout: &Layout, plan: &Plan, _osd: OsdId) -> anyhow::Result<Option<Arc<dyn Kv>>> {
    anyhow::ensure!(
        plan.store != StoreKind::Blue,
        "this program was built without RocksDB, which the store blue needs"
    );
    Ok(None)
}

/// Opens the store on its first shard.
pub async fn open(
    shard: &Shard,
    layout: &Layout,
    plan: &Plan,
    osd: OsdId,
    kv: Option<Arc<dyn Kv>>,
    facts: Option<&StoreFacts>,
) -> anyhow::Result<StoreShared> {
    let Some((kv, facts)) = kv.zip(facts) else {
        return Ok(match plan.store {
            StoreKind::Null => StoreShared::null(),
            _ => StoreShared::cyan(plan.osd_size_bytes),
        });
    };
    let options =
        mount_options(facts, &plan.tuning, Memory::from_plan(plan).onodes_per_shard, plan.cpu.reactors);
    let places = places(layout, plan, osd);
    let path = places.block.path.clone();
    let blue = carmine_store::BlueShared::mount(shard, places, kv, options)
        .await
        .context("cannot mount the store")?;
    // A move of the log may have been cut short.
    settle_wal(layout, osd, blue.wal().map(|place| place.path.as_path()))?;
    let label = blue.label();
    anyhow::ensure!(
        label.fsid.to_string() == plan.fsid && label.osd == osd,
        "{} belongs to {} of cluster {}, not to {osd} of {}",
        path.display(),
        label.osd,
        label.fsid,
        plan.fsid
    );
    Ok(StoreShared::Blue(blue))
}

/// The store's settings, with so many reactors.
pub fn mount_options(
    facts: &StoreFacts,
    tuning: &Tuning,
    cache_bytes_per_shard: usize,
    reactors: usize,
) -> MountOptions {
    MountOptions {
        cache_bytes_per_shard,
        data_cache_bytes_per_shard: usize::try_from(facts.data_cache_bytes).unwrap_or(usize::MAX)
            / reactors.max(1),
        readahead_bytes: tuning.readahead_bytes.value().unwrap_or(READAHEAD_BYTES),
        prefer_deferred_bytes: Some(facts.prefer_deferred_bytes),
        flush: Some(facts.flush_mode),
        discard: facts.discard,
        accepts_loss: false,
    }
}

/// How the space of new stores and logs is prepared.
pub fn fill(plan: &Plan) -> Fill {
    match (plan.sparse, plan.zero) {
        (true, _) => Fill::Nothing,
        (false, true) => Fill::Zeros,
        (false, false) => Fill::Fresh,
    }
}
