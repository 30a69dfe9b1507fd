//! The model: a list of CPUs, each with its socket, node, L3 group, core and thread rank.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::cpulist::CPU_NUMBER_MAX;
use crate::error::{refuse, wrong};
use crate::{CpuList, TopologyError, sources};

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
    pub(crate) name: String,
    /// It describes the machine on which this process runs.
    pub(crate) live: bool,
    cpus: Vec<Cpu>,
    allowed: CpuList,
}

impl Topology {
    /// Reads this machine, and the CPUs this process may use.
    pub fn detect() -> Result<Topology, TopologyError> {
        Self::detect_at(Path::new("/"))
    }

    /// Like [`Self::detect`] with another root: `ROOT/sys/devices/system/...` and `ROOT/proc/self/status`.
    pub fn detect_at(root: &Path) -> Result<Topology, TopologyError> {
        sources::detect(root)
    }

    /// A regular machine from `2x28x2` (sockets x cores x threads) or `1x8x8x2` (with L3 groups second; cores are
    /// then per group). Numbered as Linux does: first threads of all cores socket by socket, then second threads.
    pub fn from_short(text: &str) -> Result<Topology, TopologyError> {
        let bad = |why: &str| {
            wrong!(
                "topology shape `{text}`: {why}; write sockets x cores x threads as in 2x28x2, or sockets x L3 groups x cores \
                 x threads as in 1x8x8x2"
            )
        };
        let factors = text.split('x').map(|part| part.trim().parse::<usize>().ok().filter(|n| *n > 0));
        let factors: Vec<usize> =
            factors.collect::<Option<_>>().ok_or_else(|| bad("every part must be a number above 0"))?;
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
        let cpus = (0..threads * cores_all).map(|cpu| {
            let core = cpu % cores_all;
            let socket = core / (groups * cores);
            Cpu { cpu, socket, node: socket, l3: core / cores, core, thread: 0 }
        });
        Self::build(text.to_owned(), false, cpus.collect(), None)
    }

    /// Reads the value of `--topology`: a short form or else the path of a file with the output of `lscpu -p`.
    pub fn from_arg(text: &str) -> Result<Topology, TopologyError> {
        let short = text.contains('x') && text.chars().all(|c| c.is_ascii_digit() || c == 'x');
        if short { Self::from_short(text) } else { sources::from_file(Path::new(text)) }
    }

    /// Makes a machine of CPUs whose places have any distinct keys: gives these dense indices (in order of their lowest CPU) and
    /// ranks siblings.
    pub(crate) fn build(
        name: String,
        live: bool,
        mut cpus: Vec<Cpu>,
        allowed: Option<CpuList>,
    ) -> Result<Topology, TopologyError> {
        cpus.sort_by_key(|c| c.cpu);
        let places: [fn(&mut Cpu) -> &mut usize; 4] =
            [|c| &mut c.socket, |c| &mut c.node, |c| &mut c.l3, |c| &mut c.core];
        for place in places {
            let mut seen = BTreeMap::new();
            for key in cpus.iter_mut().map(place) {
                let next = seen.len();
                *key = *seen.entry(*key).or_insert(next);
            }
        }
        let mut siblings = BTreeMap::<usize, usize>::new();
        for cpu in &mut cpus {
            let rank = siblings.entry(cpu.core).or_default();
            cpu.thread = *rank;
            *rank += 1;
        }
        let all: CpuList = cpus.iter().map(|c| c.cpu).collect();
        let allowed = allowed.map_or_else(|| all.clone(), |list| list.intersection(&all));
        refuse!(allowed.is_empty(), "topology {name} has no usable CPU");
        Ok(Topology { name, live, cpus, allowed })
    }

    /// Every CPU, ascending.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU with this number.
    pub fn cpu(&self, cpu: usize) -> Option<&Cpu> {
        self.cpus.iter().find(|c| c.cpu == cpu)
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

    /// NUMA nodes.
    pub fn nodes(&self) -> usize {
        self.count(|c| c.node)
    }

    pub(crate) fn count(&self, key: fn(&Cpu) -> usize) -> usize {
        self.cpus.iter().map(key).collect::<BTreeSet<_>>().len()
    }

    /// One line for people: name and counts.
    pub fn summary(&self) -> String {
        let nouns = ["socket", "NUMA node", "L3 group", "core", "CPU"];
        let places: [fn(&Cpu) -> usize; 5] = [|c| c.socket, |c| c.node, |c| c.l3, |c| c.core, |c| c.cpu];
        let parts: Vec<String> =
            nouns.iter().zip(places).map(|(noun, place)| counted(self.count(place), noun)).collect();
        let some = self.allowed.len() < self.cpus.len();
        let allowed = some.then(|| format!(" ({} allowed: {})", self.allowed.len(), self.allowed));
        format!("{}: {}{}", self.name, parts.join(", "), allowed.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_form_numbers_like_linux() {
        let t = Topology::from_short("2x28x2").unwrap();
        assert_eq!((t.sockets(), t.count(|c| c.core), t.cpus().len()), (2, 56, 112));
        let second = t.cpu(28).unwrap();
        assert_eq!((second.socket, second.core, second.thread), (1, 28, 0));
        let sibling = t.cpu(56).unwrap();
        assert_eq!((sibling.socket, sibling.core, sibling.thread), (0, 0, 1));
    }

    #[test]
    fn short_form_with_l3_groups() {
        let t = Topology::from_short("1x8x8x2").unwrap();
        assert_eq!((t.sockets(), t.count(|c| c.core), t.cpus().len()), (1, 64, 128));
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
