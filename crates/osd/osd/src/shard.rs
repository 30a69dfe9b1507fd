//! One reactor's part of an OSD: its PGs, its store, its view of the map. Nothing here is shared.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use carmine_client::Client;
use carmine_crush::MapView;
use carmine_messenger::{Budget, Connection, Message, More};
use carmine_reactor::sync::{Acquire, Notify, Semaphore};
use carmine_reactor::{Shard, ShardId};
use carmine_store::{Prepared, Store};
use carmine_types::{Epoch, OsdId, PgId, SpgId};

use crate::auth::Auth;
use crate::by_pg::ByPg;
use crate::clients::Clients;
use crate::config::{
    LISTS_MAX, LONG_PUSHES_MAX, OsdConfig, PUSHED_BYTES_MAX, REPAIRS_MAX, TRIMS_MAX, WAITING_OPS_MAX,
};
use crate::dispatch::Unplaced;
use crate::maps::{Made, PgTable, primary_part};
use crate::metrics::{STAGES, ShardMetrics, Stages};
use crate::networks::Both;
use crate::nothing::Asked;
use crate::op::{ClientOp, Origin};
use crate::options::{Given, RunOptions};
use crate::peers::Peers;
use crate::pg::{Leaving, Pace, Pg, Reserver, Scrubber};
use crate::watch::Notices;

/// Most names of refused operations that are remembered.
const REFUSED_MAX: usize = 256;

/// State of one shard of an OSD.
pub struct OsdShard {
    /// The reactor.
    pub shard: Shard,
    /// Identity and addresses.
    pub config: Arc<OsdConfig>,
    /// Options that can change, and those set since the start (shard 0).
    pub(crate) options: RefCell<RunOptions>,
    pub(crate) given: RefCell<Given>,
    /// This shard's part of the store.
    pub store: Store,
    /// The newest map that this shard has.
    pub(crate) view: RefCell<Option<Arc<MapView>>>,
    /// Whether that map has pools whose PGs have shards.
    pub(crate) has_sharded_pools: Cell<bool>,
    /// Which reactor owns which PG.
    pub(crate) table: RefCell<Arc<PgTable>>,
    /// The copies here, with how each was made (shard 0).
    pub(crate) stored: RefCell<BTreeMap<SpgId, Made>>,
    /// PGs that splits make on this reactor for others, …
    pub(crate) leaving: RefCell<BTreeMap<SpgId, Leaving>>,
    /// … those that came from others before the map by which they are made, …
    pub(crate) received: RefCell<BTreeSet<SpgId>>,
    /// … and how many have not arrived yet, or are being merged (shard 0).
    pub(crate) moving: Cell<usize>,
    /// PGs that are to be merged into others here and have come from their reactors; false: their stores have stopped.
    pub(crate) sources: RefCell<BTreeMap<SpgId, bool>>,
    /// Another one has come.
    pub(crate) source_news: Notify,
    /// What the splits of a map that this shard does not have yet need in memory, and the map's epoch.
    pub(crate) prepared: RefCell<Vec<(Epoch, Prepared)>>,
    /// Pools of the newest map with PGs that this OSD shares with classic ones (shard 0).
    pub(crate) mixed_pools: RefCell<BTreeSet<i64>>,
    /// PGs that this shard owns.
    pub(crate) pgs: RefCell<ByPg<Rc<Pg>>>,
    /// Client connections that this shard serves, by id, for replies that come back from other shards.
    pub(crate) conns: RefCell<BTreeMap<u64, ConnState>>,
    /// Operations on this shard's PGs whose clients have a newer map than this shard.
    pub(crate) waiting: RefCell<Vec<Rc<ClientOp>>>,
    /// Operations on PGs that the map does not have yet. Bounded by the connections' permits.
    pub(crate) unplaced: RefCell<Vec<Unplaced>>,
    /// Questions of classic OSDs whose map this one does not have yet (shard 0). Bounded by the connections' permits.
    pub(crate) asked: RefCell<Vec<Asked>>,
    /// Memory that the requests of this shard's clients share, …
    pub(crate) budget: Rc<Budget>,
    /// … one request's right to hold more, …
    pub(crate) more: RefCell<Option<More>>,
    /// … and whether it was short since the last check, or before that.
    pub(crate) is_short: Cell<bool>,
    pub(crate) was_short: Cell<bool>,
    /// By what others are let in, and let this OSD in; `None`: nobody asks for that.
    pub(crate) auth: Option<Auth>,
    /// Sessions with other OSDs.
    pub(crate) peers: Peers,
    /// Limits the PGs whose copies are repaired at the same time during peering.
    pub(crate) repairs: Semaphore,
    /// Limits the pushed bytes in flight to each OSD.
    pushed_bytes: RefCell<BTreeMap<OsdId, Semaphore>>,
    /// Limits the long objects that are pushed at the same time while clients are served.
    pub(crate) long_pushes: Semaphore,
    /// Limits the PGs, of all shards, that recover at the same time while clients are served (shard 0).
    pub(crate) reserver: Reserver,
    /// Limits the objects that are pushed at the same time while clients are served, and their rate.
    pub(crate) recovery_ops: Semaphore,
    pub(crate) recovery_pace: Pace,
    /// Limits the PGs whose removed snapshots are trimmed at the same time.
    pub(crate) trims: Semaphore,
    /// Lets one PG at a time count or remove its objects.
    pub(crate) walks: Semaphore,
    /// A PG became a stray.
    pub(crate) stray_news: Notify,
    /// Scrubs of this shard's PGs, and the rate at which they, and scrubs of other primaries, read.
    pub(crate) scrubber: Scrubber,
    pub(crate) pace: Pace,
    /// Limits the PGs that are listed at the same time.
    pub(crate) lists: Semaphore,
    /// Texts of notifications, and watchers' answers.
    pub(crate) notices: Notices,
    /// Client for COPY_FROM of objects on other OSDs; `None` until the first.
    pub(crate) client: RefCell<Option<Rc<Client>>>,
    /// The clients of all shards.
    pub(crate) clients: RefCell<Clients>,
    /// Names of unsupported operations refused so far; each is logged once.
    refused: RefCell<BTreeSet<String>>,
    /// Counters and stage clocks.
    pub metrics: RefCell<ShardMetrics>,
    /// Stage clocks of operations.
    pub stages: RefCell<Stages>,
    /// Numbers of operations sent to each shard, assigned before the hop and compared after it.
    hops_out: RefCell<Vec<u64>>,
    hops_in: RefCell<Vec<u64>>,
    /// Ports of all reactors, in order; complete before the OSD boots.
    pub(crate) ports: RefCell<Vec<Both<u16>>>,
    /// The oldest `last_epoch_clean` of the PGs that it leads, on all shards (shard 0).
    pub(crate) last_epoch_clean: Cell<Epoch>,
    /// Notified when the monitor should get a report at once (shard 0).
    pub(crate) news: Notify,
    /// A map's epoch, and whether other OSDs can do without this one by it; computed when metadata cannot be read.
    pub(crate) spared: Cell<(Epoch, bool)>,
    /// Set while the OSD stops.
    pub(crate) stopping: Cell<bool>,
}

