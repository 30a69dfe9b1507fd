//! Threads of the OSDs, one by one: time in user and kernel, time ready without a CPU, migrations, context switches.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sample::process::TICK_NS;
use carmine_load::samples::ThreadSamples;

/// Counters of a thread since its start. User and system time come in ticks of 10 ms; the time on a CPU is exact.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::sample) struct ThreadCounters {
    pub(in crate::sample) name: String,
    pub(in crate::sample) user_ns: u64,
    pub(in crate::sample) system_ns: u64,
    pub(in crate::sample) cpu_ns: u64,
    pub(in crate::sample) wait_ns: u64,
    pub(in crate::sample) switches: u64,
    pub(in crate::sample) migrations: Option<u64>,
}

/// All threads of a process by their ids; those that end while they are looked at are left out.
pub(super) fn read(proc: &Path, pid: u32) -> BTreeMap<u32, ThreadCounters> {
    let Ok(tasks) = std::fs::read_dir(proc.join(pid.to_string()).join("task")) else {
        return BTreeMap::new();
    };
    let tids = tasks.flatten().filter_map(|t| Some((t.file_name().to_str()?.parse().ok()?, t.path())));
    tids.filter_map(|(tid, path)| Some((tid, read_thread(&path)?))).collect()
}

fn read_thread(dir: &Path) -> Option<ThreadCounters> {
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
    let mut thread = parse_stat(&text("stat")?)?;
    let schedstat = text("schedstat").unwrap_or_default();
    let mut numbers = schedstat.split_ascii_whitespace().filter_map(|n| n.parse().ok());
    thread.cpu_ns = numbers.next().unwrap_or(thread.user_ns + thread.system_ns);
    thread.wait_ns = numbers.next().unwrap_or(0);
    let status = text("status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
    thread.switches =
        lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()).sum();
    thread.migrations = migrations(&text("sched").unwrap_or_default());
    Some(thread)
}

/// Name, user and system time of a `stat` line. The name may hold blanks and brackets: it ends at the last `)`.
pub(in crate::sample) fn parse_stat(stat: &str) -> Option<ThreadCounters> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat.get(close + 1..)?.split_ascii_whitespace().skip(11);
    let mut ns = || Some(fields.next()?.parse::<u64>().ok()? * TICK_NS);
    let (user_ns, system_ns) = (ns()?, ns()?);
    Some(ThreadCounters {
        name: stat.get(open + 1..close)?.to_owned(),
        user_ns,
        system_ns,
        ..ThreadCounters::default()
    })
}

/// `se.nr_migrations` of `/proc/PID/task/TID/sched`, which only kernels with scheduler debugging have.
fn migrations(sched: &str) -> Option<u64> {
    sched.lines().find(|line| line.starts_with("se.nr_migrations"))?.rsplit(':').next()?.trim().parse().ok()
}

impl ThreadCounters {
    /// Time on a CPU since `old`, in user mode and in the kernel: exact in sum, divided as the ticks are (those of the
    /// thread's whole life, if there were none meanwhile).
    fn split(&self, old: &ThreadCounters) -> (u64, u64) {
        let cpu_ns = self.cpu_ns.saturating_sub(old.cpu_ns);
        let mut ticks =
            (self.user_ns.saturating_sub(old.user_ns), self.system_ns.saturating_sub(old.system_ns));
        if ticks == (0, 0) {
            ticks = (self.user_ns, self.system_ns);
        }
        let both = ticks.0 + ticks.1;
        let user = if both == 0 { 1.0 } else { ticks.0 as f64 / both as f64 };
        let user_ns = ((cpu_ns as f64 * user) as u64).min(cpu_ns);
        (user_ns, cpu_ns - user_ns)
    }
}

/// Sums over the threads of all OSDs of what happened between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) cpu_ns: u64,
    pub(super) wait_ns: u64,
    pub(super) switches: u64,
}

