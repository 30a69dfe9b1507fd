//! Maps on their way to clients, still encoded.

use carmine_types::{Epoch, Uuid};

use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MMonGetMap: "send the MonMap".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMap;

impl Front for GetMap {
    const KIND: u16 = kinds::MON_GET_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, _: &mut Encoder<'_>) {}

    fn decode(_: u16, _: &mut Decoder<'_>) -> Result<GetMap> {
        Ok(GetMap)
    }
}

/// MMonMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonMapMsg {
    /// An encoded MonMap.
    pub monmap: Vec<u8>,
}

impl Front for MonMapMsg {
    const KIND: u16 = kinds::MON_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.blob(&self.monmap);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<MonMapMsg> {
        Ok(MonMapMsg { monmap: d.blob()?.to_vec() })
    }
}

/// MOSDMap v4: from a monitor, or from an OSD to a client with an old map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdMapMsg {
    pub fsid: Uuid,
    /// Encoded incrementals, ascending: each makes its epoch out of the one before.
    pub incrementals: Vec<(Epoch, Vec<u8>)>,
    /// Encoded full maps, ascending.
    pub full: Vec<(Epoch, Vec<u8>)>,
    /// Oldest epoch that the sender keeps.
    pub oldest: Epoch,
    pub newest: Epoch,
    /// Snaps removed in the gap, by pool: (start, length) pairs. Empty from us.
    pub gap_removed_snaps: Vec<(i64, Vec<(u64, u64)>)>,
}

impl OsdMapMsg {
    /// One full map: what any client understands, whatever its epoch.
    pub fn full(fsid: Uuid, epoch: Epoch, map: Vec<u8>) -> OsdMapMsg {
        OsdMapMsg {
            fsid,
            incrementals: Vec::new(),
            full: vec![(epoch, map)],
            oldest: epoch,
            newest: epoch,
            gap_removed_snaps: Vec::new(),
        }
    }
}

impl Front for OsdMapMsg {
    const KIND: u16 = kinds::OSD_MAP;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    const OLDEST: u16 = 3;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.uuid(self.fsid);
        for maps in [&self.incrementals, &self.full] {
            e.vec(maps, |e, (epoch, map)| {
                e.u32(epoch.0);
                e.blob(map);
            });
        }
        e.u32(self.oldest.0);
        e.u32(self.newest.0);
        e.vec(&self.gap_removed_snaps, |e, (pool, snaps)| {
            e.i64(*pool);
            e.vec(snaps, |e, (start, length)| {
                e.u64(*start);
                e.u64(*length);
            });
        });
    }

    fn decode(version: u16, d: &mut Decoder<'_>) -> Result<OsdMapMsg> {
        let fsid = d.uuid()?;
        let incrementals = decode_maps(d)?;
        let full = decode_maps(d)?;
        let (oldest, newest) = (Epoch(d.u32()?), Epoch(d.u32()?));
        let gap_removed_snaps = match version {
            4.. => d.map(12, |d| d.i64(), |d| d.map(16, |d| d.u64(), |d| d.u64()))?,
            _ => Vec::new(),
        };
        Ok(OsdMapMsg { fsid, incrementals, full, oldest, newest, gap_removed_snaps })
    }
}

fn decode_maps(d: &mut Decoder<'_>) -> Result<Vec<(Epoch, Vec<u8>)>> {
    d.map(8, |d| Ok(Epoch(d.u32()?)), |d| Ok(d.blob()?.to_vec()))
}
