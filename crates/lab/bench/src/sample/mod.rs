//! The kernel's accounting, read at both ends of a window: CPU time of processes and threads, of the whole machine, and
//! of block devices. Nothing here asks the measured processes: what they say of themselves is in [`OsdDump`].

mod dump;
mod hardware;
pub mod series;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use carmine_load::window::{DeviceWindow, MachineWindow, OsdWindow, ProcessWindow, ThreadWindow, Window};
use carmine_testbed::confine::throttled_ns;
use carmine_testbed::drive::part_at;
use serde_json::{Value, json};

pub(crate) use dump::{OsdDump, QUESTIONS, add_dumps, difference, percentile};
pub use hardware::Counters;

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
    processes: BTreeMap<u32, Process>,
    cpus: BTreeMap<u32, Ticks>,
    devices: BTreeMap<String, Device>,
    network_bytes: u64,
}

impl Sampler {
    /// `devices` are names as in `/proc/diskstats` (see [`device_of`]).
    pub fn new(osds: Vec<WatchedOsd>, mon_pid: Option<u32>, devices: Vec<String>) -> Sampler {
        Sampler { root: PathBuf::from("/proc"), osds, mon_pid, tool_pids: Vec::new(), devices }
    }

    /// The same, with the processes of a generator.
    pub(crate) fn with_tools(&self, tool_pids: Vec<u32>) -> Sampler {
        Sampler { tool_pids, ..self.clone() }
    }

    /// Reads everything, in the same order at both ends of a window: what the order costs (microseconds) cancels out.
    ///
    /// # Errors
    /// When an OSD or the generator is gone: its window would be wrong.
    pub fn sample(&self) -> Result<Snapshot> {
        let snapshot = self.look();
        let osds = self.osds.iter().map(|osd| (format!("osd.{}", osd.id), osd.pid));
        let tools = self.tool_pids.iter().map(|pid| ("the generator".to_owned(), *pid));
        for (name, pid) in osds.chain(tools) {
            ensure!(!snapshot.processes[&pid].threads.is_empty(), "{name} is gone (pid {pid})");
        }
        ensure!(!snapshot.cpus.is_empty(), "/proc/stat has no lines of CPUs");
        Ok(snapshot)
    }

    /// Reads everything. The monitor is not needed for a load; without it there is nothing to subtract.
    fn look(&self) -> Snapshot {
        let at = Instant::now();
        let file = |name: &str| text(&self.root.join(name));
        let cpus = ticks(&file("stat"));
        let mut devices = devices(&file("diskstats"));
        devices.retain(|name, _| self.devices.contains(name));
        let pids = self.osds.iter().map(|osd| osd.pid).chain(self.mon_pid).chain([std::process::id()]);
        let pids = pids.chain(self.tool_pids.iter().copied());
        let processes = pids.map(|pid| (pid, Process::read(&self.root, pid))).collect();
        Snapshot { at, processes, cpus, devices, network_bytes: network_bytes(&file("net/dev")) }
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
                mon_ns: self.mon_pid.map_or(0, |pid| end.process_since(start, pid).cpu_ns),
            },
            devices: end.devices_since(start),
            ..Window::default()
        }
    }

    /// The processes of a generator that is another program.
    pub(crate) fn tools(&self, start: &Snapshot, end: &Snapshot) -> Vec<ProcessWindow> {
        self.tool_pids.iter().map(|pid| end.process_since(start, *pid)).collect()
    }

    /// Cores that were busy between two readings with anything but the watched processes and this one: what the machine
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
        self.processes[&pid].window(pid, &start.processes[&pid])
    }

    /// The work of all threads of these processes.
    fn threads_since(&self, start: &Snapshot, pids: impl Iterator<Item = u32>) -> Vec<Thread> {
        pids.flat_map(|pid| self.processes[&pid].threads_since(&start.processes[&pid]).into_values())
            .collect()
    }

    fn devices_since(&self, start: &Snapshot) -> Vec<DeviceWindow> {
        let both = self.devices.iter().filter_map(|(name, now)| Some((name, start.devices.get(name)?, now)));
        both.map(|(name, old, now)| device_window(name, old, now)).collect()
    }
}

/// Name of the block device under a path, or of the device that the path is; `None` for tmpfs, overlays and the like.
pub fn device_of(path: &Path) -> Option<String> {
    part_at(path).drive.node
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
        "memory_bytes": field(&file("/proc/meminfo"), "MemTotal").map(|kib| kib * 1024),
        "carmine": env!("CARGO_PKG_VERSION"),
    })
}

