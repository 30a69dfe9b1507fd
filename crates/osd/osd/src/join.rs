//! An OSD's session with the monitor: it boots, receives maps, sends beacons, and says goodbye.
//!
//! The map is the monitor's only answer. If it shows this OSD as up at its own addresses, the boot succeeded. If the OSD's number
//! is unknown or belongs to another store, the OSD stops.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use carmine_client::{MgrSession, MonHandler, MonSession};
use carmine_crush::MapView;
use carmine_messenger::cephx::KeyHolder;
use carmine_messenger::{ClientConfig, Message, with_timeout};
use carmine_peering::intervals::has_both_kinds;
use carmine_pgtypes::{Interval, OsdSet, PgHistory, pg_parent};
use carmine_reactor::sync::Notify;
use carmine_reactor::{Group, Shard, ShardId};
use carmine_types::{Epoch, Eversion, MonKind, NO_OSD, OsdId, PgId, UTime, Uuid};
use carmine_wire::handshake::features::CARMINE;
use carmine_wire::mon_msg::{LogEntry, LogMsg, log_level};
use carmine_wire::osd_msg::{
    Alive, Beacon, Boot, Full, MarkMeDown, PastInterval, PgCreate, PgCreated, ReadyToMerge, Superblock,
};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::pg_stat::PgShard;
use carmine_wire::scrub::OsdScrub;
use carmine_wire::{EntityAddr, EntityAddrVec, EntityName, EntityType, FEATURES, kinds};

use crate::admin::Hook;
use crate::auth::Auth;
use crate::heartbeat::Heartbeats;
use crate::kinds::is_classic;
use crate::mgr;
use crate::networks::Addrs;
use crate::pg::{give_up_leases, order_scrubs};
use crate::place;
use crate::shard::OsdShard;
use crate::stats::{self, used_bytes};

/// Pause before a boot message, or another request that the map has not granted yet, is sent again: messages are lost with their
/// session, and a map may say "down" by mistake.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for the answer to a goodbye, which is a new map (Ceph's osd_mon_shutdown_timeout).
const GOODBYE: Duration = Duration::from_secs(5);
/// Longest unmount of the store.
const UNMOUNT: Duration = Duration::from_secs(20);

/// Shard 0's session with the monitor.
struct Member {
    osd: Rc<OsdShard>,
    /// The public address of this start of this OSD, by which the monitor knows it, …
    addr: EntityAddr,
    /// … and that for other OSDs.
    cluster: EntityAddr,
    heartbeats: Rc<Heartbeats>,
    /// The session with the manager, if the monitor is a real one.
    manager: Option<Rc<MgrSession>>,
    session: RefCell<Weak<MonSession>>,
    /// The newest map shows it as up, …
    is_up: Cell<bool>,
    /// … since this epoch, or did so last; zero: it never was in this process.
    boot_epoch: Cell<Epoch>,
    /// It has its place in the CRUSH map, as far as it asks for one.
    is_placed: Cell<bool>,
    /// The newest epoch at which an interval of a PG led here began, for which `up_thru` is still needed.
    up_thru: Cell<Epoch>,
    /// Asks the monitor to send all its orders to create PGs again.
    wants_orders: Cell<bool>,
    /// The newest map that all PGs of this OSD had seen when this process started.
    seen: Epoch,
    /// Maps that this OSD does not follow yet, in order.
    maps: RefCell<VecDeque<Arc<OsdMap>>>,
    /// The map before those splits PGs, and is being prepared.
    prepares: Cell<bool>,
    /// PGs led here that are about to be merged, as far as it is known whether they can be.
    mergeable: RefCell<BTreeMap<PgId, Mergeable>>,
    /// Notified when this OSD has followed a map, or several at once.
    news: Notify,
    /// When the next beacon is due.
    beacon_ns: Cell<u64>,
    /// Lines that were sent to the cluster's log.
    lines: Cell<u64>,
    /// Fired when the monitor has answered the goodbye.
    left: Notify,
}

