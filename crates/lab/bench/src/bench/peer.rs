//! Our own generator against a peer: what of a testbed's plan a peer has.

use carmine_load::hosted::limit;
use carmine_load::report::Report;
use carmine_load::{LoadSpec, Route};
use carmine_testbed::peer::PeerPlan;
use carmine_testbed::{Layout, Plan, Wish, require_plan};
use carmine_topology::Topology;
use carmine_types::StoreKind;
use serde_json::Value;

use super::BenchArgs;
use carmine_testbed::TestbedError::Usage;

/// The plan of what a folder holds; with the peer's own if it holds one.
pub(super) fn plan_of(layout: &Layout) -> anyhow::Result<(Plan, Option<PeerPlan>)> {
    match carmine_testbed::peer::load_plan(layout)? {
        None => Ok((require_plan(layout)?, None)),
        Some(peer) => Ok((as_testbed(&peer)?, Some(peer))),
    }
}

/// The testbed that has the peer's CPUs, pool and devices, and keeps its data: an OSD's cores stand for reactors.
fn as_testbed(peer: &PeerPlan) -> anyhow::Result<Plan> {
    let wish = Wish {
        osds: Some(peer.osds()),
        reactors: Some(u16::try_from(peer.cores_per_osd())?),
        store: Some(StoreKind::Blue),
        devices: peer.devices.clone(),
        osd_size_bytes: Some(peer.osd_size_bytes),
        sparse: peer.sparse,
        size: Some(peer.size),
        pgs: Some(peer.pgs),
        cpus: peer.cpu.cpus.clone(),
        client_cpus: peer.cpu.client_cpus.clone(),
        osd_memory_bytes: Some(peer.osd_memory_bytes),
        overprovisioned: peer.cpu.overprovisioned,
        ..Wish::default()
    };
    Ok(Plan::new(&wish, &Topology::detect()?, &peer.fsid)?)
}

/// Refuses what a peer cannot do, and takes the one route to it.
pub(super) fn adapt(spec: &mut LoadSpec, args: &BenchArgs) -> anyhow::Result<()> {
    if args.in_process {
        anyhow::bail!(Usage("--in-process: a peer's OSDs do not load themselves; leave it out".into()));
    }
    spec.route = Route::Single;
    Ok(())
}

/// `carmine.peer` of a result; `null` for a testbed.
pub(super) fn about_json(peer: Option<&PeerPlan>) -> anyhow::Result<Value> {
    let about = peer.map(carmine_testbed::peer::about).transpose()?;
    Ok(serde_json::to_value(about)?)
}

/// A peer's OSDs have no reactors to look at: their CPUs say whether they are the limit.
pub(super) fn judge(peer: Option<&PeerPlan>, report: &mut Report) {
    let Some(peer) = peer else { return };
    if let Some((limiter, reason)) = limit::by_cpus(report, peer.grid.allocated_cpus().len() as f64) {
        (report.verdict, report.verdict_reason) = (limiter, reason);
    }
}
