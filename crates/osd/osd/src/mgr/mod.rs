//! The session with the manager of a real cluster (Ceph's `MgrClient`): shard 0 tells the active ceph-mgr every few seconds how this
//! OSD and the PGs that it leads are. The embedded monitor has no manager besides itself: it is told by private messages (`stats`).
//!
//! The monitor's MMgrMap says which manager is active. A manager that does not know this OSD's metadata yet closes the connection
//! and asks the monitor for it: one or two refusals after the boot are usual, so that attempts that fail are no news.

mod report;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use carmine_client::MonSession;
use carmine_messenger::{ClientConfig, ConnectError, Connection, Dispatcher, Message, connect, with_timeout};
use carmine_metrics::StageStat;
use carmine_reactor::sync::Notify;
use carmine_reactor::{Group, ShardId};
use carmine_types::MonKind;
use carmine_wire::mgr_msg::{MgrConfigure, MgrMapMsg, MgrOpen};
use carmine_wire::mon_msg::{Subscribe, Subscription};
use carmine_wire::{EntityAddr, EntityType, kinds};

use crate::heartbeat::Heartbeats;
use crate::pg::order_scrubs;
use crate::shard::OsdShard;

/// Pause between two attempts (Ceph's mgr_connect_retry_interval).
const RETRY: Duration = Duration::from_secs(1);

/// What shard 0 knows of the manager, and has told it.
pub(crate) struct Manager {
    osd: Rc<OsdShard>,
    /// The public address of this start of this OSD.
    addr: EntityAddr,
    client: Rc<ClientConfig>,
    heartbeats: Rc<Heartbeats>,
    map: RefCell<Option<MgrMapMsg>>,
    session: RefCell<Option<Rc<Session>>>,
    /// Time between two reports; `None`: the manager wants none, or has not said it yet.
    period: Cell<Option<Duration>>,
    /// Notified when the map, the period or the connection has changed.
    changed: Notify,
    /// Messages about PGs that were sent since the start.
    sent: Cell<u32>,
    /// The commits that the last report has counted.
    committed: Cell<StageStat>,
}

/// A connection to the active manager.
struct Session {
    conn: Rc<Connection>,
    /// It knows which counters there are.
    has_declared: Cell<bool>,
}

/// Keeps a session with the active manager for as long as the OSD runs, if its cluster has managers (shard 0).
pub(crate) fn start(
    osd: &Rc<OsdShard>,
    addr: EntityAddr,
    client: Rc<ClientConfig>,
    heartbeats: Rc<Heartbeats>,
) -> Rc<Manager> {
    let manager = Rc::new(Manager {
        osd: Rc::clone(osd),
        addr,
        client,
        heartbeats,
        map: RefCell::default(),
        session: RefCell::default(),
        period: Cell::default(),
        changed: Notify::new(),
        sent: Cell::default(),
        committed: Cell::default(),
    });
    if manager.is_wanted() {
        osd.shard.set_local(Rc::clone(&manager));
        osd.shard.spawn(Group::Admin, "manager", Rc::clone(&manager).keep());
    }
    manager
}

/// Reports at once; returns the number of the report, which `ceph osd last-stat-seq` shows when the manager has it. `None`: there
/// is no session.
pub(crate) async fn flush(osd: &OsdShard) -> Option<u64> {
    let flush = async |shard: carmine_reactor::Shard| {
        let manager = shard.local::<Manager>()?;
        let session = manager.session.borrow().clone()?;
        manager.tell(&session).await
    };
    osd.shard.call(ShardId(0), flush).await
}

impl Manager {
    fn is_wanted(&self) -> bool {
        self.osd.config.mon_kind == MonKind::Ceph
    }

