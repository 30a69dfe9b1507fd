//! From a request to a grid: which CPUs may be used, which thread gets them, and what is shared.

use std::fmt;
use std::str::FromStr;

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::cpulist::{refuse, wrong};
use crate::grid::{AlienHome, ClientSlot, Floating, Grid, OsdRow, ReactorSlot};
use crate::place::{self, Pool};
use crate::{CpuList, Device, Topology, TopologyError};

/// Imbalance of PGs between reactors that is worth a warning (design contract 2).
const PG_IMBALANCE_MAX: f64 = 0.10;

carmine_types::words! {
    /// The placement of an OSD's reactors relative to each other. All strategies use SMT siblings last.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        /// An OSD on the NUMA node of its drive, there within one L3 group where it fits.
        Drive = "drive",
        /// Reactors are not pinned: the scheduler decides, within the CPUs that OSDs may use.
        None = "none",
    }
}

/// The CPUs of clients as they are asked for. Those that are not named are whole cores, from the highest down, taken from the
/// sockets in turn. Without any wish it is a third of the CPUs, but at least one, and fewer where that leaves each reactor a core
/// of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCpus {
    /// These CPUs.
    List(CpuList),
    /// This number of CPUs.
    Count(usize),
    /// All that nothing else needs.
    Rest,
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

carmine_types::as_text!(ClientCpus);

