//! Samples of a window, taken every second by a thread of this process on CPUs that no OSD uses.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use carmine_load::samples::{CpuSamples, Instrument, Samples, ThreadSamples};
use carmine_load::window::{DeviceWindow, ThreadWindow};
use carmine_testbed::process::restrict_to;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::burst::Burst;
use super::hardware::{Hardware, JOULES};
use super::proc::{Ticks, text, threads_since};
use super::{Sampler, Snapshot, smart};

/// Name of the sampler's thread.
const SAMPLER: &str = "sampler";
/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(1_000);
/// Length of a window of cores used.
const BURST: Duration = Duration::from_millis(10);

/// A sampler at work.
#[derive(Debug)]
pub struct Recorder {
    stop: Sender<()>,
    thread: JoinHandle<Samples>,
}

impl Recorder {
    /// Starts to sample the processes of `sampler` and returns when the first reading is made: the window begins then. The
    /// sampler's thread keeps off `osd_cpus`, those of reactors and aliens, and if there are others off `client_cpus`, too.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(sampler: Sampler, osd_cpus: Vec<usize>, client_cpus: &[usize]) -> Result<Recorder> {
        let (stop, stopped) = channel();
        let (ready, is_ready) = channel();
        let client_cpus = client_cpus.to_vec();
        let sample = move || record(&sampler, (&osd_cpus, &client_cpus), &ready, &stopped);
        let thread = std::thread::Builder::new().name(SAMPLER.into()).spawn(sample);
        let thread = thread.context("cannot start the sampler's thread for --samples")?;
        is_ready.recv().context("the sampler ended before its first reading")?;
        Ok(Recorder { stop, thread })
    }

    /// Ends the window. The rest of the last interval is not a sample.
    ///
    /// # Errors
    /// The sampler panicked.
    pub fn finish(self) -> Result<Samples> {
        // A sampler that ended early is noticed by the join.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the sampler's thread panicked"))
    }
}

/// Pins the calling thread to CPUs that no OSD has, if there are any; returns them.
fn keep_off(osd_cpus: &[usize], client_cpus: &[usize]) -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let mut cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    cpus.retain(|cpu| !osd_cpus.contains(cpu));
    if cpus.iter().any(|cpu| !client_cpus.contains(cpu)) {
        cpus.retain(|cpu| !client_cpus.contains(cpu));
    }
    if restrict_to(&cpus).is_ok() { cpus } else { Vec::new() }
}

/// Counters and sensors at one moment.
#[derive(Clone)]
struct Reading {
    counters: Snapshot,
    sensors: BTreeMap<String, f64>,
}

impl Reading {
    fn now(sampler: &Sampler, hardware: &Hardware) -> Reading {
        Reading { counters: sampler.look(), sensors: hardware.read() }
    }

    fn seconds_since(&self, before: &Reading) -> f64 {
        self.counters.at.duration_since(before.counters.at).as_secs_f64().max(1e-9)
    }

    /// The series' values between two readings.
    fn since(&self, sampler: &Sampler, before: &Reading) -> BTreeMap<String, f64> {
        let seconds = self.seconds_since(before);
        let (now, old) = (&self.counters, &before.counters);
        let osds = now.threads_since(old, sampler.osds.iter().map(|osd| osd.pid));
        let sum = |of: fn(&ThreadWindow) -> u64| osds.iter().map(of).sum::<u64>() as f64 / seconds;
        // A tool is the generator in this process's stead.
        let own = sampler.tool_pids.is_empty().then(std::process::id);
        let generator = now.threads_since(old, sampler.tool_pids.iter().copied().chain(own));
        let generator = generator.iter().filter(|thread| thread.name != SAMPLER);
        let generator_ns: u64 = generator.map(|thread| thread.cpu_ns).sum();
        let memory_bytes: u64 = sampler.osds.iter().map(|osd| now.processes[&osd.pid].rss_bytes).sum();
        let network_bytes = now.network_bytes.saturating_sub(old.network_bytes);
        let mut values = self.sensors.clone();
        // The counter of energy wraps now and then.
        let joules = values.remove(JOULES).zip(before.sensors.get(JOULES)).map(|(now, old)| now - old);
        let watts = joules.filter(|joules| *joules >= 0.0).map(|joules| ("watts", joules / seconds));
        let devices = now.devices_since(old);
        let device = |of: fn(&DeviceWindow) -> u64| devices.iter().map(of).sum::<u64>() as f64 / seconds;
        let of_devices = [
            ("device_read_bytes_per_s", device(|d| d.read_bytes)),
            ("device_write_bytes_per_s", device(|d| d.write_bytes)),
            ("device_flushes_per_s", device(|d| d.flushes)),
            ("device_iops", device(|d| d.reads + d.writes)),
        ];
        let of_processes = [
            ("osd_cores", sum(|t| t.cpu_ns) / 1e9),
            ("osd_user_cores", sum(|t| t.user_ns) / 1e9),
            ("osd_system_cores", sum(|t| t.system_ns) / 1e9),
            ("osd_wait_cores", sum(|t| t.wait_ns) / 1e9),
            ("context_switches_per_s", sum(|t| t.switches)),
            ("generator_cores", generator_ns as f64 / 1e9 / seconds),
            ("memory_bytes", memory_bytes as f64),
            ("network_bytes_per_s", network_bytes as f64 / seconds),
        ];
        let of_devices = of_devices.into_iter().filter(|_| !now.devices.is_empty());
        let all = of_processes.into_iter().chain(of_devices).chain(watts);
        values.extend(all.map(|(name, value)| (name.to_owned(), value)));
        values
    }
}