// Counters of the kernel as `/proc` has them: of threads, processes, CPUs, block devices and network interfaces.

/// Linux shows ticks of 1/100 s on every architecture that matters here, whatever the kernel's own HZ.
const TICK_NS: u64 = 10_000_000;
/// By this much the tick count may exceed the threads' sum for rounding alone; beyond it threads have ended.
const ROUNDING_NS: u64 = 3 * TICK_NS;
/// The kernel counts sectors of this size, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;
const MS_NS: u64 = 1_000_000;

/// A file's text; empty if it cannot be read.
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number that follows `name` at the begin of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split([' ', '\t', ':']).find(|word| !word.is_empty())?.parse().ok()
}

/// Counters of a thread since its start. User and system time come in ticks of 10 ms; the time on a CPU is exact.
#[derive(Clone, Debug, Default, PartialEq)]
struct Thread {
    name: String,
    user_ns: u64,
    system_ns: u64,
    cpu_ns: u64,
    /// Time that it was ready but had no CPU.
    wait_ns: u64,
    switches: u64,
    /// `None` where the kernel does not tell: only one with scheduler debugging does.
    migrations: Option<u64>,
}

/// Threads by their ids.
type Threads = BTreeMap<u32, Thread>;

impl Thread {
    fn read(folder: &Path) -> Option<Thread> {
        let file = |name: &str| text(&folder.join(name));
        let (schedstat, status) = (file("schedstat"), file("status"));
        let mut ns = schedstat.split_ascii_whitespace().filter_map(|n| n.parse().ok());
        let thread = Thread::parse(&file("stat"))?;
        Some(Thread {
            cpu_ns: ns.next().unwrap_or(thread.user_ns + thread.system_ns),
            wait_ns: ns.next().unwrap_or(0),
            switches: ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
                .iter()
                .filter_map(|name| field(&status, name))
                .sum(),
            migrations: field(&file("sched"), "se.nr_migrations"),
            ..thread
        })
    }

    /// Name, user and system time of a `stat` line. The name may hold blanks and brackets: it ends at the last `)`.
    fn parse(stat: &str) -> Option<Thread> {
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let mut fields = stat.get(close + 1..)?.split_ascii_whitespace().skip(11);
        let mut ns = || Some(fields.next()?.parse::<u64>().ok()? * TICK_NS);
        let (user_ns, system_ns) = (ns()?, ns()?);
        Some(Thread { name: stat.get(open + 1..close)?.to_owned(), user_ns, system_ns, ..Thread::default() })
    }

    /// The counters' growth since `old`. Time in user mode and in the kernel is exact in sum, and divided as the ticks are (those
    /// of the thread's whole life, if there were none meanwhile).
    fn since(&self, old: &Thread) -> Thread {
        let less = |of: fn(&Thread) -> u64| of(self).saturating_sub(of(old));
        let cpu_ns = less(|t| t.cpu_ns);
        let mut ticks = (less(|t| t.user_ns), less(|t| t.system_ns));
        if ticks == (0, 0) {
            ticks = (self.user_ns, self.system_ns);
        }
        let both = ticks.0 + ticks.1;
        let user = if both == 0 { 1.0 } else { ticks.0 as f64 / both as f64 };
        let user_ns = ((cpu_ns as f64 * user) as u64).min(cpu_ns);
        Thread {
            name: self.name.clone(),
            user_ns,
            system_ns: cpu_ns - user_ns,
            cpu_ns,
            wait_ns: less(|t| t.wait_ns),
            switches: less(|t| t.switches),
            migrations: self.migrations.map(|n| n.saturating_sub(old.migrations.unwrap_or(0))),
        }
    }
}

/// Counters of a process since its start.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Empty if there is no such process.
    threads: Threads,
    /// CPU time in ticks; that of threads which have ended is in it.
    ticks_ns: u64,
    rss_bytes: u64,
    read_bytes: u64,
    write_bytes: u64,
    throttled_ns: Option<u64>,
}

