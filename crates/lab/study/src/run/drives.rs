//! A drive's limit over all points of a run: no point has reached it if another did more on the same drives.

use serde_json::Value;

use carmine_load::origin::OsdDrive;
use carmine_load::verdict::Limiter;
use carmine_stats::mean;
use carmine_testbed::{failed, read_json, write_json};

use crate::archive::{ArchiveError, Config, Point, PointResult, Run};
use crate::lists::grouped;

/// Noise apart, a drive that does this many times as much at another point was not at its limit.
const MORE: f64 = 1.05;
/// The settings that tell how a load uses drives.
const KINDS: [&str; 3] = ["workload", "bs_bytes", "read_percent"];

/// The repeats of one setting.
struct Setting {
    /// Places in the list of points.
    points: Vec<usize>,
    /// Kind of load, flush mode and drives: what a drive does is compared where they are the same.
    kind: (Config, String, Vec<OsdDrive>),
    /// Operations of the OSDs per second and drive, on average.
    iops_per_drive: f64,
}

/// Takes back each verdict DEVICE of a run where another setting did at least 5 % more with the same kind of load on the same
/// drives. The verdict becomes UNKNOWN, and its reason names the other point, in `measured` and in the archive. Returns the stems
/// that were changed.
///
/// # Errors
/// A result cannot be read or written.
pub(super) fn refute(run: &Run, measured: &mut [(Point, PointResult)]) -> Result<Vec<String>, ArchiveError> {
    let mut refuted = Vec::new();
    for (at, best, ratio) in beaten(measured) {
        let stem = measured[best].0.stem.clone();
        let (point, result) = &mut measured[at];
        let file = run.point_file(point, "json");
        // As a value, since another version may have written fields that this one does not know.
        let Some(mut value) = read_json::<Value>(&file)? else { continue };
        if take_back(&mut value["carmine"], &stem, ratio) {
            write_json(&file, &value)?;
            *result = serde_json::from_value(value).map_err(|e| failed!("{}: {e}", file.display()))?;
            refuted.push(point.stem.clone());
        }
    }
    Ok(refuted)
}

/// The points that did less than another on the same drives: the place of each, that of the other, and how many times as much it did.
fn beaten(measured: &[(Point, PointResult)]) -> Vec<(usize, usize, f64)> {
    let settings = settings(measured);
    let best_of = |setting: &Setting| {
        let others = settings.iter().filter(|other| other.kind == setting.kind);
        others.max_by(|a, b| a.iops_per_drive.total_cmp(&b.iops_per_drive))
    };
    let compared = settings.iter().filter_map(|setting| {
        let best = best_of(setting)?;
        let ratio = best.iops_per_drive / setting.iops_per_drive;
        (ratio >= MORE).then(|| setting.points.iter().map(move |at| (*at, best.points[0], ratio)))
    });
    compared.flatten().collect()
}

fn settings(measured: &[(Point, PointResult)]) -> Vec<Setting> {
    let on_drives = measured.iter().enumerate().filter_map(|(at, (point, result))| {
        let iops = iops_per_drive(result)?;
        Some((&point.config, (at, result, iops)))
    });
    let setting = |(config, repeats): (&Config, Vec<(usize, &PointResult, f64)>)| {
        let carmine = &repeats[0].1.carmine;
        let kind = config.only(|name| KINDS.contains(&name));
        Setting {
            points: repeats.iter().map(|(at, ..)| *at).collect(),
            kind: (kind, carmine.flush_mode.clone(), drives(&carmine.origin.drives)),
            iops_per_drive: mean(&repeats.iter().map(|(.., iops)| *iops).collect::<Vec<_>>()),
        }
    };
    grouped(on_drives).into_iter().map(setting).collect()
}

/// Each drive once, without the files on it: each layout has files of its own on the same drives.
fn drives(of_osds: &[OsdDrive]) -> Vec<OsdDrive> {
    let mut drives = of_osds.to_vec();
    drives.iter_mut().for_each(|drive| (drive.osd, drive.path) = (0, Default::default()));
    drives.sort_by(|a, b| a.name.cmp(&b.name));
    drives.dedup();
    drives
}

/// `None` for stores in memory.
fn iops_per_drive(result: &PointResult) -> Option<f64> {
    let carmine = &result.carmine;
    let drives = result.iops() / carmine.iops_per_drive?;
    Some(carmine.osd_iops / drives).filter(|iops| iops.is_finite())
}

/// Changes a verdict DEVICE; false if it is another.
fn take_back(carmine: &mut Value, stem: &str, ratio: f64) -> bool {
    let is_device = carmine["verdict"] == Limiter::Device.to_string();
    if is_device {
        let percent = (ratio - 1.0) * 100.0;
        let said = carmine["verdict_reason"].as_str().unwrap_or_default();
        let reason = format!("{said}; but the same drives did {percent:.0} % more at {stem}");
        carmine["verdict_reason"] = reason.into();
        carmine["verdict"] = Limiter::Unknown.to_string().into();
        carmine["verdict_next"] = format!("see what {stem} has that this point lacks").into();
    }
    is_device
}
