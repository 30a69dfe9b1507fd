//! What limited the load: simple rules over the window, the first that holds wins.

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::window::{ReactorWindow, Window};

/// A reactor, alien set or client that is busy for this part of the window is the limit.
const SATURATED: f64 = 0.90;
/// One reactor of several that is this busy holds the others back.
const ONE_SATURATED: f64 = 0.97;
/// This percentage of a raw baseline is what the device or the network gives. How long a device was busy says nothing: one
/// that takes many requests side by side is busy with the first.
const RAW_REACHED: f64 = 90.0;
/// A reactor (or its share of the PGs) that has this much more than the mean …
const IMBALANCE: f64 = 1.25;
/// … and hardly ever nothing to do holds the others back.
const NEVER_IDLE: f64 = 0.90;
/// More load that gives this much more operations shows that the load was the limit.
const GAIN: f64 = 1.05;
/// Below this many requests in flight per reactor, more depth is the first thing to try.
const DEEP_PER_REACTOR: f64 = 32.0;
/// Reactors that were ready but without a CPU for this part of the window were disturbed by other processes.
pub(crate) const NOISE: f64 = 0.10;

carmine_types::words! {
    /// The limiter of a point (design contract 7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    pub enum Limiter: "limiter" {
        /// The OSDs' reactors.
        Osd = "OSD",
        /// Blocking threads: RocksDB, the committer.
        Alien = "ALIEN",
        /// The load generator: the figures say nothing about the OSDs.
        Client = "CLIENT",
        /// The drive: its raw baseline is reached.
        Device = "DEVICE",
        /// The messenger: its raw baseline is reached.
        Net = "NET",
        /// Requests in flight (or the offered rate): nothing is saturated.
        Qd = "QD",
        /// One reactor has more to do than the others, which wait for it.
        Imbalanced = "IMBALANCED",
        /// CPUs are shared: no limiter can be named.
        Shared = "SHARED",
        Unknown = "UNKNOWN",
    }
}

/// What the verdict needs beside the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// A CPU of the grid is shared with something else.
    pub shared: bool,
    /// Part of the window that the busiest generator thread was busy or waited for a CPU; `None` for in-process load,
    /// which has none.
    pub client_busy: Option<f64>,
    /// CPUs that the generator used of those it may use. `None` for our own generator: its idle threads may spin.
    pub client_cpus: Option<(f64, u32)>,
    /// Requests in flight, at most.
    pub depth: f64,
    /// For open-loop load: it kept up with its schedule.
    pub rate_met: Option<bool>,
    /// Of the raw baselines, in percent.
    pub percent_of_device: Option<f64>,
    pub percent_of_messenger: Option<f64>,
    /// A short window with more load.
    pub more_load: Option<MoreLoad>,
}

/// What more load gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoreLoad {
    /// Such as `numjobs 2` or `iodepth 64`.
    pub what: String,
    pub iops: f64,
    /// `iops` by those of the window.
    pub ratio: f64,
    /// The additional generator threads had client CPUs of their own.
    pub own_cpus: bool,
}

/// Names the limiter and says why.
pub fn verdict(window: &Window, evidence: &Evidence) -> (Limiter, String) {
    let wall = window.wall_ns as f64;
    if evidence.shared {
        return (Limiter::Shared, "CPUs are shared, so nothing can be told apart".into());
    }
    if wall <= 0.0 {
        return (Limiter::Unknown, "the window is empty".into());
    }
    let rules = [
        rate_met(evidence),
        client(evidence),
        device(evidence),
        net(evidence),
        // In-process load is made on each reactor alike.
        evidence.client_busy.and_then(|_| imbalance(window)),
        reactors(window, wall),
        starved(window, wall),
        aliens(window, wall),
        depth(window, evidence),
    ];
    rules.into_iter().flatten().next().unwrap_or_else(|| (Limiter::Unknown, nothing(evidence)))
}

/// Why no limiter can be named.
fn nothing(evidence: &Evidence) -> String {
    let mut text = "nothing is saturated".to_owned();
    match evidence.percent_of_device {
        Some(percent) => {
            text.push_str(&format!("; the raw device gives more ({percent:.0} % of it were reached)"))
        }
        None => text.push_str(
            "; without a raw baseline of the device (`carmine baseline`) the device cannot be excluded",
        ),
    }
    if let Some(more) = evidence.more_load.as_ref().filter(|more| more.ratio < GAIN) {
        text.push_str(&format!("; more load ({}) gave {}", more.what, gain(more)));
    }
    text
}