/// Keeps a session with the monitor for as long as the OSD runs.
pub(crate) fn start(osd: &Rc<OsdShard>, addrs: Addrs, heartbeats: Rc<Heartbeats>, seen: Epoch) {
    let Addrs { public: addr, cluster } = addrs;
    let access = &osd.config.access;
    let keys = access.keys(&osd.shard, true);
    let mut client = ClientConfig::daemon(EntityType::OSD, osd.config.id.0, addr);
    access.protect(&mut client, keys.as_ref());
    let client = Rc::new(client);
    let member = Rc::new(Member {
        osd: Rc::clone(osd),
        addr,
        cluster,
        manager: mgr::start(osd, addr, &client, &heartbeats),
        heartbeats,
        session: RefCell::default(),
        is_up: Cell::new(false),
        boot_epoch: Cell::default(),
        is_placed: Cell::new(osd.config.crush.is_none()),
        up_thru: Cell::default(),
        wants_orders: Cell::default(),
        seen,
        maps: RefCell::default(),
        prepares: Cell::default(),
        mergeable: RefCell::default(),
        news: Notify::new(),
        beacon_ns: Cell::new(0),
        lines: Cell::new(0),
        left: Notify::new(),
    });
    osd.shard.set_local(Rc::clone(&member));
    let handler = Rc::clone(&member) as Rc<dyn MonHandler>;
    let session = MonSession::start(&osd.shard, access.mon_addrs(), client, keys, handler);
    osd.shard.spawn(Group::Admin, "place", Rc::clone(&member).find_place(Rc::clone(&session)));
    osd.shard.spawn(Group::Admin, "member", member.keep_asking());
    stats::start(osd, session);
}

/// Says goodbye on shard 0, so that the monitor marks this OSD down. Then all shards close their connections and unmount the
/// store, so that the next start has nothing to replay or scan. Returns when that is done or takes too long; the caller then
/// stops the reactors.
pub async fn leave(shard: &Shard) {
    let Some(member) = shard.local::<Member>() else { return };
    member.manager.iter().for_each(|manager| manager.shutdown());
    // Other OSDs may serve as soon as the map says that this one is down.
    member.osd.on_all(|osd| give_up_leases(osd)).await;
    if member.say_goodbye() {
        let _ = with_timeout(shard, GOODBYE, member.left.notified()).await;
    }
    if with_timeout(shard, UNMOUNT, unmount(&member.osd)).await.is_none() {
        tracing::warn!("the store was not unmounted within {UNMOUNT:?}: the next start replays its log");
    }
}

async fn unmount(osd: &OsdShard) {
    osd.on_all(|osd| close_connections(osd)).await;
    osd.call_all(async |osd| unmount_store(&osd).await).await;
}

/// Closes all connections of this shard, so that errors of the closing store reach nobody.
fn close_connections(osd: &OsdShard) {
    osd.stopping.set(true);
    let conns: Vec<_> = osd.conns.borrow().values().map(|state| Rc::clone(&state.conn)).collect();
    conns.iter().for_each(|conn| conn.close("this OSD stops"));
}

async fn unmount_store(osd: &OsdShard) {
    if let Err(error) = osd.store.umount().await {
        tracing::warn!("the store of reactor {} was not unmounted: {error}", osd.shard.id().0);
    }
}

impl MonHandler for Member {
    fn seen(&self) -> Epoch {
        self.seen
    }

    fn on_session(&self, session: &Rc<MonSession>) {
        *self.session.borrow_mut() = Rc::downgrade(session);
        self.heartbeats.on_session(session);
        self.manager.iter().for_each(|manager| manager.on_session(session));
        self.wants_orders.set(true);
        self.ask();
    }

    fn on_map(&self, map: &Arc<OsdMap>) {
        self.maps.borrow_mut().push_back(Arc::clone(map));
        self.follow_maps();
    }

    fn on_tickets(&self, keys: &Rc<KeyHolder>) {
        self.osd.spread_tickets(keys);
        self.news.notify_one();
    }

    fn on_options(&self, options: Vec<(String, String)>) {
        self.osd.set_stored_options(options.into_iter().collect());
    }

    fn on_message(&self, _session: &Rc<MonSession>, msg: Message) {
        match msg.header.kind {
            kinds::OSD_MARK_ME_DOWN => self.left.notify_one(),
            kinds::MGR_MAP => self.manager.iter().for_each(|manager| manager.on_map(&msg)),
            kinds::OSD_PG_CREATE2 => match msg.decode::<PgCreate>() {
                Ok(order) => create_pgs(&self.osd, order),
                Err(error) => {
                    tracing::warn!("the monitor orders PGs to be made in words that cannot be read: {error}");
                }
            },
            kinds::OSD_SCRUB2 => match msg.decode::<OsdScrub>() {
                Ok(scrub) => order_scrubs(&self.osd, &scrub),
                Err(error) => tracing::warn!("the monitor orders scrubs that cannot be read: {error}"),
            },
            _ => {}
        }
    }
}

