//! How a client behaves.

use std::time::Duration;

carmine_types::words! {
    /// How operations travel to the reactor that owns their PG.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum RouteMode: "route" {
        /// One connection per OSD and reactor; each operation goes to the owner's. The OSD is asked for its layout with a
        /// private message: Carmine OSDs only.
        Direct = "direct",
        /// One connection per OSD, as stock clients have it. Works with any OSD.
        #[default]
        Single = "single",
    }
}

carmine_types::defaults! {
    /// Options of a [`crate::Client`].
    #[derive(Clone, Debug)]
    pub struct Options {
        /// See [`RouteMode`].
        pub route: RouteMode,
        /// Name after `client.`
        pub name: String = "admin".to_owned(),
        /// Time for [`crate::Client::connect`] to get its first map.
        pub connect_timeout: Duration = Duration::from_secs(30),
        /// Limit of every operation that sets none of its own; `None`: as long as it takes, as in Ceph.
        pub op_timeout: Option<Duration>,
        /// Operations in flight; more wait in order. At most [`OPS_IN_FLIGHT_MAX`].
        pub ops_in_flight: usize = OPS_IN_FLIGHT,
        /// Bytes in flight: data of writes, and lengths asked for by reads.
        pub bytes_in_flight: usize = BYTES_IN_FLIGHT,
    }
}

/// The default of librados.
pub const OPS_IN_FLIGHT: usize = 1024;
/// The default of librados.
pub const BYTES_IN_FLIGHT: usize = 100 << 20;
/// Bound of [`Options::ops_in_flight`]: a transaction id has 16 bits for the operation's slot.
pub const OPS_IN_FLIGHT_MAX: usize = 1 << 16;

impl Options {
    /// The defaults with this route.
    pub fn route(route: RouteMode) -> Options {
        Options { route, ..Options::default() }
    }
}
