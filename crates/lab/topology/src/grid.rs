//! The CPU grid: who sits where. It is printed by `carmine plan` and at every start, and is part of every result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Cpu, CpuList, PlanRequest, Strategy, Topology, TopologyError, plan, render};

/// Imbalance of PGs between reactors that is worth a warning (design contract 2).
const PG_IMBALANCE_MAX: f64 = 0.10;

/// One reactor's CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactorSlot {
    /// Index of the reactor within its OSD.
    pub reactor: usize,
    #[serde(flatten)]
    pub place: Cpu,
    /// Another reactor, alien set or client has this CPU as well.
    pub shared: bool,
    /// An SMT sibling of this CPU is in use.
    pub smt_busy: bool,
}

/// Reactors that are not pinned (`--balance none`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floating {
    /// How many an OSD has.
    pub reactors: usize,
    /// CPUs that they and their aliens may run on; all OSDs have the same.
    pub cpus: CpuList,
}

/// Where an OSD's alien threads run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlienHome {
    pub cpus: CpuList,
    /// These are the OSD's own reactor CPUs: no other were given.
    pub own: bool,
    pub shared: bool,
}

/// One OSD process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdRow {
    pub osd: usize,
    /// None if they are not pinned.
    pub reactors: Vec<ReactorSlot>,
    /// Where reactors that are not pinned may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floating: Option<Floating>,
    pub aliens: AlienHome,
    /// Number of the device that it shares with other OSDs; absent if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_device: Option<usize>,
}

impl OsdRow {
    /// Number of reactors, pinned or not.
    pub fn reactor_count(&self) -> usize {
        self.floating.as_ref().map_or(self.reactors.len(), |floating| floating.reactors)
    }

    /// The CPU of each reactor that is pinned, in reactor order.
    pub fn reactor_cpus(&self) -> Vec<usize> {
        self.reactors.iter().map(|slot| slot.place.cpu).collect()
    }
}

/// The CPUs of an OSD.
pub(crate) struct Row {
    /// The CPU of each reactor.
    pub(crate) reactors: Vec<usize>,
    /// Empty: the reactors'.
    pub(crate) aliens: CpuList,
    pub(crate) floating: Option<Floating>,
}

/// A CPU of the clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSlot {
    #[serde(flatten)]
    pub place: Cpu,
    pub shared: bool,
    pub smt_busy: bool,
}

/// A complete plan of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// [`Topology::summary`] of the machine it is made for.
    pub topology: String,
    /// All CPUs of that machine, for a picture of it.
    #[serde(default)]
    pub machine: Vec<Cpu>,
    /// Made for the machine it was planned on; others can be printed but not started.
    pub live: bool,
    pub strategy: Strategy,
    pub overprovisioned: bool,
    pub osds: Vec<OsdRow>,
    pub clients: Vec<ClientSlot>,
    /// CPUs of the monitor and of what controls a load; empty: the clients'.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub system: CpuList,
    /// CPUs of a neighbour, which is busy while a point is measured.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub neighbour: CpuList,
    /// A CPU is shared with something else: per-core figures are left out.
    pub shared: bool,
    /// PG copies each reactor will own on average, when the number of PGs is known.
    pub pgs_per_reactor: Option<f64>,
    pub warnings: Vec<String>,
}

impl Grid {
    /// Places `request` on `topology`.
    pub fn plan(topology: &Topology, request: &PlanRequest) -> Result<Grid, TopologyError> {
        plan::plan(topology, request)
    }

    /// The grid of what each OSD and the clients get.
    pub(crate) fn assemble(
        topology: &Topology,
        request: &PlanRequest,
        rows: Vec<Row>,
        clients: &CpuList,
    ) -> Grid {
        let place = |cpu: usize| topology.cpu(cpu).cloned();
        let reactor = |(reactor, place)| ReactorSlot { reactor, place, shared: false, smt_busy: false };
        let osd = |(osd, row): (usize, Row)| {
            let own = row.aliens.is_empty();
            let floats = row.floating.as_ref().map(|floating| floating.cpus.clone());
            let home = floats.unwrap_or_else(|| row.reactors.iter().copied().collect());
            OsdRow {
                osd,
                aliens: AlienHome { own, cpus: if own { home } else { row.aliens }, shared: false },
                reactors: row.reactors.into_iter().filter_map(place).enumerate().map(reactor).collect(),
                floating: row.floating,
                shared_device: (request.osds_per_device > 1).then(|| osd / request.osds_per_device),
            }
        };
        let client = |place| ClientSlot { place, shared: false, smt_busy: false };
        let (pgs_per_reactor, pg_warning) = pg_share(request);
        let mut grid = Grid {
            topology: topology.summary(),
            machine: topology.cpus().to_vec(),
            live: topology.live,
            strategy: request.strategy,
            overprovisioned: request.overprovisioned,
            osds: rows.into_iter().enumerate().map(osd).collect(),
            clients: clients.iter().filter_map(place).map(client).collect(),
            system: request.system_cpus.clone().unwrap_or_default(),
            neighbour: request.neighbour_cpus.clone().unwrap_or_default(),
            shared: false,
            pgs_per_reactor,
            warnings: pg_warning.into_iter().collect(),
        };
        grid.mark_busy_siblings();
        grid.mark_shared();
        grid
    }

