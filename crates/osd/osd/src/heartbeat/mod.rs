//! Heartbeats: whether other OSDs are alive, determined as Ceph does ("Configuring Monitor/OSD Interaction" in its manual).
//!
//! Shard 0 sends MOSDPing to its peers every few seconds, on two connections each: to the address on the cluster network and to
//! that on the public network. A peer whose port refuses connections is dead and reported to the monitor at once; a silent one is
//! reported after the grace, and the report is withdrawn if it answers again.
//!
//! Load must not look like a failure: heartbeats have their own ports and scheduling group, and time in which this process did
//! not run does not count as a peer's silence.

mod answer;
mod link;
mod peers;
mod verdict;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use carmine_client::MonSession;
use carmine_crush::MapView;
use carmine_messenger::{ClientConfig, Connection, Message};
use carmine_reactor::Group;
use carmine_types::{Epoch, OsdId, UTime};
use carmine_wire::osd_msg::{Failure, OsdPing};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType};

use crate::shard::OsdShard;
use crate::start::OsdError;
use verdict::{Report, Watch};

/// How often due pings and expired graces are checked.
const TICK: Duration = Duration::from_millis(500);
/// A tick this late means that the process, or its machine, was stopped.
const STOPPED: Duration = Duration::from_secs(1);
/// Least time between two pings of a peer, as in Ceph; the rest of the interval is random.
const PING_MIN: Duration = Duration::from_millis(500);

/// An OSD that was marked down boots again when one of so many of its peers answers it. Ceph asks for a third
/// (osd_heartbeat_min_healthy_ratio). A third of the peers may be on the OSD's own host: then the OSDs of a host that is cut off would
/// let each other boot again and again.
const ONE_OF: usize = 2;

/// A peer's address on the cluster's network, and that on the clients' network.
const NETWORKS: [&str; 2] = ["back", "front"];

/// How peers are watched; the defaults are Ceph's.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatConfig {
    /// Longest time between two pings of a peer (`osd_heartbeat_interval`).
    pub interval: Duration,
    /// Silence after which a peer is reported (`osd_heartbeat_grace`).
    pub grace: Duration,
    /// Time between two beacons to the monitor (`osd_beacon_report_interval`).
    pub beacon_interval: Duration,
}

impl HeartbeatConfig {
    /// How long a primary may serve after it last heard from its replicas (Ceph's osd_pool_default_read_lease_ratio of the
    /// grace): it stops before it can be marked down.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.grace * 8 / 10
    }
}

impl Default for HeartbeatConfig {
    fn default() -> HeartbeatConfig {
        HeartbeatConfig {
            interval: Duration::from_secs(6),
            grace: Duration::from_secs(20),
            beacon_interval: Duration::from_secs(300),
        }
    }
}

/// The heartbeats of an OSD, on its shard 0.
pub(crate) struct Heartbeats {
    osd: Rc<OsdShard>,
    client: Rc<ClientConfig>,
    /// Where this OSD answers, by network.
    pub(crate) addrs: [EntityAddr; 2],
    peers: RefCell<BTreeMap<OsdId, Rc<Peer>>>,
    session: RefCell<Weak<MonSession>>,
    /// The map says that this OSD is down, and it waits for others to answer before it boots again.
    waits: Cell<bool>,
    /// When the last tick was.
    tick_ns: Cell<u64>,
}

/// A watched OSD: one run of its process.
struct Peer {
    osd: OsdId,
    /// Its public addresses, which tell the monitor which run is meant.
    addrs: EntityAddrVec,
    /// Where it answers, by network.
    hb_addrs: [Option<EntityAddr>; 2],
    conns: RefCell<[Option<Rc<Connection>>; 2]>,
    watch: RefCell<Watch>,
    /// When the next ping is due.
    ping_ns: Cell<u64>,
    /// Set when it is no longer watched.
    is_over: Cell<bool>,
}

