//! From a request to a grid: which CPUs may be used, who gets them, and what is shared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cpuset;
use crate::grid::{AlienHome, ClientSlot, Grid, OsdRow, ReactorSlot};
use crate::place::{self, Pool};
use crate::{Cpu, CpuList, PlanError, Topology};

carmine_types::words! {
    /// Where an OSD's reactors sit relative to each other. SMT siblings are used last in all of them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Strategy: "placement" {
        /// Consecutive CPUs.
        #[default]
        Default = "default",
        /// All reactors of an OSD in one socket: OSD id mod sockets.
        Osd = "osd",
        /// An OSD's reactors spread evenly over the sockets.
        Socket = "socket",
        /// An OSD within one L3 group where it fits.
        L3 = "l3",
    }
}

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRequest {
    pub osds: usize,
    /// Reactors of each OSD.
    pub reactors: usize,
    pub strategy: Strategy,
    /// CPUs that reactors may have; all allowed ones without clients' and aliens' when absent.
    pub cpus: Option<CpuList>,
    /// CPUs of clients; chosen from what reactors leave when absent.
    pub client_cpus: Option<CpuList>,
    /// CPUs of alien threads; each OSD's own reactor CPUs when absent.
    pub alien_cpus: Option<CpuList>,
    /// Lets reactors, aliens and clients share CPUs; what is shared is marked.
    pub overprovisioned: bool,
    /// How many client CPUs to choose when `client_cpus` is absent; 0 for none.
    pub clients: usize,
    /// PGs of the pool, 0 when not known: for the expected PGs per reactor.
    pub pgs: u32,
    /// Replicas of each PG.
    pub size: u32,
    /// CPUs of each OSD, reactors and aliens together (`--confine cpuset`); when absent each reactor has one, and aliens
    /// are not confined.
    #[serde(default)]
    pub cpus_per_osd: Option<usize>,
    /// OSDs that share a device, 1 if each has its own: the grid says who shares with whom.
    #[serde(default = "alone")]
    pub osds_per_device: usize,
}

fn alone() -> usize {
    1
}

impl Default for PlanRequest {
    fn default() -> Self {
        PlanRequest {
            osds: 1,
            reactors: 1,
            strategy: Strategy::Default,
            cpus: None,
            client_cpus: None,
            alien_cpus: None,
            overprovisioned: false,
            clients: 1,
            pgs: 0,
            size: 1,
            cpus_per_osd: None,
            osds_per_device: alone(),
        }
    }
}

pub(crate) fn plan(topology: &Topology, request: &PlanRequest) -> Result<Grid, PlanError> {
    check_lists(topology, request)?;
    let pool_cpus = reactor_pool(topology, request);
    cpuset::check(request, &pool_cpus)?;
    let each = cpuset::seats_each(request);
    let need = request.osds.saturating_mul(each);
    if !request.overprovisioned && need > pool_cpus.len() {
        return Err(too_few(request, need, pool_cpus));
    }
    let reserved = given(&request.client_cpus).union(&given(&request.alien_cpus));
    let mut pool = Pool::new(topology, &pool_cpus, &reserved, request.overprovisioned);
    let mut seats = place::place(&mut pool, &PlanRequest { reactors: each, ..request.clone() })?;
    if request.cpus_per_osd.is_some() {
        seats = cpuset::distinct(seats, &pool_cpus);
    }
    let placed: Vec<_> = seats.iter().map(|seats| cpuset::reactors(seats, request.reactors)).collect();
    let aliens = alien_sets(request, &seats);
    let mut uses = Uses::default();
    placed.iter().flatten().for_each(|cpu| uses.add(*cpu));
    let confined = aliens.iter().filter(|_| request.cpus_per_osd.is_some()).flat_map(CpuList::iter);
    given(&request.alien_cpus).iter().chain(confined).for_each(|cpu| uses.add(cpu));
    let clients = match &request.client_cpus {
        Some(list) => list.to_vec(),
        None => choose_clients(topology, request, &uses)?,
    };
    clients.iter().for_each(|cpu| uses.add(*cpu));
    Ok(assemble(topology, request, &placed, &aliens, &clients, &uses))
}

fn given(list: &Option<CpuList>) -> CpuList {
    list.clone().unwrap_or_default()
}

