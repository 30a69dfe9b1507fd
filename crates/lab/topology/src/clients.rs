//! The clients' CPUs. They are chosen before the reactors', so that points that differ in placement, store or polling have
//! the same.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::cpulist::as_text;
use crate::error::{refuse, wrong};
use crate::plan::named;
use crate::{CpuList, PlanRequest, Topology, TopologyError};

/// Without `--client-cpus`, clients get one of so many CPUs. Measured on the machine of `BENCHMARKS.md` (`cyan`, 4 KiB, iodepth 64),
/// an operation costs our own generator 5.9 us of CPU and fio's rados engine 14, and the OSD 6 (reads) to 8 (writes); with
/// `blue` it costs the OSD 9 to 23. So one client CPU for two of the OSDs' is about right for our own generator.
const DEFAULT_SHARE: usize = 3;

/// The CPUs of clients as they are asked for. Those that are not named are whole cores, from the highest down, taken from the
/// sockets in turn. Without any wish it is a third of the CPUs, but at least one, and fewer where that leaves each reactor a core
/// of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClientCpus {
    /// These.
    List(CpuList),
    /// So many.
    Count(usize),
    /// All that nothing else needs.
    Rest,
}

/// How many CPUs clients get of `cpus` if nobody asks for a number.
#[must_use]
pub fn default_clients(cpus: usize) -> usize {
    (cpus / DEFAULT_SHARE).max(1)
}

impl FromStr for ClientCpus {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let text = text.trim();
        match text.strip_prefix("count:") {
            _ if text == "rest" => Ok(Self::Rest),
            None => text.parse().map(Self::List),
            Some(count) => match count.parse() {
                Ok(count) if count > 0 => Ok(Self::Count(count)),
                _ => Err(wrong!(
                    "`{text}`: write how many CPUs clients get as in count:4, name them as in 0-3,8, or take rest"
                )),
            },
        }
    }
}

impl fmt::Display for ClientCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => list.fmt(f),
            Self::Count(count) => write!(f, "count:{count}"),
            Self::Rest => f.write_str("rest"),
        }
    }
}

as_text!(ClientCpus);

/// The clients' CPUs. Neither the strategy nor anything but numbers of the request has a say in which these are.
pub(crate) fn choose(topology: &Topology, request: &PlanRequest) -> Result<CpuList, TopologyError> {
    let others = named(request, |option| option != "--client-cpus");
    let mut free = topology.allowed().difference(&others);
    let needed = if request.cpus.is_some() { 0 } else { request.seats() };
    let left = free.len().saturating_sub(needed);
    let count = match &request.client_cpus {
        Some(ClientCpus::List(list)) => return Ok(list.clone()),
        Some(ClientCpus::Count(count)) => *count,
        Some(ClientCpus::Rest) => left.max(1),
        None => default_clients(topology.allowed().len()).min(spare(topology, &free, needed)).max(1),
    };
    if request.overprovisioned && count > free.len() {
        free = topology.allowed().clone();
    }
    refuse!(
        count > free.len(),
        "clients need {}, and {} are left beside those of others ({others}); give --client-cpus, take CPUs from the others, or \
         share CPUs with --overprovisioned",
        counted(count, "CPU"),
        free.len()
    );
    Ok(in_order(topology, &free).into_iter().take(count).collect())
}

/// CPUs that `needed` reactors do not need: whole cores if there are more cores than reactors.
fn spare(topology: &Topology, free: &CpuList, needed: usize) -> usize {
    let order = in_order(topology, free);
    let mut cores: Vec<usize> = order.iter().filter_map(|cpu| Some(topology.cpu(*cpu)?.core)).collect();
    cores.dedup();
    match cores.len().saturating_sub(needed) {
        0 => free.len().saturating_sub(needed),
        whole => order
            .iter()
            .filter(|cpu| topology.cpu(**cpu).is_some_and(|c| cores[..whole].contains(&c.core)))
            .count(),
    }
}

/// `free` in the order in which clients take them: whole cores before those of which somebody else has a part, the last socket
/// first and then in turn, in each socket the highest core first.
fn in_order(topology: &Topology, free: &CpuList) -> Vec<usize> {
    let mut sockets: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for cpu in topology.cpus().iter().filter(|cpu| free.contains(cpu.cpu)) {
        sockets.entry(cpu.socket).or_default().entry(cpu.core).or_default().push(cpu.cpu);
    }
    let threads = |core: usize| topology.cpus().iter().filter(|cpu| cpu.core == core).count();
    let mut ranked = Vec::new();
    for (socket, cores) in sockets {
        let mut cores: Vec<(bool, Vec<usize>)> =
            cores.into_iter().rev().map(|(core, cpus)| (cpus.len() < threads(core), cpus)).collect();
        cores.sort_by_key(|(is_part, _)| *is_part);
        let turns = cores.into_iter().enumerate();
        ranked.extend(turns.map(|(turn, (is_part, cpus))| (is_part, turn, std::cmp::Reverse(socket), cpus)));
    }
    ranked.sort();
    ranked.into_iter().flat_map(|(.., cpus)| cpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lists_and_counts() {
        for text in ["rest", "count:3", "0-3,8"] {
            assert_eq!(text.parse::<ClientCpus>().unwrap().to_string(), text);
        }
        assert_eq!("4".parse::<ClientCpus>().unwrap(), ClientCpus::List([4].into_iter().collect()));
        for (text, part) in [("count:0", "count:0"), ("count:x", "count:x"), ("all", "`all`")] {
            let error = text.parse::<ClientCpus>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn whole_cores_from_the_highest_down_sockets_in_turn() {
        let order = |shape: &str, free: &str| {
            let order = in_order(&Topology::from_short(shape).unwrap(), &free.parse().unwrap());
            order.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order("1x4x2", "0-7"), "3 7 2 6 1 5 0 4");
        assert_eq!(order("2x2x2", "0-7"), "3 7 1 5 2 6 0 4");
        // Of core 3 a part is taken.
        assert_eq!(order("1x4x2", "0-6"), "2 6 1 5 0 4 3");
    }
}
