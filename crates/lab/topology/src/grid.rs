//! The CPU grid: who sits where. It is printed by `carmine plan` and at every start, and is part of every result.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Cpu, CpuList, PlanError, PlanRequest, Strategy, Topology, plan, render};

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
    pub reactors: Vec<ReactorSlot>,
    pub aliens: AlienHome,
    /// Number of the device that it shares with other OSDs; absent if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_device: Option<usize>,
}

impl OsdRow {
    /// The CPU of each reactor, in reactor order: what `carmine_reactor::Config::cpus` takes.
    pub fn reactor_cpus(&self) -> Vec<usize> {
        self.reactors.iter().map(|slot| slot.place.cpu).collect()
    }
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
    /// Made for the machine it was planned on; others can be printed but not started.
    pub live: bool,
    pub strategy: Strategy,
    pub overprovisioned: bool,
    pub osds: Vec<OsdRow>,
    pub clients: Vec<ClientSlot>,
    /// A CPU is shared with something else: per-core figures are left out.
    pub shared: bool,
    /// PG copies each reactor will own on average, when the number of PGs is known.
    pub pgs_per_reactor: Option<f64>,
    pub warnings: Vec<String>,
}

impl Grid {
    /// Places `request` on `topology`.
    pub fn plan(topology: &Topology, request: &PlanRequest) -> Result<Grid, PlanError> {
        plan::plan(topology, request)
    }

    pub(crate) fn assemble(
        topology: &Topology,
        request: &PlanRequest,
        osds: Vec<OsdRow>,
        clients: Vec<ClientSlot>,
    ) -> Grid {
        let shared = osds.iter().any(|o| o.aliens.shared || o.reactors.iter().any(|r| r.shared))
            || clients.iter().any(|c| c.shared);
        let (pgs_per_reactor, pg_warning) = pg_share(request);
        let mut warnings = Vec::new();
        if request.client_cpus.is_none() && clients.len() < request.clients {
            warnings.push(format!("{} of {} client CPUs could be had", clients.len(), request.clients));
        }
        warnings.extend(pg_warning);
        Grid {
            topology: topology.summary(),
            live: topology.is_live(),
            strategy: request.strategy,
            overprovisioned: request.overprovisioned,
            osds,
            clients,
            shared,
            pgs_per_reactor,
            warnings,
        }
    }

    /// The distinct CPUs of reactors and aliens: the cores that IOPS per core *allocated* counts.
    pub fn allocated_cpus(&self) -> CpuList {
        let reactors = self.osds.iter().flat_map(OsdRow::reactor_cpus);
        reactors.chain(self.osds.iter().flat_map(|osd| osd.aliens.cpus.to_vec())).collect()
    }

    /// The same placement for load from within the OSDs, which has no client threads: a CPU is shared only if reactors or
    /// aliens have it together. (SMT marks stay as they were: they are never too few.)
    pub fn without_clients(mut self) -> Grid {
        let mut uses: BTreeMap<usize, usize> = BTreeMap::new();
        // OSDs may have alien CPUs in common, as in the plan.
        let given_aliens: BTreeSet<usize> =
            self.osds.iter().filter(|osd| !osd.aliens.own).flat_map(|osd| osd.aliens.cpus.iter()).collect();
        for cpu in self.osds.iter().flat_map(OsdRow::reactor_cpus).chain(given_aliens) {
            *uses.entry(cpu).or_default() += 1;
        }
        let shared = |cpu: usize| uses.get(&cpu).is_some_and(|n| *n > 1);
        for osd in &mut self.osds {
            osd.reactors.iter_mut().for_each(|slot| slot.shared = shared(slot.place.cpu));
            osd.aliens.shared = !osd.aliens.own && osd.aliens.cpus.iter().any(shared);
        }
        self.clients.clear();
        self.shared = self.osds.iter().any(|o| o.aliens.shared || o.reactors.iter().any(|r| r.shared));
        self
    }

    /// The CPUs of clients; the monitor sleeps there, too.
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