/// A client connection, as a shard remembers it.
pub(crate) struct ConnState {
    pub conn: Rc<Connection>,
    /// Newest map that this client was sent, or used in a request.
    pub epoch: Cell<Epoch>,
    /// Bytes carried by the last check, if it waited for its peer then.
    pub carried: Cell<Option<u64>>,
}

impl ConnState {
    /// Whether its peer has made no progress since the last check.
    pub(crate) fn stalls(&self) -> bool {
        let carried = self.conn.waits_for_peer();
        let before = self.carried.replace(carried);
        carried.is_some() && before == carried
    }
}

impl OsdShard {
    /// The counters, including those derived from others.
    pub(crate) fn metrics_now(&self) -> ShardMetrics {
        let metrics = self.metrics.borrow().clone();
        ShardMetrics { ops: metrics.read_ops + metrics.write_ops, ..metrics }
    }

    /// A shard with no map and no PGs.
    pub fn new(shard: &Shard, config: Arc<OsdConfig>, store: Store) -> Rc<OsdShard> {
        let shards = usize::from(shard.shards());
        let auth = Auth::new(shard, &config.access);
        let osd = Rc::new_cyclic(|weak| OsdShard {
            shard: shard.clone(),
            peers: Peers::new(shard, &config, auth.as_ref(), weak.clone()),
            auth,
            budget: Budget::new(config.input_bytes()),
            more: RefCell::default(),
            is_short: Cell::new(false),
            was_short: Cell::new(false),
            notices: Notices::default(),
            lists: Semaphore::new(LISTS_MAX),
            scrubber: Scrubber::default(),
            pace: Pace::new(config.options.scrub.bytes_per_second),
            reserver: Reserver::new(config.options.recovery.max_backfills),
            recovery_ops: Semaphore::new(config.options.recovery.max_active_of(shard.shards())),
            recovery_pace: Pace::new(config.options.recovery.bytes_per_second_of(shard.shards())),
            options: RefCell::new(config.options.clone()),
            given: RefCell::default(),
            config,
            store,
            view: RefCell::new(None),
            has_sharded_pools: Cell::default(),
            table: RefCell::new(Arc::new(PgTable::default())),
            mixed_pools: RefCell::default(),
            stored: RefCell::default(),
            leaving: RefCell::default(),
            received: RefCell::default(),
            moving: Cell::default(),
            sources: RefCell::default(),
            source_news: Notify::new(),
            prepared: RefCell::default(),
            pgs: RefCell::default(),
            conns: RefCell::default(),
            waiting: RefCell::default(),
            unplaced: RefCell::default(),
            asked: RefCell::default(),
            repairs: Semaphore::new(REPAIRS_MAX),
            pushed_bytes: RefCell::default(),
            long_pushes: Semaphore::new(LONG_PUSHES_MAX),
            trims: Semaphore::new(TRIMS_MAX),
            walks: Semaphore::new(1),
            stray_news: Notify::new(),
            client: RefCell::default(),
            clients: RefCell::default(),
            refused: RefCell::default(),
            metrics: RefCell::default(),
            stages: RefCell::new(Stages::new(STAGES)),
            hops_out: RefCell::new(vec![0; shards]),
            hops_in: RefCell::new(vec![0; shards]),
            ports: RefCell::new(vec![Both::default(); shards]),
            last_epoch_clean: Cell::default(),
            news: Notify::new(),
            spared: Cell::default(),
            stopping: Cell::new(false),
        });
        shard.set_local(Rc::clone(&osd));
        osd
    }

