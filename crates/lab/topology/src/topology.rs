//! The model: a list of CPUs, each with its socket, node, L3 group, core and thread rank.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::cpulist::CPU_NUMBER_MAX;
use crate::{CpuList, TopologyError, describe, sysfs};

/// One logical CPU. All indices but `cpu` are dense and machine-wide (core 28 may be the first of socket 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Linux's CPU number.
    pub cpu: usize,
    pub socket: usize,
    /// NUMA node.
    pub node: usize,
    /// L3 cache group; the socket where a machine reports no L3.
    pub l3: usize,
    /// Physical core; SMT siblings have the same.
    pub core: usize,
    /// Rank among the siblings of the core, 0 for the lowest CPU number.
    pub thread: usize,
}

/// A machine's CPUs in ascending order of their number; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    name: String,
    live: bool,
    cpus: Vec<Cpu>,
    allowed: CpuList,
}

/// A CPU as a source gives it: any distinct keys for its places.
#[derive(Clone, Debug)]
pub(crate) struct RawCpu {
    pub(crate) cpu: usize,
    pub(crate) socket: usize,
    pub(crate) node: usize,
    pub(crate) l3: usize,
    pub(crate) core: usize,
}

impl Topology {
    /// Reads this machine, and the CPUs this process may use.
    pub fn detect() -> Result<Topology, TopologyError> {
        Self::detect_at(Path::new("/"))
    }

    /// Like [`Self::detect`] with another root: `ROOT/sys/devices/system/...` and `ROOT/proc/self/status`.
    pub fn detect_at(root: &Path) -> Result<Topology, TopologyError> {
        sysfs::detect(root)
    }

