//! The messages of recovery: reservations, the comparison of a backfill, and copies that are no longer needed.

use carmine_codec::{Decoder, Encoder, Result, coded};
use carmine_pgtypes::{cursor, object};
use carmine_types::{Eversion, ObjectId, OsdId};
use carmine_wire::header::Front;
use carmine_wire::private::VERSION;

use super::Head;

coded! {
    /// An object of a copy.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct VersionOf {
        pub oid: ObjectId = object,
        /// The version of its last change; zero: it is not whole.
        pub version: Eversion,
    }
}

message! { 0x8040,
    /// Primary to replica: list the objects of your copy from this one on, as many as fit in one answer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgBackfillScan {
        pub head: Head,
        pub from: ObjectId = object,
    }
}

message! { 0x8041,
    /// Replica to primary: objects in order.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgBackfillDigest {
        pub head: Head,
        /// 0, or an errno: then all other fields are meaningless.
        pub result: i32,
        pub objects: Vec<VersionOf>,
        /// The next object after them; `None`: there are no more.
        pub next: Option<ObjectId> = cursor,
    }
}

message! { 0x8042,
    /// Primary to replica: your copy has the objects before `last_backfill` as of `complete_to`. Store that: an interrupted
    /// backfill resumes there. Refused with ENOSPC if the OSD is too full to continue.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgBackfillProgress {
        pub head: Head,
        pub complete_to: Eversion,
        pub last_backfill: ObjectId = object,
    }
}

carmine_types::words! {
    /// What a primary wants to reserve on a replica's OSD.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Reserve: "reservation" {
        /// Release the reservation.
        Release = "release",
        /// A slot for a recovery by the log.
        Recovery = "recovery",
        /// A slot for a backfill, which needs free space.
        Backfill = "backfill",
    }
}

message! { 0x8043,
    /// Primary to replica: reserve one of your OSD's recovery slots. Refused with EBUSY while none is free, with ENOSPC while the
    /// OSD is too full. The slot is also released at the end of the interval.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgReserve {
        pub head: Head,
        pub want: Reserve = reserve,
    }
}

/// A number of [`Reserve`].
mod reserve {
    use super::*;

    pub(super) const BYTES_MIN: usize = 1;

    pub(super) fn put(want: &Reserve, e: &mut Encoder<'_>) {
        e.u8(*want as u8);
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<Reserve> {
        let value = d.u8()?;
        Reserve::ALL
            .get(usize::from(value))
            .copied()
            .ok_or(carmine_codec::DecodeError::BadValue { what: "reservation", value: value.into() })
    }
}

message! { 0x8044,
    /// From an OSD outside the acting set to the primary: I have a copy. The answer is 0 if it may be removed, EAGAIN if it must
    /// stay for now.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgStray {
        pub head: Head,
        /// The OSD that asks.
        pub from: OsdId,
    }
}
