//! The `sim` driver: sockets, disks and time in memory, one world for all shards of all nodes.
//!
//! An operation is tried; if it cannot finish it waits in the world, and an event (data arrived, a disk is done, a
//! window opened) makes it due again on its own shard's next turn. Bytes move only in that turn, in and out of the
//! buffers that the shard's operation table owns.

mod cache;
mod disk;
mod net;
mod tape;
mod wires;
mod world;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crossbeam::queue::SegQueue;

use crate::file::FileOptions;
use crate::op::{Done, Op, Ops};
use world::Kind;

pub use tape::{Tape, Torn, Unflushed};
pub(crate) use world::{Key, World};

/// A socket or file of the world. Dropping it closes it, from any thread.
pub(crate) struct SimHandle {
    id: u64,
    closed: Arc<SegQueue<u64>>,
}

impl Drop for SimHandle {
    fn drop(&mut self) {
        self.closed.push(self.id);
    }
}

/// The outcome of an attempt at an operation.
enum Tried {
    /// Finished: bytes or a negative errno, and the checksum of the bytes moved.
    Done(i32, u32),
    /// It waits in the world.
    Waits,
}

/// One shard's access to the world.
pub(crate) struct SimDriver {
    world: Rc<RefCell<World>>,
    key: Key,
    node_name: Rc<str>,
}

impl SimDriver {
    pub(crate) fn new(world: Rc<RefCell<World>>, key: Key, node_name: Rc<str>) -> SimDriver {
        SimDriver { world, key, node_name }
    }

    pub(crate) fn turn(&mut self, ops: &mut Ops) {
        let mut world = self.world.borrow_mut();
        let mut queue = std::mem::take(&mut ops.queue);
        for index in queue.drain(..) {
            if let Some(op) = ops.start(index) {
                world.note_began(self.key, index, op);
                match world.latency_of(op) {
                    Some(ns) => world.schedule(ns, Kind::Due(self.key, index)),
                    None => world.due(self.key, index),
                }
            }
        }
        ops.queue = queue;
        while let Some(index) = ops.cancels.pop() {
            world.forget(self.key, index);
            ops.done.push(Done { op: index, result: -libc::ECANCELED, flags: 0 });
        }
        for index in world.take_due(self.key) {
            let Some(op) = ops.running(index) else { continue };
            if let Tried::Done(result, crc) = world.attempt(self.key, index, op) {
                world.note_ended(self.key, index, op, result);
                world.trace_op(self.key, op, result, crc);
                ops.done.push(Done { op: index, result, flags: 0 });
            }
        }
    }

    pub(crate) fn has_events(&self) -> bool {
        self.world.borrow().has_due(self.key)
    }

    fn handle(&self, id: u64) -> SimHandle {
        SimHandle { id, closed: Arc::clone(self.world.borrow().closed()) }
    }

    pub(crate) fn listen(&mut self, addr: SocketAddr) -> io::Result<(SimHandle, SocketAddr)> {
        let (id, local) = self.world.borrow_mut().net.listen(&self.node_name, addr)?;
        Ok((self.handle(id), local))
    }

    /// A socket that is not connected yet.
    pub(crate) fn socket(&mut self, peer: SocketAddr) -> SimHandle {
        let id = self.world.borrow_mut().net.socket(&self.node_name, peer);
        self.handle(id)
    }

    pub(crate) fn local_addr(&self, h: &SimHandle) -> SocketAddr {
        self.world.borrow().net.local_addr(h.id)
    }

    /// The connection that an accept delivered.
    pub(crate) fn accepted(&mut self, listener: &SimHandle, slot: u64) -> Option<(SimHandle, SocketAddr)> {
        let (id, peer) = self.world.borrow_mut().net.accepted(listener.id, slot)?;
        Some((self.handle(id), peer))
    }

    pub(crate) fn shutdown(&mut self, h: &SimHandle) {
        self.world.borrow_mut().shutdown(h.id);
    }

    pub(crate) fn open(&mut self, path: &Path, opts: FileOptions) -> io::Result<SimHandle> {
        let id = self.world.borrow_mut().open(&self.node_name, path, opts)?;
        Ok(self.handle(id))
    }

    pub(crate) fn open_folder(&mut self, path: &Path) -> SimHandle {
        let id = self.world.borrow_mut().disks.open_folder(&self.node_name, path);
        self.handle(id)
    }

    pub(crate) fn file_len(&self, h: &SimHandle) -> io::Result<u64> {
        Ok(self.world.borrow().disks.len(h.id))
    }
}

/// The world's number of an operation's handle.
fn id_of(op: &Op) -> u64 {
    let handle = match op {
        Op::Read { handle, .. }
        | Op::Write { handle, .. }
        | Op::Datasync { handle }
        | Op::SyncFolder { handle }
        | Op::Recv { handle, .. }
        | Op::Send { handle, .. }
        | Op::Accept { handle }
        | Op::Connect { handle, .. }
        | Op::SetLen { handle, .. }
        | Op::Discard { handle, .. } => handle,
        Op::Open { .. } => return u64::MAX,
    };
    match &**handle {
        crate::op::Handle::Sim(h) => h.id,
        crate::op::Handle::Os(..) => u64::MAX,
    }
}