fn check_lists(topology: &Topology, request: &PlanRequest) -> Result<(), PlanError> {
    for (what, count) in [("--osds", request.osds), ("--reactors", request.reactors)] {
        if count == 0 {
            return Err(PlanError::Zero { what });
        }
    }
    let named = [
        ("--cpus", &request.cpus),
        ("--client-cpus", &request.client_cpus),
        ("--alien-cpus", &request.alien_cpus),
    ];
    let lists: Vec<(&'static str, &CpuList)> =
        named.into_iter().filter_map(|(option, list)| list.as_ref().map(|list| (option, list))).collect();
    for (option, list) in &lists {
        if list.is_empty() {
            return Err(PlanError::EmptyList { option });
        }
        let unknown = list.difference(&topology.all());
        if !unknown.is_empty() {
            let (topology, have) = (topology.name().to_owned(), topology.all());
            return Err(PlanError::Unknown { option, unknown, topology, have });
        }
        let denied = list.difference(topology.allowed());
        if !denied.is_empty() {
            return Err(PlanError::NotAllowed { option, denied, allowed: topology.allowed().clone() });
        }
    }
    for (at, (first, one)) in lists.iter().enumerate() {
        for (second, other) in lists.iter().skip(at + 1) {
            let both = one.intersection(other);
            if !both.is_empty() && !request.overprovisioned {
                return Err(PlanError::Overlap { first, second, both });
            }
        }
    }
    Ok(())
}

/// CPUs that reactors may have. Sharing is allowed when overprovisioned, but not sought.
fn reactor_pool(topology: &Topology, request: &PlanRequest) -> CpuList {
    if let Some(cpus) = &request.cpus {
        return cpus.clone();
    }
    let reserved = given(&request.client_cpus).union(&given(&request.alien_cpus));
    let free = topology.allowed().difference(&reserved);
    if free.is_empty() && request.overprovisioned { topology.allowed().clone() } else { free }
}

fn too_few(request: &PlanRequest, need: usize, cpus: CpuList) -> PlanError {
    let lists = [("clients", &request.client_cpus), ("aliens", &request.alien_cpus)];
    let reserved: String = match request.cpus {
        Some(_) => " in --cpus".into(),
        None => lists
            .iter()
            .filter_map(|(who, list)| list.as_ref().map(|list| format!(", {list} being kept for {who}")))
            .collect(),
    };
    PlanError::TooFew {
        osds: request.osds,
        reactors: request.reactors,
        need,
        have: cpus.len(),
        cpus,
        reserved,
    }
}

/// Each OSD's alien CPUs, empty for "its reactors'": what reactors leave of a cpuset; else what was given, dealt out when
/// there are enough, else all for everybody.
fn alien_sets(request: &PlanRequest, seats: &[Vec<usize>]) -> Vec<CpuList> {
    if request.cpus_per_osd.is_some() {
        return seats.iter().map(|seats| cpuset::aliens(seats, request.reactors)).collect();
    }
    let cpus = given(&request.alien_cpus).to_vec();
    if cpus.len() < request.osds {
        return vec![cpus.iter().copied().collect(); request.osds];
    }
    (0..request.osds)
        .map(|osd| {
            let share = |n: usize| n * cpus.len() / request.osds;
            cpus.iter().skip(share(osd)).take(share(osd + 1) - share(osd)).copied().collect()
        })
        .collect()
}

/// Takes client CPUs from what is least used: whole idle cores first, from the highest number down, away from the
/// reactors.
fn choose_clients(topology: &Topology, request: &PlanRequest, uses: &Uses) -> Result<Vec<usize>, PlanError> {
    let mut uses = uses.clone();
    let mut chosen = Vec::new();
    while chosen.len() < request.clients {
        let free = |c: &&Cpu| {
            topology.allowed().contains(c.cpu)
                && !chosen.contains(&c.cpu)
                && (request.overprovisioned || uses.of(c.cpu) == 0)
        };
        let key = |c: &&Cpu| {
            let siblings = topology.cpus().iter().filter(|s| s.core == c.core && s.cpu != c.cpu);
            let busy_siblings: usize = siblings.map(|s| uses.of(s.cpu)).sum();
            (uses.of(c.cpu), busy_siblings, c.thread, std::cmp::Reverse(c.cpu))
        };
        let Some(best) = topology.cpus().iter().filter(free).min_by_key(key) else { break };
        uses.add(best.cpu);
        chosen.push(best.cpu);
    }
    if chosen.is_empty() && request.clients > 0 {
        return Err(PlanError::NoClientCpu { used: uses.0.len(), cpus: uses.0.keys().copied().collect() });
    }
    chosen.sort_unstable();
    Ok(chosen)
}

/// How many slots sit on each CPU.
#[derive(Clone, Default)]
struct Uses(BTreeMap<usize, usize>);

impl Uses {
    fn add(&mut self, cpu: usize) {
        *self.0.entry(cpu).or_default() += 1;
    }

    fn of(&self, cpu: usize) -> usize {
        self.0.get(&cpu).copied().unwrap_or(0)
    }
}

fn assemble(
    topology: &Topology,
    request: &PlanRequest,
    placed: &[Vec<usize>],
    aliens: &[CpuList],
    clients: &[usize],
    uses: &Uses,
) -> Grid {
    let smt_busy = |cpu: &Cpu| {
        topology
            .cpus()
            .iter()
            .any(|other| other.core == cpu.core && other.cpu != cpu.cpu && uses.of(other.cpu) > 0)
    };
    let osds: Vec<OsdRow> = placed
        .iter()
        .zip(aliens)
        .enumerate()
        .map(|(osd, (cpus, alien_cpus))| OsdRow {
            osd,
            reactors: cpus
                .iter()
                .filter_map(|cpu| topology.cpu(*cpu))
                .enumerate()
                .map(|(reactor, c)| ReactorSlot {
                    reactor,
                    place: c.clone(),
                    shared: uses.of(c.cpu) > 1,
                    smt_busy: smt_busy(c),
                })
                .collect(),
            aliens: AlienHome {
                own: alien_cpus.is_empty(),
                cpus: if alien_cpus.is_empty() { cpus.iter().copied().collect() } else { alien_cpus.clone() },
                shared: alien_cpus.iter().any(|cpu| uses.of(cpu) > 1),
            },
            shared_device: osd.checked_div(request.osds_per_device).filter(|_| request.osds_per_device > 1),
        })
        .collect();
    let clients: Vec<ClientSlot> = clients
        .iter()
        .filter_map(|cpu| topology.cpu(*cpu))
        .map(|c| ClientSlot { place: c.clone(), shared: uses.of(c.cpu) > 1, smt_busy: smt_busy(c) })
        .collect();
    Grid::assemble(topology, request, osds, clients)
}
