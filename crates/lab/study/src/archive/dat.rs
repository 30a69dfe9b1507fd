//! `points.dat`: one line a point, columns divided by blanks, as gnuplot and people read it.

use std::fmt::Write as _;

use super::{Point, PointResult, Run};

/// The table of all points that were measured, in the order of running.
pub fn dat_table(run: &Run) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "# {:<62} {:>7} {:>12} {:>10} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "point",
        "iodepth",
        "iops",
        "mb_per_s",
        "clat_mean_us",
        "clat_sd_us",
        "clat_p50_us",
        "clat_p99_us",
        "verdict"
    );
    for point in &run.points {
        if let (true, Ok(Some(result))) = (run.is_done(point), run.result(point)) {
            text.push_str(&row(point, &result));
        }
    }
    text
}

fn row(point: &Point, result: &PointResult) -> String {
    let latency = result.latency().cloned().unwrap_or_default();
    let us = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns / 1e3));
    format!(
        "{:<64} {:>7} {:>12.0} {:>10.2} {:>12} {:>12} {:>12} {:>12} {:>8}\n",
        point.stem,
        point.config.show("iodepth").unwrap_or_else(|| "-".to_owned()),
        result.iops(),
        result.bw_bytes() / 1e6,
        us(Some(latency.mean)),
        us(Some(latency.stddev)),
        us(latency.at(50.0)),
        us(latency.at(99.0)),
        result.carmine.verdict.as_deref().unwrap_or("-"),
    )
}
