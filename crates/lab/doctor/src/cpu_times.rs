//! CPU time of the machine and of its processes at one moment. The doctor compares two such moments; its caller reads them,
//! because only the caller may wait between them.

use std::collections::BTreeMap;
use std::path::Path;

/// The kernel's counts since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// CPUs that are online.
    pub(crate) cpus: usize,
    /// Ticks in which the CPUs worked.
    pub(crate) busy: u64,
    /// All ticks of all CPUs.
    pub(crate) total: u64,
    /// Command and ticks of each process that can be seen.
    pub(crate) processes: BTreeMap<u32, (String, u64)>,
}

impl CpuTimes {
    /// Reads `/proc` below `root`; `None` if it does not show the CPUs' time.
    pub fn read(root: &Path) -> Option<CpuTimes> {
        let proc = root.join("proc");
        let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
        let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; guest time is counted in user already.
        let ticks: Vec<u64> = all.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let is_cpu = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
        let entries = std::fs::read_dir(&proc).into_iter().flatten().flatten();
        let processes = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, process(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?))
        });
        Some(CpuTimes {
            cpus: stat.lines().filter(is_cpu).count(),
            busy: [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum(),
            total: ticks.iter().sum(),
            processes: processes.collect(),
        })
    }
}

/// Command and ticks in `PID (COMMAND) STATE …`; the command may have spaces and brackets.
fn process(stat: &str) -> Option<(String, u64)> {
    let (begin, rest) = stat.rsplit_once(')')?;
    let (_, command) = begin.split_once('(')?;
    // The state is the first word; user and system time are the twelfth and the thirteenth.
    let mut times = rest.split_whitespace().skip(11).map_while(|word| word.parse::<u64>().ok());
    Some((command.to_owned(), times.next()? + times.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let now = CpuTimes::read(Path::new("/")).unwrap();
        assert!(now.cpus > 0 && now.total > now.busy && now.busy > 0);
        assert!(now.processes.contains_key(&std::process::id()), "its own process");
    }

    #[test]
    fn commands_may_have_brackets() {
        let stat = "7 (a) (b) S 1 7 7 0 -1 64 1 2 3 4 30 12 5 6 20 0 1 0 99 1 2";
        assert_eq!(process(stat), Some(("a) (b".to_owned(), 42)));
        assert_eq!((process(""), process("7 (a) S 1 2")), (None, None));
    }
}