impl Process {
    fn read(root: &Path, pid: u32) -> Process {
        let folder = root.join(pid.to_string());
        let file = |name: &str| text(&folder.join(name));
        let all = Thread::parse(&file("stat")).unwrap_or_default();
        // A process of another user has no figures of drives.
        let io = file("io");
        let tasks = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
        // A thread may end while it is looked at.
        let thread = |task: std::fs::DirEntry| {
            Some((task.file_name().to_str()?.parse().ok()?, Thread::read(&task.path())?))
        };
        Process {
            threads: tasks.filter_map(thread).collect(),
            ticks_ns: all.user_ns + all.system_ns,
            rss_bytes: field(&file("status"), "VmRSS").unwrap_or(0) * 1024,
            read_bytes: field(&io, "read_bytes").unwrap_or(0),
            write_bytes: field(&io, "write_bytes").unwrap_or(0),
            throttled_ns: throttled_ns(pid),
        }
    }

    /// The work of its threads since `old`; one that is new began at zero, also where it has an old one's number.
    fn threads_since(&self, old: &Process) -> Threads {
        let since = |(tid, now): (&u32, &Thread)| {
            let old = old.threads.get(tid).filter(|old| old.cpu_ns <= now.cpu_ns);
            (*tid, now.since(old.unwrap_or(&Thread::default())))
        };
        self.threads.iter().map(since).collect()
    }

    fn window(&self, pid: u32, old: &Process) -> ProcessWindow {
        let threads: Vec<ThreadWindow> = self
            .threads_since(old)
            .into_iter()
            .map(|(tid, t)| ThreadWindow { tid, name: t.name, cpu_ns: t.cpu_ns, wait_ns: t.wait_ns })
            .collect();
        let by_threads: u64 = threads.iter().map(|t| t.cpu_ns).sum();
        let less = |of: fn(&Process) -> u64| of(self).saturating_sub(of(old));
        let by_ticks = less(|p| p.ticks_ns);
        ProcessWindow {
            pid,
            cpu_ns: if by_ticks > by_threads + ROUNDING_NS { by_ticks } else { by_threads },
            threads,
            rss_bytes: self.rss_bytes,
            device_read_bytes: less(|p| p.read_bytes),
            device_write_bytes: less(|p| p.write_bytes),
            throttled_ns: self.throttled_ns.map(|now| now.saturating_sub(old.throttled_ns.unwrap_or(0))),
        }
    }
}

/// Ticks of one CPU since boot: user (with nice), system, irq, softirq, steal, idle (with iowait).
pub(crate) type Ticks = [u64; 6];
/// Places in [`Ticks`].
const STEAL: usize = 4;
pub(crate) const IDLE: usize = 5;

/// Ticks of every CPU by `/proc/stat`. Idle time is kept to the nanosecond by the kernel's idle loop, user and system time often
/// only by sampling at ticks.
pub(crate) fn ticks(stat: &str) -> BTreeMap<u32, Ticks> {
    let of_line = |line: &str| {
        let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
        let at: Vec<u64> = fields.split_ascii_whitespace().map_while(|f| f.parse().ok()).collect();
        let at = |n: usize| at.get(n).copied().unwrap_or(0);
        // user nice system idle iowait irq softirq steal; guest time is in user already. The line `cpu` is the sum of all.
        Some((cpu.parse().ok()?, [at(0) + at(1), at(2), at(5), at(6), at(7), at(3) + at(4)]))
    };
    stat.lines().filter_map(of_line).collect()
}

/// Counters of a block device since boot: reads, writes, bytes read, bytes written, time with requests, the same weighted with
/// their number, flushes.
type Device = [u64; 7];
/// Where they stand in a line of `diskstats`, and their units. Linux before 5.5 does not count flushes.
const DEVICE_FIELDS: [(usize, u64); 7] =
    [(3, 1), (7, 1), (5, SECTOR_BYTES), (9, SECTOR_BYTES), (12, MS_NS), (13, MS_NS), (18, 1)];

/// The devices of `diskstats` by their names.
fn devices(diskstats: &str) -> BTreeMap<String, Device> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        number(13)?;
        let counters = DEVICE_FIELDS.map(|(at, unit)| number(at).unwrap_or(0) * unit);
        Some(((*fields.get(2)?).to_owned(), counters))
    };
    diskstats.lines().filter_map(of_line).collect()
}

/// A device's work between two readings.
fn device_window(name: &str, old: &Device, now: &Device) -> DeviceWindow {
    let [reads, writes, read_bytes, write_bytes, busy_ns, weighted_ns, flushes] =
        std::array::from_fn(|n| now[n].saturating_sub(old[n]));
    let name = name.to_owned();
    DeviceWindow { name, reads, writes, read_bytes, write_bytes, busy_ns, weighted_ns, flushes }
}

