//! Sessions of one shard with other OSDs: one connection to each reactor of a peer that owns PGs we share.
//!
//! A peer's reactors and the owner of each PG come from its Route answer; a message goes straight to the reactor that owns the
//! PG. Sessions are lossy: after a fault the connections are reopened, with a pause if the last ones ended early, and the PGs
//! resend what is not acknowledged.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::{ClientConfig, Connection, Dispatcher, Message, Target, connect, with_timeout};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Group, Shard};
use carmine_types::{OsdId, SpgId, errno};
use carmine_wire::header::Front;
use carmine_wire::private::{Route, RouteReply};
use carmine_wire::{EntityAddr, EntityType};

use crate::auth::Auth;
use crate::config::OsdConfig;
use crate::error::OpError;
use crate::messages::{PgLease, PgLeaseAck, RepAck, RepOp, fitted, join, peek_pg};
use crate::shard::OsdShard;

/// Pause between attempts to reach a peer.
const RETRY: Duration = Duration::from_millis(50);
/// Longest wait for the answer to one request; then the caller asks again.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// All sessions of a shard.
pub(crate) struct Peers {
    shard: Shard,
    config: Rc<ClientConfig>,
    osd: Weak<OsdShard>,
    sessions: RefCell<BTreeMap<OsdId, Rc<Session>>>,
    next_tid: Cell<u64>,
    /// Requests that wait for an answer.
    pending: RefCell<BTreeMap<u64, Waiter>>,
}

/// A task that waits for the answer to a request. Dropping the sender tells it that no answer will come.
struct Waiter {
    peer: OsdId,
    /// The PG that the request is about; `None`: it asks for the route.
    pg: Option<SpgId>,
    tell: oneshot::Sender<Message>,
}

/// The connections to one peer at one address.
#[derive(Default)]
struct Session {
    peer: OsdId,
    addr: EntityAddr,
    route: RefCell<Option<RouteReply>>,
    /// By the peer's reactor.
    conns: RefCell<BTreeMap<u16, Rc<Connection>>>,
    backlog: RefCell<Backlog>,
    backoff: Backoff,
    connecting: Cell<bool>,
    /// Set when the map has another address for this peer, or none.
    ended: Cell<bool>,
}

impl Peers {
    pub(crate) fn new(
        shard: &Shard,
        config: &Arc<OsdConfig>,
        auth: Option<&Auth>,
        osd: Weak<OsdShard>,
    ) -> Peers {
        let mut client = ClientConfig::new(EntityType::OSD, config.id.0.to_string(), config.nonce);
        client.gid.set(u64::from(config.id.0));
        OsdShard::identify(auth, &config.access, &mut client);
        Peers {
            shard: shard.clone(),
            config: Rc::new(client),
            osd,
            sessions: RefCell::default(),
            next_tid: Cell::new(1),
            pending: RefCell::default(),
        }
    }

    /// Sends a message about `pg` to the reactor of `peer` that owns it; connects first if need be.
    pub(crate) fn send(&self, peer: OsdId, pg: SpgId, message: Message) {
        let Some(session) = self.session(peer) else { return };
        match session.conn_for(pg) {
            Some(conn) if session.backlog.borrow().is_empty() => conn.send(message),
            _ => {
                session.backlog.borrow_mut().push(pg, message);
                self.connect(&session);
            }
        }
    }

    /// Sends a request and waits for its answer; `None` after a fault or too long.
    pub(crate) async fn request(&self, peer: OsdId, pg: SpgId, message: Message) -> Option<Message> {
        let message = fitted(message);
        self.ask(peer, Some(pg), |tid| self.send(peer, pg, message.with_tid(tid))).await
    }

    /// Sends a request with a transaction id of its own, and waits for its answer as [`request`](Self::request) does.
    async fn ask(&self, peer: OsdId, pg: Option<SpgId>, send: impl FnOnce(u64)) -> Option<Message> {
        let tid = self.next_tid.get();
        self.next_tid.set(tid + 1);
        let (tell, told) = oneshot::channel();
        self.pending.borrow_mut().insert(tid, Waiter { peer, pg, tell });
        send(tid);
        let answer = with_timeout(&self.shard, ANSWER_LIMIT, told).await;
        self.pending.borrow_mut().remove(&tid);
        answer.and_then(|answer| answer.ok())
    }

    /// Tells the waiters of lost requests that no answer will come.
    fn forget(&self, is_lost: impl Fn(u64, &Waiter) -> bool) {
        let mut pending = self.pending.borrow_mut();
        let lost: Vec<_> = pending.extract_if(.., |tid, waiter| is_lost(*tid, waiter)).collect();
        drop(pending);
        drop(lost); // wakes the waiters
    }

