//! Changes of a pool by a client: creation, deletion, snapshots.

use carmine_types::{Epoch, Uuid};

use super::paxos;
use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MPoolOp v4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOp {
    /// Map version that the client knows.
    pub version: u64,
    pub fsid: Uuid,
    /// 0 for [`PoolOp::CREATE`].
    pub pool: u32,
    /// One of the constants of this type.
    pub op: u32,
    pub snapid: u64,
    /// Of the pool or the snapshot.
    pub name: String,
    pub crush_rule: i16,
}

/// Values of [`PoolOp::op`].
impl PoolOp {
    pub const CREATE: u32 = 0x01;
    pub const DELETE: u32 = 0x02;
    pub const AUID_CHANGE: u32 = 0x03;
    pub const CREATE_SNAP: u32 = 0x11;
    pub const DELETE_SNAP: u32 = 0x12;
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

impl Front for PoolOp {
    const KIND: u16 = kinds::POOL_OP;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.uuid(self.fsid);
        e.u32(self.pool);
        e.u32(self.op);
        e.u64(0); // was an owner
        e.u64(self.snapid);
        e.str(&self.name);
        e.u8(0); // was an 8-bit rule
        e.i16(self.crush_rule);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<PoolOp> {
        let (version, fsid, pool, op) = (paxos::get(d)?, d.uuid()?, d.u32()?, d.u32()?);
        d.u64()?;
        let (snapid, name) = (d.u64()?, d.string()?);
        d.u8()?;
        Ok(PoolOp { version, fsid, pool, op, snapid, name, crush_rule: d.i16()? })
    }
}

/// MPoolOpReply. The client waits for the map of its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOpReply {
    pub version: u64,
    pub fsid: Uuid,
    /// 0 or a negative errno.
    pub result: i32,
    /// First map with the change.
    pub epoch: Epoch,
    /// For [`PoolOp::CREATE_UNMANAGED_SNAP`]: the new snap id, a u64.
    pub data: Option<Vec<u8>>,
}

impl Front for PoolOpReply {
    const KIND: u16 = kinds::POOL_OP_REPLY;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.uuid(self.fsid);
        e.i32(self.result);
        e.u32(self.epoch.0);
        e.bool(self.data.is_some());
        if let Some(data) = &self.data {
            e.blob(data);
        }
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<PoolOpReply> {
        let (version, fsid) = (paxos::get(d)?, d.uuid()?);
        let (result, epoch) = (d.i32()?, Epoch(d.u32()?));
        let data = if d.bool()? { Some(d.blob()?.to_vec()) } else { None };
        Ok(PoolOpReply { version, fsid, result, epoch, data })
    }
}
