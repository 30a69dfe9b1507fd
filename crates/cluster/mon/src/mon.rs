//! The monitor: its map, its subscribers, and the one task that changes the map.
//!
//! All of it lives on one shard. See [`commit`] for how a change of the map comes about.

mod commit;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use carmine_crush::MapView;
use carmine_messenger::{Budget, Connection, Gate, Message};
use carmine_reactor::sync::Notify;
use carmine_reactor::{Group, Shard};
use carmine_types::{Epoch, MsMode, OsdId, UTime, Uuid, is_mutated};
use carmine_wire::mgr_msg::MgrMapMsg;
use carmine_wire::monmap::MonMap;
use carmine_wire::osdmap::{Incremental, OsdMap};
use carmine_wire::{EntityAddrVec, EntityType};
use tracing::{error, info};

use crate::accept::{BUDGET_BYTES, Door, gate};
use crate::auth::{self, Handshakes};
use crate::change::{Change, Refusal, refuse};
use crate::creating::Creating;
use crate::failure::Failures;
use crate::history::History;
use crate::log::ClusterLog;
use crate::mon::commit::Work;
use crate::options::{ClientOptions, OptionEdit};
use crate::pacing::Merges;
use crate::session::Session;
use crate::state::{Saved, StateFile};
use crate::stats::ClusterStats;
use crate::{DownLimits, MapRules, MonConfig, MonError};

/// The monitor's name in the MonMap.
const NAME: &str = "a";
/// The manager's number. Ceph's monitors take one from their clients' numbers; this one is never given to a client.
const MANAGER_GID: u64 = 1;
/// Ceph starts global ids here; below are the OSDs' own numbers.
const FIRST_GID: u64 = 4_096;
/// Ids that one record reserves. Half of them are in stock when the next record is due.
pub(crate) const GIDS_RESERVED: u64 = 1 << 16;
/// Changes that may wait. Every connection has at most one under way in practice; this bounds a flood.
const CHANGES_MAX: usize = 10_000;

/// Is told how a change ended, after it is durable and pushed.
pub(crate) type Done = Box<dyn FnOnce(&Mon, Result<(), Refusal>)>;

/// The current map, and its bytes as clients get them.
pub(crate) struct Published {
    pub(crate) map: Arc<OsdMap>,
    pub(crate) bytes: Rc<Vec<u8>>,
    placement: OnceCell<Rc<MapView>>,
    /// That of an earlier map, until it has its own.
    before: RefCell<Option<Rc<MapView>>>,
}

impl Published {
    pub(crate) fn new(map: OsdMap) -> Published {
        let bytes = Rc::new(map.encode());
        Published { bytes, map: Arc::new(map), placement: OnceCell::new(), before: RefCell::default() }
    }

    /// A map that comes after this one.
    fn next(&self, map: OsdMap) -> Published {
        let before = self.placement.get().cloned().or_else(|| self.before.borrow().clone());
        Published { before: RefCell::new(before), ..Published::new(map) }
    }

    /// Where all PGs are; computed when it is first asked for.
    pub(crate) fn placement(&self) -> &MapView {
        self.placement.get_or_init(|| {
            let before = self.before.take();
            Rc::new(MapView::after(before.as_deref(), Arc::clone(&self.map)))
        })
    }
}

