//! `carmine osdmap`: prints any Ceph OSDMap file.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_wire::osdmap::OsdMap;

use crate::args::OsdmapArgs;
use carmine_testbed::output::print;

/// Longest file that is read: a map of 100,000 OSDs takes about 30 MB.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(crate) fn run(args: &OsdmapArgs) -> anyhow::Result<ExitCode> {
    let path = args.file.display();
    let meta = std::fs::metadata(&args.file).with_context(|| format!("cannot read {path}"))?;
    if meta.len() > FILE_BYTES_MAX {
        return Err(anyhow!("{path} has {} bytes: this is no OSDMap", meta.len()));
    }
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {path}"))?;
    let map = OsdMap::decode(&bytes).map_err(|e| anyhow!("{path} is no OSDMap: {e}"))?;
    if args.pgs_dump {
        print(&pgs_dump(&map, None, PgColumns::Acting))?;
    } else {
        print(&print_map(&map))?;
    }
    Ok(ExitCode::SUCCESS)
}
