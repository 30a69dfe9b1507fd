//! Starting an OSD on its reactors: store, ports, monitor session, boot.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
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
use crate::maps::Made;
use crate::networks::{Addrs, Both, Listeners, Network};
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
    let own = Listeners::open(&osd).await?;
    let (here, ports) = (shard.id(), own.local().map(|addr| addr.port()));
    shard.submit_to(ShardId(0), move |first| note_ports(first.clone(), here, ports));
    // Only shard 0 knows the OSD's addresses at first; nobody dials before it has told the others.
    if here == ShardId(0) {
        lead(&osd, own).await?;
    } else {
        shard.set_local(Rc::new(OwnListeners(RefCell::new(Some(own)))));
    }
    Ok(osd)
}

/// A reactor's own ports, waiting for the OSD's addresses.
struct OwnListeners(RefCell<Option<Listeners>>);

/// Listens on a free port of this address.
pub(crate) async fn listen(osd: &OsdShard, ip: IpAddr) -> Result<Listener, OsdError> {
    let addr = SocketAddr::new(ip, 0);
    osd.shard.listen(addr).await.map_err(|e| OsdError::Listen(addr, e))
}

/// Tells shard 0 the ports of a shard; waits until shard 0 has started.
fn note_ports(first: Shard, of: ShardId, ports: Both<u16>) {
    if let Some(osd) = OsdShard::on(&first) {
        if let Some(place) = osd.ports.borrow_mut().get_mut(usize::from(of.0)) {
            *place = ports;
        }
        return;
    }
    let again = first.clone();
    first.spawn(Group::Admin, "start", async move {
        again.sleep(START_POLL).await;
        note_ports(again.clone(), of, ports);
    });
}

/// Shard 0's part: the ports at which others first come, then the monitor.
async fn lead(osd: &Rc<OsdShard>, own: Listeners) -> Result<(), OsdError> {
    let entrances = Listeners::open(osd).await?;
    while osd.ports.borrow().contains(&Both::default()) {
        osd.shard.sleep(START_POLL).await;
    }
    let addrs = entrances.local().map(|addr| EntityAddr::msgr2(addr, osd.config.nonce));
    let ports = osd.ports.borrow().clone();
    serve_own(osd, own, addrs);
    for to in (1..osd.shard.shards()).map(ShardId) {
        let ports = ports.clone();
        let ready = osd.shard.call(to, move |shard| async move {
            if let (Some(osd), Some(own)) = (OsdShard::on(&shard), shard.local::<OwnListeners>()) {
                *osd.ports.borrow_mut() = ports;
                if let Some(own) = own.0.take() {
                    serve_own(&osd, own, addrs);
                }
            }
        });
        ready.await;
    }
    for (network, listener) in entrances {
        accept_all(osd, listener, network, addrs);
    }
    join::start(osd, addrs, heartbeat::start(osd).await?, seen(osd).await);
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
                let made = Made { pg_num: info.pg_num, epoch: info.split };
                osd.stored.borrow_mut().insert(pg, made);
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

fn server_config(osd: &OsdShard, network: Network, addrs: Addrs, gate: &Gate) -> Rc<ServerConfig> {
    let id = u64::from(osd.config.id.0);
    let mut config = ServerConfig::new(EntityType::OSD, id, EntityAddrVec(vec![*addrs.get(network)]));
    if network == Network::Cluster {
        config.accept = vec![EntityType::OSD];
    }
    osd.guard(&mut config);
    let budget = Some((Rc::clone(&osd.budget), is_bounded as Shares));
    Rc::new(ServerConfig { gate: gate.clone(), budget, ..config })
}

/// Whether a peer's requests need free memory to be admitted. Those of other OSDs do not: requests that hold memory here wait for
/// them.
fn is_bounded(peer: &Peer) -> bool {
    let is_daemon = peer.guest.as_ref().is_some_and(|guest| guest.entity.kind == EntityType::OSD);
    peer.entity != EntityType::OSD && peer.name != COPY_CLIENT && !is_daemon
}

/// How a reactor serves the connections that it is given from the ports that belong to no reactor.
struct Given(Both<Rc<ServerConfig>>);

/// Serves a reactor's own ports on this reactor, and the connections of the other ports that it is given.
fn serve_own(osd: &Rc<OsdShard>, own: Listeners, addrs: Addrs) {
    let gates = &osd.config.gates;
    let given = |network| server_config(osd, network, addrs, &gates.public);
    let given = Both { public: given(Network::Public), cluster: given(Network::Cluster) };
    osd.shard.set_local(Rc::new(Given(given)));
    for (network, listener) in own {
        let (own, config) = (Rc::clone(osd), server_config(osd, network, addrs, &gates.own));
        osd.shard.spawn(Group::Admin, "accept-own", async move {
            loop {
                attend(&own, accept(&own, &listener, "connections").await, &config, network);
            }
        });
    }
}

/// Accepts on a port that belongs to no reactor, and gives each connection to the reactor that serves the fewest.
fn accept_all(osd: &Rc<OsdShard>, listener: Listener, network: Network, addrs: Addrs) {
    let (own, config) = (Rc::clone(osd), server_config(osd, network, addrs, &osd.config.gates.public));
    osd.shard.spawn(Group::Admin, "accept", async move {
        loop {
            deal(&own, accept(&own, &listener, "connections").await, &config, network).await;
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

fn attend(osd: &Rc<OsdShard>, socket: Socket, config: &Rc<ServerConfig>, network: Network) {
    let (shard, config) = (osd.shard.clone(), Rc::clone(config));
    let dispatcher = Rc::new(Incoming { osd: Rc::downgrade(osd), network });
    osd.shard.spawn(Group::Client, "attend", async move {
        serve(&shard, socket, config, dispatcher).await;
    });
}

/// Gives a connection to the reactor with the fewest. It asks all reactors for their counts, since new connections are rare.
async fn deal(osd: &Rc<OsdShard>, socket: Socket, config: &Rc<ServerConfig>, network: Network) {
    let counts = osd.on_all(|osd| (osd.conns.borrow().len(), osd.shard.id())).await;
    let to = counts.into_iter().min().map_or(osd.shard.id(), |(_, to)| to);
    if to == osd.shard.id() {
        attend(osd, socket, config, network);
        return;
    }
    osd.shard.submit_to(to, move |shard| {
        if let (Some(osd), Some(given)) = (OsdShard::on(shard), shard.local::<Given>()) {
            attend(&osd, socket, given.0.get(network), network);
        }
    });
}
