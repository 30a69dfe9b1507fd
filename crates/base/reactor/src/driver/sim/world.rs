//! The world: virtual time, events, the seeded generator, the trace.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use carmine_types::crc32c;
use crossbeam::queue::SegQueue;

use super::cache::Caches;
use super::disk::Disks;
use super::net::Net;
use super::tape::Tape;
use super::wires::Wires;
use super::{Tried, id_of};
use crate::driver::mix;
use crate::file::FileOptions;
use crate::op::Op;

/// A shard of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) node: u32,
    pub(crate) shard: u16,
}

/// The kind of an event at a point of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operation is to be tried (again).
    Due(Key, u32),
    /// Data or the end of the stream has reached this end of a connection.
    Arrived(u64),
}

/// Everything that the shards of a simulation share.
pub(crate) struct World {
    now: Rc<Cell<u64>>,
    rng: u64,
    trace: u64,
    events: BTreeMap<(u64, u64), Kind>,
    seq: u64,
    due: BTreeMap<Key, Vec<u32>>,
    closed: Arc<SegQueue<u64>>,
    pub(crate) net: Net,
    pub(crate) disks: Disks,
    tape: Option<Tape>,
    pub(super) wires: Wires,
    /// Writes that drives have not made durable yet; `None` if nobody asks for them.
    pub(super) caches: Option<Caches>,
}

impl World {
    pub(crate) fn new(seed: u64, now: Rc<Cell<u64>>) -> World {
        World {
            now,
            rng: mix(seed ^ 0x5EED),
            trace: seed,
            events: BTreeMap::new(),
            seq: 0,
            due: BTreeMap::new(),
            closed: Arc::new(SegQueue::new()),
            net: Net::default(),
            disks: Disks::default(),
            tape: None,
            wires: Wires::default(),
            caches: None,
        }
    }

    /// Records changes of files from now on.
    pub(crate) fn record(&mut self) -> Tape {
        self.tape.insert(Tape::new(self.disks.files().clone())).clone()
    }

    /// Opens a file, and records it if that made it.
    pub(super) fn open(&mut self, node: &str, path: &Path, opts: FileOptions) -> io::Result<u64> {
        let file = (node.to_owned(), path.to_owned());
        let made = !self.disks.files().contains_key(&file);
        let id = self.disks.open(node, path, opts)?;
        if let Some(caches) = self.caches.as_mut().filter(|_| made) {
            caches.made(file.clone());
        }
        if let Some(tape) = self.tape.as_ref().filter(|_| made) {
            tape.made(file);
        }
        Ok(id)
    }

    /// An operation is given to its disk.
    pub(super) fn note_began(&mut self, key: Key, index: u32, op: &Op) {
        if self.tape.is_none() && self.caches.is_none() {
            return;
        }
        let Some(file) = self.disks.name(id_of(op)) else { return };
        if let Some(caches) = &mut self.caches {
            caches.began((key, index), &file, op);
        }
        let Some(tape) = self.tape.as_ref() else { return };
        match op {
            Op::Write { data, skip, off, .. } => {
                let bytes = data.iter().flat_map(|b| b.iter().copied()).skip(*skip).collect();
                tape.write_began((key, index), file, *off, bytes);
            }
            Op::SetLen { len, .. } => tape.set_len_began((key, index), file, *len),
            Op::Discard { off, len, .. } => {
                let zeros = vec![0; usize::try_from(*len).unwrap_or(usize::MAX)];
                tape.write_began((key, index), file, *off, zeros);
            }
            Op::Datasync { .. } | Op::SyncFolder { .. } => tape.flush_began((key, index), file),
            _ => {}
        }
    }

    /// An operation is done.
    pub(super) fn note_ended(&mut self, key: Key, index: u32, op: &Op, result: i32) {
        if let Some(caches) = &mut self.caches {
            caches.note_end((key, index), result >= 0, matches!(op, Op::Write { dsync: true, .. }));
        }
        if let Some(tape) = &self.tape {
            tape.note_end((key, index), result >= 0, matches!(op, Op::Write { dsync: true, .. }));
        }
    }

    pub(crate) fn closed(&self) -> &Arc<SegQueue<u64>> {
        &self.closed
    }