impl Member {
    /// Follows the maps that have arrived, in order. A map that splits or merges PGs is followed once all are loaded, and the reactors
    /// that own them have in memory what the splits copy.
    fn follow_maps(&self) {
        while !self.prepares.get() {
            let Some(map) = self.maps.borrow_mut().pop_front() else { return };
            let member = self.osd.shard.local::<Member>().filter(|member| member.osd.resizes_by(&map));
            let Some(member) = member else {
                self.follow(&map);
                continue;
            };
            self.prepares.set(true);
            self.osd.shard.spawn(Group::Recovery, "prepare-splits", async move {
                member.osd.settle_pgs().await;
                member.osd.prepare_splits(&map).await;
                member.prepares.set(false);
                member.follow(&map);
                member.follow_maps();
            });
        }
    }

    /// Follows a map.
    fn follow(&self, map: &Arc<OsdMap>) {
        let id = self.osd.config.id;
        if let Some(why) = contradicts(map, id, self.osd.config.uuid) {
            tracing::error!("the map of epoch {} refuses this OSD: {why}", map.epoch);
            self.osd.stopping.set(true);
            return self.osd.shard.stop();
        }
        let is_up = map.client_addr(id).is_some_and(|addrs| addrs.contains(&self.addr));
        let was_up = self.is_up.replace(is_up);
        if is_up && !was_up {
            self.boot_epoch.set(map.epoch);
        }
        if was_up && !is_up && !self.osd.stopping.get() {
            tracing::warn!(
                "the map of epoch {} says that this OSD is down: it boots again when half of its peers answer it",
                map.epoch
            );
        }
        self.note_gap(map.epoch);
        self.osd.take_map(map);
        if let Some(now) = self.osd.view() {
            self.heartbeats.on_map(&now, self.boot_epoch.get() > Epoch(0));
        }
        self.news.notify_one();
    }
}

/// Why the map does not accept an OSD with this number and store.
fn contradicts(map: &OsdMap, osd: OsdId, uuid: Uuid) -> Option<String> {
    if !map.exists(osd) {
        return Some(format!("{osd} is not in this cluster of {} OSDs", map.max_osd));
    }
    let known = map.osd_uuid.get(osd.0 as usize).copied().unwrap_or_default();
    let is_other = !known.is_nil() && known != uuid;
    is_other.then(|| {
        format!("{osd} has the store {uuid}, the map knows {known}: is this the folder of another cluster?")
    })
}

/// Runs `work` where the session with the monitor is.
fn with_member(osd: &OsdShard, work: impl FnOnce(&Member) + Send + 'static) {
    osd.shard.submit_to(ShardId(0), move |shard| {
        if let Some(member) = shard.local::<Member>() {
            work(&member);
        }
    });
}

/// What the primary of a PG that is about to be merged knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mergeable {
    /// All OSDs that should have it have all of it.
    pub(crate) is_whole: bool,
    pub(crate) last_update: Eversion,
    pub(crate) last_epoch_started: Epoch,
    pub(crate) last_epoch_clean: Epoch,
}

/// Notes whether a PG that is about to be merged can be; `None`: that is not known.
pub(crate) fn note_mergeable(osd: &OsdShard, pg: PgId, now: Option<Mergeable>) {
    with_member(osd, move |member| {
        let mut mergeable = member.mergeable.borrow_mut();
        match now {
            Some(now) => drop(mergeable.insert(pg, now)),
            None => drop(mergeable.remove(&pg)),
        }
        member.news.notify_one();
    });
}