    /// The OSD's state on this shard, for mailbox messages. `None` before it started or after it ended.
    pub(crate) fn on(shard: &Shard) -> Option<Rc<OsdShard>> {
        shard.local::<OsdShard>()
    }

    /// Runs `work` on the OSD's part at shard `to`, if that has started and not ended.
    pub(crate) fn run_on(here: &Shard, to: ShardId, work: impl FnOnce(&Rc<OsdShard>) + Send + 'static) {
        here.submit_to(to, move |there| {
            if let Some(osd) = OsdShard::on(there) {
                work(&osd);
            }
        });
    }

    /// Runs `work` on the OSD's part at each other shard.
    pub(crate) fn run_on_others(&self, work: impl FnOnce(&Rc<OsdShard>) + Clone + Send + 'static) {
        for to in (0..self.shard.shards()).map(ShardId).filter(|to| *to != self.shard.id()) {
            OsdShard::run_on(&self.shard, to, work.clone());
        }
    }

    /// Applies `work` to a connection of any shard, if that is still open.
    pub(crate) fn with_conn(here: &Shard, to: Origin, work: impl FnOnce(&Rc<Connection>) + Send + 'static) {
        OsdShard::run_on(here, to.home, move |osd| {
            if let Some(conn) = osd.conn(to.conn) {
                work(&conn);
            }
        });
    }

