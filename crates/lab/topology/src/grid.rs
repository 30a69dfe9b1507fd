//! The CPU grid: which thread runs on which CPU. It is printed by `carmine plan` and at every start, and is part of every result.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::{columns, counted};
use serde::{Deserialize, Serialize};

use crate::{Cpu, CpuList, Device, DeviceKind, Strategy};

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
    /// Name of its drive, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
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

/// A CPU of the clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSlot {
    #[serde(flatten)]
    pub place: Cpu,
    pub shared: bool,
    pub smt_busy: bool,
}

/// A reactor that is far from its OSD's drive, or whose CPU is interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbed {
    pub osd: usize,
    /// Index of the reactor within its OSD.
    pub reactor: usize,
    pub cpu: usize,
    /// It is on another NUMA node than the OSD's drive.
    pub far: bool,
    /// Names of the devices whose interrupts land on its CPU. Those that come for its own operations only do not count
    /// ([`Device::queue_per_cpu`]).
    pub interrupts: Vec<String>,
}

/// A complete plan of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// [`Topology::summary`] of the machine it is made for.
    pub topology: String,
    /// All CPUs of that machine, for a picture of it.
    #[serde(default)]
    pub machine: Vec<Cpu>,
    /// Its drives and network interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Made for the machine it was planned on; others can be printed but not started.
    pub live: bool,
    pub strategy: Strategy,
    pub overprovisioned: bool,
    pub osds: Vec<OsdRow>,
    pub clients: Vec<ClientSlot>,
    /// CPUs of the monitor and the controller; empty: the clients'.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub system: CpuList,
    /// CPUs of a neighbour, which is busy while a point is measured.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub neighbour: CpuList,
    /// A CPU is shared with something else: per-core figures are left out.
    pub shared: bool,
    /// Reactors that are far from a drive or whose CPUs are interrupted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Disturbed>,
    /// PG copies each reactor will own on average, when the number of PGs is known.
    pub pgs_per_reactor: Option<f64>,
    pub warnings: Vec<String>,
}

impl Grid {
    /// The reactors that are not pinned, by OSD.
    fn floats(&self) -> impl Iterator<Item = &Floating> {
        self.osds.iter().filter_map(|osd| osd.floating.as_ref())
    }

    /// The number of users of each CPU that is in use.
    fn uses(&self) -> BTreeMap<usize, usize> {
        // OSDs may have alien CPUs in common.
        let aliens = self.osds.iter().filter(|osd| !osd.aliens.own).flat_map(|osd| osd.aliens.cpus.iter());
        // The same CPUs are for all OSDs that are not pinned.
        let slice = self.floats().flat_map(|floating| floating.cpus.iter());
        let once: [CpuList; 2] = [aliens.collect(), slice.collect()];
        let others = once.iter().chain([&self.system, &self.neighbour]).flat_map(CpuList::iter);
        let pinned = self.osds.iter().flat_map(OsdRow::reactor_cpus).chain(self.client_cpus().to_vec());
        let mut uses = BTreeMap::new();
        for cpu in pinned.chain(others) {
            *uses.entry(cpu).or_default() += 1;
        }
        uses
    }

    /// The same with its marks, after its rows have changed.
    #[must_use]
    pub fn marked(mut self) -> Grid {
        self.mark_busy_siblings();
        self.mark_shared();
        self.disturbed = self.find_disturbed();
        self
    }

    /// The drive of an OSD, if the machine has it.
    fn drive(&self, osd: &OsdRow) -> Option<&Device> {
        self.devices.iter().find(|device| Some(&device.name) == osd.drive.as_ref())
    }

    /// Finds the reactors that are far from their drives, or whose CPUs are interrupted.
    fn find_disturbed(&self) -> Vec<Disturbed> {
        let interrupting = |cpu: usize| {
            let all = self.devices.iter().filter(|device| !device.queue_per_cpu);
            all.filter(|device| device.interrupts.contains(cpu)).map(|device| device.name.clone()).collect()
        };
        let slots = self.osds.iter().flat_map(|osd| osd.reactors.iter().map(move |slot| (osd, slot)));
        let look = |(osd, slot): (&OsdRow, &ReactorSlot)| {
            let node = self.drive(osd).and_then(|drive| drive.node);
            Disturbed {
                osd: osd.osd,
                reactor: slot.reactor,
                cpu: slot.place.cpu,
                far: node.is_some_and(|node| node != slot.place.node),
                interrupts: interrupting(slot.place.cpu),
            }
        };
        slots.map(look).filter(|found| found.far || !found.interrupts.is_empty()).collect()
    }

