//! The kernel's accounting, read at both ends of a window: CPU time of processes and threads, of the whole machine, and
//! of block devices. Nothing here asks the measured processes: what they say of themselves comes from `dump_metrics`.

mod counters;
mod device;
pub(crate) mod machine;
mod metrics;
mod process;
pub mod series;
mod smart;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carmine_load::window::{DeviceWindow, MachineWindow, OsdWindow, Window};

use crate::failed;
use carmine_testbed::{Result, TestbedError};

pub use counters::Counters;
pub use device::device_of;
use machine::MachineCounters;
pub use machine::host_report;
pub use metrics::{OsdClocks, clocks, difference};
use process::{ProcessCounters, process_window};

/// An OSD process that is watched.
#[derive(Clone, Debug)]
pub struct WatchedOsd {
    pub id: u32,
    pub pid: u32,
    /// CPUs of alien threads that no reactor has; 0 when they share the reactors'.
    pub alien_cpus: u32,
}

/// Reads the same processes and devices again and again.
#[derive(Clone, Debug)]
pub struct Sampler {
    root: PathBuf,
    osds: Vec<WatchedOsd>,
    mon_pid: Option<u32>,
    devices: Vec<String>,
}

/// One reading.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    osds: Vec<ProcessCounters>,
    mon: ProcessCounters,
    own: ProcessCounters,
    machine: MachineCounters,
    devices: BTreeMap<String, DeviceWindow>,
}

impl Sampler {
    /// `devices` are names as in `/proc/diskstats` (see [`device_of`]).
    pub fn new(osds: Vec<WatchedOsd>, mon_pid: Option<u32>, devices: Vec<String>) -> Sampler {
        Sampler { root: PathBuf::from("/proc"), osds, mon_pid, devices }
    }

    /// Names of the watched block devices.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Reads everything, in the same order at both ends of a window: what the order costs (microseconds) cancels out.
    ///
    /// # Errors
    /// When an OSD is gone: its window would be wrong.
    pub fn sample(&self) -> Result<Snapshot> {
        let at = Instant::now();
        let machine = machine::read(&self.root)?;
        let osds = self
            .osds
            .iter()
            .map(|o| {
                process::read(&self.root, o.pid)
                    .map_err(|e| failed!("osd.{} is gone (pid {}): {e}", o.id, o.pid))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Snapshot {
            at,
            osds,
            // The monitor is not needed for a load; without it there is nothing to subtract.
            mon: self.mon_pid.and_then(|pid| process::read(&self.root, pid).ok()).unwrap_or_default(),
            own: process::read(&self.root, std::process::id()).unwrap_or_default(),
            machine,
            devices: device::read(&self.root, &self.devices),
        })
    }

    /// What happened between two readings. Reactor clocks are added by the caller, see [`clocks`].
    pub fn window(&self, start: &Snapshot, end: &Snapshot, idle_baseline_cores: f64) -> Window {
        let wall_ns = end.at.duration_since(start.at).as_nanos() as u64;
        let osds =
            self.osds.iter().zip(start.osds.iter().zip(&end.osds)).map(|(osd, (before, after))| OsdWindow {
                id: osd.id,
                process: process_window(osd.pid, before, after),
                alien_cpus: osd.alien_cpus,
                ..OsdWindow::default()
            });
        Window {
            wall_ns,
            osds: osds.collect(),
            machine: MachineWindow {
                cpus: end.machine.cpus,
                busy_ns: end.machine.busy_since(&start.machine, wall_ns),
                steal_ns: end.machine.steal_ns.saturating_sub(start.machine.steal_ns),
                idle_baseline_cores,
                generator_ns: process_window(0, &start.own, &end.own).cpu_ns,
                mon_ns: process_window(0, &start.mon, &end.mon).cpu_ns,
            },
            devices: end
                .devices
                .iter()
                .filter_map(|(name, after)| Some(device::since(start.devices.get(name)?, after)))
                .collect(),
            ..Window::default()
        }
    }

    /// Cores that were busy between two readings with anything but the watched processes and this one: what the machine
    /// does anyway.
    pub fn baseline_cores(&self, start: &Snapshot, end: &Snapshot) -> f64 {
        let window = self.window(start, end, 0.0);
        let ours: u64 = window.osds.iter().map(|o| o.process.cpu_ns).sum::<u64>()
            + window.machine.generator_ns
            + window.machine.mon_ns;
        if window.wall_ns == 0 {
            return 0.0;
        }
        window.machine.busy_ns.saturating_sub(ours) as f64 / window.wall_ns as f64
    }
}

/// Reads a small kernel file.
fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(TestbedError::io("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};

    /// Until this thread has had so much of a CPU, however busy the machine is.
    fn burn(cpu_ms: i64) {
        let used_ms = || {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            used.tv_sec * 1000 + used.tv_nsec / 1_000_000
        };
        while used_ms() < cpu_ms {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn sees_this_process_work() {
        let me = WatchedOsd { id: 3, pid: std::process::id(), alien_cpus: 0 };
        let sampler = Sampler::new(vec![me], None, Vec::new());
        let start = sampler.sample().unwrap();
        std::thread::spawn(|| burn(150)).join().unwrap();
        let end = sampler.sample().unwrap();
        let window = sampler.window(&start, &end, 0.0);
        let osd = &window.osds[0];
        // The thread has ended: only the process's ticks have it.
        assert!(osd.process.cpu_ns > 100_000_000, "{osd:?}");
        assert!(osd.process.cpu_ns < window.wall_ns * u64::from(window.machine.cpus) + 40_000_000);
        assert!(osd.process.rss_bytes > 100_000 && osd.id == 3);
        assert!(window.machine.busy_ns > 10_000_000, "{:?}", window.machine);
    }

    #[test]
    fn a_dead_osd_is_named() {
        let gone = WatchedOsd { id: 7, pid: u32::MAX - 1, alien_cpus: 0 };
        let error = Sampler::new(vec![gone], None, Vec::new()).sample().unwrap_err();
        assert!(error.to_string().contains("osd.7"), "{error}");
    }
}
