//! An established connection, seen by its users.

use crate::budget::Budget;
use crate::config::Limits;
use crate::encode::{self, Outgoing};
use crate::gate::Notices;
use crate::limits::INLINE_DATA_BYTES;
use crate::message::{Message, Parts};
use crate::signal::Signal;
use crate::throttle::{PermitToken, Throttle};
use carmine_auth::service::Guest;
use carmine_metrics::{Sum, metric_set};
use carmine_reactor::sync::Notify;
use carmine_reactor::{Bytes, Group, Payload, Shard, TcpStream};
use carmine_types::UTime;
use carmine_wire::frame::EPILOGUE_BYTES;
use carmine_wire::frame::secure::Cipher;
use carmine_wire::handshake::{Control, Keepalive2};
use carmine_wire::header::Header2;
use carmine_wire::{EntityAddr, EntityType};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The other side, as the handshake described it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its entity type, from HELLO.
    pub entity: EntityType,
    /// The name it authenticated with (`admin`, or an OSD's number); empty for a server that we dialled.
    pub name: String,
    /// Its id: the global id of a client, the number of an OSD, the rank of a mon.
    pub gid: u64,
    /// The address it announced. A client's is "any" with port 0 and a random nonce.
    pub addr: EntityAddr,
    /// The TCP end.
    pub sock: SocketAddr,
    /// Features that both sides have; they decide the encodings of messages.
    pub features: u64,
    /// The identity that the peer proved; `None` if nobody asked for a proof (method none), or if we dialled the peer.
    pub guest: Option<Guest>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} at {}", self.entity, self.gid, self.sock)
    }
}

/// One end of an established connection. It lives on one shard.
pub struct Connection {
    id: u64,
    common: Rc<Common>,
    pub(crate) shard: Shard,
    pub(crate) stream: TcpStream,
    peer: Peer,
    /// Our own global id in this session.
    global_id: u64,
    pub(crate) limits: Limits,
    /// True on the accepting side, which stops reading while too many replies wait.
    pub(crate) accepted: bool,
    /// Frames not yet given to the socket.
    pub(crate) outgoing: RefCell<Outgoing>,
    /// Bytes in `outgoing` and in the send in flight.
    pub(crate) queued_bytes: Cell<usize>,
    /// The part of them in this connection's own memory.
    own_queued_bytes: Cell<usize>,
    /// The pieces shared with other connections: the end of each, counted in all bytes ever sent, and its length.
    shared_pieces: RefCell<VecDeque<(u64, usize)>>,
    /// Fired when there is something to send, or the connection ended.
    pub(crate) flush: Signal,
    /// Notified when `queued_bytes` falls, or the connection ended.
    drained: Notify,
    pub(crate) throttle: Rc<Throttle>,
    /// Sequence number of the last message sent.
    seq_sent: Cell<u64>,
    /// Sequence number of the last message received.
    pub(crate) seq_received: Cell<u64>,
    /// Set once: why the connection ended.
    closed: RefCell<Option<Rc<str>>>,
    is_closed: Cell<bool>,
    /// Close as soon as everything queued is sent.
    pub(crate) finishing: Cell<bool>,
    /// Bytes received so far.
    received_bytes: Rc<Cell<u64>>,
    /// Whether a message is being received.
    pub(crate) receiving: Cell<bool>,
    /// Reactor time at which bytes last came in.
    pub(crate) last_received_ns: Cell<u64>,
    /// Whether it is never closed for a new connection.
    pub(crate) keeps_place: Cell<bool>,
    pub(crate) stats: Cell<ConnectionStats>,
}

/// A connection's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Messages given to [`Connection::send`].
    pub messages_sent: u64,
    /// Messages dispatched.
    pub messages_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Vectored sends: `messages_sent / sends` is the coalescing.
    pub sends: u64,
    /// Receive completions.
    pub receives: u64,
    /// Bytes of data segments copied out of the receive buffer.
    pub bytes_copied: u64,
}

