//! The grid as text.

use std::fmt::Write as _;

use carmine_types::counted;

use crate::{Cpu, CpuList, Grid, OsdRow, Strategy};

pub(crate) fn render(grid: &Grid) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(text, "topology  {}", grid.topology);
    let floats = grid.strategy == Strategy::None;
    let floats = if floats { ": reactors are not pinned, the scheduler decides" } else { "" };
    let shares = if grid.overprovisioned { ", overprovisioned" } else { "" };
    let _ = writeln!(text, "strategy  {}{floats}{shares}", grid.strategy);
    text.push_str(&table(grid));
    text.push_str(&clients(grid));
    for (who, cpus) in [("system", &grid.system), ("neighbour", &grid.neighbour)] {
        if !cpus.is_empty() {
            let _ = writeln!(text, "{who:<9} CPU {cpus}");
        }
    }
    let allocated = grid.allocated_cpus();
    let _ = writeln!(text, "allocated {} ({allocated})", counted(allocated.len(), "CPU"));
    if grid.shared {
        text.push_str(
            "marks     * SHARED: something else runs on this CPU, too; per-core figures are left out\n",
        );
    }
    let reactors = grid.osds.iter().flat_map(|osd| &osd.reactors).map(|slot| slot.smt_busy);
    if reactors.chain(grid.clients.iter().map(|slot| slot.smt_busy)).any(|is_busy| is_busy) {
        text.push_str("marks     + an SMT sibling of this CPU is in use\n");
    }
    for warning in &grid.warnings {
        let _ = writeln!(text, "warning   {warning}");
    }
    text
}

fn table(grid: &Grid) -> String {
    let header = ["OSD", "reactor CPUs", "socket", "node", "L3", "alien CPUs", "PGs/reactor"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let pgs = grid.pgs_per_reactor.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
    rows.extend(grid.osds.iter().map(|osd| {
        let [socket, node, l3] = [span(osd, |c| c.socket), span(osd, |c| c.node), span(osd, |c| c.l3)];
        vec![osd.osd.to_string(), reactors(osd), socket, node, l3, aliens(osd), pgs.clone()]
    }));
    if grid.osds.iter().any(|osd| osd.shared_device.is_some()) {
        let devices = grid.osds.iter().map(|osd| osd.shared_device.map_or("-".into(), |n| n.to_string()));
        let column = std::iter::once("shared device".to_owned()).chain(devices);
        rows.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn reactors(osd: &OsdRow) -> String {
    if let Some(floating) = &osd.floating {
        return format!("{} on {}", floating.reactors, floating.cpus);
    }
    let cells = osd.reactors.iter().map(|r| format!("{}{}", r.place.cpu, marks(r.shared, r.smt_busy)));
    cells.collect::<Vec<_>>().join(" ")
}

fn marks(shared: bool, smt_busy: bool) -> String {
    format!("{}{}", if shared { "*" } else { "" }, if smt_busy { "+" } else { "" })
}

fn span(osd: &OsdRow, key: fn(&Cpu) -> usize) -> String {
    match osd.floating {
        Some(_) => "-".to_owned(),
        None => osd.reactors.iter().map(|r| key(&r.place)).collect::<CpuList>().to_string(),
    }
}

fn aliens(osd: &OsdRow) -> String {
    match (osd.aliens.own, osd.aliens.shared) {
        (true, _) => "its reactors'".to_owned(),
        (false, shared) => format!("{}{}", osd.aliens.cpus, marks(shared, false)),
    }
}

fn clients(grid: &Grid) -> String {
    if grid.clients.is_empty() {
        return "clients   none\n".to_owned();
    }
    let shared = grid.clients.iter().any(|c| c.shared);
    let smt = grid.clients.iter().any(|c| c.smt_busy);
    let places = |key: fn(&Cpu) -> usize| grid.clients.iter().map(|c| key(&c.place)).collect::<CpuList>();
    format!(
        "clients   CPU {}{}, socket {}, node {}, L3 {}\n",
        grid.client_cpus(),
        marks(shared, smt),
        places(|c| c.socket),
        places(|c| c.node),
        places(|c| c.l3),
    )
}