    /// Ends the sessions with peers whose address in the map changed, and the requests sent to them.
    pub(crate) fn on_map(&self, addr_of: impl Fn(OsdId) -> Option<EntityAddr>) {
        let mut sessions = self.sessions.borrow_mut();
        let ended = sessions.extract_if(.., |peer, session| addr_of(*peer) != Some(session.addr));
        let ended: BTreeMap<OsdId, Rc<Session>> = ended.collect();
        drop(sessions);
        for session in ended.values() {
            session.ended.set(true);
            session.conns.borrow().values().for_each(|c| c.close("the peer has another address or is down"));
        }
        self.forget(|_, waiter| ended.contains_key(&waiter.peer));
    }

    fn session(&self, peer: OsdId) -> Option<Rc<Session>> {
        if let Some(session) = self.sessions.borrow().get(&peer) {
            return Some(Rc::clone(session));
        }
        let addr = self.osd.upgrade()?.addr_of(peer)?;
        let session = Rc::new(Session { peer, addr, ..Session::default() });
        self.sessions.borrow_mut().insert(peer, Rc::clone(&session));
        Some(session)
    }

    fn connect(&self, session: &Rc<Session>) {
        if session.connecting.replace(true) {
            return;
        }
        let (osd, session) = (self.osd.clone(), Rc::clone(session));
        self.shard.spawn(Group::Replication, "peer-connect", async move {
            while let Some(osd) = osd.upgrade() {
                if session.ended.get() || osd.stopping.get() {
                    break;
                }
                let pause = session.backoff.remaining(osd.shard.now_ns());
                if !pause.is_zero() {
                    osd.shard.sleep(pause).await;
                    continue;
                }
                if let Err(why) = session.establish(&osd).await {
                    tracing::debug!("osd.{}: {why}", session.peer.0);
                    osd.shard.sleep(RETRY).await;
                    continue;
                }
                session.drain();
                if session.backlog.borrow_mut().take_overflow() {
                    resend_all(&osd, session.peer);
                }
                if session.backlog.borrow().is_empty() {
                    break;
                }
            }
            session.connecting.set(false);
        });
    }
}

impl Session {
    fn reactor_of(&self, pg: SpgId) -> Option<u16> {
        let route = self.route.borrow();
        let route = route.as_ref()?;
        let listed = route.pgs.binary_search_by_key(&pg.pgid, |(pg, _)| *pg).ok();
        // Messages for a PG that the peer has not assigned to a reactor yet may go to any: the peer forwards them. The same holds
        // for other shards of a PG, since the route names PGs without shards.
        Some(listed.and_then(|at| route.pgs.get(at)).map_or(0, |(_, reactor)| *reactor))
    }

    fn conn_for(&self, pg: SpgId) -> Option<Rc<Connection>> {
        let reactor = self.reactor_of(pg)?;
        self.conns.borrow().get(&reactor).filter(|c| !c.is_closed()).cloned()
    }

    /// Opens whatever the waiting messages lack: the route, and connections.
    async fn establish(self: &Rc<Self>, osd: &Rc<OsdShard>) -> Result<(), OpError> {
        if self.route.borrow().is_none() {
            let route = self.ask_route(osd).await?;
            *self.route.borrow_mut() = Some(route);
        }
        let wanted: BTreeSet<u16> =
            self.backlog.borrow().messages.iter().filter_map(|(pg, _)| self.reactor_of(*pg)).collect();
        for reactor in wanted {
            let stands = self.conns.borrow().get(&reactor).is_some_and(|c| !c.is_closed());
            if !stands {
                let port =
                    self.route.borrow().as_ref().and_then(|r| r.reactors.get(usize::from(reactor)).copied());
                let port = port.ok_or_else(|| not_reached("the peer named a reactor without a port"))?;
                let conn = self.dial(osd, Target::port_of(self.addr, port), Some(reactor)).await?;
                self.conns.borrow_mut().insert(reactor, conn);
            }
        }
        Ok(())
    }

    async fn dial(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        target: Target,
        reactor: Option<u16>,
    ) -> Result<Rc<Connection>, OpError> {
        let handler = Rc::new(PeerDispatch {
            osd: Rc::downgrade(osd),
            session: Rc::downgrade(self),
            reactor,
            made_ns: osd.shard.now_ns(),
        });
        let config = Rc::clone(&osd.peers.config);
        connect(&osd.shard, target, EntityType::OSD, config, handler).await.map_err(not_reached)
    }