/// Samples until the window ends, on CPUs that neither OSDs nor clients have; notifies `ready` when it begins.
fn record(
    sampler: &Sampler,
    (osd_cpus, client_cpus): (&[usize], &[usize]),
    ready: &Sender<()>,
    stopped: &Receiver<()>,
) -> Samples {
    let cpus = keep_off(osd_cpus, client_cpus);
    let hardware = Hardware::find(&sampler.root, Path::new("/sys"), osd_cpus);
    let mut burst = Burst::new(&sampler.root, sampler.osds.iter().map(|osd| osd.pid).collect());
    let mut samples = Samples { interval_ms: INTERVAL.as_millis() as u64, ..Samples::default() };
    // Programs that read drives are started outside of the window, on these CPUs.
    let drives = smart::drives_of(&sampler.devices);
    let smart_before = smart::read(&drives);
    burst.sample();
    let first = Reading::now(sampler, &hardware);
    let own_before_ns = own_ns();
    // The other end waits for it, or is gone.
    let _ = ready.send(());
    let mut last = first.clone();
    let (mut next_burst, mut next_sample) = (first.counters.at + BURST, first.counters.at + INTERVAL);
    while wait_until(next_burst, stopped) {
        burst.sample();
        // A window that could not be kept is left out, not made up for in a rush.
        next_burst = (next_burst + BURST).max(Instant::now());
        if Instant::now() >= next_sample {
            next_sample += INTERVAL;
            burst.find_threads();
            let now = Reading::now(sampler, &hardware);
            samples.push(now.seconds_since(&first) * 1e3, now.since(sampler, &last));
            push_cpus(&mut samples.cpus, &last.counters.cpus, &now.counters.cpus);
            last = now;
        }
    }
    let end = Reading::now(sampler, &hardware);
    let since = |pid| threads_since(&end.counters.processes[&pid], &first.counters.processes[&pid]);
    let threads =
        sampler.osds.iter().flat_map(|osd| since(osd.pid).into_iter().map(|t| of_thread(osd.id, t)));
    samples.threads = threads.collect();
    samples.cores_used_10ms = burst.cores_used();
    let own_s = own_ns().saturating_sub(own_before_ns) as f64 / 1e9;
    samples.instrument = Instrument { cores: own_s / end.seconds_since(&first), cpus };
    let smart_after = smart::read(&drives);
    samples.nvme = smart::samples(drives, smart_before, smart_after);
    samples
}

/// A thread of an OSD over the whole window.
fn of_thread(osd: u32, thread: ThreadWindow) -> ThreadSamples {
    ThreadSamples {
        osd,
        tid: thread.tid,
        kind: kind(&thread.name).to_owned(),
        name: thread.name,
        user_s: thread.user_ns as f64 / 1e9,
        system_s: thread.system_ns as f64 / 1e9,
        wait_s: thread.wait_ns as f64 / 1e9,
        migrations: thread.migrations,
    }
}

/// By the names that the reactor and RocksDB give their threads: `osd.3-0` is a reactor, `osd.3-alien-0` is not.
fn kind(name: &str) -> &'static str {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match name.rsplit_once('-') {
        _ if name.contains("alien") => "alien",
        _ if name.starts_with("rocksdb:") => "rocksdb",
        // Workers of io_uring are `iou-wrk-TID`.
        Some((osd, shard)) if osd.starts_with("osd.") && number(shard) => "reactor",
        _ => "other",
    }
}

