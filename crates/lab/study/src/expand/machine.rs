//! The facts about the machine that the expansion needs.

use std::collections::BTreeMap;

use carmine_topology::{Grid, Topology, default_clients};

/// The machine that a plan is to run on, or another one that is only looked at.
#[derive(Clone, Debug)]
pub struct Machine {
    pub topology: Topology,
    /// Devices that were named for the OSDs; none: files in each layout's folder. Named devices are made anew for each
    /// layout, so that layouts can't lie beside each other.
    pub devices: Vec<String>,
    /// The grid that `carmine up` would make of its options; an error says why it would not.
    pub place: fn(&Topology, &[String]) -> Result<Grid, String>,
}

impl Machine {
    /// CPUs that OSDs and clients may use together.
    pub(super) fn cpus(&self) -> usize {
        self.topology.allowed().len()
    }

    /// CPUs that reactors can have: all but those that clients get where a plan does not say how many.
    pub(super) fn room(&self) -> usize {
        self.cpus().saturating_sub(default_clients(self.cpus())).max(1)
    }

    /// Drives that OSDs get: the named devices, or as many files as a pool of size 3 needs.
    pub(super) fn drives(&self) -> usize {
        match self.devices.len() {
            0 => 3,
            named => named,
        }
    }

    /// The placement that these options of `carmine up` lead to; an error says why there is none.
    pub(crate) fn grid(&self, up: &[String]) -> Result<Grid, String> {
        (self.place)(&self.topology, up)
    }
}

/// CPUs for `reactors` reactors: the first threads of as many cores, or with `smt` all threads of as few cores as suffice. Cores
/// are taken from all sockets in turn. `None` if there are too few, or no CPU would be left for a client.
pub(crate) fn cpu_list(topology: &Topology, smt: bool, reactors: usize) -> Option<String> {
    let mut cores: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for cpu in topology.cpus().iter().filter(|cpu| topology.allowed().contains(cpu.cpu)) {
        cores.entry((cpu.socket, cpu.core)).or_default().push(cpu.cpu);
    }
    if smt && cores.values().all(|threads| threads.len() < 2) {
        return None;
    }
    let mut by_socket: BTreeMap<usize, Vec<Vec<usize>>> = BTreeMap::new();
    for ((socket, _), threads) in cores {
        by_socket.entry(socket).or_default().push(threads);
    }
    let longest = by_socket.values().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|at| by_socket.values().filter_map(move |cores| cores.get(at)));
    let threads =
        |core: &Vec<usize>| core.iter().copied().take(if smt { core.len() } else { 1 }).collect::<Vec<_>>();
    let mut chosen: Vec<usize> = in_turn.flat_map(threads).take(reactors).collect();
    if chosen.len() < reactors || chosen.len() == topology.allowed().len() {
        return None;
    }
    chosen.sort_unstable();
    Some(chosen.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_or_both_threads_of_half_as_many() {
        let machine = Topology::from_short("2x2x2").unwrap();
        let threads_of = |list: &str| {
            let cpus: Vec<usize> = list.split(',').map(|c| c.parse().unwrap()).collect();
            let mut cores: Vec<usize> = cpus.iter().map(|c| machine.cpu(*c).unwrap().core).collect();
            cores.sort_unstable();
            cores.dedup();
            (cpus.len(), cores.len())
        };
        assert_eq!(threads_of(&cpu_list(&machine, false, 4).unwrap()), (4, 4));
        assert_eq!(threads_of(&cpu_list(&machine, true, 4).unwrap()), (4, 2));
        assert_eq!(cpu_list(&machine, false, 5), None);
        assert_eq!(cpu_list(&machine, true, 8), None, "a client needs a CPU");
        assert_eq!(cpu_list(&Topology::from_short("1x4x1").unwrap(), true, 2), None);
    }
}