    /// Marks what sits beside an SMT sibling that is in use.
    fn mark_busy_siblings(&mut self) {
        let uses = self.uses();
        let used: Vec<&Cpu> = self.machine.iter().filter(|cpu| uses.contains_key(&cpu.cpu)).collect();
        let is_busy =
            |place: &Cpu| used.iter().any(|other| other.core == place.core && other.cpu != place.cpu);
        let reactors = self.osds.iter_mut().flat_map(|osd| &mut osd.reactors);
        reactors.for_each(|slot| slot.smt_busy = is_busy(&slot.place));
        self.clients.iter_mut().for_each(|slot| slot.smt_busy = is_busy(&slot.place));
    }

    /// Marks what has a CPU together with something else.
    fn mark_shared(&mut self) {
        // OSDs that are not pinned share their CPUs only if together they have more reactors.
        let slice: CpuList = self.floats().flat_map(|floating| floating.cpus.iter()).collect();
        let crowded = self.floats().map(|floating| floating.reactors).sum::<usize>() > slice.len();
        let uses = self.uses();
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
        let of_osd = |osd: &OsdRow| [osd.reactor_cpus(), osd.aliens.cpus.to_vec()].concat();
        self.osds.iter().flat_map(of_osd).collect()
    }

    /// The same placement for load from within the OSDs, which has no client threads: a CPU is shared only if reactors or
    /// aliens have it together. (SMT marks stay as they were: they are never too few.)
    pub fn without_clients(mut self) -> Grid {
        self.clients.clear();
        self.mark_shared();
        self
    }

    /// The CPUs of the monitor and the controller.
    pub fn system_cpus(&self) -> CpuList {
        if self.system.is_empty() { self.client_cpus() } else { self.system.clone() }
    }

    /// The CPUs of clients.
    pub fn client_cpus(&self) -> CpuList {
        self.clients.iter().map(|slot| slot.place.cpu).collect()
    }

