//! Every point in one table.

use crate::data::{Ended, Latency, Measured};
use crate::figures::View;
use crate::table::{Cell, Table};
use crate::units::shortened;

const COLUMNS: &str = "point | state | marks | IOPS | MB/s | mean (µs) | p50 (µs) | p99 (µs) | p99.9 (µs) | limiter | \
    decided by | IOPS/core allocated | IOPS/core used | IOPS/core busy | machine µs/op | OSD µs/op | \
    cycles/op | instructions/op | client cores | hops/op | of device (%) | of messenger (%) | \
    throttled (s) | cache | before it | seconds";

/// Characters of an error that the table shows.
const ERROR_MAX: usize = 240;

/// All points of all runs in the order of running; the error stands beside a point that failed.
pub(crate) fn table(view: &View<'_>) -> Table {
    let mut table = Table::new(COLUMNS);
    let several = view.runs.len() > 1;
    for run in view.runs {
        for point in &run.points {
            let prefix = if several { format!("{}/", run.label) } else { String::new() };
            table.push(row(&prefix, point));
        }
    }
    table.without_empty_columns()
}

fn row(prefix: &str, measured: &Measured) -> Vec<Cell> {
    let name = format!("{prefix}{}", measured.point.stem);
    let (state, why) = match &measured.ended {
        Ended::Done if measured.is_planned() => ("done", None),
        Ended::Done => ("done again", None),
        Ended::Failed(why) => ("failed", Some(why.clone())),
        Ended::NotRun => ("not run", None),
        Ended::Unreadable(why) => ("unreadable", Some(why.clone())),
    };
    let mut row = vec![name.into(), state.into(), measured.words.join(" ").into()];
    let Some(result) = &measured.result else {
        row.resize(10, Cell::None);
        row.push(why.map_or(Cell::None, |why| shortened(&why, ERROR_MAX).into()));
        row.resize(COLUMNS.split(" | ").count() - 1, Cell::None);
        row.push(Cell::number((measured.seconds > 0.0).then_some(measured.seconds), 1));
        return row;
    };
    let carmine = &result.carmine;
    let latency = Latency::of(&[result]);
    let us = |ns: Option<f64>| Cell::number(ns.map(|ns| ns / 1e3), 0);
    let text = |text: &Option<String>| text.as_deref().map_or(Cell::None, Cell::from);
    row.extend([Cell::Number(result.iops(), 0), Cell::Number(result.bw_bytes() / 1e6, 1)]);
    row.extend([latency.mean_ns, latency.p50_ns, latency.p99_ns, latency.p999_ns].map(us));
    row.extend([text(&carmine.verdict), text(&carmine.verdict_reason)]);
    let cores = &carmine.iops_per_core;
    row.extend([cores.allocated, cores.used, cores.busy].map(|v| Cell::number(v, 0)));
    row.extend([carmine.machine_cpu_us_per_op, carmine.osd_cpu_us_per_op].map(|v| Cell::number(v, 1)));
    row.extend([carmine.cycles_per_op, carmine.instructions_per_op].map(|v| Cell::number(v, 0)));
    row.extend([carmine.client_cores_used, carmine.hops_per_op].map(|v| Cell::number(v, 2)));
    row.extend([carmine.percent_of_device, carmine.percent_of_messenger].map(|v| Cell::number(v, 1)));
    row.push(Cell::number(carmine.throttled_seconds, 2));
    row.push(text(&carmine.cache_state));
    row.push(if measured.condition.is_empty() { Cell::None } else { measured.condition.as_str().into() });
    row.push(Cell::number(Some(measured.seconds), 1));
    row
}
