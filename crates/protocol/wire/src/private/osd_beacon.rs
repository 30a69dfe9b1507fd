//! An OSD tells the monitor how full it is, and what its pools hold.

use carmine_types::{Epoch, OsdId, PgId};

use crate::{Decoder, Encoder, Front, Result, kinds};

/// Bytes of one [`PoolUse`].
const POOL_USE_BYTES: usize = 24;
/// Fewest bytes of one [`PgStuck`].
const PG_STUCK_BYTES_MIN: usize = 26;
/// No OSD.
const NOBODY: u32 = u32::MAX;

/// What the PGs of one pool hold for which this OSD is the primary: summed over all OSDs, each object counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    pub pool: i64,
    pub objects: u64,
    /// Sum of the objects' sizes; not their replicas'.
    pub bytes: u64,
}

/// A PG that this OSD leads and that does not serve clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgStuck {
    pub pg: PgId,
    /// `peering`, `down`, `incomplete`, …
    pub state: String,
    /// The reporting OSD's own copy is complete.
    pub is_complete: bool,
    /// A member that has to lead instead, because its copy is complete and this primary's is not, or because it has no
    /// room for what only this primary has, which no client was told of.
    pub successor: Option<OsdId>,
}

impl PgStuck {
    fn encode(&self, e: &mut Encoder<'_>) {
        e.pg(self.pg);
        e.str(&self.state);
        e.bool(self.is_complete);
        e.u32(self.successor.map_or(NOBODY, |osd| osd.0));
    }

    fn decode(d: &mut Decoder<'_>) -> Result<PgStuck> {
        let (pg, state, is_complete) = (d.pg()?, d.string()?, d.bool()?);
        let successor = Some(OsdId(d.u32()?)).filter(|osd| osd.0 != NOBODY);
        Ok(PgStuck { pg, state, is_complete, successor })
    }
}

/// OSD → monitor, every few seconds. There is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdBeacon {
    pub osd: OsdId,
    /// The map that all its reactors have: what is said of PGs is so in that epoch's intervals, or in later ones.
    pub epoch: Epoch,
    /// Size of its store.
    pub total_bytes: u64,
    /// Taken, metadata included where it is known.
    pub used_bytes: u64,
    /// Ascending by pool; empty if it is not known.
    pub pools: Vec<PoolUse>,
    /// The PGs that it leads and that are not active.
    pub stuck: Vec<PgStuck>,
}

impl Front for OsdBeacon {
    const KIND: u16 = kinds::OSD_BEACON;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 3;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.osd.0);
        e.u32(self.epoch.0);
        e.u64(self.total_bytes);
        e.u64(self.used_bytes);
        e.vec(&self.pools, |e, p| {
            e.i64(p.pool);
            e.u64(p.objects);
            e.u64(p.bytes);
        });
        e.vec(&self.stuck, |e, stuck| stuck.encode(e));
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<OsdBeacon> {
        let (osd, epoch) = (OsdId(d.u32()?), Epoch(d.u32()?));
        let (total_bytes, used_bytes) = (d.u64()?, d.u64()?);
        let pools =
            d.vec(POOL_USE_BYTES, |d| Ok(PoolUse { pool: d.i64()?, objects: d.u64()?, bytes: d.u64()? }))?;
        let stuck = d.vec(PG_STUCK_BYTES_MIN, PgStuck::decode)?;
        Ok(OsdBeacon { osd, epoch, total_bytes, used_bytes, pools, stuck })
    }
}
