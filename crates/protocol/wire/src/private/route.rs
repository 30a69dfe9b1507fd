//! Which reactor of an OSD owns which PG, so that a client can send each operation straight to it.

use carmine_types::{Epoch, PgId};

use crate::{Decoder, Encoder, Front, Result, kinds};
use carmine_codec::basic::size;

/// Client → OSD: "how are your PGs dealt to reactors?" The reply has the same tid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The client's map; the OSD answers for this epoch or a newer one.
    pub epoch: Epoch,
}

impl Front for Route {
    const KIND: u16 = kinds::ROUTE;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.epoch.0);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<Route> {
        Ok(Route { epoch: Epoch(d.u32()?) })
    }
}

/// OSD → client. A PG that is not listed may be sent anywhere: the OSD forwards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReply {
    /// Map that the answer is for.
    pub epoch: Epoch,
    /// TCP port on which each reactor listens for its own clients; the address is the OSD's.
    pub reactors: Vec<u16>,
    /// Each PG of this OSD, and the reactor (index into `reactors`) that owns it.
    pub pgs: Vec<(PgId, u16)>,
}

impl Front for RouteReply {
    const KIND: u16 = kinds::ROUTE_REPLY;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.epoch.0);
        e.vec(&self.reactors, |e, port| e.u16(*port));
        e.vec(&self.pgs, |e, (pg, reactor)| {
            e.pg(*pg);
            e.u16(*reactor);
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<RouteReply> {
        let epoch = Epoch(d.u32()?);
        let reactors = d.vec(2, |d| d.u16())?;
        let pgs = d.map(size::PG + 2, |d| d.pg(), |d| d.u16())?;
        Ok(RouteReply { epoch, reactors, pgs })
    }
}
