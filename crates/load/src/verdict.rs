//! What limited the load: simple rules over the window, the first that holds wins.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::window::Window;

/// A reactor, alien set or client that is busy for this part of the window is the limit.
const SATURATED: f64 = 0.90;
/// One reactor of several that is this busy holds the others back.
const ONE_SATURATED: f64 = 0.97;
/// A device with a request in flight for this part of the window…
const DEVICE_BUSY: f64 = 0.95;
/// … and this many requests in flight on average can't go faster by being asked more.
const DEVICE_DEPTH: f64 = 4.0;
/// Below this many requests in flight per reactor, more depth is the first thing to try.
const DEEP_PER_REACTOR: f64 = 32.0;
/// Reactors that were ready but without a CPU for this part of the window were disturbed by other processes.
pub(crate) const NOISE: f64 = 0.10;

/// The limiter of a point (design contract 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Limiter {
    /// The OSDs' reactors.
    Osd,
    /// Blocking threads: RocksDB, the committer.
    Alien,
    /// The load generator: the figures say nothing about the OSDs.
    Client,
    Device,
    Net,
    /// Requests in flight (or the offered rate): nothing is saturated.
    Qd,
    /// CPUs are shared: no limiter can be named.
    Shared,
    Unknown,
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Limiter::Osd => "OSD",
            Limiter::Alien => "ALIEN",
            Limiter::Client => "CLIENT",
            Limiter::Device => "DEVICE",
            Limiter::Net => "NET",
            Limiter::Qd => "QD",
            Limiter::Shared => "SHARED",
            Limiter::Unknown => "UNKNOWN",
        })
    }
}

/// What the verdict needs beside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Some CPU of the grid is not had alone.
    pub shared: bool,
    /// Part of the window that the busiest generator thread was busy or waited for a CPU; `None` for in-process load,
    /// which has none.
    pub client_busy: Option<f64>,
    /// Requests in flight, at most.
    pub depth: f64,
    /// For open-loop load: it kept up with its schedule.
    pub rate_met: Option<bool>,
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
        reactors(window, wall),
        starved(window, wall),
        aliens(window, wall),
        device(window, wall),
        depth(window, evidence),
    ];
    rules.into_iter().flatten().next().unwrap_or_else(|| (Limiter::Unknown, "nothing is saturated".into()))
}

type Finding = Option<(Limiter, String)>;

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn rate_met(evidence: &Evidence) -> Finding {
    evidence.rate_met.filter(|met| *met).map(|_| (Limiter::Qd, "the offered rate was met".into()))
}