    /// The reactors that are not pinned, by OSD.
    fn floats(&self) -> impl Iterator<Item = &Floating> {
        self.osds.iter().filter_map(|osd| osd.floating.as_ref())
    }

    /// Marks what sits beside an SMT sibling that is in use.
    fn mark_busy_siblings(&mut self) {
        let floating = self.floats().flat_map(|floating| floating.cpus.to_vec());
        let of_osds = floating.chain(self.allocated_cpus().to_vec());
        let in_use: CpuList =
            of_osds.chain(&self.client_cpus()).chain(&self.system).chain(&self.neighbour).collect();
        let used = || self.machine.iter().filter(|cpu| in_use.contains(cpu.cpu));
        let is_busy = |cpu: &&Cpu| used().any(|other| other.core == cpu.core && other.cpu != cpu.cpu);
        let busy: CpuList = self.machine.iter().filter(is_busy).map(|cpu| cpu.cpu).collect();
        let reactors = self.osds.iter_mut().flat_map(|osd| &mut osd.reactors);
        reactors.for_each(|slot| slot.smt_busy = busy.contains(slot.place.cpu));
        self.clients.iter_mut().for_each(|slot| slot.smt_busy = busy.contains(slot.place.cpu));
    }

    /// Marks what has a CPU together with something else.
    fn mark_shared(&mut self) {
        // OSDs may have alien CPUs in common.
        let aliens = self.osds.iter().filter(|osd| !osd.aliens.own).flat_map(|osd| &osd.aliens.cpus);
        let aliens: CpuList = aliens.collect();
        // The same CPUs are for all OSDs that are not pinned: together they share them only if they have more reactors.
        let slice: CpuList = self.floats().flat_map(|floating| &floating.cpus).collect();
        let crowded = self.floats().map(|floating| floating.reactors).sum::<usize>() > slice.len();
        let pinned = self.osds.iter().flat_map(OsdRow::reactor_cpus).chain(self.client_cpus().to_vec());
        let mut uses: BTreeMap<usize, usize> = BTreeMap::new();
        for cpu in pinned.chain(&aliens).chain(&slice).chain(&self.system).chain(&self.neighbour) {
            *uses.entry(cpu).or_default() += 1;
        }
        let shared = |cpu: usize| uses.get(&cpu).is_some_and(|n| *n > 1);
        for osd in &mut self.osds {
            osd.reactors.iter_mut().for_each(|slot| slot.shared = shared(slot.place.cpu));
            osd.aliens.shared = !osd.aliens.own && osd.aliens.cpus.iter().any(shared);
        }
        self.clients.iter_mut().for_each(|slot| slot.shared = shared(slot.place.cpu));
        self.shared = crowded || uses.values().any(|n| *n > 1);
    }

    /// The distinct CPUs of reactors and aliens: the cores that IOPS per core *allocated* counts.
    pub fn allocated_cpus(&self) -> CpuList {
        let reactors = self.osds.iter().flat_map(OsdRow::reactor_cpus);
        reactors.chain(self.osds.iter().flat_map(|osd| osd.aliens.cpus.to_vec())).collect()
    }

    /// The same placement for load from within the OSDs, which has no client threads: a CPU is shared only if reactors or
    /// aliens have it together. (SMT marks stay as they were: they are never too few.)
    pub fn without_clients(mut self) -> Grid {
        self.clients.clear();
        self.mark_shared();
        self
    }

    /// The CPUs of the monitor and of what controls a load.
    pub fn system_cpus(&self) -> CpuList {
        if self.system.is_empty() { self.client_cpus() } else { self.system.clone() }
    }

    /// The CPUs of clients.
    pub fn client_cpus(&self) -> CpuList {
        self.clients.iter().map(|slot| slot.place.cpu).collect()
    }

    /// The grid as text for a terminal, one row per OSD.
    pub fn render(&self) -> String {
        render::render(self)
    }
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
