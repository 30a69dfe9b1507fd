//! Flags of a request ([`super::OsdRequest::flags`]) and of a single operation ([`super::OsdOp::flags`]).

/// Reply only: applied. In requests: wanted.
pub const ACK: u32 = 1;
/// Durable (reply), or durability wanted (request).
pub const ONDISK: u32 = 4;
/// Sent before.
pub const RETRY: u32 = 8;
pub const READ: u32 = 0x10;
pub const WRITE: u32 = 0x20;
/// A write with an older snapshot context than the object has seen fails (EOLDSNAPC).
pub const ORDER_SNAP: u32 = 0x40;
/// A read that any OSD of the acting set may answer.
pub const BALANCE_READS: u32 = 0x100;
/// A read that the OSD nearest to the client may answer.
pub const LOCALIZE_READS: u32 = 0x2000;
/// Never implemented in Ceph, which refuses it.
pub const PARALLEL_EXEC: u32 = 0x200;
/// The client's snapshot context counts, also where the pool has one.
pub const ENFORCE_SNAPC: u32 = 0x10_0000;
pub const IGNORE_OVERLAY: u32 = 0x2_0000;
/// Set by all clients of today.
pub const KNOWN_IF_REDIRECTED: u32 = 0x40_0000;
pub const FULL_TRY: u32 = 0x80_0000;
pub const FULL_FORCE: u32 = 0x100_0000;
/// Reads inside a write request return their data.
pub const RETURN_VEC: u32 = 0x400_0000;

/// The flags that librados sends with reads, writes and PG listings.
pub const CLIENT_READ: u32 = READ | ONDISK | KNOWN_IF_REDIRECTED;
pub const CLIENT_WRITE: u32 = WRITE | ONDISK | KNOWN_IF_REDIRECTED;
pub const CLIENT_PG_LIST: u32 = READ | ONDISK | IGNORE_OVERLAY | KNOWN_IF_REDIRECTED;

/// Flags of a single operation.
pub mod op {
    /// CREATE fails if the object exists.
    pub const EXCL: u32 = 1;
    /// A failure of this operation does not end the request.
    pub const FAILOK: u32 = 2;
}

/// Values of [`super::Watch::op`].
pub mod watch {
    pub const UNWATCH: u8 = 0;
    /// Watch, in the words of old clients.
    pub const LEGACY_WATCH: u8 = 1;
    pub const WATCH: u8 = 3;
    /// The same watch over a new connection.
    pub const RECONNECT: u8 = 5;
    pub const PING: u8 = 7;
}

/// Values of [`super::Xattr::cmp_op`] and of the comparisons of omap values: how the given value relates to the stored one.
pub mod compare {
    pub const EQ: u8 = 1;
    pub const NE: u8 = 2;
    pub const GT: u8 = 3;
    pub const GTE: u8 = 4;
    pub const LT: u8 = 5;
    pub const LTE: u8 = 6;
    /// [`super::super::Xattr::cmp_mode`]: byte strings, or numbers.
    pub const MODE_STRING: u8 = 1;
    pub const MODE_U64: u8 = 2;
}

/// Values of [`super::Checksum::kind`].
pub mod checksum {
    pub const XXHASH32: u8 = 0;
    pub const XXHASH64: u8 = 1;
    pub const CRC32C: u8 = 2;
}