/// The word on the merge of a PG into another one, both led here as far as is known: both are whole and on the same OSDs; or one is not,
/// and clients should not wait for it.
fn word_on_merge(view: &MapView, parts: [(PgId, Option<Mergeable>); 2]) -> Option<ReadyToMerge> {
    let [(source, of_source), (target, of_target)] = parts;
    let known = || of_source.iter().chain(&of_target);
    let is_together = view.mapping(source).acting == view.mapping(target).acting;
    let ready = is_together && known().all(|part| part.is_whole);
    if known().next().is_none() || (ready && known().count() < parts.len()) {
        return None; // the other one is not known yet
    }
    let [source_version, target_version] =
        [of_source, of_target].map(|part| part.map(|part| part.last_update).unwrap_or_default());
    Some(ReadyToMerge {
        version: view.epoch().0.into(),
        source,
        source_version,
        target_version,
        last_epoch_started: known().map(|part| part.last_epoch_started).max().unwrap_or_default(),
        last_epoch_clean: known().map(|part| part.last_epoch_clean).min().unwrap_or_default(),
        ready,
    })
}

/// Asks for `up_thru` of this epoch: a PG that this OSD leads waits for it.
pub(crate) fn want_up_thru(osd: &OsdShard, epoch: Epoch) {
    with_member(osd, move |member| {
        if member.up_thru.get() < epoch {
            member.up_thru.set(epoch);
            member.ask();
        }
    });
}

/// An order to create a PG came too late to be of use: asks the monitor for all orders again.
pub(crate) fn ask_for_orders(osd: &OsdShard) {
    with_member(osd, |member| {
        member.wants_orders.set(true);
        member.news.notify_one();
    });
}

/// Another OSD answers this one, which is down: that may be enough to boot.
pub(crate) fn boot_again(osd: &OsdShard) {
    with_member(osd, |member| member.news.notify_one());
}

/// Tells the monitor that a PG that it ordered to be created is active.
pub(crate) fn tell_created(osd: &OsdShard, pg: PgId) {
    with_member(osd, move |member| {
        if let Some(session) = member.session.borrow().upgrade() {
            session.send(Message::encode(&PgCreated { version: 0, pg }));
        }
    });
}

/// Gives the PGs that the monitor orders to be created what it knows of their past. Those that this OSD does not lead by its newest
/// map are left to others, to which the monitor then gives the order.
///
/// The monitor does not know that OSDs of two kinds cannot have served together: such an interval is left out.
fn create_pgs(osd: &OsdShard, order: PgCreate) {
    let view = osd.view();
    let classic = |id: OsdId| view.as_ref().is_some_and(|view| is_classic(&osd.config, view.map(), id));
    let PgCreate { epoch, pgs, mut histories } = order;
    for (id, (created, _)) in pgs {
        let Some(owner) = osd.owner(id) else { continue };
        let (history, intervals) = histories.remove(&id).unwrap_or_default();
        let past = intervals.intervals.into_iter();
        let interval =
            |PastInterval { first, last, acting }| Interval { first, last, acting: by_position(acting) };
        let history = PgHistory {
            epoch,
            same_interval_since: history.same_interval_since.max(created),
            last_epoch_clean: history.last_epoch_clean.max(created),
            past: past.map(interval).filter(|past| !has_both_kinds(&past.acting, classic)).collect(),
        };
        OsdShard::run_on(&osd.shard, owner, move |osd| {
            if let Some(pg) = osd.pg(id) {
                pg.create(osd, history);
            }
        });
    }
}

/// The acting set of a past interval; the order does not name its primary.
fn by_position(shards: BTreeSet<PgShard>) -> OsdSet {
    let mut items = Vec::new();
    for PgShard { osd, shard } in shards {
        let position = usize::try_from(shard).unwrap_or(items.len());
        items.resize(items.len().max(position + 1), NO_OSD);
        items[position] = osd;
    }
    OsdSet::new(&items, None)
}

/// Writes a line into this OSD's log and into the cluster's, at a level of [`log_level`].
pub(crate) fn write_cluster_log(osd: &OsdShard, level: u16, text: String) {
    match level {
        log_level::ERROR => tracing::error!("{text}"),
        _ => tracing::warn!("{text}"),
    }
    with_member(osd, move |member| member.write_log(level, text));
}

