//! What the NVMe drives under the OSDs said of themselves: their SMART logs at both ends of the windows.

use std::collections::BTreeSet;

use carmine_load::samples::{NvmeSamples, SmartLog};

use crate::data::RunData;
use crate::report::Section;
use crate::table::{Cell, Table};

/// A data unit of the log, bytes (NVM Express Base Specification, "SMART / Health Information").
const UNIT_BYTES: f64 = 512_000.0;

/// The logs of all points that have some; empty on machines without such drives.
pub(super) fn section(run: &RunData) -> Section {
    let mut table = Table::new(
        "point | drive | used (%) | spare (%) | critical warning (bits) | temperature, start (°C) | \
        temperature, end (°C) | media errors | new media errors | unsafe shutdowns | read (MB) | \
        written (MB) | read commands | write commands",
    );
    let mut text = BTreeSet::new();
    for measured in &run.points {
        let Ok(Some(samples)) = run.run.samples(&measured.point) else { continue };
        for drive in &samples.nvme {
            match &drive.missing {
                Some(why) => drop(text.insert(format!("{}: {why}.", drive.drive))),
                None => table.push(row(&measured.point.stem, drive)),
            }
        }
    }
    Section {
        text: text.into_iter().collect(),
        table: Some(table.without_empty_columns()),
        ..Section::default()
    }
}

fn row(stem: &str, drive: &NvmeSamples) -> Vec<Cell> {
    let of = |log: &SmartLog, name: &str| log.get(name).map(|n| *n as f64);
    let count = |log: &SmartLog, name: &str| Cell::number(of(log, name), 0);
    let megabytes = |name: &str| Cell::number(of(&drive.difference, name).map(|n| n * UNIT_BYTES / 1e6), 1);
    let (start, end, since) = (&drive.start, &drive.end, &drive.difference);
    vec![
        stem.into(),
        drive.drive.as_str().into(),
        count(end, "percentage_used"),
        count(end, "available_spare_percent"),
        count(end, "critical_warning"),
        count(start, "temperature_c"),
        count(end, "temperature_c"),
        count(end, "media_errors"),
        count(since, "media_errors"),
        count(end, "unsafe_shutdowns"),
        megabytes("data_units_read"),
        megabytes("data_units_written"),
        count(since, "host_read_commands"),
        count(since, "host_write_commands"),
    ]
}