    /// The next number of the seeded generator.
    pub(crate) fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.rng)
    }

    pub(super) fn random_in(&mut self, from: u64, to: u64) -> u64 {
        from + self.random() % (to - from)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now.get()
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace
    }

    /// Folds one step into the trace.
    pub(crate) fn trace(&mut self, words: &[u64]) {
        let mut h = mix(self.trace ^ self.now.get());
        for w in words {
            h = mix(h.rotate_left(17) ^ w);
        }
        self.trace = h;
    }

    pub(crate) fn trace_op(&mut self, key: Key, op: &Op, result: i32, crc: u32) {
        let kind = match op {
            Op::Read { .. } => 1,
            Op::Write { .. } => 2,
            Op::Datasync { .. } => 3,
            Op::Recv { .. } => 4,
            Op::Send { .. } => 5,
            Op::Accept { .. } => 6,
            Op::Connect { .. } => 7,
            Op::Open { .. } => 8,
            Op::SetLen { .. } => 9,
            Op::Discard { .. } => 10,
            Op::SyncFolder { .. } => 11,
        };
        let who = u64::from(key.node) << 16 | u64::from(key.shard);
        self.trace(&[who, kind, u64::from(result.cast_unsigned()), u64::from(crc)]);
    }

    /// Something happens `ns` from now.
    pub(crate) fn schedule(&mut self, ns: u64, kind: Kind) {
        self.schedule_at(self.now.get() + ns, kind);
    }

    pub(crate) fn schedule_at(&mut self, at: u64, kind: Kind) {
        self.seq += 1;
        self.events.insert((at, self.seq), kind);
    }

    /// When the next event happens.
    pub(crate) fn next_event(&self) -> Option<u64> {
        self.events.first_key_value().map(|(k, _)| k.0)
    }

    /// Lets everything happen that is due now, and closes what was dropped.
    pub(crate) fn settle(&mut self) {
        while let Some(id) = self.closed.pop() {
            self.disks.close(id);
            self.shutdown(id);
            self.net.forget(id);
        }
        let now = self.now.get();
        while self.next_event().is_some_and(|t| t <= now) {
            match self.events.pop_first() {
                Some((_, Kind::Due(key, op))) => self.due(key, op),
                Some((_, Kind::Arrived(end))) => {
                    if let Some((key, op)) = self.net.take_reader(end) {
                        self.due(key, op);
                    }
                }
                None => return,
            }
        }
    }

    /// An operation is to be tried in its shard's next turn.
    pub(crate) fn due(&mut self, key: Key, op: u32) {
        self.due.entry(key).or_default().push(op);
    }

    pub(crate) fn has_due(&self, key: Key) -> bool {
        self.due.get(&key).is_some_and(|d| !d.is_empty())
    }

    pub(crate) fn take_due(&mut self, key: Key) -> Vec<u32> {
        self.due.get_mut(&key).map(std::mem::take).unwrap_or_default()
    }

    /// Forgets an operation that was cancelled.
    pub(crate) fn forget(&mut self, key: Key, op: u32) {
        if let Some(caches) = &mut self.caches {
            caches.note_end((key, op), false, false);
        }
        if let Some(tape) = &self.tape {
            tape.note_end((key, op), false, false);
        }
        self.events.retain(|_, k| *k != Kind::Due(key, op));
        if let Some(d) = self.due.get_mut(&key) {
            d.retain(|o| *o != op);
        }
        self.net.forget_waiters(|k, o| k == key && o == op);
    }

    /// Forgets all operations of a node that is gone.
    pub(crate) fn forget_node(&mut self, node: u32) {
        if let Some(caches) = &mut self.caches {
            caches.forget_node(node);
        }
        self.events.retain(|_, k| !matches!(k, Kind::Due(key, _) if key.node == node));
        self.due.retain(|k, _| k.node != node);
        self.net.forget_waiters(|k, _| k.node == node);
    }

    /// Virtual time that an operation takes before it is tried; `None`: it is tried at once.
    pub(crate) fn latency_of(&mut self, op: &Op) -> Option<u64> {
        let slower_ns = self.disks.slower_ns(id_of(op));
        let ns = match op {
            Op::Read { len, .. } => Some(self.random_in(40_000, 120_000) + *len as u64 / 4),
            Op::Write { data, dsync, .. } => {
                let len: usize = data.iter().map(|b| b.len()).sum();
                let flush = if *dsync { self.random_in(20_000, 80_000) } else { 0 };
                Some(self.random_in(15_000, 60_000) + len as u64 / 4 + flush)
            }
            Op::Datasync { .. } | Op::SyncFolder { .. } => Some(self.random_in(50_000, 300_000)),
            Op::SetLen { .. } => Some(self.random_in(5_000, 20_000)),
            Op::Discard { .. } => Some(self.random_in(20_000, 400_000)),
            Op::Connect { .. } => Some(self.random_in(20_000, 100_000)),
            Op::Recv { .. } | Op::Send { .. } | Op::Accept { .. } | Op::Open { .. } => None,
        };
        ns.map(|ns| ns + slower_ns)
    }

    /// Tries an operation.
    pub(super) fn attempt(&mut self, key: Key, index: u32, op: &mut Op) -> Tried {
        let id = id_of(op);
        match op {
            Op::Read { buf, len, off, .. } => self.disks.read(id, buf, *len, *off),
            Op::Write { data, skip, off, dsync, .. } => self.disks.write(id, data, *skip, *off, *dsync),
            Op::Datasync { .. } | Op::SyncFolder { .. } => self.disks.flush(id),
            Op::SetLen { len, .. } => {
                self.disks.set_len(id, *len);
                Tried::Done(0, 0)
            }
            Op::Discard { off, len, .. } => self.disks.discard(id, *off, *len),
            Op::Recv { buf, at, .. } => {
                // Now and then a receive returns less than there is, as real ones do.
                let most = if self.random().is_multiple_of(8) { self.random_in(1, 5_000) } else { u64::MAX };
                self.recv(key, index, id, &mut buf.full_mut()[*at..], most)
            }
            Op::Send { chunks, skip, .. } => self.send(key, index, id, chunks, *skip),
            Op::Accept { .. } => self.net.accept(key, index, id),
            Op::Connect { .. } if self.connect_waits(key, index, id) => Tried::Waits,
            Op::Connect { .. } => self.connect(id),
            Op::Open { .. } => Tried::Done(-libc::ENOSYS, 0),
        }
    }

    /// Time that data needs to the other end.
    pub(super) fn net_latency(&mut self) -> u64 {
        self.random_in(8_000, 50_000)
    }

    fn recv(&mut self, key: Key, op: u32, id: u64, room: &mut [u8], most: u64) -> Tried {
        let room_len = room.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let (tried, writer) = self.net.recv(key, op, id, &mut room[..room_len], self.now.get());
        if let Some((k, o)) = writer {
            self.due(k, o);
        }
        tried
    }

    fn send(&mut self, key: Key, op: u32, id: u64, chunks: &[crate::buf::Chunk], skip: usize) -> Tried {
        let Some(room) = self.net.window(id) else { return Tried::Done(-libc::EPIPE, 0) };
        if room == 0 {
            self.net.wait_to_send(id, key, op);
            return Tried::Waits;
        }
        let mut bytes = Vec::new();
        let mut skip = skip;
        for c in chunks.iter().map(crate::buf::Chunk::as_slice) {
            let from = skip.min(c.len());
            skip -= from;
            let n = (c.len() - from).min(room - bytes.len());
            bytes.extend_from_slice(&c[from..from + n]);
        }
        let (n, crc) = (bytes.len() as i32, crc32c::raw(0, &bytes));
        let at = self.arrival(id);
        if let Some((peer, at)) = self.net.deliver(id, bytes, at) {
            self.schedule_at(at, Kind::Arrived(peer));
        }
        Tried::Done(n, crc)
    }

    fn connect(&mut self, id: u64) -> Tried {
        match self.net.connect(id) {
            Err(errno) => Tried::Done(-errno, 0),
            Ok(acceptor) => {
                if let Some((k, o)) = acceptor {
                    self.due(k, o);
                }
                Tried::Done(0, 0)
            }
        }
    }

    /// Ends both directions of a connection, or closes a listener.
    pub(crate) fn shutdown(&mut self, id: u64) {
        let at = self.arrival(id);
        for (peer, at) in self.net.shutdown(id, at) {
            self.schedule_at(at, Kind::Arrived(peer));
        }
        for (k, o) in self.net.take_waiters(id) {
            self.due(k, o);
        }
    }
}
