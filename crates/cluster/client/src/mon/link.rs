//! The connection of a mon session: made, kept alive, made again.

use super::{MonSession, tickets};
use crate::pace::Pace;
use carmine_messenger::{Connection, Dispatcher, Message, connect, with_timeout};
use carmine_reactor::Group;
use carmine_types::Epoch;
use carmine_wire::EntityType;
use carmine_wire::kinds;
use carmine_wire::mon_msg::{
    AuthReply, CommandAck, ConfigMsg, GetMap, GetOsdMap, GetVersionReply, MonMapMsg, Subscribe, Subscription,
};
use carmine_wire::monmap::MonMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

/// Time between signs of life asked of the mon.
const PING: Duration = Duration::from_secs(10);
/// A mon that is silent for this long is given up for another.
const SILENT: Duration = Duration::from_secs(30);

/// Monitors that are dialled at the same time, and the time after which one that has not answered gets another one beside it.
const AT_ONCE: usize = 3;
const PATIENCE: Duration = Duration::from_millis(500);

/// Pause between two requests for the same maps: a peer that sends nonsense must not make us flood the mon.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// Keeps a session up until it is dropped or shut down.
pub(super) async fn keep(session: Weak<MonSession>) {
    let pace = Pace::default();
    loop {
        let Some(up) = session.upgrade().filter(|session| !session.closed.get()) else { return };
        let shard = up.shard.clone();
        match establish(&up).await {
            Ok(conn) => {
                drop(up);
                hold(&session, &conn).await;
                // A session that had time to answer was a good one.
                if conn.stats().messages_received > 0 {
                    pace.reset();
                }
            }
            Err(error) => {
                tracing::info!(error, "no session with the monitor");
                *up.fault.borrow_mut() = Some(error);
                drop(up);
            }
        }
        shard.sleep(pace.next(shard.random_u64())).await;
    }
}

/// A monitor that is being dialled.
type Attempt = Pin<Box<dyn Future<Output = Result<Rc<Connection>, String>>>>;

/// Dials the next monitor, and another one beside it whenever none has answered for a while: a monitor that is cut off never refuses.
async fn dial(session: &Rc<MonSession>) -> Result<Rc<Connection>, String> {
    let mons = session.targets.borrow().len();
    let mut attempts = vec![attempt(session)?];
    for _ in 1..mons.min(AT_ONCE) {
        match with_timeout(&session.shard, PATIENCE, first_of(&mut attempts)).await {
            Some(Err(error)) if attempts.is_empty() => return Err(error),
            Some(Ok(conn)) => return Ok(conn),
            Some(Err(_)) | None => attempts.push(attempt(session)?),
        }
    }
    loop {
        let ended = first_of(&mut attempts).await;
        if ended.is_ok() || attempts.is_empty() {
            return ended;
        }
    }
}

/// Begins to dial the next monitor.
fn attempt(session: &Rc<MonSession>) -> Result<Attempt, String> {
    let target = {
        let targets = session.targets.borrow();
        let next = session.next_target.get();
        session.next_target.set(next.wrapping_add(1));
        *targets.get(next % targets.len().max(1)).ok_or("no monitor address is known")?
    };
    let dispatcher = Rc::new(MonDispatcher(Rc::downgrade(session)));
    let (shard, config) = (session.shard.clone(), Rc::clone(&session.config));
    Ok(Box::pin(async move {
        let made = connect(&shard, target, EntityType::MON, config, dispatcher).await;
        made.map_err(|error| error.to_string())
    }))
}