/// State that all connections of a shard share: their ids, and the bytes of all connections since the shard's start.
#[derive(Default)]
pub(crate) struct Common {
    ids: Cell<u64>,
    traffic: Cell<Traffic>,
    notices: Notices,
}

metric_set! {
    /// Bytes sent and received by a shard, on all connections since its start.
    #[derive(Copy, PartialEq, Eq)]
    pub struct Traffic: "net" {
        /// Bytes sent on all connections.
        sent_bytes: Sum,
        /// Bytes sent to other OSDs, which count them again as received.
        sent_to_osds_bytes: Sum,
        /// Bytes received on all connections.
        received_bytes: Sum,
    }
}

/// Traffic of the calling shard.
pub fn traffic(shard: &Shard) -> Traffic {
    common(shard).traffic.get()
}

/// The handshake's results that [`Connection::start`] takes.
pub(crate) struct Established {
    pub(crate) stream: TcpStream,
    pub(crate) peer: Peer,
    pub(crate) global_id: u64,
    pub(crate) accepted: bool,
    pub(crate) limits: Limits,
    pub(crate) budget: Option<Rc<Budget>>,
    pub(crate) received_bytes: Rc<Cell<u64>>,
    pub(crate) group: Group,
    /// Encrypts what is sent.
    pub(crate) sealer: Option<Box<Cipher>>,
}

impl Connection {
    /// Makes the connection and starts its flusher.
    pub(crate) fn start(shard: &Shard, made: Established) -> Rc<Connection> {
        let Established { stream, peer, global_id, accepted, limits, budget, received_bytes, group, sealer } =
            made;
        let common = common(shard);
        let conn = Rc::new(Connection {
            id: common.next_id(),
            common,
            shard: shard.clone(),
            stream,
            peer,
            global_id,
            limits,
            accepted,
            outgoing: RefCell::new(Outgoing::new(sealer)),
            queued_bytes: Cell::new(0),
            own_queued_bytes: Cell::new(0),
            shared_pieces: RefCell::default(),
            flush: Signal::new(),
            drained: Notify::new(),
            throttle: Throttle::new(limits.held_bytes, limits.held_messages, budget),
            seq_sent: Cell::new(0),
            seq_received: Cell::new(0),
            closed: RefCell::new(None),
            is_closed: Cell::new(false),
            finishing: Cell::new(false),
            received_bytes,
            receiving: Cell::new(false),
            last_received_ns: Cell::new(shard.now_ns()),
            keeps_place: Cell::new(false),
            stats: Cell::new(ConnectionStats::default()),
        });
        shard.spawn(group, "msgr-flush", encode::flush(Rc::clone(&conn)));
        conn
    }

    /// A number that no other connection of this shard ever had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The peer at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Our own global id in this session: what a mon assigned to us, or (accepted) the peer's.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Queues a message; it leaves with the connection's next vectored send. On a closed connection it is dropped: sessions are
    /// lossy, and users that wait for an answer learn of the end through `on_closed`.
    pub fn send(&self, msg: Message) {
        let (Parts { header, front, data }, _permit) = msg.into_parts();
        let append = |out: &mut Vec<u8>| {
            // Otherwise a long front is moved for the few bytes that end its frame.
            out.reserve(front.len() + EPILOGUE_BYTES);
            out.extend_from_slice(&front);
        };
        self.send_with(&header, append, data);
    }

    /// The same for a front that the caller keeps, e.g. to send it again after a fault.
    pub fn send_parts(&self, header: &Header2, front: &[u8], data: &Payload) {
        self.send_with(header, |out| out.extend_from_slice(front), data.clone());
    }

    /// The same for a front that `front` appends to the outgoing bytes, so that it needs no vector of its own. `front`
    /// must not use this connection.
    pub fn send_with(&self, header: &Header2, front: impl FnOnce(&mut Vec<u8>), data: Payload) {
        if self.is_closed.get() {
            return;
        }
        let header = self.number(header);
        let queued = self.outgoing.borrow_mut().message(&header, front, data);
        self.queue(queued);
    }

