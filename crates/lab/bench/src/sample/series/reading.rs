//! One look at everything that is sampled every second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::hardware::Hardware;
use super::threads::{self, Spent, ThreadCounters};
use super::{SAMPLER, SampleOptions};
use crate::sample::device;
use crate::sample::machine::{Ticks, ticks};
use crate::sample::process::rss_bytes;
use carmine_load::window::DeviceWindow;

/// What is looked at.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) proc: PathBuf,
    /// (OSD, pid)
    pub(super) osds: Vec<(u32, u32)>,
    /// Processes of the generator.
    pub(super) generator: Vec<u32>,
    pub(super) devices: Vec<String>,
    pub(super) hardware: Hardware,
}

/// Counters at one moment.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    pub(super) cpus: BTreeMap<u32, Ticks>,
    /// By OSD, as in [`Sources::osds`].
    pub(super) threads: Vec<BTreeMap<u32, ThreadCounters>>,
    generator: BTreeMap<u32, ThreadCounters>,
    memory_bytes: u64,
    devices: BTreeMap<String, DeviceWindow>,
    network_bytes: u64,
    joules: Option<f64>,
    gauges: BTreeMap<String, f64>,
}

impl Sources {
    pub(super) fn read(&self) -> Reading {
        let text = |name: &str| std::fs::read_to_string(self.proc.join(name)).unwrap_or_default();
        Reading {
            at: Instant::now(),
            cpus: ticks(&text("stat")),
            threads: self.osds.iter().map(|(_, pid)| threads::read(&self.proc, *pid)).collect(),
            generator: self.generator.iter().flat_map(|pid| threads::read(&self.proc, *pid)).collect(),
            memory_bytes: self.osds.iter().filter_map(|(_, pid)| rss_bytes(&self.proc, *pid)).sum(),
            devices: device::read(&self.proc, &self.devices),
            network_bytes: network_bytes(&text("net/dev")),
            joules: self.hardware.joules(),
            gauges: self.hardware.read(),
        }
    }
}

/// Bytes that all interfaces carried. What goes over loopback is counted once, though it is sent and received.
fn network_bytes(dev: &str) -> u64 {
    let line = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
        let sent = if name.trim() == "lo" { 0 } else { *counters.get(8)? };
        Some(counters.first()? + sent)
    };
    dev.lines().filter_map(line).sum()
}

impl Reading {
    /// The series' values between two readings.
    pub(super) fn since(&self, before: &Reading) -> BTreeMap<String, f64> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let mut osds = Spent::default();
        self.threads.iter().zip(&before.threads).for_each(|(now, old)| osds.add(old, now));
        let cores = |ns: u64| ns as f64 / 1e9 / seconds;
        let rate = |now: u64, old: u64| now.saturating_sub(old) as f64 / seconds;
        let mut values = self.gauges.clone();
        let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
        put("osd_cores", cores(osds.cpu_ns));
        put("osd_user_cores", cores(osds.user_ns));
        put("osd_system_cores", cores(osds.system_ns));
        put("osd_wait_cores", cores(osds.wait_ns));
        put("context_switches_per_s", osds.switches as f64 / seconds);
        let mut generator = Spent::default();
        generator.add(&before.generator, &self.generator);
        let sampler = |threads: &BTreeMap<u32, ThreadCounters>| {
            threads.values().find(|t| t.name == SAMPLER).map_or(0, |t| t.cpu_ns)
        };
        let own_ns = sampler(&self.generator).saturating_sub(sampler(&before.generator));
        put("generator_cores", cores(generator.cpu_ns.saturating_sub(own_ns)));
        put("memory_bytes", self.memory_bytes as f64);
        put("network_bytes_per_s", rate(self.network_bytes, before.network_bytes));
        if let (Some(now), Some(old)) = (self.joules, before.joules)
            && now >= old
        {
            put("watts", (now - old) / seconds);
        }
        if !self.devices.is_empty() {
            let since =
                |(name, now): (&String, &DeviceWindow)| Some(device::since(before.devices.get(name)?, now));
            let spent: Vec<DeviceWindow> = self.devices.iter().filter_map(since).collect();
            let sum = |count: fn(&DeviceWindow) -> u64| spent.iter().map(count).sum::<u64>() as f64 / seconds;
            put("device_read_bytes_per_s", sum(|d| d.read_bytes));
            put("device_write_bytes_per_s", sum(|d| d.write_bytes));
            put("device_flushes_per_s", sum(|d| d.flushes));
            put("device_iops", sum(|d| d.reads + d.writes));
        }
        values
    }
}

/// Sources of this machine.
pub(super) fn sources(proc: &Path, sys: &Path, options: &SampleOptions) -> Sources {
    Sources {
        proc: proc.to_owned(),
        osds: options.osds.clone(),
        generator: match options.generator_pids.as_slice() {
            [] => vec![std::process::id()],
            pids => pids.to_vec(),
        },
        devices: options.devices.clone(),
        hardware: Hardware::find(proc, sys, &options.osd_cpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn loopback_is_counted_once() {
        let dev = "Inter-| Receive | Transmit\n face |bytes\n    lo: 100 1 0 0 0 0 0 0 100 1 0 0\n  eth0: 7 1 0 0 0 0 0 0 5 1 0 0\n";
        assert_eq!(network_bytes(dev), 112);
    }

    /// A `/proc` in which the thread of each process has been on a CPU for so many nanoseconds.
    fn proc(dir: &Path, threads: &[(u32, u64)]) {
        for (pid, cpu_ns) in threads {
            let task = dir.join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("stat"), format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0\n")).unwrap();
            std::fs::write(task.join("schedstat"), format!("{cpu_ns} 0 1\n")).unwrap();
        }
    }

    #[test]
    fn the_generator_is_the_program_that_makes_the_load() {
        let dir = tempfile::tempdir().unwrap();
        let cores = |generator_pids: Vec<u32>| {
            let options = SampleOptions { generator_pids, ..SampleOptions::default() };
            let sources = sources(dir.path(), dir.path(), &options);
            let own = std::process::id();
            proc(dir.path(), &[(own, 0), (7_000_001, 0), (7_000_002, 0)]);
            let before = sources.read();
            proc(dir.path(), &[(own, 1_000_000_000), (7_000_001, 300_000_000), (7_000_002, 400_000_000)]);
            let now = Reading { at: before.at + Duration::from_secs(1), ..sources.read() };
            now.since(&before)["generator_cores"]
        };
        assert_eq!(cores(vec![7_000_001, 7_000_002]), 0.7, "fio in two processes, without this one");
        assert_eq!(cores(vec![]), 1.0, "our own generator");
    }
}
