//! Starting an OSD on its reactors: store, ports, monitor session, boot.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::{Gate, Peer, ServerConfig, Shares, serve};
use carmine_reactor::{Group, Listener, Shard, ShardId, Socket};
use carmine_store::{Store, StoreError, StoreShared};
use carmine_types::Epoch;
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType};

use crate::admin::{AdminHook, Hook};
use crate::config::{COPY_CLIENT, OsdConfig};
use crate::dispatch::Incoming;
use crate::pg::{start_leases, start_scrubs, start_strays};
use crate::shard::OsdShard;
use crate::{damage, heartbeat, join, room, slow};

/// Pause while other shards start.
const START_POLL: Duration = Duration::from_millis(1);
/// Pause after a failed accept (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why an OSD did not start.
#[derive(Debug, thiserror::Error)]
pub enum OsdError {
    /// Its store cannot be opened.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// It cannot listen on its address.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// The main task of every shard of an OSD: opens the shard's store and ports. Shard 0 also connects to the monitor, and boots
/// when all shards are ready. Returns when the shard serves; its tasks keep running.
///
/// # Errors
/// If the store or a port cannot be opened.
pub async fn run(
    shard: Shard,
    config: Arc<OsdConfig>,
    store: StoreShared,
    hook: Option<Box<dyn AdminHook>>,
) -> Result<Rc<OsdShard>, OsdError> {
    let store = Store::open_shard(&store, &shard).await?;
    let osd = OsdShard::new(&shard, config, store);
    if let Some(hook) = hook {
        shard.set_local(Rc::new(Hook(hook)));
    }
    slow::start(&osd);
    room::start(&osd);
    damage::start(&osd);
    start_scrubs(&osd);
    start_strays(&osd);
    start_leases(&osd);
    let own = listen(&osd).await?;
    let port = own.local_addr().port();
    let here = shard.id();
    shard.submit_to(ShardId(0), move |first| note_port(first.clone(), here, port));
    // Only shard 0 knows the public address at first; nobody dials before it has told the others.
    if here == ShardId(0) {
        lead(&osd, own).await?;
    } else {
        shard.set_local(Rc::new(OwnListener(std::cell::RefCell::new(Some(own)))));
    }
    Ok(osd)
}

/// A reactor's own port, waiting for the OSD's public address.
struct OwnListener(std::cell::RefCell<Option<Listener>>);

/// Listens on a free port of the OSD's address.
pub(crate) async fn listen(osd: &OsdShard) -> Result<Listener, OsdError> {
    let addr = SocketAddr::new(osd.config.listen, 0);
    osd.shard.listen(addr).await.map_err(|e| OsdError::Listen(addr, e))
}

/// Tells shard 0 the port of a shard; waits until shard 0 has started.
fn note_port(first: Shard, of: ShardId, port: u16) {
    if let Some(osd) = OsdShard::on(&first) {
        if let Some(place) = osd.ports.borrow_mut().get_mut(usize::from(of.0)) {
            *place = port;
        }
        return;
    }
    let again = first.clone();
    first.spawn(Group::Admin, "start", async move {
        again.sleep(START_POLL).await;
        note_port(again.clone(), of, port);
    });
}

/// Shard 0's part: the public port, then the monitor.
async fn lead(osd: &Rc<OsdShard>, own: Listener) -> Result<(), OsdError> {
    let public = listen(osd).await?;
    while osd.ports.borrow().contains(&0) {
        osd.shard.sleep(START_POLL).await;
    }
    let addr = EntityAddr::msgr2(public.local_addr(), osd.config.nonce);
    let ports = osd.ports.borrow().clone();
    serve_own(osd, own, addr);
    for to in (1..osd.shard.shards()).map(ShardId) {
        let ports = ports.clone();
        let ready = osd.shard.call(to, move |shard| async move {
            if let (Some(osd), Some(own)) = (OsdShard::on(&shard), shard.local::<OwnListener>()) {
                *osd.ports.borrow_mut() = ports;
                if let Some(own) = own.0.take() {
                    serve_own(&osd, own, addr);
                }
            }
        });
        ready.await;
    }
    accept_public(osd, public, addr);
    join::start(osd, addr, heartbeat::start(osd).await?, seen(osd).await);
    Ok(())
}

/// Notes which PGs the store has, and how many their pools had when they were made. Returns the newest map that all of them have
/// seen, from which the OSD continues. Zero if there is none, or it cannot be read.
async fn seen(osd: &OsdShard) -> Epoch {
    let epochs = async {
        let mut oldest = None;
        for pg in osd.store.list_pgs().await? {
            let info = osd.store.load_info(pg).await?;
            if info.pg_num > 0 {
                osd.stored.borrow_mut().insert(pg, info.pg_num);
            }
            let known = [oldest, Some(info.history.epoch).filter(|epoch| *epoch > Epoch(0))];
            oldest = known.into_iter().flatten().min();
        }
        Ok::<Epoch, StoreError>(oldest.unwrap_or_default())
    };
    epochs.await.unwrap_or_else(|error| {
        tracing::warn!("which maps its PGs have seen cannot be read: {error}");
        Epoch(0)
    })
}

fn server_config(osd: &OsdShard, addr: EntityAddr, gate: &Gate) -> Rc<ServerConfig> {
    let id = u64::from(osd.config.id.0);
    let config = ServerConfig::new(EntityType::OSD, id, EntityAddrVec(vec![addr]));
    let budget = Some((Rc::clone(&osd.budget), is_bounded as Shares));
    Rc::new(ServerConfig { gate: gate.clone(), budget, ..config })
}

/// Whether a peer's requests need free memory to be admitted. Those of other OSDs do not: requests that hold memory here wait for
/// them.
fn is_bounded(peer: &Peer) -> bool {
    peer.entity != EntityType::OSD && peer.name != COPY_CLIENT
}

/// Serves a reactor's own port on this reactor, and the connections of the public port that it is given.
fn serve_own(osd: &Rc<OsdShard>, listener: Listener, addr: EntityAddr) {
    let gates = &osd.config.gates;
    osd.shard.set_local(server_config(osd, addr, &gates.public));
    let (own, config) = (Rc::clone(osd), server_config(osd, addr, &gates.own));
    osd.shard.spawn(Group::Admin, "accept-own", async move {
        loop {
            attend(&own, accept(&own, &listener, "connections").await, &config);
        }
    });
}

/// Accepts on the public port and gives each connection to the reactor that serves the fewest.
fn accept_public(osd: &Rc<OsdShard>, listener: Listener, addr: EntityAddr) {
    let (own, config) = (Rc::clone(osd), server_config(osd, addr, &osd.config.gates.public));
    osd.shard.spawn(Group::Admin, "accept", async move {
        loop {
            deal(&own, accept(&own, &listener, "connections").await, &config).await;
        }
    });
}

/// Accepts the next connection of a port.
pub(crate) async fn accept(osd: &OsdShard, listener: &Listener, whose: &str) -> Socket {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return socket,
            Err(error) => refused_accept(osd, whose, &error).await,
        }
    }
}

