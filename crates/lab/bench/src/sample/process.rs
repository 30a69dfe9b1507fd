//! CPU time of a process by its threads: `/proc/PID/task/*/schedstat` has nanoseconds, `/proc/PID/stat` has ticks of
//! 10 ms but also counts threads that ended.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_load::window::{ProcessWindow, ThreadWindow};

use super::read as read_file;
use super::series::threads::{ThreadCounters, parse_stat};
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
    threads: BTreeMap<u32, ThreadCounters>,
    ticks_ns: u64,
    rss_bytes: u64,
    read_bytes: u64,
    write_bytes: u64,
    throttled_ns: Option<u64>,
}

pub(super) fn read(root: &Path, pid: u32) -> Result<ProcessCounters> {
    let dir = root.join(pid.to_string());
    let stat = read_file(&dir.join("stat"))?;
    let all = parse_stat(&stat).ok_or_else(|| failed!("{}/stat has an unknown form", dir.display()))?;
    let mut counters =
        ProcessCounters { ticks_ns: all.user_ns + all.system_ns, ..ProcessCounters::default() };
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

fn read_thread(dir: &Path) -> Option<ThreadCounters> {
    let schedstat = read_file(&dir.join("schedstat")).ok()?;
    let mut numbers = schedstat.split_ascii_whitespace().map(|n| n.parse::<u64>().ok());
    let name = read_file(&dir.join("comm")).unwrap_or_default().trim().to_owned();
    let (cpu_ns, wait_ns) = (numbers.next()??, numbers.next()??);
    Some(ThreadCounters { name, cpu_ns, wait_ns, ..ThreadCounters::default() })
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
    fn ended_threads_are_counted_by_ticks() {
        let thread = |cpu_ns| ThreadCounters { name: "t".into(), cpu_ns, ..ThreadCounters::default() };
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