impl Member {
    /// Without a session the line is lost; this OSD's own log has it too.
    fn write_log(&self, level: u16, text: String) {
        let (Some(session), Some(view)) = (self.session.borrow().upgrade(), self.osd.view()) else { return };
        let id = self.osd.config.id.0;
        self.lines.set(self.lines.get() + 1);
        let entry = LogEntry {
            name: (EntityType::OSD.0.into(), id.to_string()),
            rank: EntityName { kind: EntityType::OSD, num: id.into() },
            addrs: self.addr.into(),
            stamp: UTime::from_unix(self.osd.shard.unix_now()),
            seq: self.lines.get(),
            level,
            text,
            channel: "cluster".to_owned(),
        };
        session.send(Message::encode(&LogMsg { version: 0, fsid: view.map().fsid, entries: vec![entry] }));
    }

    /// Warns if the monitor no longer has all maps between the last one this OSD saw and this one. The PGs decide for themselves
    /// what they can still know (`carmine_peering::intervals`).
    fn note_gap(&self, epoch: Epoch) {
        // Ask again for the newest map of the last run: it names the members of that time.
        let wanted = match self.osd.epoch() {
            Epoch(0) => self.seen,
            Epoch(newest) => Epoch(newest + 1),
        };
        if wanted > Epoch(0) && epoch > wanted {
            tracing::warn!(
                "the monitor has no maps of epochs {wanted} to {} any more: PGs of this OSD do not know who served them then, \
                 and ask others",
                epoch.0 - 1
            );
        }
    }

    /// False if there is no session to wait for. From here on this OSD serves nobody: the new members of its PGs consider it
    /// dead.
    fn say_goodbye(&self) -> bool {
        let Some((session, view)) = self.session.borrow().upgrade().zip(self.osd.view()) else {
            return false;
        };
        let goodbye = MarkMeDown {
            version: view.epoch().0.into(),
            fsid: view.map().fsid,
            osd: self.osd.config.id,
            addrs: self.addr.into(),
            epoch: view.epoch(),
            request_ack: true,
            is_dead: true,
        };
        self.is_up.get() && session.send(Message::encode(&goodbye))
    }

    /// Asks the monitor for what the map lacks: this OSD as up, or `up_thru` of the intervals of its PGs.
    fn ask(&self) {
        let Some(session) = self.session.borrow().upgrade() else { return };
        if self.wants_orders.take() {
            session.subscribe("osd_pg_creates", 0);
        }
        let Some(view) = self.osd.view() else { return };
        let (map, version) = (view.map(), u64::from(view.epoch().0));
        if self.osd.stopping.get() {
            return;
        }
        if !self.is_up.get() {
            // Clients come as soon as it is up.
            let can_let_in = self.osd.auth.as_ref().is_none_or(Auth::has_keys);
            if can_let_in && self.is_placed.get() && self.heartbeats.may_boot() {
                session.send(Message::encode(&self.boot(map)));
            }
        } else if map.up_thru(self.osd.config.id) < self.up_thru.get() {
            session.send(Message::encode(&Alive { version, want: self.up_thru.get() }));
        }
    }

    /// Asks after each map, repeats that until the map grants it, and sends beacons.
    async fn keep_asking(self: Rc<Self>) {
        while !self.osd.stopping.get() {
            let _ = with_timeout(&self.osd.shard, PAUSE, self.news.notified()).await;
            self.ask();
            self.tell_full();
            self.tell_mergeable();
            self.beacon();
        }
    }

    /// Tells a real monitor how full the store is, as long as the map says something else. The embedded one judges by the reports.
    fn tell_full(&self) {
        if self.osd.config.mon_kind == MonKind::Embedded || !self.is_up.get() {
            return;
        }
        let Some((session, view)) = self.session.borrow().upgrade().zip(self.osd.view()) else { return };
        let (map, space) = (view.map(), self.osd.store.statfs());
        let state = map.full_state(used_bytes(space), space.total);
        if map.fullness(self.osd.config.id) != state {
            let epoch = view.epoch();
            session.send(Message::encode(&Full { version: epoch.0.into(), epoch, state }));
        }
    }

    /// Tells the monitor of the PGs that its map is about to merge, until it does, or gives that up.
    fn tell_mergeable(&self) {
        let Some((session, view)) = self.session.borrow().upgrade().zip(self.osd.view()) else { return };
        let ready = self.mergeable.borrow();
        for (id, pool) in view.map().pools.iter().filter(|(_, pool)| pool.pg_num_pending < pool.pg_num) {
            let (source, parent) = (pool.pg_num_pending, pg_parent(pool.pg_num_pending, pool.pg_num_pending));
            let (source, target) = (PgId::new(*id, source), PgId::new(*id, parent));
            if let Some(word) = word_on_merge(&view, [source, target].map(|pg| (pg, ready.get(&pg).copied())))
            {
                session.send(Message::encode(&word));
            }
        }
    }