/// Waits until one of the attempts ends, and removes it from them.
async fn first_of(attempts: &mut Vec<Attempt>) -> Result<Rc<Connection>, String> {
    poll_fn(|cx| {
        for at in 0..attempts.len() {
            if let Poll::Ready(ended) = attempts[at].as_mut().poll(cx) {
                drop(attempts.swap_remove(at));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

/// Gets a connection to a monitor, and subscribes.
async fn establish(session: &Rc<MonSession>) -> Result<Rc<Connection>, String> {
    let conn = dial(session).await?;
    if session.closed.get() {
        conn.close("shut down");
        return Err("shut down".to_owned());
    }
    conn.send(Message::encode(&GetMap {}));
    let what = vec![
        Subscription::new("config", 0, false),
        Subscription::new("monmap", 0, false),
        Subscription::new("osdmap", osdmap_start(session), false),
    ];
    conn.send(Message::encode(&Subscribe { what, hostname: String::new() }));
    *session.conn.borrow_mut() = Some(Rc::clone(&conn));
    session.fault.borrow_mut().take();
    if let Some(keys) = &session.keys {
        session.asked_tickets.set(0);
        session.handler.on_tickets(keys);
        let renewing = tickets::renew(Rc::downgrade(session), Rc::clone(&conn));
        session.shard.spawn(Group::Admin, "mon-tickets", renewing);
    }
    session.resend(&conn);
    session.handler.on_session(session);
    session.changed.notify_all();
    Ok(conn)
}

/// First map wanted: 0 is the current one. That which an earlier process saw is the current one if there was none since.
fn osdmap_start(session: &MonSession) -> u64 {
    match session.maps.epoch().0 {
        0 => session.handler.seen().0.into(),
        epoch => u64::from(epoch) + 1,
    }
}

/// Pings until the connection ends.
async fn hold(session: &Weak<MonSession>, conn: &Rc<Connection>) {
    while !conn.is_closed() {
        let Some(up) = session.upgrade() else { return conn.close("shut down") };
        let (shard, changed) = (up.shard.clone(), Rc::clone(&up.changed));
        drop(up);
        let _ = with_timeout(&shard, PING, changed.notified()).await;
        if conn.is_closed() {
            return;
        }
        if conn.silence() >= SILENT {
            conn.close(format!("the monitor was silent for {} s", conn.silence().as_secs()));
        } else {
            conn.keepalive();
        }
    }
}

/// Gets what the mon sends.
struct MonDispatcher(Weak<MonSession>);

impl Dispatcher for MonDispatcher {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        let Some(session) = self.0.upgrade() else { return conn.close("shut down") };
        if let Err(error) = on_message(&session, conn, msg) {
            conn.close(format!("message of the monitor: {error}"));
        }
    }

    fn on_closed(&self, conn: &Rc<Connection>, reason: &str) {
        let Some(session) = self.0.upgrade() else { return };
        if !session.closed.get() {
            tracing::info!(mon = %conn.peer(), reason, "session with the monitor lost");
        }
        *session.fault.borrow_mut() = Some(reason.to_owned());
        session.conn.borrow_mut().take_if(|own| Rc::ptr_eq(own, conn));
        session.changed.notify_all();
    }
}

fn on_message(session: &Rc<MonSession>, conn: &Rc<Connection>, msg: Message) -> carmine_wire::Result<()> {
    match msg.header.kind {
        kinds::OSD_MAP => session.take_map(&msg, &conn.peer().to_string()),
        kinds::MON_MAP => {
            let monmap = MonMap::decode(&msg.decode::<MonMapMsg>()?.monmap)?;
            session.learn(monmap);
        }
        kinds::AUTH_REPLY => session.take_tickets(conn, &msg.decode::<AuthReply>()?),
        kinds::CONFIG => session.handler.on_options(msg.decode::<ConfigMsg>()?.options),
        kinds::MON_GET_VERSION_REPLY => {
            let handle = msg.decode::<GetVersionReply>()?.handle;
            session.pending.resolve(handle, msg);
        }
        kinds::MON_COMMAND_ACK => {
            msg.decode::<CommandAck>()?;
            session.pending.resolve(msg.header.tid, msg);
        }
        kinds::POOL_OP_REPLY | kinds::STATFS_REPLY | kinds::GET_POOL_STATS_REPLY => {
            session.pending.resolve(msg.header.tid, msg);
        }
        _ => session.handler.on_message(session, msg),
    }
    Ok(())
}

impl MonSession {
    /// Takes over a newer monmap: its monitors are the ones to dial from now on.
    fn learn(&self, monmap: MonMap) {
        if self.monmap.borrow().as_ref().is_some_and(|known| known.epoch > monmap.epoch) {
            return;
        }
        let targets: Vec<_> = monmap.mons.values().filter_map(|mon| mon.addrs.msgr2()).collect();
        if !targets.is_empty() {
            *self.targets.borrow_mut() = targets;
        }
        *self.monmap.borrow_mut() = Some(Rc::new(monmap));
    }

    /// After a map that could not be used: asks for all from this epoch on, or for the current one in full (0), unless they were
    /// just asked for. Without a map at all, that which an earlier process saw is asked for by itself: a real monitor sends
    /// only the changes since.
    pub(super) fn ask_maps(&self, from: Epoch) {
        let (now_ns, (asked, until_ns)) = (self.shard.now_ns(), self.asked_maps.get());
        if asked == from && until_ns > now_ns {
            return;
        }
        self.asked_maps.set((from, now_ns + ASK_AGAIN_NS));
        let start = match (self.maps.epoch(), self.handler.seen()) {
            (Epoch(0), Epoch(0)) => Epoch(0),
            (Epoch(0), seen) if from > Epoch(0) => {
                let base = GetOsdMap { full_first: seen, full_last: seen, ..GetOsdMap::default() };
                self.send(Message::encode(&base));
                Epoch(seen.0 + 1)
            }
            _ => from,
        };
        self.subscribe("osdmap", start.0.into());
    }
}
