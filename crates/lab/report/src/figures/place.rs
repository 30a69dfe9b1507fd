//! The threads on each CPU: the grids of the archive, drawn on the machine that they were made for.

use std::collections::{BTreeMap, BTreeSet};

use carmine_topology::{Cpu, CpuList, Grid};

use super::timeline::order;
use super::{Panel, View};
use crate::chart::{Axis, Chart, Ink, Key, Plot, Seat, Upright};
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

/// `None` of older results, which do not have the machine.
fn chart(view: &View<'_>, setting: &Setting<'_>) -> Option<Chart> {
    let grid: Grid = serde_json::from_value(setting.first.carmine.grid.clone()).ok()?;
    let mut seats = seats(&grid);
    let all = grid.machine.iter().map(|cpu| (cpu.clone(), seats.remove(&cpu.cpu).unwrap_or_default()));
    let all: Vec<_> = Some(all.collect()).filter(|all: &Vec<_>| !all.is_empty())?;
    let row = |(cpu, seats): &(Cpu, Vec<Seat>)| {
        let places = [cpu.cpu, cpu.socket, cpu.node, cpu.l3, cpu.core, cpu.thread];
        let texts: Vec<&str> = seats.iter().map(|seat| seat.text.as_str()).collect();
        [&places.map(|n| Cell::Number(n as f64, 0))[..], &[texts.join(", ").into()]].concat()
    };
    let rows = all.iter().filter(|(_, seats)| !seats.is_empty()).map(row);
    let table = Table::new("CPU | socket | node | L3 | core | hardware thread | runs", rows);
    let mut remarks =
        vec![format!("Each box is a core, with its hardware threads below each other. {}.", grid.topology)];
    let shared = "SHARED: a CPU with a red frame has more than one user, so there are no figures per core.";
    remarks.extend(grid.shared.then(|| shared.to_owned()));
    remarks.extend(grid.warnings.iter().cloned());
    let is_used = |ink: usize| all.iter().flat_map(|(_, seats)| seats).any(|s| s.ink == Ink::series(ink));
    let used = KINDS.iter().filter(|(_, ink)| is_used(*ink));
    let keys = used.map(|(name, ink)| Key::series(*ink, *name)).collect();
    let plot = Plot { x: Axis::default(), y: Upright::Sockets(all), keys, shapes: Vec::new() };
    let title = Some(view.name(setting, &[])).filter(|name| !name.is_empty());
    let title = title.unwrap_or_else(|| "all points".into());
    let panel = Panel::new(title, String::new(), vec![setting]);
    Some(panel.chart("place", "Threads on CPUs", vec![plot], table, remarks))
}

/// The threads of the grid by CPU.
fn seats(grid: &Grid) -> BTreeMap<usize, Vec<Seat>> {
    let mut seats: BTreeMap<usize, Vec<Seat>> = BTreeMap::new();
    let mut aliens: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut seat = |cpu: usize, kind: usize, label: String, text: String| {
        seats.entry(cpu).or_default().push(Seat { ink: Ink::series(KINDS[kind].1), label, text });
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
    grid.clients.iter().for_each(|slot| seat(slot.place.cpu, 2, "C".into(), "client".into()));
    let floating = grid.osds.first().and_then(|row| Some(&row.floating.as_ref()?.cpus));
    let lists = [(3, "S", Some(&grid.system)), (4, "N", Some(&grid.neighbour)), (5, "R", floating)];
    for (kind, label, list) in lists {
        list.into_iter()
            .flat_map(CpuList::iter)
            .for_each(|cpu| seat(cpu, kind, label.into(), KINDS[kind].0.into()));
    }
    seats
}
