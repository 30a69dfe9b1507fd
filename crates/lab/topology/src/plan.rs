//! From a request to a grid: which CPUs may be used, who gets them, and what is shared.

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::clients::{self, ClientCpus};
use crate::error::refuse;
use crate::grid::{Floating, Grid, Row};
use crate::place::{self, Pool};
use crate::{CpuList, Topology, TopologyError};

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

carmine_types::defaults! {
    /// The threads that are to be placed.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct PlanRequest {
        pub osds: usize = 1,
        /// Reactors of each OSD.
        pub reactors: usize = 1,
        pub strategy: Strategy,
        /// CPUs that reactors may have; all that are left to them when absent.
        pub cpus: Option<CpuList>,
        /// CPUs of clients; a share of the machine when absent (see [`ClientCpus`]).
        pub client_cpus: Option<ClientCpus>,
        /// CPUs of alien threads; each OSD's own reactor CPUs when absent.
        pub alien_cpus: Option<CpuList>,
        /// CPUs of the monitor and of what controls a load; the clients' when absent.
        pub system_cpus: Option<CpuList>,
        /// CPUs that are kept free for a neighbour, which keeps them busy while a point is measured.
        pub neighbour_cpus: Option<CpuList>,
        /// Lets reactors, aliens, clients and the others share CPUs; what is shared is marked.
        pub overprovisioned: bool,
        /// PGs of the pool, 0 when not known: for the expected PGs per reactor.
        pub pgs: u32,
        /// Replicas of each PG.
        pub size: u32 = 1,
        /// CPUs of each OSD, reactors and aliens together (`--confine cpuset`); when absent each reactor has one, and aliens
        /// are not confined. The reactors take the first of them and the aliens the rest; with fewer CPUs than reactors the
        /// reactors share them.
        pub cpus_per_osd: Option<usize>,
        /// OSDs that share a device, 1 if each has its own: the grid says who shares with whom.
        #[serde(default = "alone")]
        pub osds_per_device: usize = alone(),
    }
}

fn alone() -> usize {
    1
}

impl PlanRequest {
    /// CPUs that reactors, or whole cpusets, need.
    pub(crate) fn seats(&self) -> usize {
        self.osds.saturating_mul(self.seats_each())
    }

    /// CPUs that each OSD takes.
    fn seats_each(&self) -> usize {
        self.cpus_per_osd.unwrap_or(self.reactors)
    }

    /// The lists that were given, by their options.
    fn lists(&self) -> Vec<(&'static str, &CpuList)> {
        let named = [
            ("--cpus", self.cpus.as_ref()),
            (
                "--client-cpus",
                if let Some(ClientCpus::List(list)) = &self.client_cpus { Some(list) } else { None },
            ),
            ("--alien-cpus", self.alien_cpus.as_ref()),
            ("--system-cpus", self.system_cpus.as_ref()),
            ("--neighbour-cpus", self.neighbour_cpus.as_ref()),
        ];
        named.into_iter().filter_map(|(option, list)| Some((option, list?))).collect()
    }
}

/// First the CPUs that were named, then the clients', which depend on nothing but the topology and on how many reactors there
/// are; the strategy places the reactors in what is left.
pub(crate) fn plan(topology: &Topology, request: &PlanRequest) -> Result<Grid, TopologyError> {
    check_lists(topology, request)?;
    let clients = clients::choose(topology, request)?;
    let reserved = named(request, |option| option != "--cpus").union(&clients);
    let pool_cpus = reactor_pool(topology, request, &reserved);
    check_cpusets(request, &pool_cpus)?;
    check_room(request, &clients, &pool_cpus)?;
    let each = request.seats_each();
    let (seats, floating) = if request.strategy == Strategy::None {
        let floating = Floating { reactors: request.reactors, cpus: pool_cpus };
        (vec![Vec::new(); request.osds], Some(floating))
    } else {
        let mut pool = Pool::new(topology, &pool_cpus, &reserved, request.overprovisioned);
        let seats = place::place(&mut pool, &PlanRequest { reactors: each, ..request.clone() })?;
        (if request.cpus_per_osd.is_some() { distinct(seats, &pool_cpus) } else { seats }, None)
    };
    let aliens = alien_sets(request, &seats);
    let row = |(seats, aliens): (Vec<usize>, CpuList)| Row {
        reactors: seats.iter().copied().cycle().take(request.reactors).collect(),
        aliens,
        floating: floating.clone(),
    };
    let rows = seats.into_iter().zip(aliens).map(row).collect();
    Ok(Grid::assemble(topology, request, rows, &clients))
}

/// The CPUs of all lists whose option `wanted` accepts.
pub(crate) fn named(request: &PlanRequest, wanted: impl Fn(&str) -> bool) -> CpuList {
    let lists = request.lists().into_iter().filter(|(option, _)| wanted(option));
    lists.flat_map(|(_, list)| list.iter()).collect()
}