impl Spent {
    /// Adds what the threads of a process did; one that is new began at zero.
    pub(super) fn add(
        &mut self,
        before: &BTreeMap<u32, ThreadCounters>,
        now: &BTreeMap<u32, ThreadCounters>,
    ) {
        let none = ThreadCounters::default();
        for (tid, thread) in now {
            let old = before.get(tid).unwrap_or(&none);
            let (user_ns, system_ns) = thread.split(old);
            self.user_ns += user_ns;
            self.system_ns += system_ns;
            self.cpu_ns += thread.cpu_ns.saturating_sub(old.cpu_ns);
            self.wait_ns += thread.wait_ns.saturating_sub(old.wait_ns);
            self.switches += thread.switches.saturating_sub(old.switches);
        }
    }
}

/// The threads of one OSD over the whole window.
pub(super) fn samples(
    osd: u32,
    before: &BTreeMap<u32, ThreadCounters>,
    now: &BTreeMap<u32, ThreadCounters>,
) -> Vec<ThreadSamples> {
    let none = ThreadCounters::default();
    let row = |(tid, thread): (&u32, &ThreadCounters)| {
        let old = before.get(tid).unwrap_or(&none);
        let (user_ns, system_ns) = thread.split(old);
        ThreadSamples {
            osd,
            tid: *tid,
            kind: kind(&thread.name).to_owned(),
            name: thread.name.clone(),
            user_s: user_ns as f64 / 1e9,
            system_s: system_ns as f64 / 1e9,
            wait_s: thread.wait_ns.saturating_sub(old.wait_ns) as f64 / 1e9,
            migrations: thread.migrations.map(|n| n.saturating_sub(old.migrations.unwrap_or(0))),
        }
    };
    now.iter().map(row).collect()
}

/// By the names that the reactor and RocksDB give their threads: `osd.3-0` is a reactor, `osd.3-alien-0` is not.
fn kind(name: &str) -> &'static str {
    if name.contains("alien") {
        return "alien";
    }
    if name.starts_with("rocksdb:") {
        return "rocksdb";
    }
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match name.rsplit_once('-') {
        // Workers of io_uring are `iou-wrk-TID`.
        Some((osd, shard)) if osd.starts_with("osd.") && number(shard) => "reactor",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_of_a_nasty_name() {
        let stat = "42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        let thread = parse_stat(stat).unwrap();
        assert_eq!((thread.user_ns, thread.system_ns), (2_500_000_000, 500_000_000));
        assert_eq!(thread.name, "a ) b (c");
        assert!(parse_stat("42 (x").is_none() && parse_stat("42 (x) S 1").is_none());
        assert_eq!(migrations("se.nr_migrations                             :        17\n"), Some(17));
        assert_eq!(migrations(""), None);
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
    fn ticks_divide_what_the_scheduler_counted() {
        let thread =
            |cpu_ns, user_ns, system_ns| ThreadCounters { cpu_ns, user_ns, system_ns, ..Default::default() };
        let old = thread(100, 30 * TICK_NS, 10 * TICK_NS);
        assert_eq!(thread(1_100, 31 * TICK_NS, 13 * TICK_NS).split(&old), (250, 750));
        assert_eq!(thread(500, 30 * TICK_NS, 10 * TICK_NS).split(&old), (300, 100));
        assert_eq!(thread(7, 0, 0).split(&ThreadCounters::default()), (7, 0));
    }

    #[test]
    fn new_threads_count_from_zero() {
        let thread =
            |cpu_ns| ThreadCounters { name: "osd.0-0".into(), cpu_ns, user_ns: cpu_ns, ..Default::default() };
        let before = [(1, thread(100))].into();
        let now = [(1, thread(150)), (2, thread(7))].into();
        let mut spent = Spent::default();
        spent.add(&before, &now);
        assert_eq!(spent.cpu_ns, 57);
        let rows = samples(3, &before, &now);
        assert_eq!((rows[1].osd, rows[1].user_s, rows[1].kind.as_str()), (3, 7e-9, "reactor"));
    }
}
