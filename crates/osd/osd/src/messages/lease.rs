//! Read leases.

use super::{Decoder, Encoder, Epoch, Front, Head, OsdId, Result, VERSION, coded};

coded! {
    /// A promise that is in force, as a replica tells a later primary of it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Promise {
        /// The primary that has it.
        pub holder: OsdId,
        /// That primary's interval.
        pub interval: Epoch,
        /// Milliseconds until it is over.
        pub left_ms: u32,
    }
}

message! { 0x8045,
    /// Primary to replica: promise to help no other primary for a while.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgLease {
        pub head: Head,
        /// By the primary's clock: it counts from here.
        pub sent_ns: u64,
        /// For so long.
        pub length_ms: u32,
    }
}

message! { 0x8046,
    /// Replica to primary: promised. With the fields of the question.
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