    async fn ask_route(self: &Rc<Self>, osd: &Rc<OsdShard>) -> Result<RouteReply, OpError> {
        let conn = self.dial(osd, Target::from(self.addr), None).await?;
        let route = Message::encode(&Route { epoch: osd.epoch() });
        let answer = osd.peers.ask(self.peer, None, |tid| conn.send(route.with_tid(tid))).await;
        conn.finish();
        let answer = answer.ok_or_else(|| not_reached("no answer to Route"))?;
        let mut route: RouteReply = answer.decode().map_err(not_reached)?;
        route.pgs.sort_unstable();
        Ok(route)
    }

    /// An answer arrives on the connection of its request: those sent to this reactor, or for the route, will get none.
    fn forget_asked(&self, osd: &OsdShard, reactor: Option<u16>) {
        let unsent: BTreeSet<u64> =
            self.backlog.borrow().messages.iter().map(|(_, m)| m.header.tid).collect();
        let went_there = |pg: SpgId| self.reactor_of(pg).is_none_or(|of| Some(of) == reactor);
        osd.peers.forget(|tid, waiter| {
            let is_its = waiter.pg.map_or(reactor.is_none(), |pg| reactor.is_some() && went_there(pg));
            waiter.peer == self.peer && is_its && !unsent.contains(&tid)
        });
    }

    /// Sends the waiting messages; those without a connection keep waiting.
    fn drain(&self) {
        let messages = std::mem::take(&mut self.backlog.borrow_mut().messages);
        for (pg, message) in messages {
            match self.conn_for(pg) {
                Some(conn) => conn.send(message),
                None => self.backlog.borrow_mut().push(pg, message),
            }
        }
    }
}

/// Why a peer cannot be reached.
fn not_reached(why: impl Display) -> OpError {
    OpError::because(errno::ENOTCONN, why)
}

/// Handles the answers on our own connections to a peer.
struct PeerDispatch {
    osd: Weak<OsdShard>,
    session: Weak<Session>,
    /// `None` on the short connection that asks for the route.
    reactor: Option<u16>,
    /// When the connection was dialled.
    made_ns: u64,
}

impl Dispatcher for PeerDispatch {
    fn on_message(&self, _conn: &Rc<Connection>, mut msg: Message) {
        let (Some(osd), Some(session)) = (self.osd.upgrade(), self.session.upgrade()) else { return };
        if msg.header.kind == PgLeaseAck::KIND {
            if let (Some(pg), Ok(ack)) = (peek_pg(&msg.front).and_then(|pg| osd.pg(pg)), msg.decode()) {
                pg.on_lease_ack(&osd, session.peer, &ack);
            }
            return;
        }
        if msg.header.kind != RepAck::KIND {
            let waiter = osd.peers.pending.borrow_mut().remove(&msg.header.tid);
            if let Err(error) = join(&mut msg.header, &mut msg.front, &mut msg.data) {
                return tracing::error!("{} answers nonsense: {error}", session.peer);
            }
            if let Some(waiter) = waiter {
                let _ = waiter.tell.send(msg);
            }
            return;
        }
        if let (Some(pg), Ok(ack)) = (peek_pg(&msg.front).and_then(|pg| osd.pg(pg)), msg.decode::<RepAck>()) {
            pg.on_rep_ack(&osd, session.peer, &ack);
        }
    }

    fn on_closed(&self, conn: &Rc<Connection>, reason: &str) {
        let (Some(osd), Some(session)) = (self.osd.upgrade(), self.session.upgrade()) else { return };
        session.forget_asked(&osd, self.reactor);
        let Some(reactor) = self.reactor else { return };
        session.conns.borrow_mut().retain(|_, c| c.id() != conn.id());
        if session.ended.get() || osd.stopping.get() {
            return;
        }
        tracing::info!("connection to reactor {reactor} of osd.{} ended: {reason}", session.peer.0);
        session.backoff.note_ended(self.made_ns, osd.shard.now_ns());
        // The peer may have restarted with other reactors: ask for its route again.
        *session.route.borrow_mut() = None;
        session.backlog.borrow_mut().forget_writes();
        resend_all(&osd, session.peer);
    }
}

/// Sends a peer all writes that it has not acknowledged.
fn resend_all(osd: &OsdShard, peer: OsdId) {
    let pgs: Vec<_> = osd.pgs.borrow().values().cloned().collect();
    pgs.iter().for_each(|pg| pg.resend_to(osd, peer));
}

// Messages that wait until a peer can be reached.

