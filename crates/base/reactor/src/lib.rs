//! The reactor: one thread per core that owns everything it works on.
//!
//! # The turn
//!
//! A shard is one OS thread, pinned to a CPU, with one `io_uring`. It does the same thing for ever, the *turn*
//! (`turn.rs`): take what has completed (I/O, messages of other shards, results of alien threads, timers), poll the
//! tasks that became ready, publish the messages that they left for other shards, and hand the operations that they
//! started to the kernel, all with one `io_uring_enter`. When there is nothing to do it spins for a while without system
//! calls (the kernel raises a flag in shared memory when the ring has work) and then sleeps in the kernel, as the
//! [`PollPolicy`] says.
//!
//! Tasks are spawned into scheduling [groups](Group); when several groups have ready tasks, time is dealt by shares
//! (`exec.rs`). A turn ends when its quota is used up, so a busy shard still looks at the kernel. A single poll that takes
//! too long is counted and named in the log as a stall.
//!
//! # Ownership
//!
//! Nothing is shared between shards: work moves. [`Shard::submit_to`] runs a closure on another shard,
//! [`Shard::call`] a future, both through one bounded single-producer queue per ordered pair of shards (`mailbox.rs`),
//! published once a turn. A peer is woken only when it has said that it sleeps (`shared.rs` has the one place where the
//! order of two memory accesses matters). Code that blocks goes to an alien thread ([`Shard::alien`], `alien.rs`).
//!
//! State hangs on the [`Shard`], a reference-counted handle that does not leave its thread; there are no statics and no
//! thread-locals, so reactors may come and go in one process, and many simulated ones may live on one thread. Inside,
//! cells are borrowed for single statements: no borrow is held while foreign code (a task, a message, a waker, a
//! destructor) runs.
//!
//! An I/O operation owns its buffers while the driver has it (`op.rs`). The future that waits for it holds an index:
//! dropping that future cancels the operation, and the memory is freed when the driver has let go of it. A [`Buf`] is
//! unique, page-aligned and comes from its shard's slice of one arena; it may be dropped on any thread and goes home.
//! [`Bytes`] is a shared range of it, [`Payload`] a short list of those: data is not copied between the socket and the
//! disk; where it must be, the copy is counted.
//!
//! # Two drivers
//!
//! Executor, timers, mailboxes, groups and buffers are common code. Below them the driver is an enum that is called
//! once per turn: operation descriptors in, completions out. `uring` is the kernel. [`sim`] is a world in memory
//! that runs all shards of all nodes on one thread, with virtual time, in an order that a seed decides: the same seed
//! gives the same trace, and a livelock or a deadlock is an error that names the seed.
//!
//! Where time goes: a thread is busy, spinning, asleep, or waiting for its CPU; [`Shard::stats`] has the four clocks,
//! which sum to wall time, and the counters.

// This crate is where time, threads, files and sockets come from; everyone else takes them from here.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod alien;
mod alloc;
pub mod buf;
mod call;
mod clock;
mod config;
mod crowd;
mod driver;
mod exec;
mod file;
mod io_path;
mod mailbox;
mod net;
mod nvme;
mod op;
pub mod probes;
mod runtime;
mod shard;
mod shared;
pub mod sim;
mod spin;
mod stats;
pub mod sync;
mod sys;
mod timer;
mod turn;
mod whole;

pub use alloc::{Counting, Mimalloc, keep_freed_memory};
pub use buf::{Buf, Bytes, Chunk, Payload};
pub use config::{Config, DEFAULT_SPIN_US, Group, PollPolicy, PollPolicyError, REGISTER_BYTES};
pub use file::{File, FileOptions};
pub use io_path::{ChosenPath, choose_io_path};
pub use net::{Listener, Socket, TcpStream, UnixListener};
pub use runtime::{Reactors, Stopper, block_on};
pub use shard::{Shard, ShardId};
pub use stats::ReactorStats;
pub use sys::{give_way, lost_packets, packet_socket, precise_timers};
