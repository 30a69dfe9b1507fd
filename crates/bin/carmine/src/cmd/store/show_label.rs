//! `carmine store show-label`: who a device belongs to.

use std::process::ExitCode;

use carmine_store::blue::labels;
use carmine_store::{Label, StoreError};
use serde_json::{Value, json};

use super::tool::{Tool, WhichArgs};
use carmine_testbed::output::print;

/// 0: both labels are good and equal; 1: not so.
pub(super) fn run(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let places = tool.places();
    let (place, path) = (places.block.clone(), places.block.path.clone());
    let labels = tool.on_reactor(async |shard| Ok(labels(&shard, place).await?))?;
    let good = matches!((&labels.first, &labels.copy), (Ok(first), Ok(copy)) if first == copy);
    let db = tool.db();
    let has_wal = labels.any().is_ok_and(|label| label.wal_bytes().is_some());
    let wal = places.wal.first().filter(|_| has_wal).map(|place| place.path.clone());
    let log = wal.unwrap_or_else(|| path.clone());
    if tool.json {
        let shown = json!({
            "path": path, "drive": Tool::drive(&path), "db": db, "db_drive": Tool::drive(&db),
            "wal": log, "wal_drive": Tool::drive(&log), "dedicated_wal": has_wal,
            "label": value(&labels.first), "copy": value(&labels.copy),
        });
        print(&format!("{shown:#}\n"))?;
    } else {
        print(&format!(
            "{} on {}\n  label: {}\n  copy:  {}\n  db:    {} on {}\n  wal:   {} on {}\n",
            path.display(),
            Tool::drive(&path),
            text(&labels.first),
            text(&labels.copy),
            db.display(),
            Tool::drive(&db),
            log.display(),
            Tool::drive(&log),
        ))?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn value(label: &Result<Label, StoreError>) -> Value {
    match label {
        Ok(label) => json!({
            "fsid": label.fsid.to_string(), "osd": label.osd.0, "size": label.size_bytes,
            "generation": format!("{:016x}", label.generation), "wal_size": label.wal_bytes(),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn text(label: &Result<Label, StoreError>) -> String {
    match label {
        Ok(label) => format!(
            "{} of cluster {}, {} bytes, generation {:016x}",
            label.osd, label.fsid, label.size_bytes, label.generation
        ),
        Err(error) => error.to_string(),
    }
}
