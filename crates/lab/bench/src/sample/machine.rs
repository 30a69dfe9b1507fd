//! CPU time of the whole machine from `/proc/stat`. Busy time is what is not idle: idle time is kept to the nanosecond by
//! the kernel's idle loop, user and system time often only by sampling at ticks.

use std::collections::BTreeMap;
use std::path::Path;

use super::process::TICK_NS;
use crate::failed;
use carmine_testbed::Result;
use serde_json::{Value, json};

/// Ticks of one CPU since boot: user (with nice), system, irq, softirq, steal, idle (with iowait).
pub(crate) type Ticks = [u64; 6];
/// Places in [`Ticks`].
const STEAL: usize = 4;
pub(crate) const IDLE: usize = 5;

/// Ticks of every CPU.
pub(crate) fn ticks(stat: &str) -> BTreeMap<u32, Ticks> {
    stat.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(u32, Ticks)> {
    let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
    let at: Vec<u64> = fields.split_ascii_whitespace().map_while(|f| f.parse().ok()).collect();
    let at = |n: usize| at.get(n).copied();
    let or_0 = |n: usize| at(n).unwrap_or(0);
    // user nice system idle iowait irq softirq steal; guest time is in user already. The line `cpu` is the sum of all.
    let parts = [at(0)? + at(1)?, at(2)?, or_0(5), or_0(6), or_0(7), at(3)? + or_0(4)];
    Some((cpu.parse().ok()?, parts))
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineCounters {
    pub(super) cpus: u32,
    idle_ns: u64,
    pub(super) steal_ns: u64,
}

pub(super) fn read(root: &Path) -> Result<MachineCounters> {
    let text = super::read(&root.join("stat"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<MachineCounters> {
    let cpus = ticks(text);
    if cpus.is_empty() {
        return Err(failed!("/proc/stat has no lines of CPUs"));
    }
    let sum = |at: usize| cpus.values().map(|ticks| ticks[at]).sum::<u64>() * TICK_NS;
    Ok(MachineCounters { cpus: cpus.len() as u32, idle_ns: sum(IDLE), steal_ns: sum(STEAL) })
}

impl MachineCounters {
    /// Time that CPUs did something since `before`, `wall_ns` ago.
    pub(super) fn busy_since(&self, before: &MachineCounters, wall_ns: u64) -> u64 {
        let all = wall_ns.saturating_mul(u64::from(self.cpus));
        let idle = self.idle_ns.saturating_sub(before.idle_ns);
        let steal = self.steal_ns.saturating_sub(before.steal_ns);
        all.saturating_sub(idle).saturating_sub(steal)
    }
}

/// Processor, kernel, memory and hypervisor, for results: figures of different machines can't be compared.
pub fn host_report() -> Value {
    let file = |path: &str| super::read(Path::new(path)).unwrap_or_default();
    let cpuinfo = file("/proc/cpuinfo");
    let info = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory_kib = file("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    json!({
        "cpu": info("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        "cpus": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "virtual": info("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "memory_bytes": memory_kib.map(|kib| kib * 1024),
        "carmine": env!("CARGO_PKG_VERSION"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_not_idle() {
        let before =
            parse("cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 5 100 5 0 0 0 0 0\ncpu1 10 0 5 100 5 0 0 0 0 0\nintr 5\n")
                .unwrap();
        let after =
            parse("cpu  9 9 9 9\ncpu0 90 0 5 120 5 0 0 0 0 0\ncpu1 20 0 5 180 5 0 0 10 0 0\n").unwrap();
        // One second of two CPUs, 1.0 s idle, 0.1 s stolen.
        assert_eq!((after.cpus, after.busy_since(&before, 1_000_000_000)), (2, 900_000_000));
        assert!(parse("intr 5\n").is_err());
    }

    #[test]
    fn names_the_machine() {
        let host = host_report();
        assert!(host["cpu"].as_str().is_some_and(|s| !s.is_empty()));
        assert!(host["kernel"].as_str().is_some_and(|s| s.contains('.')), "{host}");
    }
}
