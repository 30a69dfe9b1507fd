//! What limited a load whose OSDs have no reactors to look at.

use crate::report::Report;
use crate::verdict::Limiter;

/// OSDs that use this part of the CPUs that they were given are the limit.
const SATURATED: f64 = 0.90;

/// The verdict by the CPUs that OSDs used, where nothing better is known: other rules found no limit, and an OSD did not
/// tell its clocks. `allocated_cores` is what the OSDs may use.
pub fn by_cpus(report: &Report, allocated_cores: f64) -> Option<(Limiter, String)> {
    let known = report.osds.iter().all(|osd| !osd.reactors.is_empty());
    if known || !matches!(report.verdict, Limiter::Qd | Limiter::Unknown) || report.load.rate_iops.is_some() {
        return None;
    }
    let used: f64 = report.osds.iter().map(|osd| osd.cpu_seconds.kernel_total).sum();
    let part = used / (report.window_seconds * allocated_cores);
    (part >= SATURATED).then(|| {
        (
            Limiter::Osd,
            format!("OSDs used {:.0} % of the {allocated_cores} CPUs that they were given", part * 100.0),
        )
    })
}
