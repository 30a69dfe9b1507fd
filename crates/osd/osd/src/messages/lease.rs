//! Read leases.

use super::{Decoder, Encoder, Epoch, Front, Head, OsdId, Result, VERSION, coded};

coded! {
    /// A promise in force, as a replica reports it to a later primary.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Promise {
        /// The primary that holds it.
        pub holder: OsdId,
        /// That primary's interval.
        pub interval: Epoch,
        /// Milliseconds until it ends.
        pub left_ms: u32,
    }
}

message! { 0x8045,
    /// Primary to replica: promise to help no other primary for a while.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgLease {
        pub head: Head,
        /// When it was sent, by the primary's clock: the lease counts from here.
        pub sent_ns: u64,
        /// Length of the lease, milliseconds.
        pub length_ms: u32,
    }
}

message! { 0x8046,
    /// Replica to primary: promised. The fields are those of [`PgLease`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgLeaseAck {
        pub head: Head,
        pub sent_ns: u64,
        pub length_ms: u32,
    }
}

message! { 0x8047,
    /// A primary to an OSD that led before and is no member now: have you left the intervals before the map of `head.epoch`?
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgRelease {
        pub head: Head,
    }
}
