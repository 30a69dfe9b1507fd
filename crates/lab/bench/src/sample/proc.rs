//! Counters of the kernel as `/proc` has them: of threads, processes, CPUs, block devices and network interfaces.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_load::window::{DeviceWindow, ProcessWindow, ThreadWindow};
use carmine_testbed::confine::throttled_ns;

/// Linux shows ticks of 1/100 s on every architecture that matters here, whatever the kernel's own HZ.
pub(super) const TICK_NS: u64 = 10_000_000;
/// The tick count may exceed the threads' sum by this much through rounding alone; if it exceeds it by more, threads have ended.
const ROUNDING_NS: u64 = 3 * TICK_NS;
/// The kernel counts sectors of this size, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;
const MS_NS: u64 = 1_000_000;

/// A file's text; empty if it cannot be read.
pub(super) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number that follows `name` at the beginning of a line.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split([' ', '\t', ':']).find(|word| !word.is_empty())?.parse().ok()
}

/// Counters of a thread since its start; `None` if it has ended.
fn thread(folder: &Path) -> Option<ThreadWindow> {
    let file = |name: &str| text(&folder.join(name));
    let (schedstat, status) = (file("schedstat"), file("status"));
    let mut ns = schedstat.split_ascii_whitespace().filter_map(|n| n.parse().ok());
    let by_ticks = parse_stat(&file("stat"))?;
    Some(ThreadWindow {
        tid: folder.file_name()?.to_str()?.parse().ok()?,
        cpu_ns: ns.next().unwrap_or(by_ticks.cpu_ns),
        wait_ns: ns.next().unwrap_or(0),
        switches: ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
            .iter()
            .filter_map(|name| field(&status, name))
            .sum(),
        migrations: field(&file("sched"), "se.nr_migrations"),
        ..by_ticks
    })
}

/// Name and CPU time of a `stat` line. The name may hold blanks and brackets: it ends at the last `)`.
fn parse_stat(stat: &str) -> Option<ThreadWindow> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat.get(close + 1..)?.split_ascii_whitespace().skip(11);
    let mut ns = || Some(fields.next()?.parse::<u64>().ok()? * TICK_NS);
    let (name, user_ns, system_ns) = (stat.get(open + 1..close)?.to_owned(), ns()?, ns()?);
    Some(ThreadWindow { name, cpu_ns: user_ns + system_ns, user_ns, system_ns, ..ThreadWindow::default() })
}

/// The growth of a thread's counters. Time in user mode and in the kernel is exact in sum, and divided as the ticks are (those
/// of the thread's whole life, if there were none meanwhile).
fn thread_since(now: &ThreadWindow, old: &ThreadWindow) -> ThreadWindow {
    let less = |of: fn(&ThreadWindow) -> u64| of(now).saturating_sub(of(old));
    let cpu_ns = less(|t| t.cpu_ns);
    let mut ticks = (less(|t| t.user_ns), less(|t| t.system_ns));
    if ticks == (0, 0) {
        ticks = (now.user_ns, now.system_ns);
    }
    let both = ticks.0 + ticks.1;
    let user = if both == 0 { 1.0 } else { ticks.0 as f64 / both as f64 };
    let user_ns = ((cpu_ns as f64 * user) as u64).min(cpu_ns);
    ThreadWindow {
        cpu_ns,
        user_ns,
        system_ns: cpu_ns - user_ns,
        wait_ns: less(|t| t.wait_ns),
        switches: less(|t| t.switches),
        migrations: now.migrations.map(|n| n.saturating_sub(old.migrations.unwrap_or(0))),
        ..now.clone()
    }
}

/// Counters of a process since its start.
pub(super) fn process(root: &Path, pid: u32) -> ProcessWindow {
    let folder = root.join(pid.to_string());
    let file = |name: &str| text(&folder.join(name));
    // A process of another user has no figures of drives.
    let io = file("io");
    let tasks = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    ProcessWindow {
        pid,
        cpu_ns: parse_stat(&file("stat")).map_or(0, |all| all.cpu_ns),
        // A thread may end while it is looked at.
        threads: tasks.filter_map(|task| thread(&task.path())).collect(),
        rss_bytes: field(&file("status"), "VmRSS").unwrap_or(0) * 1024,
        device_read_bytes: field(&io, "read_bytes").unwrap_or(0),
        device_write_bytes: field(&io, "write_bytes").unwrap_or(0),
        throttled_ns: throttled_ns(pid),
    }
}

/// The work of a process's threads; a new thread began at zero, even if it has an old one's number.
pub(super) fn threads_since(now: &ProcessWindow, old: &ProcessWindow) -> Vec<ThreadWindow> {
    let since = |now: &ThreadWindow| {
        let old = old.threads.iter().find(|old| old.tid == now.tid && old.cpu_ns <= now.cpu_ns);
        thread_since(now, old.unwrap_or(&ThreadWindow::default()))
    };
    now.threads.iter().map(since).collect()
}

