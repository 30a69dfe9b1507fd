//! The named limits of this crate, with their arithmetic.

use std::time::Duration;

/// Size of a fresh connection's receive buffer: enough for the handshake and for a peer that sends small messages.
pub const RECV_BUF_FIRST_BYTES: usize = 16 << 10;

/// Size to which the receive buffer grows once a receive fills it: some 60 writes of 4 KiB in one completion.
pub const RECV_BUF_BYTES: usize = 256 << 10;

/// Largest piece of memory allocated ahead of the bytes of a large segment; also the largest chunk of a received payload.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Longest control frame accepted. The largest real one, an ident with a few addresses, has about 300 bytes.
pub const CONTROL_BYTES_MAX: usize = 8 << 10;

/// Most bytes that are kept of a peer until it has proved who it is; real ones say a tenth of that.
pub const TRANSCRIPT_BYTES_MAX: usize = 16 << 10;

/// Longest banner tolerated (26 bytes is what everybody sends; a later protocol may add to it).
pub const BANNER_BYTES_MAX: usize = 512;

/// Data segments up to this length are copied into the outgoing byte run; longer ones travel as their own chunk. One
/// more chunk costs the kernel about as much as copying this many bytes.
pub const INLINE_DATA_BYTES: usize = 1 << 10;

/// Chunks in one vectored send; the rest waits for the next one. The kernel accepts at most 1,024 (`IOV_MAX`).
pub const CHUNKS_PER_SEND: usize = 512;

/// Messages of one receive dispatched in one turn of the reactor.
pub const DISPATCH_BATCH: u32 = 64;

/// Handshake frames a peer may send before the session is established: AUTH_REQUEST tries, SESSION_RECONNECT tries.
pub const HANDSHAKE_TRIES: u32 = 8;

/// Default of [`crate::ServerConfig::gate`]: some 100 MiB for silent connections.
pub const CONNECTIONS_MAX: usize = 4096;

/// Least time between two log lines that peers cause: refused connections, failed handshakes, …
pub const NOTICE_PERIOD: Duration = Duration::from_secs(10);

/// Default of [`crate::Limits::patience`]. A handshake needs a few round trips; a client with a request sends it at once.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A connection whose peer was silent for this many times [`PATIENCE`] may be closed even while it waits for an answer, or leaves
/// answers unread: its client will retry.
pub const PATIENCE_WHILE_BUSY: u32 = 60;

/// One search for idle connections frees this part of all places, so that a flood of connections does not cause a search for
/// each.
pub const GIVE_WAY_PART: usize = 64;

/// Time a peer has from the TCP connection to the end of the handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection on which nothing was received for this long is closed. Clients close theirs after 900 s; ours is longer, so that
/// the client, which owns the session, closes first.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(1800);

/// Default of [`crate::Limits::held_bytes`].
pub const HELD_BYTES: usize = 64 << 20;

/// Default of [`crate::Limits::held_messages`]: twice the 1,024 operations that a Ceph client keeps in flight.
pub const HELD_MESSAGES: usize = 2048;

/// Default of [`crate::Limits::queue_soft_bytes`].
pub const QUEUE_SOFT_BYTES: usize = 16 << 20;

/// Default of [`crate::Limits::queue_hard_bytes`].
pub const QUEUE_HARD_BYTES: usize = 1 << 30;

const _: () = assert!(RECV_BUF_FIRST_BYTES >= CONTROL_BYTES_MAX + 64);
const _: () = assert!(RECV_BUF_BYTES <= CHUNK_BYTES);
const _: () = assert!(QUEUE_SOFT_BYTES < QUEUE_HARD_BYTES);
