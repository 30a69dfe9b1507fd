//! Sockets in memory: any address can be listened on; data takes time to arrive and keeps its order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carmine_types::crc32c;

use super::Tried;
use super::world::Key;

/// Bytes that one direction holds before the sender waits.
const WINDOW: usize = 1 << 20;
/// Connections that wait to be accepted.
const BACKLOG: usize = 128;
const FIRST_PORT: u16 = 32_768;

type Waiter = (Key, u32);

struct Segment {
    at: u64,
    bytes: Vec<u8>,
    taken: usize,
}

struct End {
    local: SocketAddr,
    peer: u64,
    inbound: VecDeque<Segment>,
    held: usize,
    last_arrival: u64,
    /// The peer sends nothing more after this time.
    eof_at: Option<u64>,
    /// This side has shut down.
    down: bool,
    reader: Option<Waiter>,
    writer: Option<Waiter>,
}

struct Listening {
    addr: SocketAddr,
    backlog: VecDeque<u64>,
    acceptor: Option<Waiter>,
    /// Delivered by an accept, not yet claimed.
    handed: Vec<u64>,
}

enum Object {
    Fresh(SocketAddr),
    Listener(Listening),
    End(Box<End>),
}

/// All sockets of the world.
#[derive(Default)]
pub(crate) struct Net {
    objects: BTreeMap<u64, Object>,
    listeners: BTreeMap<SocketAddr, u64>,
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

    pub(crate) fn listen(&mut self, addr: SocketAddr) -> io::Result<(u64, SocketAddr)> {
        let addr = if addr.port() == 0 { self.port(addr.ip()) } else { addr };
        if self.listeners.contains_key(&addr) {
            return Err(errno(libc::EADDRINUSE));
        }
        let l = Listening { addr, backlog: VecDeque::new(), acceptor: None, handed: Vec::new() };
        let id = self.add(Object::Listener(l));
        self.listeners.insert(addr, id);
        Ok((id, addr))
    }

    pub(crate) fn socket(&mut self, peer: SocketAddr) -> u64 {
        self.add(Object::Fresh(peer))
    }

    pub(crate) fn local_addr(&self, id: u64) -> SocketAddr {
        match self.objects.get(&id) {
            Some(Object::End(e)) => e.local,
            Some(Object::Listener(l)) => l.addr,
            Some(Object::Fresh(_)) | None => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
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
        let Some(Object::Fresh(target)) = self.objects.get(&id) else { return Err(libc::EISCONN) };
        let target = *target;
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), target.port());
        let listener = self.listeners.get(&target).or_else(|| self.listeners.get(&any)).copied();
        let Some(listener) = listener else { return Err(libc::ECONNREFUSED) };
        if self.listener(listener).is_none_or(|l| l.backlog.len() >= BACKLOG) {
            return Err(libc::ECONNREFUSED);
        }
        let local = self.port(target.ip());
        let end = |local, peer| {
            Object::End(Box::new(End {
                local,
                peer,
                inbound: VecDeque::new(),
                held: 0,
                last_arrival: 0,
                eof_at: None,
                down: false,
                reader: None,
                writer: None,
            }))
        };
        let far = self.add(end(target, id));
        self.objects.insert(id, end(local, far));
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
        if peer.down { None } else { Some(WINDOW - peer.held.min(WINDOW)) }
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
        let at = at.max(e.last_arrival);
        e.last_arrival = at;
        e.held += bytes.len();
        e.inbound.push_back(Segment { at, bytes, taken: 0 });
        Some((peer, at))
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
            return (Tried::Done(0, 0), None);
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
            Some(Object::Fresh(_)) | None => Vec::new(),
        };
        let mut told = Vec::new();
        for id in ends {
            let Some(e) = self.end(id) else { continue };
            if std::mem::replace(&mut e.down, true) {
                continue;
            }
            let peer = e.peer;
            if let Some(p) = self.end(peer) {
                let at = at.max(p.last_arrival);
                p.last_arrival = at;
                p.eof_at = Some(at);
                told.push((peer, at));
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
            Some(Object::Fresh(_)) | None => {}
        }
        if let Some(p) = peer.and_then(|p| self.end(p)) {
            all.extend(p.writer.take());
        }
        all
    }

    /// Drops a closed object.
    pub(super) fn forget(&mut self, id: u64) {
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
                Object::Fresh(_) => {}
            }
        }
    }
}