/// The work of a process.
pub(super) fn process_since(now: &ProcessWindow, old: &ProcessWindow) -> ProcessWindow {
    let threads = threads_since(now, old);
    let by_threads: u64 = threads.iter().map(|t| t.cpu_ns).sum();
    let less = |of: fn(&ProcessWindow) -> u64| of(now).saturating_sub(of(old));
    let by_ticks = less(|p| p.cpu_ns);
    ProcessWindow {
        pid: now.pid,
        cpu_ns: if by_ticks > by_threads + ROUNDING_NS { by_ticks } else { by_threads },
        threads,
        rss_bytes: now.rss_bytes,
        device_read_bytes: less(|p| p.device_read_bytes),
        device_write_bytes: less(|p| p.device_write_bytes),
        throttled_ns: now.throttled_ns.map(|ns| ns.saturating_sub(old.throttled_ns.unwrap_or(0))),
    }
}

/// Ticks of one CPU since boot: user (with nice), system, irq, softirq, steal, idle (with iowait).
pub(crate) type Ticks = [u64; 6];
/// Places in [`Ticks`].
pub(super) const STEAL: usize = 4;
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
pub(super) type Device = [u64; 7];
/// Where they stand in a line of `diskstats`, and their units. Linux before 5.5 does not count flushes.
const DEVICE_FIELDS: [(usize, u64); 7] =
    [(3, 1), (7, 1), (5, SECTOR_BYTES), (9, SECTOR_BYTES), (12, MS_NS), (13, MS_NS), (18, 1)];

/// The devices of `diskstats` by their names.
pub(super) fn devices(diskstats: &str) -> BTreeMap<String, Device> {
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
pub(super) fn device_window(name: &str, old: &Device, now: &Device) -> DeviceWindow {
    let [reads, writes, read_bytes, write_bytes, busy_ns, weighted_ns, flushes] =
        std::array::from_fn(|n| now[n].saturating_sub(old[n]));
    let name = name.to_owned();
    DeviceWindow { name, reads, writes, read_bytes, write_bytes, busy_ns, weighted_ns, flushes }
}

/// Bytes that all interfaces carried, by `net/dev`. Bytes on loopback are counted once, though they are sent and received.
pub(super) fn network_bytes(dev: &str) -> u64 {
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

    fn process_of(cpu_ns: u64, threads: &[(u32, u64)]) -> ProcessWindow {
        let thread = |(tid, cpu_ns): &(u32, u64)| ThreadWindow {
            tid: *tid,
            cpu_ns: *cpu_ns,
            user_ns: *cpu_ns,
            ..ThreadWindow::default()
        };
        ProcessWindow { cpu_ns, threads: threads.iter().map(thread).collect(), ..ProcessWindow::default() }
    }

    #[test]
    fn ended_threads_are_counted_by_ticks() {
        let before = process_of(10 * TICK_NS, &[(1, 1_000), (2, 7_000)]);
        let mut after = process_of(100 * TICK_NS, &[(1, 900_001_000), (3, 4_000)]);
        assert_eq!(process_since(&after, &before).cpu_ns, 900_004_000);
        after.cpu_ns = 200 * TICK_NS;
        assert_eq!(process_since(&after, &before).cpu_ns, 190 * TICK_NS);
    }

    #[test]
    fn a_stat_line_of_a_nasty_name() {
        let stat = "42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        let thread = parse_stat(stat).unwrap();
        assert_eq!((thread.user_ns, thread.system_ns), (2_500_000_000, 500_000_000));
        assert_eq!(thread.name, "a ) b (c");
        assert!(parse_stat("42 (x").is_none() && parse_stat("42 (x) S 1").is_none());
        let migrations = |sched| field(sched, "se.nr_migrations");
        assert_eq!(migrations("se.nr_migrations                             :        17\n"), Some(17));
        assert_eq!(migrations(""), None);
    }

    #[test]
    fn ticks_divide_what_the_scheduler_counted() {
        let thread = |cpu_ns, user_ns, system_ns| ThreadWindow {
            cpu_ns,
            user_ns,
            system_ns,
            ..ThreadWindow::default()
        };
        let split = |now: ThreadWindow, old: &ThreadWindow| {
            let since = thread_since(&now, old);
            (since.user_ns, since.system_ns)
        };
        let old = thread(100, 30 * TICK_NS, 10 * TICK_NS);
        assert_eq!(split(thread(1_100, 31 * TICK_NS, 13 * TICK_NS), &old), (250, 750));
        assert_eq!(split(thread(500, 30 * TICK_NS, 10 * TICK_NS), &old), (300, 100));
        assert_eq!(split(thread(7, 0, 0), &ThreadWindow::default()), (7, 0));
    }

    #[test]
    fn new_threads_count_from_zero() {
        let (now, old) = (process_of(0, &[(1, 150), (2, 7), (3, 5)]), process_of(0, &[(1, 100), (3, 90)]));
        let since: Vec<_> = threads_since(&now, &old).iter().map(|t| (t.tid, t.user_ns)).collect();
        assert_eq!(since, [(1, 50), (2, 7), (3, 5)]);
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
