//! Sockets in memory: any address can be listened on; data takes time to arrive and keeps its order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use carmine_types::crc32c;

use super::Tried;
use super::world::Key;

/// Bytes that one direction holds before the sender waits.
const WINDOW: usize = 1 << 20;
/// Connections that wait to be accepted.
const BACKLOG: usize = 128;
const FIRST_PORT: u16 = 32_768;
/// Arrival of what waits for its way to be mended.
pub(super) const HELD: u64 = u64::MAX;

type Waiter = (Key, u32);

struct Segment {
    at: u64,
    bytes: Vec<u8>,
    taken: usize,
}

struct End {
    node: Rc<str>,
    local: SocketAddr,
    peer: u64,
    inbound: VecDeque<Segment>,
    held: usize,
    last_arrival: u64,
    /// The peer sends nothing more after this time.
    eof_at: Option<u64>,
    /// This side has shut down.
    down: bool,
    /// It ended by a reset.
    reset: bool,
    /// Its node lost its power: what is sent to it vanishes.
    silent: bool,
    /// Something vanished so.
    vanished: bool,
    reader: Option<Waiter>,
    writer: Option<Waiter>,
}

struct Listening {
    node: Rc<str>,
    addr: SocketAddr,
    backlog: VecDeque<u64>,
    acceptor: Option<Waiter>,
    /// Delivered by an accept, not yet claimed.
    handed: Vec<u64>,
}

enum Object {
    Fresh(Rc<str>, SocketAddr),
    Listener(Listening),
    End(Box<End>),
}

/// All sockets of the world.
#[derive(Default)]
pub(crate) struct Net {
    objects: BTreeMap<u64, Object>,
    listeners: BTreeMap<SocketAddr, u64>,
    /// The node that last listened at an address.
    hosts: BTreeMap<SocketAddr, Rc<str>>,
    next: u64,
    next_port: u16,
}

fn errno(e: i32) -> io::Error {
    io::Error::from_raw_os_error(e)
}

impl Net {
    fn add(&mut self, o: Object) -> u64 {
        // Even numbers are sockets, odd ones files.
        self.next += 2;
        self.objects.insert(self.next, o);
        self.next
    }

    fn port(&mut self, ip: IpAddr) -> SocketAddr {
        loop {
            self.next_port = self.next_port.wrapping_add(1).max(FIRST_PORT);
            let a = SocketAddr::new(ip, self.next_port);
            if !self.listeners.contains_key(&a) {
                return a;
            }
        }
    }

    pub(crate) fn listen(&mut self, node: &Rc<str>, addr: SocketAddr) -> io::Result<(u64, SocketAddr)> {
        let addr = if addr.port() == 0 { self.port(addr.ip()) } else { addr };
        if self.listeners.contains_key(&addr) {
            return Err(errno(libc::EADDRINUSE));
        }
        self.hosts.insert(addr, Rc::clone(node));
        let l = Listening {
            node: Rc::clone(node),
            addr,
            backlog: VecDeque::new(),
            acceptor: None,
            handed: Vec::new(),
        };
        let id = self.add(Object::Listener(l));
        self.listeners.insert(addr, id);
        Ok((id, addr))
    }

    pub(crate) fn socket(&mut self, node: &Rc<str>, peer: SocketAddr) -> u64 {
        self.add(Object::Fresh(Rc::clone(node), peer))
    }

    pub(crate) fn local_addr(&self, id: u64) -> SocketAddr {
        match self.objects.get(&id) {
            Some(Object::End(e)) => e.local,
            Some(Object::Listener(l)) => l.addr,
            Some(Object::Fresh(..)) | None => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        }
    }

    fn end(&mut self, id: u64) -> Option<&mut End> {
        match self.objects.get_mut(&id) {
            Some(Object::End(e)) => Some(e),
            _ => None,
        }
    }

    fn listener(&mut self, id: u64) -> Option<&mut Listening> {
        match self.objects.get_mut(&id) {
            Some(Object::Listener(l)) => Some(l),
            _ => None,
        }
    }