/// `7 % more` or `3 % less`.
fn gain(more: &MoreLoad) -> String {
    let percent = (more.ratio - 1.0) * 100.0;
    format!("{:.0} % {}", percent.abs(), if percent < 0.0 { "less" } else { "more" })
}

type Finding = Option<(Limiter, String)>;

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn rate_met(evidence: &Evidence) -> Finding {
    evidence.rate_met.filter(|met| *met).map(|_| (Limiter::Qd, "the offered rate was met".into()))
}

/// The hottest generator thread, or all CPUs of the generator. More load confirms it, or, if it came from CPUs that were
/// free, refutes it.
fn client(evidence: &Evidence) -> Finding {
    let hot = evidence.client_busy.filter(|busy| *busy >= SATURATED).map(|busy| {
        format!(
            "the hottest generator thread was busy or without a CPU {} of the window: more client CPUs and --numjobs help",
            percent(busy)
        )
    });
    let full = evidence.client_cpus.filter(|(used, cpus)| *used >= SATURATED * f64::from(*cpus));
    let mut text = hot.or_else(|| {
        full.map(|(used, cpus)| {
            let cpus = counted(cpus as usize, "CPU");
            format!("the generator used {used:.2} of its {cpus}: it needs more (--client-cpus)")
        })
    })?;
    if let Some(more) = &evidence.more_load {
        if more.ratio < GAIN && more.own_cpus {
            return None;
        }
        let what = if more.ratio >= GAIN { "confirmed" } else { "not refuted, as no client CPU was free" };
        text.push_str(&format!("; {what}: {} gave {}", more.what, gain(more)));
    }
    Some((Limiter::Client, text))
}

fn device(evidence: &Evidence) -> Finding {
    let reached = evidence.percent_of_device.filter(|percent| *percent >= RAW_REACHED)?;
    Some((Limiter::Device, format!("{reached:.0} % of the raw device were reached")))
}

fn net(evidence: &Evidence) -> Finding {
    let reached = evidence.percent_of_messenger.filter(|percent| *percent >= RAW_REACHED)?;
    Some((Limiter::Net, format!("{reached:.0} % of the raw messenger were reached")))
}

/// How the busiest reactor compares with the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Imbalance {
    osd: u32,
    shard: u32,
    /// Part of the time that it had its CPU in which the busiest reactor worked.
    load_max: f64,
    load_mean: f64,
    /// PGs of the reactor that has most.
    pgs_max: f64,
    pgs_mean: f64,
}

impl Imbalance {
    /// `None` with less than two reactors.
    pub(crate) fn of(window: &Window) -> Option<Imbalance> {
        let reactors = || window.osds.iter().flat_map(|osd| osd.reactors.iter().map(move |r| (osd.id, r)));
        let count = reactors().count();
        if count < 2 {
            return None;
        }
        // Time without a CPU is nobody's load.
        let load = |r: &ReactorWindow| {
            let had = r.busy_ns + r.spin_ns + r.sleep_ns;
            if had == 0 { 0.0 } else { r.busy_ns as f64 / had as f64 }
        };
        let mut found = Imbalance::default();
        for (osd, reactor) in reactors() {
            let (load, pgs) = (load(reactor), f64::from(reactor.pgs.unwrap_or(0)));
            found.load_mean += load / count as f64;
            found.pgs_mean += pgs / count as f64;
            found.pgs_max = found.pgs_max.max(pgs);
            if load > found.load_max {
                (found.osd, found.shard, found.load_max) = (osd, reactor.shard, load);
            }
        }
        Some(found)
    }

    /// PGs are dealt so unevenly that it shows, whatever limits the load.
    pub(crate) fn of_pgs(&self) -> bool {
        self.pgs_max > IMBALANCE * self.pgs_mean
    }

    pub(crate) fn pgs_text(&self) -> String {
        format!("a reactor owns {:.0} PGs, the mean is {:.1}", self.pgs_max, self.pgs_mean)
    }
}

fn imbalance(window: &Window) -> Finding {
    let found = Imbalance::of(window)?;
    let uneven = found.load_max >= NEVER_IDLE && found.load_max > IMBALANCE * found.load_mean;
    // A neighbour on one reactor's CPU makes the load uneven as well: then the PGs have to agree.
    if !uneven || (noise(window) >= NOISE && !found.of_pgs()) {
        return None;
    }
    let text = format!(
        "reactor {} of OSD {} had work for {} of its time, the mean is {}; {}",
        found.shard,
        found.osd,
        percent(found.load_max),
        percent(found.load_mean),
        found.pgs_text()
    );
    Some((Limiter::Imbalanced, text))
}

