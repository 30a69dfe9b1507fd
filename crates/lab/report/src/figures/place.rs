//! Who runs on which CPU: the grids of the archive, drawn on the machine that they were made for.

use std::collections::{BTreeMap, BTreeSet};

use carmine_topology::{CpuList, Grid};
use serde_json::Value;

use super::View;
use super::timeline::order;
use super::view::{Panel, slug};
use crate::chart::{Chart, Ink, Key, Machine, Plot, Seat};
use crate::data::Setting;
use crate::table::{Cell, Table};

/// Placements that are drawn.
const PLACES_MAX: usize = 6;

/// The kinds of threads, each with its colour.
const KINDS: [(&str, usize); 6] = [
    ("reactor (OSD·reactor)", 0),
    ("aliens (A, OSD)", 3),
    ("client (C), and the monitor if it has no CPU of its own", 2),
    ("monitor and controller (S)", 4),
    ("neighbour (N)", 5),
    ("reactors that are not pinned (R)", 6),
];

/// A chart for each placement: first the arms of the comparison as they were where most IOPS were reached.
pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    let mut settings = order(view);
    let axis = view.runs.iter().find_map(|run| run.file().comparison.as_ref()).map(|c| c.axis.as_str());
    let without_axis = |setting: &Setting<'_>| setting.config.only(|name| Some(name) != axis);
    if let Some(best) = settings.first().map(|best| without_axis(best)) {
        settings.sort_by_key(|setting| without_axis(setting) != best);
    }
    let mut charts: Vec<Chart> = Vec::new();
    for setting in settings {
        let Some(chart) = chart(view, setting) else { continue };
        if charts.len() < PLACES_MAX && charts.iter().all(|held| held.table != chart.table) {
            charts.push(chart);
        }
    }
    charts
}

fn chart(view: &View<'_>, setting: &Setting<'_>) -> Option<Chart> {
    let value = &setting.first()?.carmine.grid;
    let grid: Grid = serde_json::from_value(value.clone()).ok()?;
    let machine = machine(&grid, value)?;
    let name = Some(view.name(setting, &[])).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "all points".into());
    let mut table = Table::new("CPU | socket | node | L3 | core | hardware thread | runs");
    for (cpu, seats) in machine.seats.iter().filter(|(_, seats)| !seats.is_empty()) {
        let places = [cpu.cpu, cpu.socket, cpu.node, cpu.l3, cpu.core, cpu.thread];
        let texts: Vec<&str> = seats.iter().map(|seat| seat.text.as_str()).collect();
        let mut row: Vec<Cell> = places.map(|n| Cell::Number(n as f64, 0)).to_vec();
        row.push(texts.join(", ").into());
        table.push(row);
    }
    let mut remarks =
        vec![format!("Each box is a core, with its hardware threads below each other. {}.", grid.topology)];
    if grid.shared {
        remarks.push(
            "SHARED: a CPU with a red frame has more than one user, so there are no figures per core.".into(),
        );
    }
    remarks.extend(grid.warnings.iter().cloned());
    let panel = Panel { id: slug(&name), title: name, kind: String::new(), settings: vec![setting] };
    Some(panel.chart("place", "Threads on CPUs", Plot::Sockets(machine), table, remarks))
}

/// The machine with the threads of the grid; `None` of older results, which do not have it.
fn machine(grid: &Grid, value: &Value) -> Option<Machine> {
    let mut seats: BTreeMap<usize, Vec<Seat>> = BTreeMap::new();
    let mut aliens: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut seat = |cpu: usize, kind: usize, label: String, text: String| {
        seats.entry(cpu).or_default().push(Seat { ink: Ink::Series(KINDS[kind].1), label, text });
    };
    for row in &grid.osds {
        for slot in &row.reactors {
            let (osd, reactor) = (row.osd, slot.reactor);
            seat(slot.place.cpu, 0, format!("{osd}·{reactor}"), format!("reactor {reactor} of OSD {osd}"));
        }
        for cpu in row.aliens.cpus.iter().filter(|_| !row.aliens.own) {
            aliens.entry(cpu).or_default().insert(row.osd);
        }
    }
    for (cpu, osds) in aliens {
        let osds: CpuList = osds.into_iter().collect();
        seat(cpu, 1, format!("A{osds}"), format!("aliens of OSD {osds}"));
    }
    for slot in &grid.clients {
        seat(slot.place.cpu, 2, "C".into(), "client".into());
    }
    let floating = value.pointer("/osds/0/floating/cpus");
    let lists = [(3, "S", value.get("system")), (4, "N", value.get("neighbour")), (5, "R", floating)];
    for (kind, label, list) in lists {
        let list: Option<CpuList> = list.and_then(|list| serde_json::from_value(list.clone()).ok());
        list.iter().flatten().for_each(|cpu| seat(cpu, kind, label.into(), KINDS[kind].0.into()));
    }
    let is_used = |ink: usize| seats.values().flatten().any(|seat| seat.ink == Ink::Series(ink));
    let used = KINDS.iter().filter(|(_, ink)| is_used(*ink));
    let keys = used.map(|(name, ink)| Key::series(*ink, *name)).collect();
    let all = grid.machine.iter().map(|cpu| (cpu.clone(), seats.remove(&cpu.cpu).unwrap_or_default()));
    let seats: Vec<_> = all.collect();
    (!seats.is_empty()).then_some(Machine { seats, keys })
}