    /// Connects a fresh socket; the accept that can go on, or an errno.
    pub(super) fn connect(&mut self, id: u64) -> Result<Option<Waiter>, i32> {
        let Some(Object::Fresh(near, target)) = self.objects.get(&id) else { return Err(libc::EISCONN) };
        let (near, target) = (Rc::clone(near), *target);
        let Some(listener) = self.listener_at(target) else { return Err(libc::ECONNREFUSED) };
        let Some(host) = self.node_of(listener) else { return Err(libc::ECONNREFUSED) };
        if self.listener(listener).is_none_or(|l| l.backlog.len() >= BACKLOG) {
            return Err(libc::ECONNREFUSED);
        }
        let local = self.port(target.ip());
        let end = |node, local, peer| {
            Object::End(Box::new(End {
                node,
                local,
                peer,
                inbound: VecDeque::new(),
                held: 0,
                last_arrival: 0,
                eof_at: None,
                down: false,
                reset: false,
                silent: false,
                vanished: false,
                reader: None,
                writer: None,
            }))
        };
        let far = self.add(end(host, target, id));
        self.objects.insert(id, end(near, local, far));
        let Some(l) = self.listener(listener) else { return Err(libc::ECONNREFUSED) };
        l.backlog.push_back(far);
        Ok(l.acceptor.take())
    }

    pub(super) fn accept(&mut self, key: Key, op: u32, id: u64) -> Tried {
        let Some(l) = self.listener(id) else { return Tried::Done(-libc::EINVAL, 0) };
        match l.backlog.pop_front() {
            Some(far) => {
                l.handed.push(far);
                // Small and unique while it is in `handed`: a result has 31 bits.
                Tried::Done((far & 0x7fff_ffff) as i32, 0)
            }
            None => {
                l.acceptor = Some((key, op));
                Tried::Waits
            }
        }
    }

    /// The connection behind an accept's result: its number and the peer's address.
    pub(crate) fn accepted(&mut self, listener: u64, result: u64) -> Option<(u64, SocketAddr)> {
        let l = self.listener(listener)?;
        let at = l.handed.iter().position(|far| far & 0x7fff_ffff == result)?;
        let far = l.handed.swap_remove(at);
        let peer = self.end(far)?.peer;
        let addr = self.local_addr(peer);
        Some((far, addr))
    }

    /// Bytes that may be sent now; `None`: the connection is gone.
    pub(super) fn window(&mut self, id: u64) -> Option<usize> {
        let end = self.end(id)?;
        if end.down {
            return None;
        }
        let peer = end.peer;
        let peer = self.end(peer)?;
        match peer {
            End { silent: true, .. } => Some(WINDOW),
            End { down: true, .. } => None,
            peer => Some(WINDOW - peer.held.min(WINDOW)),
        }
    }

    pub(super) fn wait_to_send(&mut self, id: u64, key: Key, op: u32) {
        if let Some(e) = self.end(id) {
            e.writer = Some((key, op));
        }
    }

    /// Hands bytes to the other end, to arrive at `at` or when what was sent before has; who gets them, and when.
    pub(super) fn deliver(&mut self, id: u64, bytes: Vec<u8>, at: u64) -> Option<(u64, u64)> {
        let peer = self.end(id)?.peer;
        let e = self.end(peer)?;
        if e.silent {
            e.vanished = true;
            return None;
        }
        let at = at.max(e.last_arrival);
        if at < HELD {
            e.last_arrival = at;
        }
        e.held += bytes.len();
        e.inbound.push_back(Segment { at, bytes, taken: 0 });
        (at < HELD).then_some((peer, at))
    }

