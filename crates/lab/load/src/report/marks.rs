//! Remarks that say how far a result can be trusted; each begins with a word that programs look for.

use carmine_stats::mean_with_interval;
use carmine_types::counted;

use super::{Context, WINDOW_MIN_S, ratio, seconds};
use crate::baseline::Percentages;
use crate::result::JobResult;
use crate::spec::LoadSpec;
use crate::verdict::{DISTURBED, Facts, Figure, RAW_WRONG, UNEVEN};
use crate::window::Window;

/// A window may end a moment early by the kernel's clock.
const SMOKE_BELOW_S: f64 = WINDOW_MIN_S - 0.1;
/// The mean of a longer window is to be known within this part of it.
const SMOKE_WITHIN: f64 = 0.10;
/// Parts of the load's depth between which the mean number of operations in flight is as it should be: those at the ends of
/// the window are counted in part only.
const LITTLE_MIN: f64 = 0.8;
const LITTLE_MAX: f64 = 1.1;

/// Remarks about a window.
pub(super) fn marks(result: &JobResult, window: &Window, context: &Context, facts: &Facts) -> Vec<String> {
    let (wall, setting) = (seconds(window.wall_ns), &context.setting);
    let rates = result.iops_samples(wall);
    let at_least = |figure: Figure, least: f64| facts.get(figure).is_some_and(|value| value >= least);
    let machine = &window.machine;
    let disturbed = DISTURBED / 100.0 * f64::from(machine.cpus.max(1));
    let client_wait = ratio(result.client.wait_ns as f64 * 100.0, result.client.wall_ns as f64);
    let client_wait = client_wait.filter(|part| *part >= DISTURBED && !setting.in_process);
    let guests = ratio(guests_seconds(window) * 100.0, wall).unwrap_or(0.0);
    let marks = [
        setting.shared.then(|| "SHARED: reactors, aliens or clients share CPUs; figures per core are left out".to_owned()),
        smoke(&rates, wall),
        window.osds.iter().any(|osd| osd.reactors.is_empty()).then(|| {
            "an OSD did not give its clocks: busy, spin, sleep, wait and hops are missing".to_owned()
        }),
        at_least(Figure::Waiting, DISTURBED).then(|| {
            let part = facts.percent(Figure::Waiting);
            format!("NOISY: reactors were ready but without a CPU for {part} of the window")
        }),
        (machine.idle_baseline_cores > disturbed).then(|| {
            let (cores, cpus) = (machine.idle_baseline_cores, counted(machine.cpus as usize, "CPU"));
            format!("NOISY: {cores:.2} of {cpus} went to other work before the load")
        }),
        (machine.steal_ns as f64 > disturbed * window.wall_ns as f64).then(|| {
            format!("NOISY: the hypervisor took {:.2} CPU seconds away", seconds(machine.steal_ns))
        }),
        carmine_stats::trend(&rates).filter(|trend| trend.unsteady).map(|trend| {
            let (percent, p) = (trend.drift * 100.0, trend.p);
            format!("UNSTEADY: IOPS drifted by {percent:+.0} % over the window (p = {p:.3})")
        }),
        at_least(Figure::PgRatio, UNEVEN)
            .then(|| format!("IMBALANCED: {}; raise --pgs", facts.name(Figure::PgRatio))),
        window.drain.is_some_and(|drain| !drain.finished).then(|| {
            "the OSDs' background work had not ended when the wait for it was given up: some of it is not charged".to_owned()
        }),
        window.instrument.is_some_and(|instrument| !instrument.apart).then(|| {
            "SHARED: every CPU is an OSD's, so the sampler ran on them, too".to_owned()
        }),
        window.counters.is_some_and(|counters| counters.user_only).then(|| {
            "cycles and instructions are those of user mode: this user may not count the kernel's (as root: sysctl kernel.perf_event_paranoid=1)".to_owned()
        }),
        client_wait.map(|part| format!("NOISY: a generator thread was without a CPU for {part:.0} % of the window")),
        setting.in_process.then(|| {
            format!(
                "in-process load: the generator's CPU time is part of the OSD's; controller and monitor used {guests:.1} % of a CPU"
            )
        }),
    ];
    marks.into_iter().flatten().collect()
}

/// Operations in flight on average by Little's law, IOPS × mean latency; `None` without the latency of every operation.
pub(super) fn in_flight(result: &JobResult, wall_s: f64) -> Option<f64> {
    let counted = result.read.latency_ns.count() + result.write.latency_ns.count();
    let latency_ns = result.read.latency_ns.sum() + result.write.latency_ns.sum();
    ratio(latency_ns as f64 / 1e9, wall_s).filter(|_| counted > 0 && counted == result.ops())
}

/// A closed loop keeps as many operations in flight as it is asked to, or one of its figures is not what its name says.
pub(super) fn little(spec: &LoadSpec, in_flight: Option<f64>) -> Option<String> {
    let asked = spec.depth_total() as f64;
    let found = in_flight.filter(|_| spec.rate_iops.is_none() && !spec.ends_by_itself())?;
    let why = match found / asked {
        part if part < LITTLE_MIN => {
            "latency is only a part of an operation's time, or the generator did not keep its queue full"
        }
        part if part > LITTLE_MAX => "latency and the window were not measured by the same clock",
        _ => return None,
    };
    Some(format!(
        "LITTLE: IOPS x mean latency is {found:.1} operations in flight, not the {asked} of the load: {why}"
    ))
}

/// A window that is too short for what it shows. Samples are of half a second, of which two neighbours resemble each other.
fn smoke(iops_samples: &[f64], wall_s: f64) -> Option<String> {
    if wall_s < SMOKE_BELOW_S {
        return Some(format!("SMOKE: a window of {wall_s:.1} s says little; take {WINDOW_MIN_S} s or more"));
    }
    let seconds: Vec<f64> =
        iops_samples.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    let (mean, interval) = mean_with_interval(&seconds).filter(|(mean, _)| *mean > 0.0)?;
    let within = interval.map(|(_, high)| high / mean - 1.0).filter(|part| *part > SMOKE_WITHIN)?;
    Some(format!(
        "SMOKE: IOPS varied so much that their mean is only known within {:.0} %; take more than {wall_s:.0} s",
        within * 100.0
    ))
}

/// CPU time that others than the OSDs had on the OSDs' CPUs when there is no generator: the controller (this process), the
/// monitor, and the sampler if it had no CPU of its own.
pub(super) fn guests_seconds(window: &Window) -> f64 {
    let apart = window.instrument.filter(|i| i.apart).map_or(0.0, |i| i.cores * seconds(window.wall_ns));
    (seconds(window.machine.generator_ns + window.machine.mon_ns) - apart).max(0.0)
}

/// More than what is possible.
pub(super) fn above(raw: &Percentages) -> Vec<String> {
    let raw = [("device", raw.device), ("messenger", raw.messenger)];
    let above = raw.into_iter().filter_map(|(what, percent)| Some((what, percent?)));
    let above = above.filter(|(_, percent)| *percent >= RAW_WRONG).map(|(what, percent)| {
        format!("ABOVE: {percent:.0} % of the raw {what}: a cache answered, or the baseline is wrong")
    });
    above.collect()
}