/// Bytes that all interfaces carried, by `net/dev`. Bytes on loopback are counted once, though they are sent and received.
fn network_bytes(dev: &str) -> u64 {
    let of_line = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
        let sent = if name.trim() == "lo" { 0 } else { *counters.get(8)? };
        Some(counters.first()? + sent)
    };
    dev.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};
    use std::time::Duration;

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

    #[test]
    fn busy_is_what_is_not_idle() {
        let dir = tempfile::tempdir().unwrap();
        let sampler = Sampler { root: dir.path().to_owned(), ..Sampler::new(vec![], None, vec![]) };
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

#[cfg(test)]
mod proc_tests {
    use super::*;

    #[test]
    fn ended_threads_are_counted_by_ticks() {
        let thread = |cpu_ns| Thread { name: "t".into(), cpu_ns, ..Thread::default() };
        let before = Process {
            threads: [(1, thread(1_000)), (2, thread(7_000))].into(),
            ticks_ns: 10 * TICK_NS,
            ..Process::default()
        };
        let mut after = Process {
            threads: [(1, thread(900_001_000)), (3, thread(4_000))].into(),
            ticks_ns: 100 * TICK_NS,
            ..Process::default()
        };
        assert_eq!(after.window(9, &before).cpu_ns, 900_004_000);
        after.ticks_ns = 200 * TICK_NS;
        assert_eq!(after.window(9, &before).cpu_ns, 190 * TICK_NS);
    }

    #[test]
    fn a_stat_line_of_a_nasty_name() {
        let stat = "42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        let thread = Thread::parse(stat).unwrap();
        assert_eq!((thread.user_ns, thread.system_ns), (2_500_000_000, 500_000_000));
        assert_eq!(thread.name, "a ) b (c");
        assert!(Thread::parse("42 (x").is_none() && Thread::parse("42 (x) S 1").is_none());
        let migrations = |sched| field(sched, "se.nr_migrations");
        assert_eq!(migrations("se.nr_migrations                             :        17\n"), Some(17));
        assert_eq!(migrations(""), None);
    }

    #[test]
    fn ticks_divide_what_the_scheduler_counted() {
        let thread = |cpu_ns, user_ns, system_ns| Thread { cpu_ns, user_ns, system_ns, ..Thread::default() };
        let split = |now: Thread, old: &Thread| {
            let since = now.since(old);
            (since.user_ns, since.system_ns)
        };
        let old = thread(100, 30 * TICK_NS, 10 * TICK_NS);
        assert_eq!(split(thread(1_100, 31 * TICK_NS, 13 * TICK_NS), &old), (250, 750));
        assert_eq!(split(thread(500, 30 * TICK_NS, 10 * TICK_NS), &old), (300, 100));
        assert_eq!(split(thread(7, 0, 0), &Thread::default()), (7, 0));
    }

    #[test]
    fn new_threads_count_from_zero() {
        let thread = |cpu_ns| Thread { cpu_ns, user_ns: cpu_ns, ..Thread::default() };
        let process = |threads: &[(u32, u64)]| Process {
            threads: threads.iter().map(|(tid, ns)| (*tid, thread(*ns))).collect(),
            ..Process::default()
        };
        let since = process(&[(1, 150), (2, 7), (3, 5)]).threads_since(&process(&[(1, 100), (3, 90)]));
        assert_eq!([1, 2, 3].map(|tid| since[&tid].user_ns), [50, 7, 5]);
    }

    #[test]
    fn devices_of_old_and_new_kernels() {
        let new = " 254       0 vda 186405 12773 8391962 294788 24602 41542 9518872 21337 3 14584 317595 10053 45 4500768 1405 1700 63";
        assert_eq!(devices(new)["vda"][6], 1700);
        let counters = devices(" 8 1 sda1 10 0 80 5 20 0 160 9 0 7 14")["sda1"];
        assert_eq!(counters, [10, 20, 40_960, 81_920, 7_000_000, 14_000_000, 0]);
        let window = device_window("sda1", &Device::default(), &counters);
        assert_eq!((window.reads, window.write_bytes, window.weighted_ns), (10, 81_920, 14_000_000));
        assert_eq!(device_window("sda1", &counters, &counters).busy_ns, 0);
        assert!(devices("8 1 sda1 10").is_empty());
    }

    #[test]
    fn loopback_is_counted_once() {
        let dev = "Inter-| Receive | Transmit\n face |bytes\n    lo: 100 1 0 0 0 0 0 0 100 1 0 0\n  eth0: 7 1 0 0 0 0 0 0 5 1 0 0\n";
        assert_eq!(network_bytes(dev), 112);
    }
}
