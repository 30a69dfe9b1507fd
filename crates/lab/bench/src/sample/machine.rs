//! CPU time of the whole machine from `/proc/stat`. Busy time is what is not idle: idle time is kept to the nanosecond by
//! the kernel's idle loop, user and system time often only by sampling at ticks.

use std::path::Path;

use super::process::TICK_NS;
use crate::failed;
use carmine_testbed::Result;

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
    let mut sum = MachineCounters::default();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        if !rest.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        // cpuN user nice system idle iowait irq softirq steal …
        let fields: Vec<u64> = rest.split_ascii_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
        let at = |n: usize| fields.get(n).copied().unwrap_or(0) * TICK_NS;
        sum.cpus += 1;
        sum.idle_ns += at(3) + at(4);
        sum.steal_ns += at(7);
    }
    if sum.cpus == 0 {
        return Err(failed!("/proc/stat has no lines of CPUs"));
    }
    Ok(sum)
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
}
