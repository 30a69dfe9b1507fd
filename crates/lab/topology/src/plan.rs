//! From a request to a grid: which CPUs may be used, who gets them, and what is shared.

use serde::{Deserialize, Serialize};

use crate::clients::{self, ClientCpus};
use crate::cpuset;
use crate::grid::{Floating, Grid};
use crate::place::{self, Pool};
use crate::{CpuList, PlanError, Topology};

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
        /// Reactors are not pinned: the scheduler decides, within the CPUs that OSDs may use.
        None = "none",
    }
}

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRequest {
    pub osds: usize,
    /// Reactors of each OSD.
    pub reactors: usize,
    pub strategy: Strategy,
    /// CPUs that reactors may have; all that are left to them when absent.
    pub cpus: Option<CpuList>,
    /// CPUs of clients; a share of the machine when absent (see [`ClientCpus`]).
    pub client_cpus: Option<ClientCpus>,
    /// CPUs of alien threads; each OSD's own reactor CPUs when absent.
    pub alien_cpus: Option<CpuList>,
    /// CPUs of the monitor and of what controls a load; the clients' when absent.
    #[serde(default)]
    pub system_cpus: Option<CpuList>,
    /// CPUs that are kept free for a neighbour, which keeps them busy while a point is measured.
    #[serde(default)]
    pub neighbour_cpus: Option<CpuList>,
    /// Lets reactors, aliens, clients and the others share CPUs; what is shared is marked.
    pub overprovisioned: bool,
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
            system_cpus: None,
            neighbour_cpus: None,
            overprovisioned: false,
            pgs: 0,
            size: 1,
            cpus_per_osd: None,
            osds_per_device: alone(),
        }
    }
}

impl PlanRequest {
    /// CPUs that reactors, or whole cpusets, need.
    pub(crate) fn seats(&self) -> usize {
        self.osds.saturating_mul(cpuset::seats_each(self))
    }

    /// The lists that were given, by their options.
    fn lists(&self) -> Vec<(&'static str, &CpuList)> {
        let clients = match &self.client_cpus {
            Some(ClientCpus::List(list)) => Some(list),
            _ => None,
        };
        let named = [
            ("--cpus", self.cpus.as_ref()),
            ("--client-cpus", clients),
            ("--alien-cpus", self.alien_cpus.as_ref()),
            ("--system-cpus", self.system_cpus.as_ref()),
            ("--neighbour-cpus", self.neighbour_cpus.as_ref()),
        ];
        named.into_iter().filter_map(|(option, list)| Some((option, list?))).collect()
    }
}

/// First the CPUs that were named, then the clients', which depend on nothing but the topology and on how many reactors there
/// are; the strategy places the reactors in what is left.
pub(crate) fn plan(topology: &Topology, request: &PlanRequest) -> Result<Grid, PlanError> {
    check_lists(topology, request)?;
    let clients = clients::choose(topology, request)?;
    let reserved = named(request, |option| option != "--cpus").union(&clients);
    let pool_cpus = reactor_pool(topology, request, &reserved);
    cpuset::check(request, &pool_cpus)?;
    if !request.overprovisioned && request.seats() > pool_cpus.len() {
        return Err(too_few(request, &clients, pool_cpus));
    }
    if request.strategy == Strategy::None {
        let floating = Floating { reactors: request.reactors, cpus: pool_cpus };
        let rows = alien_sets(request, &vec![Vec::new(); request.osds]);
        let rows = rows.into_iter().map(|aliens| (Vec::new(), aliens, Some(floating.clone()))).collect();
        return Ok(Grid::assemble(topology, request, rows, &clients));
    }
    let mut pool = Pool::new(topology, &pool_cpus, &reserved, request.overprovisioned);
    let each = cpuset::seats_each(request);
    let mut seats = place::place(&mut pool, &PlanRequest { reactors: each, ..request.clone() })?;
    if request.cpus_per_osd.is_some() {
        seats = cpuset::distinct(seats, &pool_cpus);
    }
    let placed = seats.iter().map(|seats| cpuset::reactors(seats, request.reactors));
    let rows = placed.zip(alien_sets(request, &seats)).map(|(cpus, aliens)| (cpus, aliens, None)).collect();
    Ok(Grid::assemble(topology, request, rows, &clients))
}

/// The CPUs of all lists whose option `wanted` accepts.
pub(crate) fn named(request: &PlanRequest, wanted: impl Fn(&str) -> bool) -> CpuList {
    let lists = request.lists().into_iter().filter(|(option, _)| wanted(option));
    lists.flat_map(|(_, list)| list.iter()).collect()
}

fn check_lists(topology: &Topology, request: &PlanRequest) -> Result<(), PlanError> {
    for (what, count) in [("--osds", request.osds), ("--reactors", request.reactors)] {
        if count == 0 {
            return Err(PlanError::Zero { what });
        }
    }
    let lists = request.lists();
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
fn reactor_pool(topology: &Topology, request: &PlanRequest, reserved: &CpuList) -> CpuList {
    if let Some(cpus) = &request.cpus {
        return cpus.clone();
    }
    let free = topology.allowed().difference(reserved);
    let named = matches!(request.client_cpus, Some(ClientCpus::List(_)));
    let few = free.is_empty() || !named && request.seats() > free.len();
    if few && request.overprovisioned { topology.allowed().clone() } else { free }
}

fn too_few(request: &PlanRequest, clients: &CpuList, cpus: CpuList) -> PlanError {
    let kept = |(option, list): (&'static str, &CpuList)| match option {
        "--cpus" | "--client-cpus" => None,
        _ => Some(format!(", {list} being kept for {option}")),
    };
    let reserved: String = match request.cpus {
        Some(_) => " in --cpus".into(),
        None => std::iter::once(format!(", {clients} being kept for clients"))
            .filter(|_| !clients.is_empty())
            .chain(request.lists().into_iter().filter_map(kept))
            .collect(),
    };
    let (osds, reactors) = (request.osds, request.reactors);
    PlanError::TooFew { osds, reactors, need: request.seats(), have: cpus.len(), cpus, reserved }
}

/// Each OSD's alien CPUs, empty for "its reactors'": what reactors leave of a cpuset; else what was given, dealt out when
/// there are enough, else all for everybody.
fn alien_sets(request: &PlanRequest, seats: &[Vec<usize>]) -> Vec<CpuList> {
    if request.cpus_per_osd.is_some() {
        return seats.iter().map(|seats| cpuset::aliens(seats, request.reactors)).collect();
    }
    let cpus = request.alien_cpus.iter().flatten().collect::<Vec<usize>>();
    if cpus.len() < request.osds {
        return vec![cpus.iter().copied().collect(); request.osds];
    }
    let share = |n: usize| n * cpus.len() / request.osds;
    (0..request.osds).map(|osd| cpus[share(osd)..share(osd + 1)].iter().copied().collect()).collect()
}