/// Waits after a failed accept, which may mean that descriptors ran out.
pub(crate) async fn refused_accept(osd: &OsdShard, whose: &str, error: &std::io::Error) {
    tracing::error!("{whose}: accept: {error}");
    osd.shard.sleep(ACCEPT_PAUSE).await;
}

fn attend(osd: &Rc<OsdShard>, socket: Socket, config: &Rc<ServerConfig>) {
    let (shard, config) = (osd.shard.clone(), Rc::clone(config));
    let dispatcher = Rc::new(Incoming(Rc::downgrade(osd)));
    osd.shard.spawn(Group::Client, "attend", async move {
        serve(&shard, socket, config, dispatcher).await;
    });
}

/// Gives a connection to the reactor with the fewest. It asks all reactors for their counts, since new connections are rare.
async fn deal(osd: &Rc<OsdShard>, socket: Socket, config: &Rc<ServerConfig>) {
    let counts = osd.on_all(|osd| (osd.conns.borrow().len(), osd.shard.id())).await;
    let to = counts.into_iter().min().map_or(osd.shard.id(), |(_, to)| to);
    if to == osd.shard.id() {
        attend(osd, socket, config);
        return;
    }
    osd.shard.submit_to(to, move |shard| {
        let parts = OsdShard::on(shard).zip(shard.local::<ServerConfig>());
        if let Some((osd, config)) = parts {
            attend(&osd, socket, &config);
        }
    });
}
