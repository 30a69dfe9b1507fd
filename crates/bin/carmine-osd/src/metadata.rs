//! The metadata of an OSD: it describes itself and its machine to the monitor when it boots; `ceph osd metadata` shows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use carmine_load::drive::{DeviceClass, DriveFacts, StoreFacts, StorePart, WriteCache};
use carmine_testbed::{Layout, Plan};
use carmine_types::OsdId;

/// Ceph's names, and the values as text.
pub(crate) type Metadata = Arc<[(String, String)]>;

/// Collected once, before the reactors start.
pub(crate) fn collect(
    layout: &Layout,
    plan: &Plan,
    osd: OsdId,
    store: Option<&StoreFacts>,
) -> Vec<(String, String)> {
    let reactors = plan.row(osd).map_or(0, |row| row.reactor_count());
    let all = [
        ("osd_data", layout.osd_dir(osd).display().to_string()),
        ("osd_objectstore", plan.store.to_string()),
        ("reactors", reactors.to_string()),
    ];
    let all = all.into_iter().map(|(key, value)| (key.to_owned(), value));
    let all = carmine_daemon::machine::facts(plan.mon).into_iter().chain(all);
    let mut all: Vec<_> = all.chain(store.into_iter().flat_map(drives)).collect();
    if store.is_none() {
        // As Ceph's store in memory has it.
        all.push(("default_device_class".to_owned(), DeviceClass::Ssd.to_string()));
    } else {
        // Settings as they were asked for, where nothing above says how they were settled.
        let known: BTreeSet<String> = all.iter().map(|(key, _)| key.clone()).collect();
        all.extend(plan.tuning.texts().into_iter().filter(|(key, _)| !known.contains(key)));
    }
    all
}

/// The drives under the store's parts, and how the store treats them. Ceph has no keys for what was forced, for the reason, and
/// for a drive's caches.
fn drives(store: &StoreFacts) -> Vec<(String, String)> {
    let parts = || [&store.data, &store.log].into_iter().chain(&store.db).map(|part| &part.drive);
    let devices: BTreeSet<&str> = parts().flat_map(|drive| &drive.drives).map(String::as_str).collect();
    let id = |drive: &DriveFacts| match (drive.drives.as_slice(), &drive.serial) {
        ([one], Some(serial)) => Some(format!("{one}={serial}")),
        _ => None,
    };
    let ids: BTreeSet<String> = parts().filter_map(id).collect();
    let flag = |is: bool| u8::from(is).to_string();
    let rotational = |part: &StorePart| flag(part.drive.rotational == Some(true));
    let whole = [
        (
            "bluefs_dedicated_db",
            flag(store.db.as_ref().is_some_and(|db| db.drive.drives != store.data.drive.drives)),
        ),
        ("bluefs_dedicated_wal", flag(store.log.path != store.data.path)),
        ("bluestore_bdev_support_discard", flag(store.data.drive.discard_granularity_bytes > Some(0))),
        ("data_cache_bytes", store.data_cache_bytes.to_string()),
        ("default_device_class", store.device_class.to_string()),
        ("device_class_forced", flag(store.device_class_forced)),
        ("device_ids", ids.into_iter().collect::<Vec<_>>().join(",")),
        ("devices", devices.into_iter().collect::<Vec<_>>().join(",")),
        ("discard", flag(store.discard)),
        ("flush_mode", store.flush_mode.to_string()),
        ("flush_mode_forced", flag(store.flush_forced)),
        ("flush_mode_reason", store.flush_reason.clone()),
        ("io_path", store.io_path.to_string()),
        ("io_path_reason", store.io_path_reason.clone()),
        ("journal_rotational", rotational(&store.log)),
        ("prefer_deferred_size", store.prefer_deferred_bytes.to_string()),
        ("rotational", rotational(&store.data)),
    ];
    let mut all: Vec<_> = whole.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    all.extend(part("bluestore_bdev", &store.data, store.device_class));
    all.extend(part("bluefs_wal", &store.log, DeviceClass::detect(&store.log.drive)));
    all.extend(store.db.iter().flat_map(|db| part("bluefs_db", db, DeviceClass::detect(&db.drive))));
    all
}

fn part(prefix: &str, part: &StorePart, class: DeviceClass) -> Vec<(String, String)> {
    let drive = &part.drive;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let access = if part.is_device { "blk" } else { "file" };
    let write_cache = match drive.write_cache {
        WriteCache::Unknown => "unknown".to_owned(),
        known => format!("write {known}"),
    };
    let known = [
        ("access_mode", Some(access.to_owned())),
        ("block_size", number(drive.logical_block_bytes)),
        ("dev_node", drive.node.as_ref().map(|node| format!("/dev/{node}"))),
        ("devices", Some(drive.name())),
        ("fua", drive.fua.map(|fua| u8::from(fua).to_string())),
        ("model", drive.model.clone()),
        ("path", Some(part.path.display().to_string())),
        ("physical_block_size", number(drive.physical_block_bytes)),
        ("rotational", drive.rotational.map(|rotational| u8::from(rotational).to_string())),
        ("type", Some(class.to_string())),
        ("write_cache", Some(write_cache)),
    ];
    known.into_iter().filter_map(|(key, value)| Some((format!("{prefix}_{key}"), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drive_of_each_part_is_named_once() {
        let on = |path: &str, name: &str, serial: Option<&str>| StorePart {
            path: path.into(),
            is_device: true,
            drive: DriveFacts {
                node: Some(name.to_owned()),
                drives: vec![name.to_owned()],
                serial: serial.map(str::to_owned),
                discard_granularity_bytes: Some(512),
                ..DriveFacts::default()
            },
        };
        let data = on("/dev/sda", "sda", Some("S1"));
        let store = StoreFacts {
            log: on("/dev/nvme0n1", "nvme0n1", None),
            db: Some(on("/var/db", "sda", Some("S1"))),
            device_class: DeviceClass::Hdd,
            prefer_deferred_bytes: 65_536,
            data,
            ..StoreFacts::default()
        };
        let all = drives(&store);
        let get = |key: &str| all.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
        for (key, value) in [
            ("devices", "nvme0n1,sda"),
            ("device_ids", "sda=S1"),
            ("bluestore_bdev_type", "hdd"),
            ("bluestore_bdev_dev_node", "/dev/sda"),
            ("bluefs_wal_type", "nvme"),
            ("bluefs_wal_devices", "nvme0n1"),
            ("bluefs_db_path", "/var/db"),
            ("bluefs_dedicated_db", "0"),
            ("bluefs_dedicated_wal", "1"),
            ("bluestore_bdev_support_discard", "1"),
            ("bluestore_bdev_write_cache", "unknown"),
            ("flush_mode", "flush"),
            ("prefer_deferred_size", "65536"),
        ] {
            assert_eq!(get(key), Some(value), "{key}");
        }
        let keys: BTreeSet<&String> = all.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), all.len(), "each key once");
    }
}
