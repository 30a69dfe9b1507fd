//! The fio and rados commands that do by hand what a point does.

use std::path::Path;

use super::load::{bs_bytes, rw, seconds, size_bytes};
use super::step::shell_line;
use crate::archive::Point;

/// A fio and a rados command for the load of a point, against the layout while its OSDs run.
pub fn by_hand(layout: &Path, point: &Point) -> Vec<String> {
    let config = &point.config;
    let conf = layout.join("ceph.conf").display().to_string();
    let show = |axis: &str| config.show(axis).unwrap_or_else(|| "1".to_owned());
    let (rw, bs, runtime) =
        (rw(config), bs_bytes(config).to_string(), (seconds(config).ceil() as u64).max(1).to_string());
    let mut fio: Vec<String> = vec!["fio".to_owned()];
    fio.extend(
        [
            ("name", point.stem.as_str()),
            ("ioengine", "rados"),
            ("clientname", "admin"),
            ("conf", &conf),
            ("pool", "bench"),
            ("rw", &rw),
            ("bs", &bs),
            ("iodepth", &show("iodepth")),
            ("numjobs", &show("jobs")),
            ("size", &size_bytes(config).to_string()),
            ("runtime", &runtime),
            ("time_based", "1"),
            ("group_reporting", "1"),
            ("output-format", "json"),
        ]
        .map(|(option, value)| format!("--{option}={value}")),
    );
    if let Some(rate) = config.float("rate_iops") {
        fio.extend([format!("--rate_iops={rate:.0}"), "--rate_process=poisson".to_owned()]);
    }
    let mode = match rw.as_str() {
        "read" => "seq",
        "randread" => "rand",
        _ => "write",
    };
    let mut rados: Vec<String> =
        ["rados", "-c", &conf, "-p", "bench", "bench", &runtime, mode, "-t", &show("iodepth")]
            .map(str::to_owned)
            .to_vec();
    if mode == "write" {
        rados.extend(["-b".to_owned(), bs, "--no-cleanup".to_owned()]);
    }
    vec![shell_line(&fio), shell_line(&rados)]
}