fn check_lists(topology: &Topology, request: &PlanRequest) -> Result<(), TopologyError> {
    let counts = [("--osds", request.osds), ("--reactors", request.reactors)];
    let confined = [("--confine-cpus", request.cpus_per_osd.unwrap_or(1))];
    for (what, count) in counts.into_iter().chain(confined) {
        refuse!(count == 0, "{what} is 0: at least 1 is needed");
    }
    let (lists, all, allowed) = (request.lists(), topology.all(), topology.allowed());
    for (at, (option, list)) in lists.iter().enumerate() {
        let (unknown, denied) = (list.difference(&all), list.difference(allowed));
        refuse!(list.is_empty(), "{option} is an empty list; give at least one CPU or leave it out");
        refuse!(
            !unknown.is_empty(),
            "{option} {unknown}: no such CPU here; topology {} has {all}",
            topology.name
        );
        refuse!(
            !denied.is_empty(),
            "{option} {denied}: this process may not run there (allowed: {allowed}); change {option}, or the container's cpuset \
             or taskset that limits it"
        );
        for (first, other) in lists.iter().take(at).filter(|_| !request.overprovisioned) {
            let both = list.intersection(other);
            refuse!(
                !both.is_empty(),
                "{first} and {option} both have CPU {both}: make the lists disjoint, or share CPUs with --overprovisioned"
            );
        }
    }
    Ok(())
}

/// Refuses a cpuset that `pool` cannot give, or that makes reactors share CPUs unasked.
fn check_cpusets(request: &PlanRequest, pool: &CpuList) -> Result<(), TopologyError> {
    let Some(each) = request.cpus_per_osd else { return Ok(()) };
    let (have, need, reactors) = (pool.len(), request.seats(), request.reactors);
    refuse!(
        request.alien_cpus.is_some(),
        "--alien-cpus and --confine cpuset: aliens run on what the reactors leave of their OSD's CPUs; leave one of the two out"
    );
    refuse!(
        request.strategy == Strategy::None,
        "--balance none and --confine cpuset: a cpuset gives each OSD CPUs of its own, to which its reactors are pinned; name \
         the CPUs of all OSDs with --cpus, or take --confine quota"
    );
    refuse!(
        each > have,
        "--confine-cpus {each}: there are {have} CPUs for OSDs ({pool}); lower it, widen --cpus, or take --confine quota"
    );
    refuse!(
        !request.overprovisioned && need > have,
        "too few CPUs: {} x {} of --confine-cpus need {need}, there are {have} ({pool}); lower --osds or --confine-cpus, widen \
         --cpus, or share CPUs with --overprovisioned",
        counted(request.osds, "OSD"),
        counted(each, "CPU")
    );
    refuse!(
        !request.overprovisioned && reactors > each,
        "--reactors {reactors} and --confine-cpus {each}: reactors would share CPUs; lower --reactors, raise --confine-cpus, or \
         allow it with --overprovisioned"
    );
    Ok(())
}

/// Replaces CPUs that an OSD was dealt twice, which happens where CPUs are shared: a cpuset of N has N CPUs.
fn distinct(dealt: Vec<Vec<usize>>, pool: &CpuList) -> Vec<Vec<usize>> {
    let mut uses: Vec<(usize, usize)> = pool.iter().map(|cpu| (0, cpu)).collect();
    let mut deal = |seats: Vec<usize>| {
        let mut own: Vec<usize> = Vec::with_capacity(seats.len());
        for seat in seats {
            let is_new = |cpu: &usize| !own.contains(cpu);
            let others = || uses.iter().filter(|(_, cpu)| is_new(cpu)).min().map(|(_, cpu)| *cpu);
            let next = Some(seat).filter(is_new).or_else(others);
            own.extend(next);
        }
        uses.iter_mut().filter(|(_, cpu)| own.contains(cpu)).for_each(|(count, _)| *count += 1);
        own
    };
    dealt.into_iter().map(&mut deal).collect()
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

/// Fails if reactors need more CPUs than there are.
fn check_room(request: &PlanRequest, clients: &CpuList, cpus: &CpuList) -> Result<(), TopologyError> {
    let kept = |(option, list): (&'static str, &CpuList)| match option {
        "--cpus" | "--client-cpus" => String::new(),
        _ => format!(", {list} being kept for {option}"),
    };
    let of_clients = || match clients.is_empty() {
        true => String::new(),
        false => format!(", {clients} being kept for clients"),
    };
    let reserved = match request.cpus {
        Some(_) => " in --cpus".into(),
        None => of_clients() + &request.lists().into_iter().map(kept).collect::<String>(),
    };
    refuse!(
        !request.overprovisioned && request.seats() > cpus.len(),
        "too few CPUs: {} x {} need {}, there are {} ({cpus}){reserved}; lower --osds or --reactors, widen --cpus, or share CPUs \
         with --overprovisioned",
        counted(request.osds, "OSD"),
        counted(request.reactors, "reactor"),
        request.seats(),
        cpus.len()
    );
    Ok(())
}

/// Each OSD's alien CPUs, empty for "its reactors'": what reactors leave of a cpuset; else what was given, dealt out when
/// there are enough, else all for everybody.
fn alien_sets(request: &PlanRequest, seats: &[Vec<usize>]) -> Vec<CpuList> {
    if request.cpus_per_osd.is_some() {
        return seats.iter().map(|seats| seats.iter().skip(request.reactors).copied().collect()).collect();
    }
    let cpus = request.alien_cpus.iter().flatten().collect::<Vec<usize>>();
    if cpus.len() < request.osds {
        return vec![cpus.iter().copied().collect(); request.osds];
    }
    let share = |n: usize| n * cpus.len() / request.osds;
    (0..request.osds).map(|osd| cpus[share(osd)..share(osd + 1)].iter().copied().collect()).collect()
}
