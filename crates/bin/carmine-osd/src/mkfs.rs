//! `carmine-osd --mkfs`: makes one OSD's store and reports its progress on standard output.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_store::blue::{MkfsOptions, mkfs};
use carmine_testbed::{Layout, Plan, make_empty, planned_wal, progress_line, remove_file};
use carmine_types::OsdId;

use carmine_osd_daemon::store::{fill, open_kv, places};
use carmine_testbed::output::print;

/// Time between two progress lines.
const EVERY: Duration = Duration::from_millis(100);
/// Writes of 1 MiB in flight, and some.
const ARENA_BYTES: usize = 32 << 20;

pub(super) fn run(layout: &Layout, plan: &Plan, osd: OsdId, force: bool) -> anyhow::Result<()> {
    match (plan.device_of(osd), plan.slice_of(osd)) {
        (Some(device), _) => link_device(device, &layout.block(osd))?,
        (None, Some(slice)) => link(&shared_file(layout, slice.device)?, &layout.block(osd))?,
        (None, None) => {}
    }
    if let Some(dir) = &plan.db_dir {
        let db = make_empty(&dir.join(format!("{}-{osd}", plan.fsid)))?;
        carmine_testbed::link(&db, &layout.db(osd))?;
    }
    if let Some(wal) = planned_wal(plan, osd) {
        carmine_testbed::link(&wal, &layout.wal(osd))?;
    }
    // What an earlier store lacked is not said of this one.
    [layout.damaged(osd), layout.damage_accepted(osd)].iter().try_for_each(|mark| remove_file(mark))?;
    let places = places(layout, plan, osd);
    let Some(kv) = open_kv(layout, plan, osd)? else { return Ok(()) };
    let fsid = plan.fsid.parse().map_err(|e| anyhow::anyhow!("fsid of the plan: {e}"))?;
    let slice_bytes = places.block.slice.map(|slice| slice.size_bytes);
    let size_bytes = slice_bytes.or(plan.devices.is_empty().then_some(plan.osd_size_bytes));
    let options = MkfsOptions { fsid, osd, size_bytes, fill: fill(plan), force };
    let config = Config {
        name: "mkfs".into(),
        poll: PollPolicy::Sleep,
        alien_threads: 1,
        arena_bytes_per_shard: ARENA_BYTES,
        ..Config::default()
    };
    let mut last: Option<Instant> = None;
    let mut progress = |done: u64, total: u64| {
        if done == total || last.is_none_or(|at| at.elapsed() >= EVERY) {
            last = Some(Instant::now());
            // Nobody reads it any more if the parent has gone; the store is finished all the same.
            let _ = print(&(progress_line(done, total) + "\n"));
        }
    };
    block_on(config, async |shard: Shard| mkfs(&shard, places, options, kv, &mut progress).await)
        .context("cannot start a reactor")??;
    Ok(())
}

/// Makes `osd.N/block` a link to the device, which must be one: a plain file named by mistake is not overwritten.
fn link_device(device: &Path, link: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let kind = std::fs::metadata(device).with_context(|| format!("--devs {}", device.display()))?.file_type();
    anyhow::ensure!(kind.is_block_device(), "--devs {}: this is not a block device", device.display());
    let device = device.canonicalize().with_context(|| format!("--devs {}", device.display()))?;
    anyhow::ensure!(
        !is_read_only(&device),
        "--devs {}: it is read-only; name another, or allow writing (blockdev --setrw)",
        device.display()
    );
    self::link(&device, link)
}

/// True if the kernel lets nobody write to this block device; the store would fail at its first write.
fn is_read_only(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let said = std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

/// The file that several OSDs share as seen from an OSD's folder, so that a testbed can be moved.
fn shared_file(layout: &Layout, device: u32) -> anyhow::Result<PathBuf> {
    let file = layout.device_file(device);
    Ok(Path::new("..").join(file.file_name().context("a device file has a name")?))
}

/// Makes a link, in the place of an earlier one.
fn link(target: &Path, link: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(link) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| format!("cannot replace {}", link.display()));
        }
        _ => {}
    }
    symlink(target, link).with_context(|| format!("cannot make {}", link.display()))
}