/// The embedded monitor.
pub struct Mon {
    pub(crate) shard: Shard,
    pub(crate) me: Weak<Mon>,
    /// For the monitor's clients, and for those who look for a manager.
    pub(crate) doors: [Door; 2],
    pub(crate) gate: Gate,
    /// For requests and answers of all who are no OSDs.
    pub(crate) budget: Rc<Budget>,
    pub(crate) monmap: MonMap,
    pub(crate) mgrmap: MgrMapMsg,
    current: RefCell<Rc<Published>>,
    /// The maps before it.
    pub(crate) history: RefCell<History>,
    /// PGs that were never active.
    pub(crate) creating: RefCell<Creating>,
    /// By connection id.
    pub(crate) sessions: RefCell<BTreeMap<u64, Session>>,
    pub(crate) stats: RefCell<ClusterStats>,
    /// The `up_thru` that OSDs have asked for.
    pub(crate) up_thru: RefCell<BTreeMap<OsdId, Epoch>>,
    pub(crate) limits: DownLimits,
    pub(crate) rules: MapRules,
    /// Facts about itself and its machine.
    pub(crate) facts: BTreeMap<String, String>,
    /// OSDs' reports of OSDs that do not answer.
    pub(crate) failures: RefCell<Failures>,
    /// When the next beacon of each OSD that is up must have come.
    pub(crate) beacons_due_ns: RefCell<BTreeMap<OsdId, u64>>,
    /// Merges of PGs that were not done.
    pub(crate) merges: RefCell<Merges>,
    /// Since when each OSD is down that is not out yet.
    pub(crate) down_ns: RefCell<BTreeMap<OsdId, u64>>,
    pub(crate) log: RefCell<ClusterLog>,
    /// Those of clients, as they are stored.
    pub(crate) options: RefCell<ClientOptions>,
    /// Modes in which it talks to who has a key; `None`: it asks nobody for one.
    pub(crate) modes: Option<Vec<MsMode>>,
    pub(crate) handshakes: RefCell<Handshakes>,
    work: RefCell<VecDeque<Work>>,
    /// Fired when `work` got an entry.
    pub(crate) wake: Notify,
    /// When the current map was made, by the reactor's clock, if this process made it.
    committed_ns: Cell<Option<u64>>,
    /// Until `serve` takes it.
    state: RefCell<Option<StateFile>>,
    next_gid: Cell<u64>,
    /// Ids below this one are reserved on disk.
    gids_reserved: Cell<u64>,
    /// A reservation is on its way.
    gids_asked: Cell<bool>,
    fsid: Uuid,
    /// When it began to serve, by the reactor's clock.
    started_ns: u64,
}

impl Mon {
    /// Opens (or makes) the state, and listens. All OSDs that the stored map calls up are marked down: their
    /// sessions ended with the monitor that knew them, and they boot again.
    ///
    /// # Errors
    /// The port is in use; the state cannot be read or written, or belongs to another cluster.
    pub async fn open(shard: &Shard, config: MonConfig) -> Result<Rc<Self>, MonError> {
        let (mut state, saved) = StateFile::open(shard, &config.dir).await?;
        let now = UTime::from_unix(shard.unix_now());
        let fsid = config.initial.fsid;
        let options = saved.as_ref().map_or(&[][..], |saved| &saved.options);
        let mut options = ClientOptions::decode(options).map_err(|source| MonError::BadMap { source })?;
        if let Some(auth) = &config.auth {
            options.auth = Some(auth::at_start(auth, options.auth.take(), now).map_err(MonError::Auth)?);
        }
        let (map, gid) = match &saved {
            Some(saved) if saved.fsid != fsid => {
                return Err(MonError::WrongCluster { found: saved.fsid, expected: fsid });
            }
            Some(saved) => (restored(&saved.map, now)?, saved.next_gid),
            None => (config.initial.map(now), FIRST_GID),
        };
        let is_restart = saved.is_some();
        let door = Door::open(shard, EntityType::MON, config.listen, 0).await?;
        // The clock's seconds rise from start to start: whoever knows the manager of an earlier one hears of this one.
        let manager = SocketAddr::new(config.listen.ip(), 0);
        let manager = Door::open(shard, EntityType::MGR, manager, now.sec).await?;
        let published = Published::new(map);
        let reserved = gid + GIDS_RESERVED;
        let start =
            Saved { fsid, next_gid: reserved, map: published.bytes.to_vec(), options: options.encode() };
        state.older.extend(saved.map(|saved| Rc::new(saved.map)));
        let history = History::restored(&state.older, published.map.epoch);
        state.older = history.all();
        let creating = Creating::restored(&history, &published.map);
        state.rewrite(&start).await?;
        let monmap = MonMap::single(fsid, published.map.created, NAME, door.addrs.clone());
        let mgrmap = MgrMapMsg {
            epoch: Epoch(now.sec),
            addrs: manager.addrs.clone(),
            gid: MANAGER_GID,
            available: true,
            name: NAME.to_owned(),
        };
        info!(addr = %door.listener.local_addr(), epoch = %published.map.epoch, restart = is_restart, "monitor ready");
        Ok(Rc::new_cyclic(|me| Self {
            shard: shard.clone(),
            me: me.clone(),
            doors: [door, manager],
            gate: gate(config.open_files),
            budget: Budget::new(BUDGET_BYTES),
            monmap,
            mgrmap,
            current: RefCell::new(Rc::new(published)),
            history: RefCell::new(history),
            creating: RefCell::new(creating),
            sessions: RefCell::default(),
            stats: RefCell::default(),
            up_thru: RefCell::default(),
            limits: config.limits,
            rules: config.rules,
            facts: config.facts.into_iter().collect(),
            failures: RefCell::default(),
            beacons_due_ns: RefCell::default(),
            down_ns: RefCell::default(),
            merges: RefCell::default(),
            log: RefCell::default(),
            options: RefCell::new(options),
            modes: config.auth.map(|auth| auth.modes),
            handshakes: RefCell::default(),
            work: RefCell::default(),
            wake: Notify::new(),
            committed_ns: Cell::new(None),
            state: RefCell::new(Some(state)),
            next_gid: Cell::new(gid),
            gids_reserved: Cell::new(reserved),
            gids_asked: Cell::new(false),
            fsid,
            started_ns: shard.now_ns(),
        }))
    }

