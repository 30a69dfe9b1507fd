//! What an OSD shows of itself: its metrics on a free loopback port, its admin socket in the testbed's folder.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use anyhow::Context;
use carmine_osd::{OsdShard, measure_load, serve_admin_socket, serve_http};
use carmine_testbed::{Layout, write_whole};

/// What an alien thread takes to write a line, under `sim`.
const WRITE_NS: u64 = 100_000;

/// Starts both. A folder whose name is too long for a socket has none; the log says so.
pub(crate) async fn start(osd: &Rc<OsdShard>, layout: &Layout) -> anyhow::Result<()> {
    let id = osd.config.id;
    measure_load(osd);
    if let Err(e) = serve_admin_socket(osd, &layout.admin_socket(id)) {
        tracing::warn!("no admin socket: {e}; `carmine admin --osd {} QUESTION` asks the same", id.0);
    }
    // Never the cluster's address: remote readers of metrics need a proxy that authenticates them.
    let local = match osd.config.listen {
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(ip),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let addr = serve_http(osd, SocketAddr::new(local, 0)).await.context("cannot serve metrics")?;
    let path = layout.http_addr(id);
    let written = osd.shard.alien(WRITE_NS, move || write_whole(&path, format!("{addr}\n").as_bytes()));
    written.await.context("cannot tell the metrics' address")
}
