//! What an OSD tells the monitor of itself and its machine when it boots; `ceph osd metadata` shows it.

use std::path::Path;
use std::sync::Arc;

use carmine_testbed::sample::device_of;
use carmine_testbed::{Layout, Plan, StoreKind, db_place};
use carmine_types::OsdId;

use super::store::block_path;

/// Ceph's names, and the values as text.
pub(crate) type Metadata = Arc<[(String, String)]>;

/// Read once, before the reactors start.
pub(crate) fn of(layout: &Layout, plan: &Plan, osd: OsdId) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value_of = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':'))
            .map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let memory = value_of(&read("/proc/meminfo"), "MemTotal");
    let reactors = plan.grid.osds.get(osd.0 as usize).map_or(0, |row| row.reactor_cpus().len());
    let all = [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", "carmine".to_owned()),
        ("ceph_version", format!("carmine {}", env!("CARGO_PKG_VERSION"))),
        ("ceph_version_short", env!("CARGO_PKG_VERSION").to_owned()),
        ("cpu", value_of(&read("/proc/cpuinfo"), "model name")),
        ("hostname", read("/proc/sys/kernel/hostname").trim().to_owned()),
        ("kernel_version", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("mem_total_kb", memory.trim_end_matches(" kB").to_owned()),
        ("os", "Linux".to_owned()),
        ("osd_data", layout.osd_dir(osd).display().to_string()),
        ("osd_objectstore", plan.store.to_string()),
        ("reactors", reactors.to_string()),
    ];
    let drives = if plan.store == StoreKind::Blue { drives(layout, osd) } else { Vec::new() };
    all.into_iter().chain(drives).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Where data and RocksDB lie, and on which drives.
fn drives(layout: &Layout, osd: OsdId) -> Vec<(&'static str, String)> {
    let block = block_path(layout, osd);
    let block = block.canonicalize().unwrap_or(block);
    let db = db_place(layout, osd);
    let drive = |path: &Path| device_of(path).unwrap_or_else(|| "unknown".to_owned());
    let mut devices = vec![drive(&block), drive(&db)];
    devices.dedup();
    vec![
        ("bluefs_db_devices", drive(&db)),
        ("bluefs_db_path", db.display().to_string()),
        ("bluestore_bdev_devices", drive(&block)),
        ("bluestore_bdev_dev_node", block.display().to_string()),
        ("devices", devices.join(",")),
    ]
}