/// Opens the ports, answers other OSDs, and watches those that [`Heartbeats::on_map`] selects.
///
/// # Errors
/// If a port cannot be opened.
pub(crate) async fn start(osd: &Rc<OsdShard>) -> Result<Rc<Heartbeats>, OsdError> {
    let (public, cluster) = (osd.config.listen, osd.config.cluster_ip());
    let back = answer::listen(osd, cluster.unwrap_or(public)).await?;
    let addrs = [back, answer::listen(osd, public).await?];
    let mut client = ClientConfig::new(EntityType::OSD, osd.config.id.0.to_string(), osd.config.nonce);
    client.group = Group::Heartbeat;
    client.gid.set(osd.config.id.0.into());
    OsdShard::identify(osd.auth.as_ref(), &osd.config.access, &mut client);
    let own = Rc::new(Heartbeats {
        osd: Rc::clone(osd),
        client: Rc::new(client),
        addrs,
        peers: RefCell::default(),
        session: RefCell::default(),
        waits: Cell::new(false),
        tick_ns: Cell::new(osd.shard.now_ns()),
    });
    osd.shard.spawn(Group::Heartbeat, "heartbeat", Rc::clone(&own).watch());
    Ok(own)
}

impl Heartbeats {
    /// A new session with a monitor: what was reported in the last one must be repeated, or withdrawn.
    pub(crate) fn on_session(&self, session: &Rc<MonSession>) {
        *self.session.borrow_mut() = Rc::downgrade(session);
        self.all().iter().for_each(|peer| peer.watch.borrow_mut().doubt_report());
    }

    /// Watches the peers of the newest map, and no others. `was_up`: this process was up once; if it is down, it looks for others that
    /// answer it.
    pub(crate) fn on_map(self: &Rc<Self>, view: &MapView, was_up: bool) {
        let (map, own) = (view.map(), self.osd.config.id);
        let waits = was_up && !map.is_up(own);
        let begins_to_wait = !self.waits.replace(waits) && waits;
        let wanted = if map.is_up(own) || waits { peers::select(view, own) } else { BTreeSet::new() };
        // What they answered before counts no longer.
        let is_same = |peer: &Peer| {
            wanted.contains(&peer.osd)
                && !begins_to_wait
                && map.client_addr(peer.osd) == Some(&peer.addrs)
                && hb_addrs(map, peer.osd) == peer.hb_addrs
        };
        self.peers.borrow_mut().retain(|_, peer| {
            let stays = is_same(peer);
            if !stays {
                peer.end();
            }
            stays
        });
        for osd in wanted {
            if !self.peers.borrow().contains_key(&osd) {
                self.begin(map, osd);
            }
        }
    }

    fn begin(self: &Rc<Self>, map: &OsdMap, osd: OsdId) {
        let Some(addrs) = map.client_addr(osd).cloned() else { return };
        let now_ns = self.osd.shard.now_ns();
        let peer = Rc::new(Peer {
            osd,
            addrs,
            hb_addrs: hb_addrs(map, osd),
            conns: RefCell::default(),
            watch: RefCell::new(Watch::new(now_ns)),
            ping_ns: Cell::new(now_ns),
            is_over: Cell::new(false),
        });
        for network in 0..NETWORKS.len() {
            let task = link::keep_connected(Rc::clone(self), Rc::clone(&peer), network);
            self.osd.shard.spawn(Group::Heartbeat, "heartbeat-link", task);
        }
        self.peers.borrow_mut().insert(osd, peer);
    }

    /// Whether this OSD may boot: always at first, and when it was marked down if enough others answer it on both networks. One that is
    /// cut off would otherwise come back at once, and the PGs would wait for it until it is found silent again.
    pub(crate) fn may_boot(&self) -> bool {
        let peers = self.peers.borrow();
        let (now_ns, grace) = (self.osd.shard.now_ns(), self.osd.config.heartbeat.grace);
        let answering = peers.values().filter(|peer| peer.watch.borrow().answers(now_ns, grace)).count();
        !self.waits.get() || answering * ONE_OF >= peers.len()
    }