    /// The header of the next message.
    fn number(&self, header: &Header2) -> Header2 {
        let seq = self.seq_sent.get() + 1;
        self.seq_sent.set(seq);
        self.count(|s| s.messages_sent += 1);
        Header2 { seq, ack_seq: self.seq_received.get(), ..*header }
    }

    /// Queues a message without data whose front is `front[0]`, `shared` and `front[1]`. The memory of `shared`, whose checksum
    /// is `crc32c::raw(SEED, …)`, is shared with others: it counts as waiting to be sent, but not against
    /// [`Limits::queue_hard_bytes`].
    pub fn send_around(&self, header: &Header2, front: [&[u8]; 2], shared: &Bytes, shared_crc: u32) {
        if shared.len() <= INLINE_DATA_BYTES || self.outgoing.borrow().is_secure() {
            let front = |out: &mut Vec<u8>| {
                [front[0], shared, front[1]].iter().for_each(|part| out.extend_from_slice(part))
            };
            return self.send_with(header, front, Payload::new());
        }
        if self.is_closed.get() {
            return;
        }
        let header = self.number(header);
        let (queued, follows) = self.outgoing.borrow_mut().message_around(&header, front, shared, shared_crc);
        let end = self.stats.get().bytes_sent + (self.queued_bytes.get() + queued - follows) as u64;
        self.shared_pieces.borrow_mut().push_back((end, shared.len()));
        self.queued_bytes.set(self.queued_bytes.get() + shared.len());
        self.queue(queued - shared.len());
    }

    /// Queues a control frame.
    pub(crate) fn send_control(&self, control: &impl Control) {
        if !self.is_closed.get() {
            let queued = self.outgoing.borrow_mut().control(control);
            self.queue(queued);
        }
    }

    /// Asks the peer for a sign of life; see [`Connection::silence`].
    pub fn keepalive(&self) {
        let now = self.shard.unix_now();
        self.send_control(&Keepalive2(UTime { sec: now.as_secs() as u32, nsec: now.subsec_nanos() }));
    }

    /// Time since the last bytes from the peer.
    pub fn silence(&self) -> Duration {
        Duration::from_nanos(self.shard.now_ns().saturating_sub(self.last_received_ns.get()))
    }

    /// Bytes sent and received so far, if the connection waits for its peer to read, or to send the rest of a message.
    pub fn waits_for_peer(&self) -> Option<u64> {
        let waits = self.receiving.get() || self.queued_bytes.get() > 0;
        waits.then(|| self.received_bytes.get() + self.stats.get().bytes_sent)
    }

    /// Releases the room of a message whose permit went to another shard.
    pub fn release(&self, token: PermitToken) {
        token.release(&self.throttle);
    }

    /// Whether requests of other connections wait for memory shared with this one.
    pub fn others_wait(&self) -> bool {
        self.throttle.others_wait()
    }

    /// The memory that this connection shares with others.
    pub fn budget(&self) -> Option<&Rc<Budget>> {
        self.throttle.budget()
    }

    /// Bytes of received messages that are still held.
    pub fn held_bytes(&self) -> usize {
        self.throttle.held_bytes()
    }

