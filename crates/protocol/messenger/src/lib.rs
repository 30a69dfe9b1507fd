//! Ceph's msgr v2.1 (crc mode, lossy sessions) on a reactor: both sides of the handshake, framing, checksums and flow
//! control. It moves [`Message`]s and knows nothing of placement groups, maps or operations.
//!
//! # Life of a connection
//! [`serve`] takes an accepted socket, [`connect`] dials one. After the handshake two tasks per connection run on its shard: the
//! *reader* (bulk receive, parse every frame that is there, verify every checksum, hand the messages to the [`Dispatcher`]) and
//! the *flusher* (one vectored send in flight; everything queued meanwhile is in the next one). A third, slow one enforces the
//! handshake and idle limits. Whatever goes wrong ends in one place: the connection is closed with a reason, the reason is
//! logged, and [`Dispatcher::on_closed`] is told once.
//!
//! # Bounds
//! * Received messages that the dispatcher has not released yet are counted ([`Permit`]), with the memory that they will need
//!   as far as the dispatcher knows ([`Dispatcher::output_bytes`]); beyond
//!   [`Limits::held_bytes`] or [`Limits::held_messages`] nothing more is read from that peer.
//! * A server's connections may share a [`Budget`]: none of them is read from while all of them together hold too much.
//! * A *server* stops reading requests while more than [`Limits::queue_soft_bytes`] of replies wait to be sent. A client never
//!   does, because two peers that wait for each other would deadlock: what it queues is bounded by its user.
//! * Above [`Limits::queue_hard_bytes`] the connection is closed.
//! * A server accepts as many connections as its [`Gate`] allows, including those in their handshake. When all places are taken,
//!   idle connections are closed for new ones, and then those of an address that has more places than the new one's.
//! * Peers cannot flood the log: of the lines that they cause, one is written per [`limits::NOTICE_PERIOD`], with the number of
//!   the others.
//! * Memory for a segment is allocated as its bytes arrive, at most [`limits::CHUNK_BYTES`] ahead of them.
//!
//! # Invariants
//! * Nothing that a peer sends panics, or makes this crate allocate more than the limits above.
//! * `Dispatcher::on_message` is never called after the connection was closed, and never from inside `send`.
//! * Messages go out in the order of `send`, and are dispatched in the order they came in.

mod auth;
mod budget;
pub mod cephx;
mod config;
mod connection;
mod dial;
mod encode;
mod error;
mod gate;
mod handshake;
pub mod limits;
mod message;
mod places;
mod reader;
mod serve;
mod session;
mod signal;
mod throttle;
mod watch;

pub use auth::{Check, Guard, Identity, Proof, Verdict};
pub use budget::{Budget, FREE_BYTES, MORE_BYTES, More, OUTPUT_BYTES};
pub use config::{AssignId, Claim, ClientConfig, GlobalIds, Limits, ServerConfig, Shares, Target};
pub use connection::{Connection, ConnectionStats, Peer, Traffic, traffic};
pub use dial::connect;
pub use error::ConnectError;
pub use gate::Gate;
pub use message::{Dispatcher, Message, Parts};
pub use serve::serve;
pub use throttle::{Permit, PermitToken};
pub use watch::with_timeout;