    /// The OSDs that are watched now.
    pub(crate) fn watched(&self) -> impl Iterator<Item = OsdId> {
        let watched: Vec<OsdId> = self.peers.borrow().keys().copied().collect();
        watched.into_iter()
    }

    fn all(&self) -> Vec<Rc<Peer>> {
        self.peers.borrow().values().cloned().collect()
    }

    async fn watch(self: Rc<Self>) {
        while !self.osd.stopping.get() {
            self.osd.shard.sleep(TICK).await;
            let now_ns = self.osd.shard.now_ns();
            let late_ns = now_ns.saturating_sub(self.tick_ns.replace(now_ns) + TICK.as_nanos() as u64);
            for peer in self.all() {
                if late_ns >= STOPPED.as_nanos() as u64 {
                    peer.watch.borrow_mut().discount_silence(late_ns, now_ns);
                }
                if peer.ping_ns.get() <= now_ns {
                    peer.ping_ns.set(now_ns + self.pause_ns());
                    self.ping(&peer, 0);
                    self.ping(&peer, 1);
                }
                self.judge(&peer);
            }
        }
    }

    fn pause_ns(&self) -> u64 {
        let (least, most) =
            (PING_MIN.as_nanos() as u64, self.osd.config.heartbeat.interval.as_nanos() as u64);
        least + self.osd.shard.random_u64() % most.saturating_sub(least).max(1)
    }

    /// Pings a peer, if it is connected.
    fn ping(&self, peer: &Peer, network: usize) {
        let conns = peer.conns.borrow();
        if let Some(conn) = conns.get(network).and_then(Option::as_ref).filter(|conn| !conn.is_closed()) {
            let now_ns = self.osd.shard.now_ns();
            let asked = OsdPing {
                op: OsdPing::PING,
                stamp: UTime::from_unix(self.osd.shard.unix_now()),
                mono_ping_ns: now_ns,
                ..answer::ping(&self.osd)
            };
            conn.send(Message::encode(&asked));
        }
    }

    /// Sends the monitor the report that is due about a peer.
    fn judge(&self, peer: &Peer) {
        let (now_ns, grace) = (self.osd.shard.now_ns(), self.osd.config.heartbeat.grace);
        let report = peer.watch.borrow().report(now_ns, grace);
        if let Some(report) = report
            && !peer.is_over.get()
            && !self.waits.get()
            && self.report_to_mon(peer, report)
        {
            peer.watch.borrow_mut().note_reported(report);
        }
    }

    /// Sends a report to the monitor; false if there is no session.
    fn report_to_mon(&self, peer: &Peer, report: Report) -> bool {
        let (osd, silent) = (peer.osd, report.silent);
        let Some((view, session)) = self.osd.view().zip(self.session.borrow().upgrade()) else {
            return false;
        };
        let epoch: Epoch = view.epoch();
        let is_sent = session.send(Message::encode(&Failure {
            version: epoch.0.into(),
            fsid: view.map().fsid,
            osd,
            addrs: peer.addrs.clone(),
            epoch,
            flags: report.flags,
            failed_for_s: silent.as_secs() as u32,
        }));
        match report.flags {
            _ if !is_sent => {}
            0 => tracing::info!("{osd} answers again"),
            Failure::FAILED => tracing::warn!("{osd} has not answered for {silent:?}"),
            _ => tracing::warn!("{osd} is gone: its port refuses connections"),
        }
        is_sent
    }
}

/// Where an OSD answers, by network.
fn hb_addrs(map: &OsdMap, osd: OsdId) -> [Option<EntityAddr>; 2] {
    [&map.hb_back_addrs, &map.hb_front_addrs]
        .map(|all| all.get(osd.0 as usize).and_then(EntityAddrVec::msgr2))
}

impl Peer {
    fn end(&self) {
        self.is_over.set(true);
        self.conns.borrow().iter().flatten().for_each(|conn| conn.close("the OSD is watched no longer"));
    }
}