fn client(evidence: &Evidence) -> Finding {
    let busy = evidence.client_busy.filter(|busy| *busy >= SATURATED)?;
    let text = format!(
        "a generator thread was busy or without a CPU {} of the window: more client CPUs and --numjobs help",
        percent(busy)
    );
    Some((Limiter::Client, text))
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

fn device(window: &Window, wall: f64) -> Finding {
    let busiest = window.devices.iter().max_by_key(|d| d.busy_ns)?;
    let (busy, depth) = (busiest.busy_ns as f64 / wall, busiest.weighted_ns as f64 / wall);
    (busy >= DEVICE_BUSY && depth >= DEVICE_DEPTH).then(|| {
        (
            Limiter::Device,
            format!("{} was busy {} with {depth:.1} requests in flight", busiest.name, percent(busy)),
        )
    })
}

fn depth(window: &Window, evidence: &Evidence) -> Finding {
    if evidence.rate_met.is_some() {
        return None;
    }
    let reactors = window.osds.iter().map(|o| o.reactors.len()).sum::<usize>().max(1) as f64;
    let per_reactor = evidence.depth / reactors;
    (per_reactor < DEEP_PER_REACTOR).then(|| {
        (Limiter::Qd, format!("nothing is saturated and {per_reactor:.1} requests per reactor are in flight: raise --iodepth"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{DeviceWindow, OsdWindow, ProcessWindow, ReactorWindow, ThreadWindow};

    const WALL: u64 = 1_000_000_000;

    fn osd(busy: &[f64], alien: f64, alien_cpus: u32) -> OsdWindow {
        let reactors: Vec<ReactorWindow> = busy
            .iter()
            .zip(1u32..)
            .map(|(b, tid)| ReactorWindow { tid, busy_ns: (b * 1e9) as u64, ..ReactorWindow::default() })
            .collect();
        let mut threads: Vec<ThreadWindow> = reactors
            .iter()
            .map(|r| ThreadWindow { tid: r.tid, cpu_ns: r.busy_ns, ..ThreadWindow::default() })
            .collect();
        let alien_ns = (alien * 1e9) as u64;
        threads.push(ThreadWindow { tid: 100, name: "osd-alien-0".into(), cpu_ns: alien_ns, wait_ns: 0 });
        let cpu_ns = threads.iter().map(|t| t.cpu_ns).sum();
        let process = ProcessWindow { cpu_ns, threads, ..ProcessWindow::default() };
        OsdWindow { process, reactors, alien_cpus, ..OsdWindow::default() }
    }

    fn window(osds: Vec<OsdWindow>, device_busy: f64, device_depth: f64) -> Window {
        let device = DeviceWindow {
            name: "vda".into(),
            busy_ns: (device_busy * 1e9) as u64,
            weighted_ns: (device_depth * 1e9) as u64,
            ..DeviceWindow::default()
        };
        Window { wall_ns: WALL, osds, devices: vec![device], ..Window::default() }
    }

    fn evidence(client: f64, depth: f64) -> Evidence {
        Evidence { client_busy: Some(client), depth, ..Evidence::default() }
    }

    #[test]
    fn each_limiter_is_named() {
        let idle = || osd(&[0.3], 0.1, 1);
        let starved = || {
            let mut osd = idle();
            osd.reactors[0].wait_ns = 650_000_000;
            osd
        };
        let cases = [
            (Limiter::Osd, window(vec![osd(&[0.95, 0.91], 0.0, 1)], 0.0, 0.0), evidence(0.5, 64.0)),
            (Limiter::Osd, window(vec![osd(&[0.99, 0.2], 0.0, 1)], 0.0, 0.0), evidence(0.5, 64.0)),
            (Limiter::Osd, window(vec![osd(&[0.6], 0.35, 0)], 0.0, 0.0), evidence(0.5, 64.0)),
            (Limiter::Alien, window(vec![osd(&[0.35], 0.6, 0)], 0.0, 0.0), evidence(0.5, 64.0)),
            (Limiter::Alien, window(vec![osd(&[0.3], 1.85, 2)], 0.0, 0.0), evidence(0.5, 64.0)),
            (Limiter::Alien, window(vec![osd(&[0.3], 0.95, 4)], 0.0, 0.0), evidence(0.5, 64.0)),
            (Limiter::Client, window(vec![osd(&[0.95], 0.0, 1)], 0.0, 0.0), evidence(0.93, 64.0)),
            (Limiter::Device, window(vec![idle()], 0.99, 12.0), evidence(0.2, 64.0)),
            (Limiter::Qd, window(vec![idle()], 0.99, 0.9), evidence(0.2, 1.0)),
            (Limiter::Unknown, window(vec![idle()], 0.5, 2.0), evidence(0.2, 64.0)),
            (Limiter::Unknown, window(vec![starved()], 0.5, 2.0), evidence(0.2, 1.0)),
            (Limiter::Unknown, Window::default(), evidence(0.2, 64.0)),
        ];
        for (at, (want, window, evidence)) in cases.into_iter().enumerate() {
            let (got, why) = verdict(&window, &evidence);
            assert_eq!(got, want, "case {at}: {why}");
        }
    }

    #[test]
    fn shared_and_open_loop() {
        let saturated = window(vec![osd(&[0.99], 0.0, 1)], 0.0, 0.0);
        assert_eq!(verdict(&saturated, &Evidence { shared: true, ..evidence(0.1, 1.0) }).0, Limiter::Shared);
        assert_eq!(
            verdict(&saturated, &Evidence { rate_met: Some(true), ..evidence(0.1, 1.0) }).0,
            Limiter::Qd
        );
        assert_eq!(
            verdict(&saturated, &Evidence { rate_met: Some(false), ..evidence(0.1, 1.0) }).0,
            Limiter::Osd
        );
        let idle = window(vec![osd(&[0.1], 0.0, 1)], 0.0, 0.0);
        assert_eq!(
            verdict(&idle, &Evidence { rate_met: Some(false), ..evidence(0.1, 1.0) }).0,
            Limiter::Unknown
        );
        assert_eq!(serde_json::to_string(&Limiter::Qd).unwrap(), "\"QD\"");
    }
}