    /// The results of `work` on all shards, in order, without those that have not started or have ended.
    pub(crate) async fn call_all<T: Send + 'static>(
        &self,
        work: impl AsyncFn(Rc<OsdShard>) -> T + Copy + Send + 'static,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for to in (0..self.shard.shards()).map(ShardId) {
            let part = async move |shard: Shard| Some(work(OsdShard::on(&shard)?).await);
            all.extend(self.shard.call(to, part).await);
        }
        all
    }

    /// The same for `read`, which does not wait.
    pub(crate) async fn on_all<T: Send + 'static>(
        &self,
        read: impl Fn(&Rc<OsdShard>) -> T + Copy + Send + 'static,
    ) -> Vec<T> {
        self.call_all(async move |osd| read(&osd)).await
    }

    /// Whether this OSD is stopping: its store may then refuse requests.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// The newest map's number; 0 before the first.
    pub fn epoch(&self) -> Epoch {
        self.view.borrow().as_ref().map_or(Epoch(0), |view| view.epoch())
    }

    /// The newest map.
    pub(crate) fn view(&self) -> Option<Arc<MapView>> {
        self.view.borrow().clone()
    }

    /// A PG that this shard owns.
    pub(crate) fn pg(&self, pg: SpgId) -> Option<Rc<Pg>> {
        self.pgs.borrow().get(pg).cloned()
    }

    /// A connection that this shard serves.
    pub(crate) fn conn(&self, id: u64) -> Option<Rc<Connection>> {
        self.conns.borrow().get(&id).map(|state| Rc::clone(&state.conn))
    }

    /// The reactor that owns a PG; `None` if this OSD does not serve it.
    pub(crate) fn owner(&self, pg: SpgId) -> Option<ShardId> {
        self.table.borrow().owner(pg)
    }

    /// The shard of a PG that serves its clients by the newest map: clients name PGs without shards.
    #[inline]
    pub(crate) fn primary_part(&self, pg: PgId) -> SpgId {
        // Every operation asks this at each step.
        if !self.has_sharded_pools.get() {
            return SpgId::replicated(pg);
        }
        self.view.borrow().as_ref().map_or(pg.into(), |view| primary_part(view, pg))
    }

    /// Waits until this many bytes may be pushed to an OSD.
    pub(crate) fn room_to_push(&self, to: OsdId, bytes: u64) -> Acquire {
        let mut all = self.pushed_bytes.borrow_mut();
        let room = all.entry(to).or_insert_with(|| Semaphore::new(PUSHED_BYTES_MAX));
        room.acquire(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Keeps an operation until a newer map arrives. Bounded: the surplus is dropped, and its clients, which wait for the same
    /// map, resend it.
    pub(crate) fn park(&self, op: Rc<ClientOp>) {
        if self.waiting.borrow().len() < WAITING_OPS_MAX {
            return self.waiting.borrow_mut().push(op);
        }
        self.metrics.borrow_mut().ops_dropped += 1;
        op.abandon();
    }

    /// Drops waiting operations of disconnected clients.
    pub(crate) fn forget_ops(&self, is_gone: impl Fn(&ClientOp) -> bool) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let (gone, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|op| is_gone(op));
        *self.waiting.borrow_mut() = left;
        gone.iter().for_each(|op| op.abandon());
        let pgs: Vec<Rc<Pg>> = self.pgs.borrow().values().cloned().collect();
        pgs.iter().for_each(|pg| pg.forget(&is_gone));
    }

    /// Sends a message over a connection of any shard, if that is still open.
    pub(crate) fn send_to(&self, to: Origin, message: Message) {
        if to.home != self.shard.id() {
            let (parts, _) = message.into_parts();
            OsdShard::with_conn(&self.shard, to, move |conn| conn.send(Message::from(parts)));
        } else if let Some(conn) = self.conn(to.conn) {
            conn.send(message);
        }
    }

    /// Logs, once for each name, that an operation is refused because it is not implemented. The first shard writes the line; the
    /// others send it each name once.
    pub(crate) fn refuse(&self, what: &str) {
        let mut refused = self.refused.borrow_mut();
        if refused.len() >= REFUSED_MAX || refused.contains(what) {
            return;
        }
        refused.insert(what.to_owned());
        if self.shard.id() == ShardId(0) {
            return tracing::warn!("{what} is not supported: refused");
        }
        let what = what.to_owned();
        OsdShard::run_on(&self.shard, ShardId(0), move |first| first.refuse(&what));
    }

    /// The number of the next operation that hops to `to`.
    pub(crate) fn hop_out(&self, to: ShardId) -> u64 {
        let mut out = self.hops_out.borrow_mut();
        let next = &mut out[usize::from(to.0)];
        *next += 1;
        *next
    }

    /// Checks the number of an operation that arrived from `from`. The order of a client's operations depends on it: a gap is a
    /// bug of ours, and acknowledging writes after one would be worse than stopping.
    pub(crate) fn hop_in(&self, from: ShardId, number: u64) {
        let mut seen = self.hops_in.borrow_mut();
        let last = &mut seen[usize::from(from.0)];
        *last += 1;
        assert_eq!(*last, number, "operations from shard {} arrived out of order", from.0);
    }
}