carmine_types::defaults! {
    /// The threads that are to be placed.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
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
        /// CPUs of the monitor and the controller; the clients' when absent.
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
        /// OSDs that share a device, 1 if each has its own: the grid shows which OSDs share one.
        pub osds_per_device: usize = 1,
        /// The drive of each OSD, or of each group that shares one, by its name; empty if they are not known.
        pub drives: Vec<String>,
    }
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

    /// The name of an OSD's drive.
    pub(crate) fn drive(&self, osd: usize) -> Option<&str> {
        self.drives.get(osd / self.osds_per_device.max(1)).map(String::as_str)
    }

    /// The NUMA node of an OSD's drive.
    ///
    /// # Errors
    /// It is not known.
    pub(crate) fn drive_node(&self, topology: &Topology, osd: usize) -> Result<usize, TopologyError> {
        let name = self.drive(osd);
        let drive = name.and_then(|name| topology.drives().find(|drive| drive.name == name));
        let lacks = name
            .map_or("no drive is known".to_owned(), |name| format!("the NUMA node of {name} is not known"));
        drive.and_then(|drive: &Device| drive.node).ok_or_else(|| {
            wrong!(
                "--balance drive: OSD {osd}: {lacks}; name its drive with --devs, describe drives with --topology \
                 2x64x2:drives=8, or take another --balance"
            )
        })
    }

    /// The lists that were given, by their options.
    fn lists(&self) -> Vec<(&'static str, &CpuList)> {
        let clients = if let Some(ClientCpus::List(list)) = &self.client_cpus { Some(list) } else { None };
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

impl Grid {
    /// Places `request` on `topology`: first the CPUs that were named, then the clients', which depend on nothing but the topology
    /// and on how many reactors there are; the strategy places the reactors in what is left.
    pub fn plan(topology: &Topology, request: &PlanRequest) -> Result<Grid, TopologyError> {
        check_lists(topology, request)?;
        let clients = place::clients(topology, request)?;
        let reserved = named(request, |option| option != "--cpus").union(&clients);
        let pool = reactor_pool(topology, request, &reserved);
        check_cpusets(request, &pool)?;
        check_room(request, &clients, &pool)?;
        let floats = request.strategy == Strategy::None;
        let seats = if floats {
            vec![Vec::new(); request.osds]
        } else {
            let mut seats = Pool::new(topology, &pool, &reserved, request.overprovisioned);
            let seats =
                seats.deal(topology, &PlanRequest { reactors: request.seats_each(), ..request.clone() })?;
            if request.cpus_per_osd.is_some() { distinct(seats, &pool) } else { seats }
        };
        let place = |cpu: usize| topology.cpu(cpu).cloned();
        let reactor = |(reactor, place)| ReactorSlot { reactor, place, shared: false, smt_busy: false };
        let osd = |(osd, (seats, aliens)): (usize, (&Vec<usize>, CpuList))| {
            let reactors = || seats.iter().copied().cycle().take(request.reactors);
            let own = aliens.is_empty();
            let home = || if floats { pool.clone() } else { reactors().collect() };
            OsdRow {
                osd,
                aliens: AlienHome { own, cpus: if own { home() } else { aliens }, shared: false },
                reactors: reactors().filter_map(place).enumerate().map(reactor).collect(),
                floating: floats.then(|| Floating { reactors: request.reactors, cpus: pool.clone() }),
                shared_device: (request.osds_per_device > 1).then(|| osd / request.osds_per_device),
                drive: request.drive(osd).map(str::to_owned),
            }
        };
        let client = |place| ClientSlot { place, shared: false, smt_busy: false };
        let (pgs_per_reactor, pg_warning) = pg_share(request);
        let grid = Grid {
            topology: topology.summary(),
            machine: topology.cpus().to_vec(),
            devices: topology.devices().to_vec(),
            live: topology.live,
            strategy: request.strategy,
            overprovisioned: request.overprovisioned,
            osds: seats.iter().zip(alien_sets(request, &seats)).enumerate().map(osd).collect(),
            clients: clients.iter().filter_map(place).map(client).collect(),
            system: request.system_cpus.clone().unwrap_or_default(),
            neighbour: request.neighbour_cpus.clone().unwrap_or_default(),
            shared: false,
            disturbed: Vec::new(),
            pgs_per_reactor,
            warnings: pg_warning.into_iter().collect(),
        };
        Ok(grid.marked())
    }
}

/// The CPUs of all lists whose option `wanted` accepts.
pub(crate) fn named(request: &PlanRequest, wanted: impl Fn(&str) -> bool) -> CpuList {
    let lists = request.lists().into_iter().filter(|(option, _)| wanted(option));
    lists.flat_map(|(_, list)| list.iter()).collect()
}

fn check_lists(topology: &Topology, request: &PlanRequest) -> Result<(), TopologyError> {
    let confined = request.cpus_per_osd.unwrap_or(1);
    for (what, count) in
        [("--osds", request.osds), ("--reactors", request.reactors), ("--confine-cpus", confined)]
    {
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
    let kept = |who: &str, list: &CpuList| match list.is_empty() {
        true => String::new(),
        false => format!(", {list} being kept for {who}"),
    };
    let others =
        request.lists().into_iter().filter(|(option, _)| !["--cpus", "--client-cpus"].contains(option));
    let reserved = match request.cpus {
        Some(_) => " in --cpus".into(),
        None => others.fold(kept("clients", clients), |text, (option, list)| text + &kept(option, list)),
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
    let cpus: Vec<usize> = request.alien_cpus.iter().flat_map(CpuList::iter).collect();
    if cpus.len() < request.osds {
        return vec![cpus.iter().copied().collect(); request.osds];
    }
    let share = |n: usize| n * cpus.len() / request.osds;
    (0..request.osds).map(|osd| cpus[share(osd)..share(osd + 1)].iter().copied().collect()).collect()
}

/// Expected PG copies per reactor, and a warning when whole PGs can't be dealt evenly.
fn pg_share(request: &PlanRequest) -> (Option<f64>, Option<String>) {
    let reactors = request.osds.saturating_mul(request.reactors);
    if request.pgs == 0 || reactors == 0 {
        return (None, None);
    }
    let copies = f64::from(request.pgs) * f64::from(request.size.max(1));
    let mean = copies / reactors as f64;
    let busiest = (copies / request.osds as f64 / request.reactors as f64).ceil();
    let above = busiest / mean - 1.0;
    let warning = (above > PG_IMBALANCE_MAX).then(|| {
        format!(
            "{mean:.1} PGs per reactor can't be dealt evenly: the busiest reactor will have at least {busiest:.0} (+{:.0} %); \
             raise --pgs",
            above * 100.0
        )
    });
    (Some(mean), warning)
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
}
