//! `carmine osdmap`: prints any Ceph OSDMap file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_wire::osdmap::OsdMap;
use clap::Args;

#[derive(Args)]
pub(crate) struct OsdmapArgs {
    /// A file with a binary OSDMap
    file: PathBuf,
    /// Print the mapping of every PG
    #[arg(long)]
    pgs_dump: bool,
    /// Folder of a testbed (not used: FILE names the map)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &OsdmapArgs) -> anyhow::Result<ExitCode> {
    let path = args.file.display();
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {path}"))?;
    let map = OsdMap::decode(&bytes).map_err(|e| anyhow!("{path} is no OSDMap: {e}"))?;
    super::done(&if args.pgs_dump { pgs_dump(&map, None, PgColumns::Acting) } else { print_map(&map) })
}
