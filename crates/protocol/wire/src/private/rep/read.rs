//! Bytes of an object from another copy, for a block that cannot be read here.

use carmine_types::ObjectId;

use super::Head;
use super::entry::{decode_object, object};
use crate::header::Front;
use crate::{Decoder, Encoder, Result};

/// One member of the acting set to another: give me `len` bytes at `off` of your copy of this object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgRead {
    pub head: Head,
    pub off: u64,
    /// At most 1 MiB.
    pub len: u32,
    pub oid: ObjectId,
}

impl Front for PgRead {
    const KIND: u16 = 0x8009;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.u64(self.off);
        e.u32(self.len);
        object(e, &self.oid);
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgRead> {
        let head = Head::decode(d)?;
        let (off, len) = (d.u64()?, d.u32()?);
        Ok(PgRead { head, off, len, oid: decode_object(d, head.pg.pool)? })
    }
}

/// The answer; the bytes are in the data segment, less what lies behind the end of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgData {
    pub head: Head,
    /// 0, or an errno: then there are no bytes.
    pub result: i32,
}

impl Front for PgData {
    const KIND: u16 = 0x800a;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.i32(self.result);
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgData> {
        Ok(PgData { head: Head::decode(d)?, result: d.i32()? })
    }
}