    /// Bytes queued and not yet taken by the socket.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes.get()
    }

    /// Waits until at most this many bytes are queued, or the connection has ended.
    pub async fn drained_to(&self, bytes: usize) {
        while !self.is_closed() && self.queued_bytes() > bytes {
            self.drained.notified().await;
        }
    }

    /// Ends the connection. Queued bytes are dropped, no further message is dispatched, and `on_closed` is called with
    /// `reason` from the connection's own task. Closing twice keeps the first reason.
    pub fn close(&self, reason: impl AsRef<str>) {
        if self.is_closed.replace(true) {
            return;
        }
        *self.closed.borrow_mut() = Some(Rc::from(reason.as_ref()));
        self.stream.shutdown();
        let dropped = std::mem::take(&mut *self.outgoing.borrow_mut());
        drop(dropped);
        self.shared_pieces.borrow_mut().clear();
        self.drain_own(self.own_queued_bytes.get());
        self.flush.fire();
        self.drained.notify_all();
        self.throttle.wake();
    }

    /// Closes the connection once everything queued so far has been sent.
    pub fn finish(&self) {
        self.finishing.set(true);
        self.flush.fire();
    }

    /// True once the connection ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Why the connection ended, if it did.
    pub fn close_reason(&self) -> Option<Rc<str>> {
        self.closed.borrow().clone()
    }

    /// Keeps the connection open, however idle it is, when all places of its gate are taken.
    pub fn keep_place(&self) {
        self.keeps_place.set(true);
    }

    /// Whether no received message is held and nothing waits to be sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.throttle.is_idle() && self.queued_bytes.get() == 0
    }

    /// Counts a log line that peers of this shard cause; returns how many there were since the last one, if another may be
    /// written.
    pub(crate) fn notice(&self) -> Option<u64> {
        self.common.notices.count(self.shard.now_ns())
    }

    /// Counters since the connection was made.
    pub fn stats(&self) -> ConnectionStats {
        self.stats.get()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ConnectionStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Counts bytes of the shard; once per send and per receive, not per message.
    pub(crate) fn carried(&self, sent_bytes: u64, received_bytes: u64) {
        let mut traffic = self.common.traffic.get();
        traffic.sent_bytes += sent_bytes;
        if self.peer.entity == EntityType::OSD {
            traffic.sent_to_osds_bytes += sent_bytes;
        }
        traffic.received_bytes += received_bytes;
        self.common.traffic.set(traffic);
    }

    fn queue(&self, bytes: usize) {
        let queued = self.queued_bytes.get() + bytes;
        self.queued_bytes.set(queued);
        let own = self.own_queued_bytes.get() + bytes;
        self.own_queued_bytes.set(own);
        if let Some(budget) = self.budget() {
            budget.queued(bytes);
        }
        if own > self.limits.queue_hard_bytes {
            let limit = self.limits.queue_hard_bytes;
            self.close(format!("the peer does not read: {own} bytes wait to be sent, the limit is {limit}"));
            return;
        }
        self.flush.fire();
    }
}

impl Connection {
    /// Notes that this many more bytes were sent.
    pub(crate) fn sent(&self, bytes: usize) {
        self.queued_bytes.set(self.queued_bytes.get().saturating_sub(bytes));
        self.carried(bytes as u64, 0);
        self.count(|s| {
            s.sends += 1;
            s.bytes_sent += bytes as u64;
        });
        let shared = self.take_shared(self.stats.get().bytes_sent);
        self.drain_own(bytes.saturating_sub(shared));
        if self.drained.waiting() > 0 {
            self.drained.notify_all();
        }
    }

    /// Bytes of shared pieces that were sent as a whole when `sent` bytes were.
    fn take_shared(&self, sent: u64) -> usize {
        let mut pieces = self.shared_pieces.borrow_mut();
        let mut shared = 0;
        while let Some((_, bytes)) = pieces.pop_front_if(|(end, _)| *end <= sent) {
            shared += bytes;
        }
        shared
    }

    fn drain_own(&self, bytes: usize) {
        // A connection closed meanwhile has nothing left.
        let bytes = bytes.min(self.own_queued_bytes.get());
        self.own_queued_bytes.set(self.own_queued_bytes.get() - bytes);
        if let Some(budget) = self.budget() {
            budget.drained(bytes);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({}, {})", self.id, self.peer)
    }
}

fn common(shard: &Shard) -> Rc<Common> {
    shard.local::<Common>().unwrap_or_else(|| {
        let common = Rc::new(Common::default());
        shard.set_local(Rc::clone(&common));
        common
    })
}

impl Common {
    /// A number that no other connection of this shard ever had.
    fn next_id(&self) -> u64 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }
}