    /// The grid as text for a terminal, one row per OSD.
    pub fn render(&self) -> String {
        let floats = self.strategy == Strategy::None;
        let floats = if floats { ": reactors are not pinned, the scheduler decides" } else { "" };
        let shares = if self.overprovisioned { ", overprovisioned" } else { "" };
        let mut lines = vec![
            format!("topology  {}", self.topology),
            format!("strategy  {}{floats}{shares}", self.strategy),
        ];
        lines.push(self.table().trim_end().to_owned());
        lines.push(self.clients_line());
        lines.extend(self.devices.iter().filter(|device| device.kind == DeviceKind::Nic).map(nic_line));
        let others = [("system", &self.system), ("neighbour", &self.neighbour)];
        let others = others.into_iter().filter(|(_, cpus)| !cpus.is_empty());
        lines.extend(others.map(|(who, cpus)| format!("{who:<9} CPU {cpus}")));
        let allocated = self.allocated_cpus();
        lines.push(format!("allocated {} ({allocated})", counted(allocated.len(), "CPU")));
        if self.shared {
            let why = "something else runs on this CPU, too; per-core figures are left out";
            lines.push(format!("marks     * SHARED: {why}"));
        }
        let reactors = self.osds.iter().flat_map(|osd| &osd.reactors).map(|slot| slot.smt_busy);
        if reactors.chain(self.clients.iter().map(|slot| slot.smt_busy)).any(|is_busy| is_busy) {
            lines.push("marks     + an SMT sibling of this CPU is in use".to_owned());
        }
        if self.disturbed.iter().any(|found| found.far) {
            lines.push("marks     ~ on another NUMA node than the OSD's drive".to_owned());
        }
        let names: BTreeSet<&str> =
            self.disturbed.iter().flat_map(|found| &found.interrupts).map(String::as_str).collect();
        if !names.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            lines.push(format!("marks     ! interrupts land on this CPU: {names}"));
        }
        lines.extend(self.warnings.iter().map(|warning| format!("warning   {warning}")));
        lines.join("\n") + "\n"
    }

    fn table(&self) -> String {
        let header = ["OSD", "reactor CPUs", "socket", "node", "L3", "alien CPUs", "PGs/reactor"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let pgs = self.pgs_per_reactor.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
        rows.extend(self.osds.iter().map(|osd| {
            let places = |key: fn(&Cpu) -> usize| match osd.floating {
                Some(_) => "-".to_owned(),
                None => osd.reactors.iter().map(|slot| key(&slot.place)).collect::<CpuList>().to_string(),
            };
            let [socket, node, l3] = [places(|c| c.socket), places(|c| c.node), places(|c| c.l3)];
            let AlienHome { cpus, own, shared } = &osd.aliens;
            let aliens =
                if *own { "its reactors'".into() } else { format!("{cpus}{}", marks(*shared, false)) };
            vec![osd.osd.to_string(), self.reactor_cell(osd), socket, node, l3, aliens, pgs.clone()]
        }));
        if self.osds.iter().any(|osd| osd.shared_device.is_some()) {
            let devices = self.osds.iter().map(|osd| osd.shared_device.map_or("-".into(), |n| n.to_string()));
            let column = std::iter::once("shared device".to_owned()).chain(devices);
            rows.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
        }
        if self.osds.iter().any(|osd| osd.drive.is_some()) {
            let header = ["drive", "its node", "its interrupts"].map(str::to_owned);
            let cells = std::iter::once(header).chain(self.osds.iter().map(|osd| self.drive_cells(osd)));
            rows.iter_mut().zip(cells).for_each(|(row, cells)| row.extend(cells));
        }
        columns(&rows, |_| false)
    }

    /// Name, node and interrupts of an OSD's drive.
    fn drive_cells(&self, osd: &OsdRow) -> [String; 3] {
        let none = || "-".to_owned();
        let drive = self.drive(osd);
        let node = drive.and_then(|drive| drive.node).map_or_else(none, |node| node.to_string());
        let interrupts = match drive {
            Some(drive) if drive.queue_per_cpu => "asking CPU".to_owned(),
            Some(drive) if !drive.interrupts.is_empty() => drive.interrupts.to_string(),
            _ => none(),
        };
        [osd.drive.clone().unwrap_or_else(none), node, interrupts]
    }

    /// The CPUs of an OSD's reactors with their marks.
    fn reactor_cell(&self, osd: &OsdRow) -> String {
        if let Some(Floating { reactors, cpus }) = &osd.floating {
            return format!("{reactors} on {cpus}");
        }
        let cell = |slot: &ReactorSlot| {
            let is_it = |found: &&Disturbed| found.osd == osd.osd && found.reactor == slot.reactor;
            let found = self.disturbed.iter().find(is_it);
            let far = if found.is_some_and(|found| found.far) { "~" } else { "" };
            let hit = if found.is_some_and(|found| !found.interrupts.is_empty()) { "!" } else { "" };
            format!("{}{}{far}{hit}", slot.place.cpu, marks(slot.shared, slot.smt_busy))
        };
        osd.reactors.iter().map(cell).collect::<Vec<_>>().join(" ")
    }

    fn clients_line(&self) -> String {
        if self.clients.is_empty() {
            return "clients   none".to_owned();
        }
        let marks = marks(self.clients.iter().any(|c| c.shared), self.clients.iter().any(|c| c.smt_busy));
        let places = |key: fn(&Cpu) -> usize| self.clients.iter().map(|c| key(&c.place)).collect::<CpuList>();
        let [cpus, socket, node, l3] =
            [places(|c| c.cpu), places(|c| c.socket), places(|c| c.node), places(|c| c.l3)];
        format!("clients   CPU {cpus}{marks}, socket {socket}, node {node}, L3 {l3}")
    }
}

fn nic_line(nic: &Device) -> String {
    let node = nic.node.map_or_else(|| "a node that is not known".to_owned(), |node| format!("node {node}"));
    let interrupts =
        if nic.interrupts.is_empty() { "none".to_owned() } else { format!("CPU {}", nic.interrupts) };
    format!("NIC       {} on {node}, interrupts: {interrupts}", nic.name)
}

fn marks(shared: bool, smt_busy: bool) -> String {
    format!("{}{}", if shared { "*" } else { "" }, if smt_busy { "+" } else { "" })
}