    /// A new session with the monitor, which is asked for news of the manager.
    pub(crate) fn on_session(&self, session: &MonSession) {
        if !self.is_wanted() {
            return;
        }
        let next = self.map.borrow().as_ref().map_or(0, |map| u64::from(map.epoch.0) + 1);
        let what = vec![Subscription::new("mgrmap", next, false)];
        session.send(Message::encode(&Subscribe { what, hostname: String::new() }));
    }

    /// An MMgrMap of the monitor.
    pub(crate) fn on_map(&self, msg: &Message) {
        let new = match msg.decode::<MgrMapMsg>() {
            Ok(map) => map,
            Err(error) => return tracing::warn!("the monitor's map of managers cannot be read: {error}"),
        };
        let mut map = self.map.borrow_mut();
        if map.as_ref().is_none_or(|known| known.epoch < new.epoch) {
            *map = Some(new);
            self.changed.notify_one();
        }
    }

    /// Where the active manager is.
    fn active(&self) -> Option<EntityAddr> {
        self.map.borrow().as_ref().and_then(MgrMapMsg::active)
    }

    async fn keep(self: Rc<Self>) {
        while !self.osd.stopping.get() {
            let Some(addr) = self.active() else {
                self.changed.notified().await;
                continue;
            };
            if let Err(error) = self.attend(addr).await {
                tracing::debug!("no session with the manager: {error}");
            }
            self.osd.shard.sleep(RETRY).await;
        }
    }

    /// Reports to the manager at this address until the connection ends or another manager is active.
    async fn attend(self: &Rc<Self>, addr: EntityAddr) -> Result<(), ConnectError> {
        self.period.set(None);
        let link = Rc::new(Link(Rc::downgrade(self)));
        let conn = connect(&self.osd.shard, addr, EntityType::MGR, Rc::clone(&self.client), link).await?;
        conn.send(Message::encode(&MgrOpen::daemon(self.osd.config.id.0.to_string())));
        let session = Rc::new(Session { conn, has_declared: Cell::default() });
        self.report_to(&session, addr).await;
        self.session.take();
        session.conn.close("its manager is no longer the active one, or this OSD stops");
        Ok(())
    }

    async fn report_to(&self, session: &Rc<Session>, addr: EntityAddr) {
        let shard = &self.osd.shard;
        let mut due_ns = 0;
        while !session.conn.is_closed() && !self.osd.stopping.get() && self.active() == Some(addr) {
            let (now_ns, period) = (shard.now_ns(), self.period.get());
            match period {
                Some(period) if due_ns <= now_ns => {
                    due_ns = now_ns + period.as_nanos() as u64;
                    self.session.replace(Some(Rc::clone(session)));
                    self.tell(session).await;
                }
                _ => {
                    // While it waits for the manager's answer it looks now and then whether this OSD stops.
                    let left = period.map_or(RETRY, |_| Duration::from_nanos(due_ns - now_ns));
                    let _ = with_timeout(shard, left, self.changed.notified()).await;
                }
            }
        }
    }

    fn hear(&self, msg: &Message) -> carmine_wire::Result<()> {
        match msg.header.kind {
            kinds::MGR_CONFIGURE => {
                let period = Duration::from_secs(msg.decode::<MgrConfigure>()?.period_s.into());
                self.period.set(Some(period).filter(|period| !period.is_zero()));
                self.changed.notify_one();
            }
            kinds::OSD_SCRUB2 => order_scrubs(&self.osd, &msg.decode()?),
            _ => {}
        }
        Ok(())
    }
}

/// Gets what the manager sends.
struct Link(Weak<Manager>);

impl Dispatcher for Link {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        let Some(manager) = self.0.upgrade() else { return conn.close("shut down") };
        if let Err(error) = manager.hear(&msg) {
            conn.close(format!("message of the manager: {error}"));
        }
    }

    fn on_closed(&self, _conn: &Rc<Connection>, reason: &str) {
        tracing::debug!(reason, "session with the manager ended");
        if let Some(manager) = self.0.upgrade() {
            manager.changed.notify_one();
        }
    }
}
