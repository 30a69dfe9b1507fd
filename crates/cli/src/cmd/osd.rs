//! One OSD process: builds its reactors by the plan, opens its store, and runs.

mod memory;
mod mkfs;
mod store;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carmine_reactor::Config;
use carmine_testbed::{Layout, Plan, process, require_plan};
use carmine_types::{OsdId, Uuid};

use crate::args::OsdArgs;
use crate::logging;
use crate::output::Usage;
use memory::Memory;

pub(crate) fn run(args: &OsdArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let osd = OsdId(args.id);
    if args.id >= plan.osds() {
        return Err(Usage(format!("--id {}: this testbed has OSDs 0 to {}", args.id, plan.osds() - 1)).into());
    }
    if args.mkfs {
        mkfs::run(&layout, &plan, osd, args.force_wipe)?;
        return Ok(ExitCode::SUCCESS);
    }
    process::detach();
    logging::start();
    let result = serve(&layout, &plan, osd);
    if let Err(e) = &result {
        tracing::error!("{e:#}");
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// The reactors, pinned as planned.
fn reactors(plan: &Plan, osd: OsdId) -> anyhow::Result<Config> {
    let row = plan.grid.osds.get(osd.0 as usize).context("the plan has no row for this OSD")?;
    Ok(Config {
        name: osd.to_string(),
        cpus: row.reactor_cpus().into_iter().map(Some).collect(),
        poll: plan.poll.parse()?,
        alien_threads: plan.alien_threads.into(),
        alien_cpus: row.aliens.cpus.to_vec(),
        alien_shares_cpu: row.aliens.own,
        arena_bytes_per_shard: Memory::of(plan).arena_per_shard,
        ..Config::default()
    })
}

/// Identity of an OSD's store: the cluster's, with the OSD's number mixed in. `cyan` keeps it over restarts, too.
fn store_uuid(fsid: Uuid, osd: OsdId) -> Uuid {
    let mut bytes = fsid.0;
    // An odd factor: different numbers give different ids.
    let mix = (osd.0 + 1).wrapping_mul(0x9e37_79b1).to_be_bytes();
    bytes.iter_mut().rev().zip(mix).for_each(|(byte, mix)| *byte ^= mix);
    Uuid(bytes)
}

fn serve(layout: &Layout, plan: &Plan, osd: OsdId) -> anyhow::Result<()> {
    let config = reactors(plan, osd)?;
    // For the threads that nobody pins: RocksDB's, the signal handler's, this one.
    process::restrict_to(&config.alien_cpus)?;
    let fsid = plan.fsid.parse().map_err(|e| anyhow!("fsid of the plan: {e}"))?;
    let _ = (store_uuid(fsid, osd), store::open_kv(layout, plan, osd)?);
    anyhow::bail!("the OSD is not built in yet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_has_its_own_id() {
        let fsid: Uuid = "b79dd65e-35b4-47de-95c3-97d67e42c11d".parse().unwrap();
        let ids: std::collections::BTreeSet<Uuid> = (0..1000).map(|n| store_uuid(fsid, OsdId(n))).collect();
        assert_eq!(ids.len(), 1000);
        assert!(!ids.contains(&fsid));
    }
}
