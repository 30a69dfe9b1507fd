//! Curves that fall with depth: more operations in flight bring fewer IOPS, which is no property of the OSD's work but of how client,
//! reactor and drive wait for each other. The clock that grew most for each operation says who waits.

use super::{Row, iops_change, is_comparable};
use crate::archive::PointResult;

/// A drive that is busy for at least this part of the window is what the reactors wait for while they sleep.
const DRIVE_BUSY: f64 = 0.9;

/// Clocks of a window: what happened, and for how many seconds.
type Clock = (&'static str, fn(&PointResult) -> Option<f64>);

const CLOCKS: [Clock; 3] = [
    ("the reactors slept", |result| result.osd_seconds(|cpu| cpu.sleep)),
    ("the reactors worked", |result| result.osd_seconds(|cpu| cpu.busy)),
    ("the client worked", |r| Some(r.carmine.client_cores_used? * r.carmine.window_seconds)),
];

/// A sentence for each row that did less than a row with fewer operations in flight; it is compared with the best of those.
pub(super) fn falls(rows: &[Row<'_>]) -> Vec<String> {
    rows.iter().filter_map(|deep| fall(best_shallower(rows, deep)?, deep)).collect()
}

fn iodepth(row: &Row<'_>) -> f64 {
    row.config().float("iodepth").unwrap_or_default()
}

/// The row with the most IOPS of those that differ from `deep` in a smaller iodepth only.
fn best_shallower<'a, 'b>(rows: &'b [Row<'a>], deep: &Row<'_>) -> Option<&'b Row<'a>> {
    let is_shallower = |row: &&Row<'_>| {
        row.clean.is_ok()
            && is_comparable(row, deep)
            && row.config().differences(deep.config()) == ["iodepth"]
            && iodepth(row) < iodepth(deep)
    };
    rows.iter().filter(is_shallower).max_by(|a, b| a.iops().total_cmp(&b.iops()))
}

fn fall(best: &Row<'_>, deep: &Row<'_>) -> Option<String> {
    let change = iops_change(best, deep).ok().filter(|change| !change.is_within && change.ratio < 1.0)?;
    let (low, high) = change.interval;
    Some(format!(
        "{} -> {}: the curve falls: iodepth {} instead of {} brought {:.2} times the IOPS (95 %: {low:.2} to {high:.2}); {}",
        best.name,
        deep.name,
        iodepth(deep),
        iodepth(best),
        change.ratio,
        cause(best, deep).unwrap_or_else(|| "no clock that was read says why".to_owned()),
    ))
}

/// The clock that grew most for each operation, with both values.
fn cause(best: &Row<'_>, deep: &Row<'_>) -> Option<String> {
    let busiest = deep.median(|result| Some(drive_busy(result)? / result.carmine.window_seconds));
    let clocks: &[Clock] = match busiest {
        Some(part) if part >= DRIVE_BUSY => &[("the busiest drive was busy", drive_busy)],
        _ => &CLOCKS,
    };
    let grown = clocks.iter().filter_map(|(what, clock)| {
        let us = |row: &Row<'_>| row.median(|result| us_per_op(result, *clock));
        let (before, now) = (us(best)?, us(deep)?);
        (now > before).then_some((*what, before, now))
    });
    let (what, before, now) = grown.max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)))?;
    Some(format!("{what} {now:.1} us for each operation instead of {before:.1}"))
}

fn us_per_op(result: &PointResult, clock: fn(&PointResult) -> Option<f64>) -> Option<f64> {
    let ops = result.carmine.iops * result.carmine.window_seconds;
    Some(clock(result)? * 1e6 / ops).filter(|us| us.is_finite())
}

/// Seconds for which the busiest drive had requests.
fn drive_busy(result: &PointResult) -> Option<f64> {
    result.carmine.devices.iter().map(|device| device.busy_ns as f64 / 1e9).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::compare::Measured;
    use crate::table::Results;

    /// Three repeats at an iodepth, with the seconds that the reactor slept and those that the drive was busy, of ten.
    fn thrice(iodepth: u32, iops: f64, sleep: f64, drive: f64) -> Vec<Measured> {
        let repeat = |at: usize| {
            let iops = iops * (1.0 + 0.001 * at as f64);
            let carmine = json!({"iops": iops, "window_seconds": 10.0, "client_cores_used": 0.5,
                "osds": [{"cpu_seconds": {"busy": 5.0, "sleep": sleep}}],
                "devices": [{"name": "vda", "busy_ns": (drive * 1e9) as u64}]});
            let read = json!({"iops": iops, "bw_bytes": 1.0, "clat_ns": {"percentile": {}}});
            let result = json!({"jobs": [{"read": read, "write": {}}], "carmine": carmine});
            let config = json!({"rw": "randread", "iodepth": iodepth});
            Measured {
                name: format!("qd{iodepth}.{at}.json"),
                config: serde_json::from_value(config).unwrap(),
                result: serde_json::from_value(result).unwrap(),
                ..Measured::default()
            }
        };
        (0..3).map(repeat).collect()
    }

    fn falls_of(points: &[(u32, f64, f64, f64)]) -> Vec<String> {
        let measured: Vec<_> = points
            .iter()
            .flat_map(|(depth, iops, sleep, drive)| thrice(*depth, *iops, *sleep, *drive))
            .collect();
        Results::new(&measured).steps()
    }

    #[test]
    fn a_fall_names_the_best_shallower_point_and_the_clock_that_grew() {
        let said =
            falls_of(&[(1, 2e4, 0.1, 0.0), (4, 2e5, 0.4, 0.0), (8, 1e5, 5.0, 0.0), (16, 3e5, 0.1, 0.0)]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("qd4 -> qd8: the curve falls: iodepth 8 instead of 4 brought 0.50 times"),
            "{said:?}"
        );
        assert!(said[0].ends_with("the reactors slept 5.0 us for each operation instead of 0.2"), "{said:?}");
    }

    #[test]
    fn reactors_that_sleep_wait_for_a_busy_drive() {
        let said = falls_of(&[(4, 2e5, 0.1, 9.5), (8, 1e5, 5.0, 9.8)]);
        assert!(
            said[0].ends_with("the busiest drive was busy 9.8 us for each operation instead of 4.7"),
            "{said:?}"
        );
    }

    #[test]
    fn a_curve_that_rises_or_stays_is_not_marked() {
        assert_eq!(falls_of(&[(4, 1e5, 0.1, 0.0), (8, 2e5, 5.0, 0.0), (16, 1.995e5, 5.0, 0.0)]), [""; 0]);
    }
}