    /// Receives what has arrived; also the sender that may go on.
    pub(super) fn recv(
        &mut self,
        key: Key,
        op: u32,
        id: u64,
        room: &mut [u8],
        now: u64,
    ) -> (Tried, Option<Waiter>) {
        let Some(e) = self.end(id) else { return (Tried::Done(-libc::ENOTCONN, 0), None) };
        if e.down {
            return (Tried::Done(if e.reset { -libc::ECONNRESET } else { 0 }, 0), None);
        }
        let mut n = 0;
        while let Some(s) = e.inbound.front_mut() {
            if s.at > now || n == room.len() {
                break;
            }
            let take = (s.bytes.len() - s.taken).min(room.len() - n);
            room[n..n + take].copy_from_slice(&s.bytes[s.taken..s.taken + take]);
            n += take;
            s.taken += take;
            if s.taken == s.bytes.len() {
                e.inbound.pop_front();
            }
        }
        if n == 0 {
            if e.inbound.is_empty() && e.eof_at.is_some_and(|t| t <= now) {
                return (Tried::Done(0, 0), None);
            }
            e.reader = Some((key, op));
            return (Tried::Waits, None);
        }
        e.held -= n;
        let peer = e.peer;
        let writer = self.end(peer).and_then(|p| p.writer.take());
        (Tried::Done(n as i32, crc32c::raw(0, &room[..n])), writer)
    }

    /// The receive that waits at this end.
    pub(super) fn take_reader(&mut self, id: u64) -> Option<Waiter> {
        self.end(id)?.reader.take()
    }

    /// Ends a connection in both directions; who learns of it, and when.
    pub(super) fn shutdown(&mut self, id: u64, at: u64) -> Vec<(u64, u64)> {
        let ends = match self.objects.get(&id) {
            Some(Object::End(_)) => vec![id],
            Some(Object::Listener(l)) => l.backlog.iter().chain(&l.handed).copied().collect(),
            Some(Object::Fresh(..)) | None => Vec::new(),
        };
        let mut told = Vec::new();
        for id in ends {
            let Some(e) = self.end(id) else { continue };
            if std::mem::replace(&mut e.down, true) || e.silent {
                continue;
            }
            let peer = e.peer;
            if let Some(p) = self.end(peer) {
                let at = at.max(p.last_arrival);
                p.eof_at = Some(at);
                if at < HELD {
                    p.last_arrival = at;
                    told.push((peer, at));
                }
            }
        }
        told
    }

    /// The operations that wait on an object that was shut down, and the sender at the other end.
    pub(super) fn take_waiters(&mut self, id: u64) -> Vec<Waiter> {
        let mut all = Vec::new();
        let mut peer = None;
        match self.objects.get_mut(&id) {
            Some(Object::End(e)) => {
                all.extend(e.reader.take());
                all.extend(e.writer.take());
                peer = Some(e.peer);
            }
            Some(Object::Listener(l)) => all.extend(l.acceptor.take()),
            Some(Object::Fresh(..)) | None => {}
        }
        if let Some(p) = peer.and_then(|p| self.end(p)) {
            all.extend(p.writer.take());
        }
        all
    }

    /// Drops a closed object.
    pub(super) fn forget(&mut self, id: u64) {
        if self.end(id).is_some_and(|end| end.silent) {
            return;
        }
        if let Some(Object::Listener(l)) = self.objects.remove(&id) {
            self.listeners.remove(&l.addr);
            for far in l.backlog.into_iter().chain(l.handed) {
                self.objects.remove(&far);
            }
        }
    }

    /// Forgets waiting operations that are gone.
    pub(super) fn forget_waiters(&mut self, gone: impl Fn(Key, u32) -> bool) {
        let drop_if = |w: &mut Option<Waiter>| {
            if w.is_some_and(|(k, o)| gone(k, o)) {
                *w = None;
            }
        };
        for o in self.objects.values_mut() {
            match o {
                Object::End(e) => {
                    drop_if(&mut e.reader);
                    drop_if(&mut e.writer);
                }
                Object::Listener(l) => drop_if(&mut l.acceptor),
                Object::Fresh(..) => {}
            }
        }
    }
}

