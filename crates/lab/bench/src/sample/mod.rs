//! The kernel's accounting, read at both ends of a window: CPU time of processes and threads, of the whole machine, and
//! of block devices. Nothing here asks the measured processes: [`OsdDump`] has what they report about themselves.

mod burst;
mod counters;
mod dump;
mod hardware;
pub(crate) mod proc;
pub mod series;
mod smart;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use carmine_load::origin::Origin;
use carmine_load::window::{
    DeviceWindow, GeneratorWindow, MachineWindow, OsdWindow, ProcessWindow, ThreadWindow, Window,
};
use carmine_testbed::part_at;
use serde_json::{Value, json};

use proc::{Device, IDLE, STEAL, TICK_NS, Ticks, field, text};

pub use counters::Counters;
pub(crate) use dump::{OsdDump, QUESTIONS, add_dumps, difference, percentile};

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
    mon_pids: Vec<u32>,
    /// Processes of the generator if it is another program than this one.
    tool_pids: Vec<u32>,
    /// Names of the watched block devices.
    pub(crate) devices: Vec<String>,
}

/// One reading.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    /// By pid; one that is gone has no threads.
    processes: BTreeMap<u32, ProcessWindow>,
    cpus: BTreeMap<u32, Ticks>,
    devices: BTreeMap<String, Device>,
    network_bytes: u64,
}

impl Sampler {
    /// `devices` are names as in `/proc/diskstats` (see [`device_of`]).
    pub fn new(osds: Vec<WatchedOsd>, mon_pids: Vec<u32>, devices: Vec<String>) -> Sampler {
        Sampler { root: PathBuf::from("/proc"), osds, mon_pids, tool_pids: Vec::new(), devices }
    }

    /// The same, with the processes of a generator.
    pub(crate) fn with_tools(&self, tool_pids: Vec<u32>) -> Sampler {
        Sampler { tool_pids, ..self.clone() }
    }

    /// Reads everything, in the same order at both ends of a window: what the order costs (microseconds) cancels out.
    ///
    /// # Errors
    /// The generator is gone, so its window would be wrong. (An OSD that is gone has done nothing since.)
    pub fn sample(&self) -> Result<Snapshot> {
        let snapshot = self.look();
        for pid in &self.tool_pids {
            ensure!(!snapshot.processes[pid].threads.is_empty(), "the generator is gone (pid {pid})");
        }
        ensure!(!snapshot.cpus.is_empty(), "/proc/stat has no lines of CPUs");
        Ok(snapshot)
    }

    /// Reads everything. The monitor is not needed for a load; without it there is nothing to subtract.
    fn look(&self) -> Snapshot {
        let at = Instant::now();
        let file = |name: &str| text(&self.root.join(name));
        let cpus = proc::ticks(&file("stat"));
        let mut devices = proc::devices(&file("diskstats"));
        devices.retain(|name, _| self.devices.contains(name));
        let pids = self
            .osds
            .iter()
            .map(|osd| osd.pid)
            .chain(self.mon_pids.iter().copied())
            .chain([std::process::id()]);
        let pids = pids.chain(self.tool_pids.iter().copied());
        let processes = pids.map(|pid| (pid, proc::process(&self.root, pid))).collect();
        Snapshot { at, processes, cpus, devices, network_bytes: proc::network_bytes(&file("net/dev")) }
    }

    /// The counters' growth between two readings. The caller adds the reactors' clocks, see [`OsdDump`].
    pub fn window(&self, start: &Snapshot, end: &Snapshot, idle_baseline_cores: f64) -> Window {
        let wall_ns = end.at.duration_since(start.at).as_nanos() as u64;
        let osds = self.osds.iter().map(|osd| OsdWindow {
            id: osd.id,
            process: end.process_since(start, osd.pid),
            alien_cpus: osd.alien_cpus,
            ..OsdWindow::default()
        });
        let ticks_ns = |snapshot: &Snapshot, place: usize| {
            snapshot.cpus.values().map(|ticks| ticks[place]).sum::<u64>() * TICK_NS
        };
        let [idle_ns, steal_ns] =
            [IDLE, STEAL].map(|place| ticks_ns(end, place).saturating_sub(ticks_ns(start, place)));
        // Busy time is all that is not idle: that is exact, and the parts of it are not.
        let busy_ns = (wall_ns * end.cpus.len() as u64).saturating_sub(idle_ns + steal_ns);
        let tools_ns: u64 = self.tools(start, end).iter().map(|p| p.cpu_ns).sum();
        Window {
            wall_ns,
            osds: osds.collect(),
            machine: MachineWindow {
                cpus: end.cpus.len() as u32,
                busy_ns,
                steal_ns,
                idle_baseline_cores,
                generator_ns: end.process_since(start, std::process::id()).cpu_ns + tools_ns,
                generator: self.generator(start, end),
                mon_ns: self.mon_pids.iter().map(|pid| end.process_since(start, *pid).cpu_ns).sum(),
            },
            devices: end.devices_since(start),
            ..Window::default()
        }
    }

    /// The threads of this process and of a generator that is another program.
    fn generator(&self, start: &Snapshot, end: &Snapshot) -> GeneratorWindow {
        let pids = [std::process::id()].into_iter().chain(self.tool_pids.iter().copied());
        let threads = end.threads_since(start, pids.clone());
        let sum = |of: fn(&ThreadWindow) -> u64| threads.iter().map(of).sum();
        GeneratorWindow {
            user_ns: sum(|thread| thread.user_ns),
            system_ns: sum(|thread| thread.system_ns),
            switches: sum(|thread| thread.switches),
            throttled_ns: pids.filter_map(|pid| end.process_since(start, pid).throttled_ns).max(),
        }
    }

