//! The two drivers behind one enum. It is called once per turn: operation descriptors in, completions out.

mod beside;
mod scratch;
pub(crate) mod sim;
mod submission;
pub(crate) mod uring;

use std::io;

use crate::op::{Lane, Ops};

/// How the driver ends the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Submit, take what is there.
    No,
    /// Submit and sleep until something completes, or for so many nanoseconds.
    Sleep(Option<u64>),
}

/// The driver that does a shard's I/O.
pub(crate) enum Driver {
    Uring(Box<uring::Uring>),
    Sim(sim::SimDriver),
    /// The shard has ended.
    Closed,
}

impl Driver {
    /// Takes the queued operations, and puts completions into `ops.done`.
    pub(crate) fn turn(&mut self, ops: &mut Ops, wait: Wait) -> io::Result<()> {
        match self {
            Driver::Uring(u) => u.turn(ops, wait),
            Driver::Sim(s) => {
                s.turn(ops);
                Ok(())
            }
            Driver::Closed => Err(closed()),
        }
    }

    /// Completions wait, or the kernel wants to be entered. No system call.
    #[inline]
    pub(crate) fn has_events(&mut self) -> bool {
        match self {
            Driver::Uring(u) => u.has_events(),
            Driver::Sim(s) => s.has_events(),
            Driver::Closed => false,
        }
    }

    /// A peer sleeps and got mail.
    pub(crate) fn wake_peer(&mut self, peer: usize) {
        if let Driver::Uring(u) = self {
            u.wake_peer(peer);
        }
    }

    /// Makes what operations of a lane need, if it is not there yet.
    pub(crate) fn open_lane(&mut self, lane: Lane) -> io::Result<()> {
        match self {
            Driver::Uring(u) => u.open_lane(lane),
            Driver::Sim(_) => Ok(()),
            Driver::Closed => Err(closed()),
        }
    }

    /// Bytes of buffers that the kernel has pinned.
    pub(crate) fn registered_bytes(&self) -> u64 {
        match self {
            Driver::Uring(u) => u.registered_bytes(),
            Driver::Sim(_) | Driver::Closed => 0,
        }
    }

    /// Operations that a lane beside the main one has completed.
    pub(crate) fn completed(&self, lane: Lane) -> u64 {
        match self {
            Driver::Uring(u) => u.completed(lane),
            Driver::Sim(_) | Driver::Closed => 0,
        }
    }

    /// Number of enters.
    pub(crate) fn enters(&self) -> u64 {
        match self {
            Driver::Uring(u) => u.enters(),
            Driver::Sim(_) | Driver::Closed => 0,
        }
    }
}

/// The error of asking a shard that has ended.
pub(crate) fn closed() -> io::Error {
    io::Error::other("the reactor has ended")
}

/// A receive's completion says that the socket has more.
pub(crate) fn more_to_receive(flags: u32) -> bool {
    io_uring::cqueue::sock_nonempty(flags)
}

/// The finaliser of splitmix64: turns a counter into random-looking bits.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
