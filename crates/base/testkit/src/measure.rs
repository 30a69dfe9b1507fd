//! Tests whose assertions are about times, rates or shares of a CPU. They hold on a machine with nothing else to do, so only
//! `scripts/test --all` runs them, one at a time. Where one fails while others use the CPUs, its outcome is that the machine is too busy
//! to tell: neither a failure nor a success.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at the machine, its files and clocks"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Names the file that gets a line for each measurement that a busy machine has spoiled.
pub const BUSY_FILE: &str = "CARMINE_BUSY_FILE";
/// A machine is busy if others use more than this part of its CPUs.
const BUSY_PART: f64 = 0.05;
/// How long the machine is watched before and after a measurement.
const WATCH: Duration = Duration::from_millis(500);
/// A clock tick of `/proc`, the same on every machine with Linux.
const TICK: Duration = Duration::from_millis(10);

/// Makes tests of functions that measure, in a module `measures`, by which `scripts/test --all` finds them.
#[macro_export]
macro_rules! measures {
    ($($name:ident),* $(,)?) => {
        mod measures {
            $(
                #[test]
                #[ignore = "measures: scripts/test --all"]
                fn $name() {
                    $crate::measured(concat!(module_path!(), "::", stringify!($name)), super::$name);
                }
            )*
        }
    };
}

/// Runs a test that measures.
///
/// # Panics
/// It fails, and the machine is not busy, or there is no [`BUSY_FILE`] to say so.
pub fn measured(name: &str, body: impl FnOnce()) {
    let others = Others::watch();
    let Err(panic) = catch_unwind(AssertUnwindSafe(body)) else { return };
    let load = others.load();
    if !load.is_busy() {
        resume_unwind(panic);
    }
    let line = format!("{name}: {load}");
    eprintln!("TOO BUSY: {line}");
    let Some(file) = std::env::var_os(BUSY_FILE) else { resume_unwind(panic) };
    let file = fs::OpenOptions::new().create(true).append(true).open(file);
    file.and_then(|mut file| writeln!(file, "{line}")).expect("the file for what is too busy");
}

/// The machine before a measurement.
pub struct Others {
    before: f64,
    begin: Instant,
    cpus: Cpus,
    processes: BTreeMap<Process, u64>,
}

/// Parts of the machine's CPUs that others used. What runs in other containers is seen before and after a measurement only.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    before: f64,
    meanwhile: f64,
    after: f64,
    stolen: f64,
}

impl Load {
    /// True if a measurement that failed says nothing.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.before.max(self.meanwhile).max(self.after).max(self.stolen) > BUSY_PART
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, meanwhile, after, stolen] =
            [self.before, self.meanwhile, self.after, self.stolen].map(|part| part * 100.0);
        write!(
            f,
            "this machine is too busy to tell: others used {before:.0} % of its CPUs before, {meanwhile:.0} % meanwhile, {after:.0} % \
             after, and the hypervisor took {stolen:.0} %"
        )
    }
}

impl Others {
    /// Watches the machine for half a second, in which nothing of the test runs.
    #[must_use]
    pub fn watch() -> Others {
        let before = busy_part();
        Others { before, begin: Instant::now(), cpus: Cpus::now(), processes: other_processes() }
    }

    /// What others did since, and do now that the test has ended.
    #[must_use]
    pub fn load(self) -> Load {
        let now = other_processes();
        let used = |(process, ticks): (&Process, &u64)| Some(now.get(process)?.saturating_sub(*ticks));
        let ticks: u64 = self.processes.iter().filter_map(used).sum();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let time = self.begin.elapsed().as_secs_f64() * cpus;
        let meanwhile = ticks as f64 * TICK.as_secs_f64() / time.max(f64::MIN_POSITIVE);
        let spent = Cpus::now().since(self.cpus);
        let stolen = spent.stolen as f64 / spent.all.max(1) as f64;
        Load { before: self.before, meanwhile, after: busy_part(), stolen }
    }
}