    /// The processes of a generator that is another program.
    pub(crate) fn tools(&self, start: &Snapshot, end: &Snapshot) -> Vec<ProcessWindow> {
        self.tool_pids.iter().map(|pid| end.process_since(start, *pid)).collect()
    }

    /// Cores that were busy between two readings with anything but the watched processes and this one: the work that the machine
    /// does anyway.
    pub(crate) fn baseline_cores(&self, start: &Snapshot, end: &Snapshot) -> f64 {
        let window = self.window(start, end, 0.0);
        let osds_ns: u64 = window.osds.iter().map(|o| o.process.cpu_ns).sum();
        let ours_ns = osds_ns + window.machine.generator_ns + window.machine.mon_ns;
        window.machine.busy_ns.saturating_sub(ours_ns) as f64 / window.wall_ns.max(1) as f64
    }
}

impl Snapshot {
    /// The work of a process that both readings have.
    fn process_since(&self, start: &Snapshot, pid: u32) -> ProcessWindow {
        proc::process_since(&self.processes[&pid], &start.processes[&pid])
    }

    /// The work of all threads of these processes.
    fn threads_since(&self, start: &Snapshot, pids: impl Iterator<Item = u32>) -> Vec<ThreadWindow> {
        pids.flat_map(|pid| proc::threads_since(&self.processes[&pid], &start.processes[&pid])).collect()
    }

    fn devices_since(&self, start: &Snapshot) -> Vec<DeviceWindow> {
        let both = self.devices.iter().filter_map(|(name, now)| Some((name, start.devices.get(name)?, now)));
        both.map(|(name, old, now)| proc::device_window(name, old, now)).collect()
    }
}

/// Name of the block device under a path, or of the device that the path is; `None` for tmpfs, overlays and the like.
pub fn device_of(path: &Path) -> Option<String> {
    part_at(path).drive.node
}

/// A line of `/proc/meminfo`, such as `MemAvailable`, in bytes.
pub fn memory_bytes(line: &str) -> Option<u64> {
    field(&text(Path::new("/proc/meminfo")), line).map(|kib| kib << 10)
}

/// Time since 1970.
pub fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// This build on this machine, now; its drives are not known yet.
pub(crate) fn origin_here(git_hash: crate::GitHash) -> Origin {
    let of_kernel = |name: &str| text(&Path::new("/proc/sys/kernel").join(name));
    Origin::here(
        env!("CARGO_PKG_VERSION"),
        git_hash.0,
        of_kernel("hostname"),
        of_kernel("osrelease"),
        unix_now().as_secs(),
    )
}

/// Processor, kernel, memory and hypervisor, for results: figures of different machines can't be compared.
pub fn host_report() -> Value {
    let file = |path: &str| text(Path::new(path));
    let cpuinfo = file("/proc/cpuinfo");
    let info = |name: &str| {
        let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, v)| v)
    };
    json!({
        "cpu": info("model name").unwrap_or(std::env::consts::ARCH),
        "cpus": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "virtual": info("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "memory_bytes": memory_bytes("MemTotal"),
        "carmine": env!("CARGO_PKG_VERSION"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};

    /// Works until this thread has had this much CPU time, however busy the machine is.
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
        let sampler = Sampler::new(vec![me], vec![], Vec::new());
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
    fn a_load_survives_an_osd_and_not_its_generator() {
        let gone = u32::MAX - 1;
        let osd = WatchedOsd { id: 7, pid: gone, alien_cpus: 0 };
        let sampler = Sampler::new(vec![osd], vec![], Vec::new());
        let snapshot = sampler.sample().unwrap();
        assert_eq!(sampler.window(&snapshot, &snapshot, 0.0).osds[0].process.cpu_ns, 0);
        let error = sampler.with_tools(vec![gone]).sample().unwrap_err();
        assert!(error.to_string().contains("the generator is gone"), "{error}");
    }

    #[test]
    fn busy_is_what_is_not_idle() {
        let dir = tempfile::tempdir().unwrap();
        let sampler = Sampler { root: dir.path().to_owned(), ..Sampler::new(vec![], vec![], vec![]) };
        let look = |stat: &str| {
            std::fs::write(dir.path().join("stat"), stat).unwrap();
            sampler.sample()
        };
        let before = look("cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 5 100 5 0 0 0 0 0\ncpu1 10 0 5 100 5 0 0 0 0 0\n");
        let after =
            look("cpu  9 9 9 9\ncpu0 90 0 5 120 5 0 0 0 0 0\ncpu1 20 0 5 180 5 0 0 10 0 0\n").unwrap();
        let before = Snapshot { at: after.at - Duration::from_secs(1), ..before.unwrap() };
        // One second of two CPUs, 1.0 s idle, 0.1 s stolen.
        let machine = sampler.window(&before, &after, 0.0).machine;
        assert_eq!((machine.cpus, machine.busy_ns, machine.steal_ns), (2, 900_000_000, 100_000_000));
        assert!(look("intr 5\n").is_err());
    }

    #[test]
    fn names_the_machine() {
        let host = host_report();
        assert!(host["cpu"].as_str().is_some_and(|s| !s.is_empty()));
        assert!(host["kernel"].as_str().is_some_and(|s| s.contains('.')), "{host}");
    }
}