/// Most messages that wait for a session. Clients' writes are limited per connection and not per OSD, so there may be more: the
/// surplus is dropped, and that is remembered.
const MESSAGES_MAX: usize = 64 << 10;

/// The messages that wait for one session, in order.
#[derive(Default)]
struct Backlog {
    messages: Vec<(SpgId, Message)>,
    overflowed: bool,
}

impl Backlog {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Appends a message, if there is room. A lease replaces an earlier one that was not sent.
    fn push(&mut self, pg: SpgId, message: Message) {
        if message.header.kind == PgLease::KIND {
            self.messages.retain(|(of, old)| *of != pg || old.header.kind != PgLease::KIND);
        }
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push((pg, message));
        } else {
            self.overflowed = true;
        }
    }

    /// Drops writes: their PGs are going to resend everything unacknowledged.
    fn forget_writes(&mut self) {
        self.messages.retain(|(_, message)| message.header.kind != RepOp::KIND);
        self.overflowed = false;
    }

    /// Whether a message was dropped since the last call.
    fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }
}

// How long to wait before a connection to another OSD is made again.

/// After a connection that lasted this long the next one is opened at once.
const GOOD: Duration = Duration::from_secs(5);
/// Wait after the first connection that ended earlier.
const FIRST: Duration = Duration::from_millis(50);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(2);

/// Doubles the wait from [`FIRST`] to [`LONGEST`] with each connection in a row that ended early. A message that its receiver
/// refuses is resent on the next connection: without a pause both sides would do nothing else.
#[derive(Default)]
struct Backoff {
    early: Cell<u32>,
    until_ns: Cell<u64>,
}

impl Backoff {
    /// Notes that a connection ended. Connections that end together count once.
    fn note_ended(&self, made_ns: u64, now_ns: u64) {
        if now_ns < self.until_ns.get() {
            return;
        }
        if now_ns.saturating_sub(made_ns) >= GOOD.as_nanos() as u64 {
            return self.early.set(0);
        }
        let early = self.early.get();
        self.early.set(early.saturating_add(1));
        let wait = FIRST.saturating_mul(1 << early.min(16)).min(LONGEST);
        self.until_ns.set(now_ns + wait.as_nanos() as u64);
    }

    /// The time left to wait.
    fn remaining(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.until_ns.get().saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use carmine_pgtypes::{Sealed, Transaction};
    use carmine_reactor::Payload;
    use carmine_types::PgId;
    use carmine_wire::header::Front;

    use super::*;
    use crate::messages::{Head, PgQuery};

    const PG: SpgId = SpgId::replicated(PgId::new(1, 2));

    fn write() -> Message {
        RepOp::pack(&Head::default(), &Sealed::from(Transaction::default()), Payload::new()).message()
    }

    #[test]
    fn what_does_not_fit_is_remembered_once() {
        let mut backlog = Backlog::default();
        (0..MESSAGES_MAX).for_each(|_| backlog.push(PG, write()));
        assert!(!backlog.take_overflow());
        backlog.push(PG, write());
        assert_eq!(backlog.messages.len(), MESSAGES_MAX);
        assert!(backlog.take_overflow() && !backlog.take_overflow());
    }

    #[test]
    fn writes_that_are_sent_again_do_not_pile_up() {
        let mut backlog = Backlog::default();
        (0..=MESSAGES_MAX).for_each(|_| backlog.push(PG, write()));
        backlog.forget_writes();
        assert!(backlog.is_empty() && !backlog.take_overflow());
        backlog.push(PG, Message::from_header(PgQuery::header(), Vec::new()));
        backlog.push(PG, write());
        backlog.forget_writes();
        let kinds: Vec<u16> = backlog.messages.iter().map(|(_, message)| message.header.kind).collect();
        assert_eq!(kinds, [PgQuery::KIND]);
    }

    #[test]
    fn waits_double_until_a_connection_lasts() {
        let (backoff, mut now_ns, mut waits_ms) = (Backoff::default(), 0, Vec::new());
        for lives_ms in [10, 10, 4999, 10, 10, 10, 10, 10, 5000, 10] {
            let made_ns = now_ns;
            now_ns += lives_ms * 1_000_000;
            // It has connections to several reactors.
            (0..3).for_each(|_| backoff.note_ended(made_ns, now_ns));
            let left = backoff.remaining(now_ns);
            waits_ms.push(left.as_millis());
            now_ns += left.as_nanos() as u64;
        }
        assert_eq!(waits_ms, [50, 100, 200, 400, 800, 1600, 2000, 2000, 0, 50]);
    }
}