/// Part of the CPUs' time that was not idle, in a moment in which this process sleeps.
fn busy_part() -> f64 {
    let from = Cpus::now();
    std::thread::sleep(WATCH);
    let spent = Cpus::now().since(from);
    1.0 - spent.idle as f64 / spent.all.max(1) as f64
}

/// Ticks of all CPUs, since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cpus {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Cpus {
    fn now() -> Cpus {
        Cpus::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; a guest's time is in the user's.
    fn parse(text: &str) -> Cpus {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        let at = |at: usize| ticks.get(at).copied().unwrap_or_default();
        Cpus { all: ticks.iter().sum(), idle: at(3) + at(4), stolen: at(7) }
    }

    fn since(self, from: Cpus) -> Cpus {
        let difference = |of: fn(&Cpus) -> u64| of(&self).saturating_sub(of(&from));
        Cpus {
            all: difference(|cpus| cpus.all),
            idle: difference(|cpus| cpus.idle),
            stolen: difference(|cpus| cpus.stolen),
        }
    }
}

/// A process, by its number and the tick of its start.
type Process = (u32, u64);

/// Lists each process with the CPU ticks that it and its ended children used. This process and its ancestors are left out, because
/// the ticks of a test's children count as theirs.
fn other_processes() -> BTreeMap<Process, u64> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut all: BTreeMap<u32, Stat> = pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let mut own = std::process::id();
    while let Some(stat) = all.remove(&own) {
        own = stat.parent;
    }
    // Daemons of tests are its children when what has started them has ended.
    all.remove(&1);
    all.into_iter().map(|(pid, stat)| ((pid, stat.start), stat.ticks)).collect()
}

#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    start: u64,
    ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The command's name stands in brackets and may hold some itself; after it the state is field 3.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let ticks = (14..=17).map(number).sum::<Option<u64>>()?;
        Some(Stat { parent: number(4)?.try_into().ok()?, start: number(22)?, ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "7 (a) b) S 5 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 999 1 2 3\n";
        assert_eq!(Stat::parse(stat), Some(Stat { parent: 5, start: 999, ticks: 100 }));
        let cpus = Cpus::parse("cpu  1 2 3 40 5 6 7 8 1 0\ncpu0 1 2 3 40 5 6 7 8 1 0\n");
        assert_eq!(cpus, Cpus { all: 72, idle: 45, stolen: 8 });
        assert_eq!((Stat::parse("7 (a"), Cpus::parse("")), (None, Cpus::default()));
    }

    #[test]
    fn a_child_that_works_is_another_and_its_ancestors_are_not() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
        let before = other_processes();
        let of = |all: &BTreeMap<Process, u64>| {
            all.iter().find(|((pid, _), _)| *pid == child.id()).map(|(_, ticks)| *ticks)
        };
        assert!(
            of(&before).is_some() && !before.keys().any(|(pid, _)| *pid == std::process::id() || *pid == 1)
        );
        let end = Instant::now() + Duration::from_secs(60);
        while of(&other_processes()) <= of(&before) {
            assert!(Instant::now() < end, "it gets no CPU");
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }

    #[test]
    fn only_a_quiet_machine_can_tell() {
        let load = |before, meanwhile, after, stolen| Load { before, meanwhile, after, stolen };
        assert!(!load(0.01, 0.02, 0.03, 0.0).is_busy());
        assert!(load(0.5, 0.0, 0.0, 0.0).is_busy() && load(0.0, 0.1, 0.0, 0.0).is_busy());
        assert!(load(0.0, 0.0, 0.2, 0.0).is_busy() && load(0.0, 0.0, 0.0, 0.06).is_busy());
        assert!(
            load(0.5, 0.25, 0.1, 0.0)
                .to_string()
                .contains("too busy to tell: others used 50 % of its CPUs before, 25 %")
        );
    }
}
