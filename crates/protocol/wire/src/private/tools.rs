//! Questions to a process: where its PGs are, and anything else, in JSON.

use carmine_types::{Epoch, PgId};

use super::VERSION;
use crate::header::messages;

messages! {
    /// Client → OSD: "how are your PGs dealt to reactors?" The reply has the same tid.
    pub struct Route: ROUTE, VERSION, compat VERSION {
        /// The client's map; the OSD answers for this epoch or a newer one.
        pub epoch: Epoch,
    }

    /// OSD → client. A PG that is not listed may be sent anywhere: the OSD forwards it.
    pub struct RouteReply: ROUTE_REPLY, VERSION, compat VERSION {
        /// Map that the answer is for.
        pub epoch: Epoch,
        /// TCP port on which each reactor listens for its own clients; the address is the OSD's.
        pub reactors: Vec<u16>,
        /// Each PG of this OSD, and the reactor (index into `reactors`) that owns it.
        pub pgs: Vec<(PgId, u16)>,
    }

    /// Tool → process: status, counters, start of an in-process load.
    pub struct Admin: ADMIN, VERSION, compat VERSION {
        /// One JSON object.
        pub json: Vec<u8>,
    }

    /// The answer, with the tid of the question.
    pub struct AdminReply: ADMIN_REPLY, VERSION, compat VERSION {
        /// 0 or a negative errno.
        pub result: i32,
        /// One JSON object.
        pub json: Vec<u8>,
    }
}