    async fn find_place(self: Rc<Self>, session: Rc<MonSession>) {
        if let Some(place) = &self.osd.config.crush {
            place::ask_for(place, self.osd.config.id, &session, &self.osd.shard).await;
            self.is_placed.set(true);
            self.news.notify_one();
        }
    }

    /// Its addresses, with the names that Ceph's metadata has.
    fn addresses(&self) -> [(String, String); 4] {
        let [hb_back, hb_front] = self.heartbeats.addrs;
        [
            ("back_addr", self.cluster),
            ("front_addr", self.addr),
            ("hb_back_addr", hb_back),
            ("hb_front_addr", hb_front),
        ]
        .map(|(name, addr)| (name.to_owned(), format!("[{addr}]")))
    }

    fn boot(&self, map: &OsdMap) -> Boot {
        let config = &self.osd.config;
        let metadata = self.osd.shard.local::<Hook>().map(|hook| hook.0.metadata()).unwrap_or_default();
        let superblock = Superblock {
            cluster_fsid: map.fsid,
            whoami: config.id,
            current_epoch: map.epoch,
            oldest_map: map.epoch,
            newest_map: map.epoch,
            osd_fsid: config.uuid,
            // There is nothing to book: a PG's log has its trims.
            purged_snaps_last: map.epoch,
            ..Superblock::default()
        };
        let [hb_back, hb_front] = self.heartbeats.addrs.map(EntityAddrVec::from);
        Boot {
            version: map.epoch.0.into(),
            superblock,
            hb_back,
            cluster: self.cluster.into(),
            boot_epoch: self.boot_epoch.get(),
            hb_front,
            metadata: metadata.into_iter().chain(self.addresses()).collect(),
            features: if config.mon_kind == MonKind::Ceph { FEATURES | CARMINE } else { FEATURES },
        }
    }

    fn beacon(&self) {
        let (Some(session), Some(view)) = (self.session.borrow().upgrade(), self.osd.view()) else { return };
        let (now_ns, own) = (self.osd.shard.now_ns(), self.osd.config.id);
        if !self.is_up.get() || now_ns < self.beacon_ns.get() {
            return;
        }
        let led = view.pgs_of(own).filter(|(_, mapping)| mapping.acting_primary == Some(own));
        let interval = self.osd.config.heartbeat.beacon_interval;
        let beacon = Beacon {
            version: view.epoch().0.into(),
            pgs: led.map(|(pg, _)| pg).collect(),
            min_last_epoch_clean: self.osd.last_epoch_clean.get(),
            last_purged_snaps_scrub: UTime::ZERO,
            interval_s: interval.as_secs() as i32,
        };
        if session.send(Message::encode(&beacon)) {
            self.beacon_ns.set(now_ns + interval.as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use carmine_crush::build_simple_crush;
    use carmine_wire::osdmap::PgPool;

    use super::*;

    fn map(up: impl Fn(u32) -> bool) -> OsdMap {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.set_max_osd(3);
        map.crush = Arc::new(build_simple_crush(&[0, 1, 2].map(|osd| (OsdId(osd), 0x10000)), true));
        map.osd_weight.fill(0x10000);
        map.osd_state = (0..3).map(|osd| if up(osd) { 3 } else { 1 }).collect();
        map.pools.insert(1, PgPool::replicated(3, 1, 32, 0, Epoch(1), UTime::ZERO));
        map
    }

    #[test]
    fn a_map_with_another_store_or_without_the_number_contradicts() {
        let (mut map, own) = (map(|_| true), Uuid([1; 16]));
        assert_eq!(contradicts(&map, OsdId(1), own), None, "it boots for the first time");
        map.osd_uuid[1] = own;
        assert_eq!(contradicts(&map, OsdId(1), own), None);
        assert!(contradicts(&map, OsdId(1), Uuid([2; 16])).unwrap().contains("another cluster"));
        assert!(contradicts(&map, OsdId(3), own).unwrap().contains("3 OSDs"));
    }
}