/// Appends one sample for each CPU.
fn push_cpus(series: &mut Vec<CpuSamples>, before: &BTreeMap<u32, Ticks>, now: &BTreeMap<u32, Ticks>) {
    for (cpu, ticks) in now {
        let old = before.get(cpu).unwrap_or(ticks);
        let spent: [u64; 6] = std::array::from_fn(|n| ticks[n].saturating_sub(old[n]));
        let all: u64 = spent.iter().sum();
        let at = series.iter().position(|s| s.cpu == *cpu).unwrap_or_else(|| {
            series.push(CpuSamples { cpu: *cpu, ..CpuSamples::default() });
            series.len() - 1
        });
        let one = &mut series[at];
        let rows =
            [&mut one.user, &mut one.system, &mut one.irq, &mut one.softirq, &mut one.steal, &mut one.idle];
        for (row, ticks) in rows.into_iter().zip(spent) {
            row.push((all > 0).then(|| ticks as f64 / all as f64));
        }
    }
}

/// False once the window has ended.
fn wait_until(deadline: Instant, stopped: &Receiver<()>) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    matches!(stopped.recv_timeout(left), Err(RecvTimeoutError::Timeout))
}

/// CPU time of the calling thread.
fn own_ns() -> u64 {
    let text = text(Path::new("/proc/thread-self/schedstat"));
    text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::proc::ticks;

    #[test]
    fn keeps_off_the_osds() {
        let pinned = |osd_cpus: Vec<usize>, client_cpus: Vec<usize>| {
            std::thread::spawn(move || keep_off(&osd_cpus, &client_cpus)).join().unwrap()
        };
        let all = pinned(vec![], vec![]);
        assert!(pinned(all.clone(), vec![]).is_empty());
        if let [first, rest @ ..] = all.as_slice()
            && !rest.is_empty()
        {
            assert_eq!(pinned(vec![*first], vec![]), rest);
            assert_eq!(pinned(vec![*first], rest.to_vec()), rest);
            assert_eq!(pinned(rest.to_vec(), vec![]), [*first]);
        }
    }

    #[test]
    fn kinds_by_name() {
        for (name, want) in [
            ("osd.0-0", "reactor"),
            ("osd.12-alien-1", "alien"),
            ("rocksdb:low", "rocksdb"),
            ("iou-wrk-77", "other"),
        ] {
            assert_eq!(kind(name), want, "{name}");
        }
    }

    #[test]
    fn parts_of_a_cpu_sum_to_one() {
        let before = ticks("cpu  1 1 1 1\ncpu0 10 0 10 10 0 0 0 0 0 0\nintr 1\n");
        let now = ticks("cpu  1 1 1 1\ncpu0 30 10 30 40 10 3 5 2 0 0\nintr 1\n");
        let mut series = Vec::new();
        push_cpus(&mut series, &before, &now);
        let one = &series[0];
        let all = [&one.user, &one.system, &one.irq, &one.softirq, &one.steal, &one.idle];
        let parts: Vec<f64> = all.iter().map(|row| row[0].unwrap()).collect();
        assert_eq!(parts, [0.3, 0.2, 0.03, 0.05, 0.02, 0.4]);
        push_cpus(&mut series, &now, &now);
        assert_eq!(series[0].user, [Some(0.3), None]);
    }

    /// A `/proc` in which the thread of each process has been on a CPU for this many nanoseconds.
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
        let cores = |tools: Vec<u32>| {
            let sampler = Sampler { root: dir.path().into(), ..Sampler::new(vec![], vec![], vec![]) };
            let sampler = sampler.with_tools(tools);
            let hardware = Hardware::find(dir.path(), dir.path(), &[]);
            let own = std::process::id();
            proc(dir.path(), &[(own, 0), (7_000_001, 0), (7_000_002, 0)]);
            let before = Reading::now(&sampler, &hardware);
            proc(dir.path(), &[(own, 1_000_000_000), (7_000_001, 300_000_000), (7_000_002, 400_000_000)]);
            let mut now = Reading::now(&sampler, &hardware);
            now.counters.at = before.counters.at + Duration::from_secs(1);
            now.since(&sampler, &before)["generator_cores"]
        };
        assert_eq!(cores(vec![7_000_001, 7_000_002]), 0.7, "fio in two processes, without this one");
        assert_eq!(cores(vec![]), 1.0, "our own generator");
    }
}
