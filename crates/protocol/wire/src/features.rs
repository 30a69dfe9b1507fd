//! Feature bits. What both sides have decides which encodings may be sent (ceph-protocol.md §1.7), so the
//! whole mask of Ceph 16 is announced: one bit less selects another layout of some message.

/// What Ceph 16.2.15 announces, and so do we.
pub const FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

/// What a client must have: addresses of the modern form (bit 59).
pub const REQUIRED: u64 = 1 << 59;

/// The part that selects map encodings; stored in incremental maps.
pub const SIGNIFICANT: u64 = 0x0f00_0880_1021_2a04;

/// The only feature of msgr2 itself: revision 1, i.e. msgr v2.1.
pub const MSGR2_REVISION_1: u64 = 1;
