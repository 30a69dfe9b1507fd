//! The session of a daemon with the active manager of its cluster (Ceph's `MgrClient`): it reports every few seconds.
//!
//! The monitor's MMgrMap says which manager is active. A manager that does not know a daemon's metadata yet closes the connection
//! and asks the monitor for it: one or two refusals after the boot are usual, so that attempts that fail are no news.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use carmine_messenger::{ClientConfig, ConnectError, Connection, Dispatcher, Message, connect, with_timeout};
use carmine_reactor::sync::Notify;
use carmine_reactor::{Group, Shard};
use carmine_wire::mgr_msg::{MgrConfigure, MgrMapMsg, MgrOpen};
use carmine_wire::{EntityAddr, EntityType, kinds};

use crate::mon::MonSession;

/// Pause between two attempts (Ceph's mgr_connect_retry_interval).
const RETRY: Duration = Duration::from_secs(1);

/// A report that is being made; its number at the end.
pub type Reporting<'a> = Pin<Box<dyn Future<Output = Option<u64>> + 'a>>;

/// The daemon's part of a session with the manager. All calls come on the session's shard.
pub trait MgrHandler {
    /// Sends a report on this connection; with `is_first` it declares the counters, too. Returns the number of the report, if
    /// there was something to report.
    fn report<'a>(&'a self, conn: &'a Connection, is_first: bool) -> Reporting<'a>;

    /// A message that the session itself does not use.
    ///
    /// # Errors
    /// It cannot be read: the connection ends.
    fn on_message(&self, msg: &Message) -> carmine_wire::Result<()>;
}

/// A session with the active manager, kept up until it is shut down.
pub struct MgrSession {
    shard: Shard,
    config: Rc<ClientConfig>,
    handler: Rc<dyn MgrHandler>,
    map: RefCell<Option<MgrMapMsg>>,
    /// The connection on which the manager has asked for reports, and whether it had one.
    conn: RefCell<Option<(Rc<Connection>, Cell<bool>)>>,
    /// Time between two reports; `None`: the manager wants none, or has not said it yet.
    period: Cell<Option<Duration>>,
    /// Notified when the map, the period or the connection has changed.
    changed: Notify,
    closed: Cell<bool>,
}

impl MgrSession {
    /// Starts it; it waits for the monitor's map of managers ([`MgrSession::on_map`]).
    pub fn start(shard: &Shard, config: Rc<ClientConfig>, handler: Rc<dyn MgrHandler>) -> Rc<MgrSession> {
        let session = Rc::new(MgrSession {
            shard: shard.clone(),
            config,
            handler,
            map: RefCell::default(),
            conn: RefCell::default(),
            period: Cell::default(),
            changed: Notify::new(),
            closed: Cell::default(),
        });
        shard.spawn(Group::Admin, "mgr-session", Rc::clone(&session).keep());
        session
    }

    /// A new session with the monitor, which is asked for news of the manager.
    pub fn on_session(&self, mon: &MonSession) {
        let next = self.map.borrow().as_ref().map_or(0, |map| u64::from(map.epoch.0) + 1);
        mon.subscribe("mgrmap", next);
    }

    /// An MMgrMap of the monitor.
    pub fn on_map(&self, msg: &Message) {
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

    /// Reports at once; returns the number of the report. `None`: there is no session, or nothing to tell.
    pub async fn report(&self) -> Option<u64> {
        let (conn, is_first) = match &*self.conn.borrow() {
            Some((conn, has_reported)) => (Rc::clone(conn), !has_reported.replace(true)),
            None => return None,
        };
        self.handler.report(&conn, is_first).await
    }

    /// Ends the session for good.
    pub fn shutdown(&self) {
        self.closed.set(true);
        self.changed.notify_one();
    }

    /// Where the active manager is.
    fn active(&self) -> Option<EntityAddr> {
        self.map.borrow().as_ref().and_then(MgrMapMsg::active)
    }

    async fn keep(self: Rc<Self>) {
        while !self.closed.get() {
            let Some(addr) = self.active() else {
                self.changed.notified().await;
                continue;
            };
            if let Err(error) = self.attend(addr).await {
                tracing::debug!("no session with the manager: {error}");
            }
            self.shard.sleep(RETRY).await;
        }
    }

    /// Reports to the manager at this address until the connection ends or another manager is active.
    async fn attend(self: &Rc<Self>, addr: EntityAddr) -> Result<(), ConnectError> {
        self.period.set(None);
        let link = Rc::new(Link(Rc::downgrade(self)));
        let conn = connect(&self.shard, addr, EntityType::MGR, Rc::clone(&self.config), link).await?;
        conn.send(Message::encode(&MgrOpen::daemon(self.config.name.clone())));
        self.report_on(&conn, addr).await;
        self.conn.take();
        conn.close("its manager is no longer the active one, or this daemon stops");
        Ok(())
    }

    async fn report_on(&self, conn: &Rc<Connection>, addr: EntityAddr) {
        let mut due_ns = 0;
        while !conn.is_closed() && !self.closed.get() && self.active() == Some(addr) {
            let now_ns = self.shard.now_ns();
            match self.period.get() {
                Some(period) if due_ns <= now_ns => {
                    due_ns = now_ns + period.as_nanos() as u64;
                    if self.conn.borrow().is_none() {
                        self.conn.replace(Some((Rc::clone(conn), Cell::default())));
                    }
                    self.report().await;
                }
                Some(_) => {
                    let left = Duration::from_nanos(due_ns - now_ns);
                    let _ = with_timeout(&self.shard, left, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    fn hear(&self, msg: &Message) -> carmine_wire::Result<()> {
        if msg.header.kind != kinds::MGR_CONFIGURE {
            return self.handler.on_message(msg);
        }
        let period = Duration::from_secs(msg.decode::<MgrConfigure>()?.period_s.into());
        self.period.set(Some(period).filter(|period| !period.is_zero()));
        self.changed.notify_one();
        Ok(())
    }
}

/// Gets what the manager sends.
struct Link(Weak<MgrSession>);

impl Dispatcher for Link {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        let Some(session) = self.0.upgrade() else { return conn.close("shut down") };
        if let Err(error) = session.hear(&msg) {
            conn.close(format!("message of the manager: {error}"));
        }
    }

    fn on_closed(&self, _conn: &Rc<Connection>, reason: &str) {
        tracing::debug!(reason, "session with the manager ended");
        if let Some(session) = self.0.upgrade() {
            session.changed.notify_one();
        }
    }
}