// For faults.
impl Net {
    fn listener_at(&self, target: SocketAddr) -> Option<u64> {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), target.port());
        self.listeners.get(&target).or_else(|| self.listeners.get(&any)).copied()
    }

    /// The node that has this object.
    pub(super) fn node_of(&self, id: u64) -> Option<Rc<str>> {
        match self.objects.get(&id)? {
            Object::Fresh(node, _) => Some(Rc::clone(node)),
            Object::Listener(l) => Some(Rc::clone(&l.node)),
            Object::End(e) => Some(Rc::clone(&e.node)),
        }
    }

    pub(super) fn peer_of(&self, id: u64) -> Option<u64> {
        match self.objects.get(&id)? {
            Object::End(e) => Some(e.peer),
            _ => None,
        }
    }

    /// The node that listens where this socket is to be connected.
    pub(super) fn target_of(&self, id: u64) -> Option<Rc<str>> {
        match self.objects.get(&id)? {
            Object::Fresh(_, target) => self.node_of(self.listener_at(*target)?),
            _ => None,
        }
    }

    /// The node that last listened there.
    pub(super) fn target_was(&self, id: u64) -> Option<Rc<str>> {
        match self.objects.get(&id)? {
            Object::Fresh(_, target) => self.hosts.get(target).cloned(),
            _ => None,
        }
    }

    fn all_ends(&self) -> impl Iterator<Item = (u64, &End)> {
        self.objects.iter().filter_map(|(id, object)| match object {
            Object::End(end) => Some((*id, &**end)),
            _ => None,
        })
    }

    /// Ends of the first node whose other ends the second one has.
    pub(super) fn ends_between(&self, a: &str, b: &str) -> Vec<u64> {
        let is_of_b = |end: &End| self.node_of(end.peer).is_some_and(|node| &*node == b);
        self.all_ends().filter(|(_, end)| &*end.node == a && is_of_b(end)).map(|(id, _)| id).collect()
    }

    /// Ends that something waits for until its way is mended.
    pub(super) fn held(&self) -> Vec<u64> {
        let waits = |end: &End| {
            end.eof_at == Some(HELD) || end.inbound.back().is_some_and(|segment| segment.at == HELD)
        };
        self.all_ends().filter(|(_, end)| waits(end)).map(|(id, _)| id).collect()
    }

    /// Lets what waits for its way arrive from `at` on; the times at which something does.
    pub(super) fn release(&mut self, id: u64, at: u64) -> Vec<u64> {
        let Some(end) = self.end(id) else { return Vec::new() };
        let at = at.max(end.last_arrival);
        end.last_arrival = at;
        end.inbound.iter_mut().filter(|segment| segment.at == HELD).for_each(|segment| segment.at = at);
        if end.eof_at == Some(HELD) {
            end.eof_at = Some(at);
        }
        vec![at]
    }

    /// Ends one end at once; the operations that wait at it.
    pub(super) fn reset(&mut self, id: u64) -> Vec<Waiter> {
        let Some(end) = self.end(id) else { return Vec::new() };
        if std::mem::replace(&mut end.down, true) {
            return Vec::new();
        }
        end.reset = true;
        end.inbound.clear();
        end.held = 0;
        let (reader, writer, peer) = (end.reader.take(), end.writer.take(), end.peer);
        let far = self.end(peer).and_then(|peer| peer.writer.take());
        reader.into_iter().chain(writer).chain(far).collect()
    }

    /// The ends of a node without power: nobody is told that they are gone.
    pub(super) fn silence(&mut self, node: &str) {
        for object in self.objects.values_mut() {
            if let Object::End(end) = object
                && &*end.node == node
            {
                end.silent = true;
            }
        }
    }

    /// The node is back, and knows nothing of its connections; the ends of others that sent something meanwhile, and are
    /// told so when they send it again.
    pub(super) fn forget_silent(&mut self, node: &str) -> Vec<u64> {
        let gone: Vec<(u64, u64, bool)> = self
            .all_ends()
            .filter(|(_, end)| end.silent && &*end.node == node)
            .map(|(id, end)| (id, end.peer, end.vanished))
            .collect();
        gone.iter().for_each(|(id, ..)| _ = self.objects.remove(id));
        gone.into_iter().filter(|(.., vanished)| *vanished).map(|(_, peer, _)| peer).collect()
    }
}
