//! The drives under an OSD's store, and the settings that follow from them: flush mode, class, threshold.

use carmine_load::drive::{DeviceClass, StoreFacts, StorePart, WriteCache};
use carmine_reactor::{ChosenPath, choose_io_path};
use carmine_types::{OsdId, StoreKind};

use super::{flush_mode, part_at};
use crate::{Layout, Plan, Tuning, db_place, wal_places};

/// The facts of an OSD whose store exists; `None` for stores in memory. Reads `/sys`: call it before the reactors run.
#[must_use]
pub fn read(layout: &Layout, plan: &Plan, osd: OsdId) -> Option<StoreFacts> {
    let data = || part_at(&layout.block(osd));
    let db = || part_at(&db_place(layout, osd));
    // While the log moves it has two places, and the one that needs more decides.
    let needs_flush = |log: &StorePart| !log.is_device || log.drive.write_cache != WriteCache::Through;
    let log = || wal_places(layout, osd).iter().map(|path| part_at(path)).max_by_key(needs_flush);
    (plan.store == StoreKind::Blue).then(|| settle(osd.0, &plan.tuning, data(), log(), Some(db())))
}

/// Settles what `tuning` leaves open. `log` is the log's place if it has a device of its own.
#[must_use]
pub fn settle(
    osd: u32,
    tuning: &Tuning,
    data: StorePart,
    log: Option<StorePart>,
    db: Option<StorePart>,
) -> StoreFacts {
    let log = log.unwrap_or_else(|| data.clone());
    let (flush_mode, flush_reason) = flush_mode(tuning.flush_mode.value(), &[&data, &log]);
    let (io_path, io_path_reason) = match choose_io_path(&data.path, tuning.io_path) {
        Ok(ChosenPath { path, why }) => (path, why),
        // The OSD will say so when it opens the drive.
        Err(error) => (tuning.io_path, error.to_string()),
    };
    let device_class = tuning.device_class.value().unwrap_or_else(|| DeviceClass::detect(&data.drive));
    StoreFacts {
        osd,
        log,
        db,
        flush_mode,
        flush_forced: tuning.flush_mode.value().is_some(),
        flush_reason,
        io_path,
        io_path_reason,
        device_class,
        device_class_forced: tuning.device_class.value().is_some(),
        prefer_deferred_bytes: tuning.prefer_deferred_bytes(device_class),
        discard: tuning.discard,
        data_cache_bytes: tuning.data_cache_bytes,
        data,
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::FlushMode;

    use super::*;
    use crate::OrAuto;
    use carmine_load::drive::DriveFacts;

    #[test]
    fn a_rotating_drive_without_a_cache_defers_and_is_not_flushed() {
        let drive = DriveFacts {
            drives: vec!["sda".into()],
            rotational: Some(true),
            write_cache: WriteCache::Through,
            ..DriveFacts::default()
        };
        let data = StorePart { path: "/dev/sda".into(), is_device: true, drive };
        let facts = settle(3, &Tuning::default(), data.clone(), None, None);
        assert_eq!((facts.flush_mode, facts.flush_forced), (FlushMode::None, false));
        assert_eq!((facts.device_class, facts.prefer_deferred_bytes), (DeviceClass::Hdd, 65_536));
        assert_eq!(facts.log, facts.data);
        // The log on another drive, with a volatile cache.
        let log = StorePart { drive: DriveFacts::default(), path: "/dev/sdb".into(), ..data.clone() };
        let facts = settle(3, &Tuning::default(), data.clone(), Some(log), None);
        assert_eq!(facts.flush_mode, FlushMode::Flush);
        assert!(facts.flush_reason.contains("unknown"), "{}", facts.flush_reason);
        let tuning = Tuning {
            flush_mode: OrAuto::Is(FlushMode::Dsync),
            device_class: OrAuto::Is(DeviceClass::Nvme),
            prefer_deferred_bytes: OrAuto::Is(0),
            discard: true,
            data_cache_bytes: 3 << 20,
            ..Tuning::default()
        };
        let facts = settle(3, &tuning, data, None, None);
        assert_eq!(facts.data_cache_bytes, 3 << 20);
        assert_eq!((facts.flush_mode, facts.flush_forced), (FlushMode::Dsync, true));
        assert_eq!((facts.device_class, facts.device_class_forced), (DeviceClass::Nvme, true));
        assert_eq!((facts.prefer_deferred_bytes, facts.discard), (0, true));
    }
}