    /// A regular machine from `2x28x2` (sockets x cores x threads) or `1x8x8x2` (with L3 groups second; cores are
    /// then per group). Numbered as Linux does: first threads of all cores socket by socket, then second threads.
    pub fn from_short(text: &str) -> Result<Topology, TopologyError> {
        let bad = |why: &str| TopologyError::Shape { text: text.to_owned(), why: why.to_owned() };
        let factors = text
            .split('x')
            .map(|part| part.trim().parse::<usize>().ok().filter(|n| *n > 0))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| bad("every part must be a number above 0"))?;
        let (sockets, groups, cores, threads) = match factors[..] {
            [sockets, cores, threads] => (sockets, 1, cores, threads),
            [sockets, groups, cores, threads] => (sockets, groups, cores, threads),
            _ => return Err(bad("3 or 4 parts are needed")),
        };
        let total = factors.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        if total.is_none_or(|n| n > CPU_NUMBER_MAX) {
            return Err(bad(&format!("more than {CPU_NUMBER_MAX} CPUs")));
        }
        let cores_all = sockets * groups * cores;
        let raw = (0..threads * cores_all).map(|cpu| {
            let core = cpu % cores_all;
            let socket = core / (groups * cores);
            RawCpu { cpu, socket, node: socket, l3: core / cores, core }
        });
        Self::build(text.to_owned(), false, raw.collect(), None)
    }

    /// Reads a TOML description: `shape = "2x28x2"`, or `[[cpus]]` entries with `cpu`, `socket`, `core` and optionally
    /// `node` and `l3`; both with an optional `name` and `allowed = "0-3"`.
    pub fn from_file(path: &Path) -> Result<Topology, TopologyError> {
        describe::from_file(path)
    }

    /// What `--topology` takes: a short form or else the path of a description.
    pub fn from_arg(text: &str) -> Result<Topology, TopologyError> {
        let short = text.contains('x') && text.chars().all(|c| c.is_ascii_digit() || c == 'x');
        if short { Self::from_short(text) } else { Self::from_file(Path::new(text)) }
    }

    /// Gives places dense indices (in order of their lowest CPU) and ranks siblings.
    pub(crate) fn build(
        name: String,
        live: bool,
        mut raw: Vec<RawCpu>,
        allowed: Option<CpuList>,
    ) -> Result<Topology, TopologyError> {
        raw.sort_by_key(|c| c.cpu);
        let mut sockets = Dense::default();
        let mut nodes = Dense::default();
        let mut groups = Dense::default();
        let mut cores = Dense::default();
        let mut ranks = BTreeMap::<usize, usize>::new();
        let cpus: Vec<Cpu> = raw
            .into_iter()
            .map(|c| {
                let core = cores.index(c.core);
                let rank = ranks.entry(core).or_default();
                *rank += 1;
                Cpu {
                    cpu: c.cpu,
                    socket: sockets.index(c.socket),
                    node: nodes.index(c.node),
                    l3: groups.index(c.l3),
                    core,
                    thread: *rank - 1,
                }
            })
            .collect();
        let all: CpuList = cpus.iter().map(|c| c.cpu).collect();
        let allowed = allowed.map_or_else(|| all.clone(), |list| list.intersection(&all));
        if allowed.is_empty() {
            return Err(TopologyError::Empty { name });
        }
        Ok(Topology { name, live, cpus, allowed })
    }

    /// The machine's name: `this machine`, a short form, or a description's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this describes the machine the process runs on.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Every CPU, ascending.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU with this number.
    pub fn cpu(&self, cpu: usize) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&cpu, |c| c.cpu).ok().and_then(|at| self.cpus.get(at))
    }

    /// All CPU numbers.
    pub fn all(&self) -> CpuList {
        self.cpus.iter().map(|c| c.cpu).collect()
    }

    /// CPUs this process may run on (cpuset, taskset); all of them for a description without `allowed`.
    pub fn allowed(&self) -> &CpuList {
        &self.allowed
    }

    pub fn sockets(&self) -> usize {
        self.count(|c| c.socket)
    }

    pub fn nodes(&self) -> usize {
        self.count(|c| c.node)
    }

    pub fn l3_groups(&self) -> usize {
        self.count(|c| c.l3)
    }

    pub fn cores(&self) -> usize {
        self.count(|c| c.core)
    }

    fn count(&self, key: impl Fn(&Cpu) -> usize) -> usize {
        self.cpus.iter().map(key).collect::<BTreeSet<_>>().len()
    }

    /// One line for people: name and counts.
    pub fn summary(&self) -> String {
        let mut line = format!(
            "{}: {}, {}, {}, {}, {}",
            self.name,
            counted(self.sockets(), "socket"),
            counted(self.nodes(), "NUMA node"),
            counted(self.l3_groups(), "L3 group"),
            counted(self.cores(), "core"),
            counted(self.cpus.len(), "CPU")
        );
        if self.allowed.len() < self.cpus.len() {
            line.push_str(&format!(" ({} allowed: {})", self.allowed.len(), self.allowed));
        }
        line
    }
}

/// Numbers keys 0, 1, 2 … in the order they are first seen.
#[derive(Default)]
struct Dense(BTreeMap<usize, usize>);

impl Dense {
    fn index(&mut self, key: usize) -> usize {
        let next = self.0.len();
        *self.0.entry(key).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_form_numbers_like_linux() {
        let t = Topology::from_short("2x28x2").unwrap();
        assert_eq!((t.sockets(), t.nodes(), t.l3_groups(), t.cores(), t.cpus().len()), (2, 2, 2, 56, 112));
        let second = t.cpu(28).unwrap();
        assert_eq!((second.socket, second.core, second.thread), (1, 28, 0));
        let sibling = t.cpu(56).unwrap();
        assert_eq!((sibling.socket, sibling.core, sibling.thread), (0, 0, 1));
    }

    #[test]
    fn short_form_with_l3_groups() {
        let t = Topology::from_short("1x8x8x2").unwrap();
        assert_eq!((t.sockets(), t.l3_groups(), t.cores(), t.cpus().len()), (1, 8, 64, 128));
        assert_eq!((t.cpu(8).unwrap().l3, t.cpu(64 + 63).unwrap().l3), (1, 7));
    }

    #[test]
    fn bad_shapes_are_named() {
        for text in ["2x28", "0x1x1", "ax1x1", "1x1x1x1x1", "60000x60000x2", "", "18446744073709551615x2x2"] {
            let error = Topology::from_short(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