fn reactors(window: &Window, wall: f64) -> Finding {
    let busy: Vec<f64> =
        window.osds.iter().flat_map(|o| &o.reactors).map(|r| r.busy_ns as f64 / wall).collect();
    let max = busy.iter().copied().fold(0.0, f64::max);
    let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    if mean >= SATURATED || max >= ONE_SATURATED {
        return Some((
            Limiter::Osd,
            format!("reactors were busy {} on average, {} at most", percent(mean), percent(max)),
        ));
    }
    // Aliens on the reactors' CPUs take what the reactors miss.
    for osd in window.osds.iter().filter(|o| o.alien_cpus == 0 && !o.reactors.is_empty()) {
        let reactors_ns: u64 = osd.reactors.iter().map(|r| r.busy_ns).sum();
        let aliens_ns = osd.alien_ns();
        let part = (reactors_ns + aliens_ns) as f64 / (wall * osd.reactors.len() as f64);
        if part >= SATURATED {
            let limiter = if aliens_ns > reactors_ns { Limiter::Alien } else { Limiter::Osd };
            let text = format!(
                "OSD {}'s CPUs were busy {} with reactors and aliens together",
                osd.id,
                percent(part)
            );
            return Some((limiter, text));
        }
    }
    None
}

/// Part of the window that reactors were ready to run but had no CPU.
pub(crate) fn noise(window: &Window) -> f64 {
    let waits: Vec<u64> = window.osds.iter().flat_map(|o| &o.reactors).map(|r| r.wait_ns).collect();
    let whole = window.wall_ns as f64 * waits.len() as f64;
    if whole > 0.0 { waits.iter().sum::<u64>() as f64 / whole } else { 0.0 }
}

/// Reactors that would have been saturated if other processes had left them their CPUs.
fn starved(window: &Window, wall: f64) -> Finding {
    let noise = noise(window);
    let wanted = window
        .osds
        .iter()
        .flat_map(|o| &o.reactors)
        .map(|r| (r.busy_ns + r.wait_ns) as f64 / wall)
        .fold(0.0, f64::max);
    (noise >= NOISE && wanted >= SATURATED).then(|| {
        let text =
            format!("other processes kept the reactors from their CPUs for {} of the window", percent(noise));
        (Limiter::Unknown, text)
    })
}

fn aliens(window: &Window, wall: f64) -> Finding {
    for osd in &window.osds {
        let part = osd.alien_ns() as f64 / (wall * f64::from(osd.alien_cpus.max(1)));
        if osd.alien_cpus > 0 && part >= SATURATED {
            return Some((
                Limiter::Alien,
                format!("OSD {}'s alien CPUs were busy {}", osd.id, percent(part)),
            ));
        }
        let reactor = |tid: u32| osd.reactors.iter().any(|r| r.tid == tid);
        let busiest = osd.process.threads.iter().filter(|t| !reactor(t.tid)).max_by_key(|t| t.cpu_ns);
        if let Some(thread) =
            busiest.filter(|t| !osd.reactors.is_empty() && t.cpu_ns as f64 / wall >= SATURATED)
        {
            let part = percent(thread.cpu_ns as f64 / wall);
            return Some((
                Limiter::Alien,
                format!("OSD {}'s thread {} was busy {part}", osd.id, thread.name),
            ));
        }
    }
    None
}

fn depth(window: &Window, evidence: &Evidence) -> Finding {
    if evidence.rate_met.is_some() {
        return None;
    }
    let reactors = window.osds.iter().map(|o| o.reactors.len()).sum::<usize>().max(1) as f64;
    let per_reactor = evidence.depth / reactors;
    // More load that gave nothing more shows that it is something else.
    let refuted = evidence.more_load.as_ref().is_some_and(|more| more.ratio < GAIN);
    if per_reactor >= DEEP_PER_REACTOR || refuted {
        return None;
    }
    let confirmed = evidence
        .more_load
        .as_ref()
        .map_or_else(String::new, |more| format!("; confirmed: {} gave {}", more.what, gain(more)));
    Some((
        Limiter::Qd,
        format!(
            "nothing is saturated and {per_reactor:.1} requests per reactor are in flight: raise --iodepth{confirmed}"
        ),
    ))
}

#[cfg(test)]
mod tests;