    /// The time, for what is written into the map.
    pub(crate) fn now(&self) -> UTime {
        UTime::from_unix(self.shard.unix_now())
    }

    /// Seconds since it was opened.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.shard.now_ns().saturating_sub(self.started_ns) / 1_000_000_000
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        let [door, _] = &self.doors;
        door.listener.local_addr()
    }

    /// The current map.
    pub(crate) fn current(&self) -> Rc<Published> {
        Rc::clone(&self.current.borrow())
    }

    /// Serves until the state fails. Dropping the future does not close sessions; stop the reactor for that.
    ///
    /// # Errors
    /// A change could not be made durable, or the listener died.
    pub async fn serve(self: &Rc<Self>) -> Result<(), MonError> {
        let Some(mut state) = self.state.borrow_mut().take() else { return Ok(()) };
        for at in 0..self.doors.len() {
            self.shard.spawn(Group::Client, "mon-accept", Rc::clone(self).accept(at));
        }
        self.shard.spawn(Group::Admin, "mon-room", Rc::clone(self).close_stalled());
        loop {
            self.do_next(&mut state).await?;
        }
    }

    /// A global id never used before, also across restarts; `None` while all that are reserved are in use, until the record that
    /// reserves more is durable.
    pub(crate) fn assign_gid(&self) -> Option<u64> {
        let (gid, reserved) = (self.next_gid.get(), self.gids_reserved.get());
        let left = reserved.checked_sub(gid);
        let left = left.unwrap_or_else(|| {
            panic!("global id {gid} is the next one, and only those below {reserved} are reserved")
        });
        if left <= GIDS_RESERVED / 2 && !self.gids_asked.replace(true) {
            self.push(Work::Gids(reserved + GIDS_RESERVED));
        }
        if left == 0 && !is_mutated("unreserved_gid") {
            return None;
        }
        self.next_gid.set(gid + 1);
        assert!(gid < reserved, "global id {gid} is not reserved: only those below {reserved} are");
        Some(gid)
    }

    fn push(&self, work: Work) {
        self.work.borrow_mut().push_back(work);
        self.wake.notify_one();
    }

    /// Queues a change; `done` is called once it is durable, or refused.
    pub(crate) fn change(&self, change: Change, done: Done) {
        if self.work.borrow().len() >= CHANGES_MAX {
            done(
                self,
                Err(refuse(carmine_types::errno::EBUSY, "too many map changes are waiting: try again")),
            );
            return;
        }
        self.push(Work::Change(change, done));
    }

    /// Queues a change of the options of clients, as [`Mon::change`] does.
    pub(crate) fn change_options(&self, edit: OptionEdit, done: Done) {
        if self.work.borrow().len() >= CHANGES_MAX {
            return done(
                self,
                Err(refuse(carmine_types::errno::EBUSY, "too many changes are waiting: try again")),
            );
        }
        self.push(Work::Options(edit, done));
    }

    /// Notes soon what is in [`Mon::up_thru`] by then.
    pub(crate) fn change_soon(&self) {
        self.push(Work::UpThru);
    }

    fn forget_old_stats(&self, map: &OsdMap) {
        let mut stats = self.stats.borrow_mut();
        for osd in map.osds().filter(|osd| !map.is_up(*osd)) {
            stats.reports.remove(&osd);
        }
        stats.damage.retain(|osd, _| map.exists(*osd));
        stats.retain_pgs(|pg| map.pool(pg.pool).is_some_and(|pool| pg.ps < pool.pg_num));
    }

    /// The change to make when an OSD's session ends: none if the OSD has a newer session, or if other OSDs still have
    /// sessions, because they report it. When the last session ends, no OSD is left to report any, so this monitor
    /// marks down that OSD and all others whose sessions ended before.
    fn after_session(&self, map: &OsdMap, osd: OsdId, addrs: &EntityAddrVec) -> Option<Change> {
        if self.has_session(osd, addrs) {
            return None;
        }
        self.failures.borrow_mut().forget_reporter(osd);
        let is_heard = |osd: OsdId| map.client_addr(osd).is_some_and(|addrs| self.has_session(osd, addrs));
        let (heard, unheard): (Vec<_>, Vec<_>) =
            map.osds().filter(|osd| map.is_up(*osd)).partition(|osd| is_heard(*osd));
        (heard.is_empty() && !unheard.is_empty()).then_some(Change::MarkDown { osds: unheard })
    }

    pub(crate) fn has_session(&self, osd: OsdId, addrs: &EntityAddrVec) -> bool {
        self.sessions.borrow().values().any(|session| session.is_of(osd, addrs))
    }

    /// The end of an OSD's session is looked at when its turn comes.
    pub(crate) fn session_ended(&self, osd: OsdId, addrs: EntityAddrVec, why: String) {
        self.push(Work::Ended(osd, addrs, why));
    }

    /// Marks those down that lost their session while nobody was to be marked down.
    fn end_lost_sessions(&self, map: &OsdMap) {
        for osd in map.osds().filter(|osd| map.is_up(*osd)) {
            let lost = map.client_addr(osd).filter(|addrs| !self.has_session(osd, addrs));
            if let Some(addrs) = lost {
                self.session_ended(osd, addrs.clone(), "its session ended while nodown was set".into());
            }
        }
    }

    /// Marks the OSD with these addresses down, because it runs anew: its store has been opened by another process.
    pub(crate) fn osd_gone(&self, osd: OsdId, addrs: EntityAddrVec, why: &str) {
        info!("{osd}: {why}");
        self.change(Change::Down { osd, addrs, is_dead: true }, Box::new(|_, _| {}));
    }

    /// Puts into the map what follows from an OSD's report, if that is not there yet.
    pub(crate) fn note(&self, map: &OsdMap, news: Change) {
        if news.plan(map, self.now()).is_ok_and(|inc| inc.is_some()) {
            self.change(news, Box::new(|_, _| {}));
        }
    }

    /// Sends a message unless the connection has gone.
    pub(crate) fn reply(conn: &Rc<Connection>, message: Message) {
        if !conn.is_closed() {
            conn.send(message);
        }
    }
}

/// The map of a monitor that starts again, out of its stored bytes: with every OSD down, one epoch later if that changed it.
pub(crate) fn restored(map: &[u8], now: UTime) -> Result<OsdMap, MonError> {
    let mut map = OsdMap::decode(map).map_err(|source| MonError::BadMap { source })?;
    let up: Vec<OsdId> = map.osds().filter(|osd| map.is_up(*osd)).collect();
    if up.is_empty() {
        return Ok(map);
    }
    let mut inc = Incremental::next(&map, now);
    for osd in up {
        inc.mark_down(osd);
    }
    inc.new_last_up_change = now;
    if let Err(e) = map.apply(&inc) {
        error!("cannot mark the OSDs of the stored map down: {e}");
    }
    Ok(map)
}

#[cfg(test)]
mod tests;
