//! CPU time of a process by its threads: `/proc/PID/task/*/schedstat` has nanoseconds, `/proc/PID/stat` has ticks of
//! 10 ms but also counts threads that ended.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_load::window::{ProcessWindow, ThreadWindow};

use super::read as read_file;
use crate::failed;
use carmine_testbed::confine::throttled_ns;
use carmine_testbed::{Result, TestbedError};

/// Linux shows ticks of 1/100 s on every architecture that matters here, whatever the kernel's own HZ.
pub(super) const TICK_NS: u64 = 10_000_000;
/// By this much the tick count may exceed the threads' sum for rounding alone; beyond it threads have ended.
const ROUNDING_NS: u64 = 3 * TICK_NS;

/// Counters of a process since its start.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessCounters {
    threads: BTreeMap<u32, Thread>,
    ticks_ns: u64,
    rss_bytes: u64,
    read_bytes: u64,
    write_bytes: u64,
    throttled_ns: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    name: String,
    cpu_ns: u64,
    wait_ns: u64,
}

pub(super) fn read(root: &Path, pid: u32) -> Result<ProcessCounters> {
    let dir = root.join(pid.to_string());
    let stat = read_file(&dir.join("stat"))?;
    let ticks_ns = parse_stat(&stat).ok_or_else(|| failed!("{}/stat has an unknown form", dir.display()))?;
    let mut counters = ProcessCounters { ticks_ns, ..ProcessCounters::default() };
    let task_dir = dir.join("task");
    let tasks = std::fs::read_dir(&task_dir).map_err(TestbedError::io("list", &task_dir))?;
    for task in tasks.flatten() {
        let tid = task.file_name().to_string_lossy().parse::<u32>().ok();
        // A thread may end while it is looked at.
        let Some((tid, thread)) = tid.and_then(|tid| read_thread(&task.path()).map(|t| (tid, t))) else {
            continue;
        };
        counters.threads.insert(tid, thread);
    }
    counters.rss_bytes = rss_bytes(root, pid).unwrap_or(0);
    // Needs the same user; a process of another user has no disk figures.
    if let Ok(io) = read_file(&dir.join("io")) {
        counters.read_bytes = field(&io, "read_bytes:").unwrap_or(0);
        counters.write_bytes = field(&io, "write_bytes:").unwrap_or(0);
    }
    counters.throttled_ns = throttled_ns(pid);
    Ok(counters)
}

fn read_thread(dir: &Path) -> Option<Thread> {
    let schedstat = read_file(&dir.join("schedstat")).ok()?;
    let mut numbers = schedstat.split_ascii_whitespace().map(|n| n.parse::<u64>().ok());
    let name = read_file(&dir.join("comm")).unwrap_or_default().trim().to_owned();
    Some(Thread { name, cpu_ns: numbers.next()??, wait_ns: numbers.next()?? })
}

/// User and kernel time of a `stat` line. The command name may hold blanks and brackets: fields count from the last `)`.
fn parse_stat(stat: &str) -> Option<u64> {
    let after = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = after.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some((user + kernel) * TICK_NS)
}

/// Resident memory of a process.
pub(super) fn rss_bytes(root: &Path, pid: u32) -> Option<u64> {
    let status = read_file(&root.join(pid.to_string()).join("status")).ok()?;
    Some(field(&status, "VmRSS:")? * 1024)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

pub(super) fn process_window(pid: u32, before: &ProcessCounters, after: &ProcessCounters) -> ProcessWindow {
    let threads: Vec<ThreadWindow> = after
        .threads
        .iter()
        .map(|(tid, now)| {
            // Thread ids are used again: another name is another thread.
            let old =
                before.threads.get(tid).filter(|old| old.cpu_ns <= now.cpu_ns).cloned().unwrap_or_default();
            ThreadWindow {
                tid: *tid,
                name: now.name.clone(),
                cpu_ns: now.cpu_ns - old.cpu_ns,
                wait_ns: now.wait_ns.saturating_sub(old.wait_ns),
            }
        })
        .collect();
    let by_threads: u64 = threads.iter().map(|t| t.cpu_ns).sum();
    let by_ticks = after.ticks_ns.saturating_sub(before.ticks_ns);
    ProcessWindow {
        pid,
        cpu_ns: if by_ticks > by_threads + ROUNDING_NS { by_ticks } else { by_threads },
        threads,
        rss_bytes: after.rss_bytes,
        device_read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
        device_write_bytes: after.write_bytes.saturating_sub(before.write_bytes),
        throttled_ns: after.throttled_ns.map(|now| now.saturating_sub(before.throttled_ns.unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_nasty_name() {
        let stat = "42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200 18446744073709551615";
        assert_eq!(parse_stat(stat), Some(3_000_000_000));
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat("42 (x) S 1"), None);
    }

    #[test]
    fn ended_threads_are_counted_by_ticks() {
        let thread = |cpu_ns| Thread { name: "t".into(), cpu_ns, wait_ns: 5 };
        let before = ProcessCounters {
            threads: [(1, thread(1_000)), (2, thread(7_000))].into(),
            ticks_ns: 10 * TICK_NS,
            ..ProcessCounters::default()
        };
        let mut after = ProcessCounters {
            threads: [(1, thread(900_001_000)), (3, thread(4_000))].into(),
            ticks_ns: 100 * TICK_NS,
            ..ProcessCounters::default()
        };
        assert_eq!(process_window(9, &before, &after).cpu_ns, 900_004_000);
        after.ticks_ns = 200 * TICK_NS;
        assert_eq!(process_window(9, &before, &after).cpu_ns, 190 * TICK_NS);
    }
}
