//! Replication of single writes.

use carmine_types::Eversion;
use smallvec::SmallVec;

use super::Head;
use super::entry::RepEntry;
use crate::header::Front;
use crate::{DecodeError, Decoder, Encoder, Result};

/// A step of a write's transaction, on the object of its log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepTxn {
    /// The object exists from now on.
    Touch,
    /// `len` bytes, the next ones of the data segment, go to `off`.
    Write {
        off: u64,
        len: u64,
    },
    Zero {
        off: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    Remove,
    /// `len` bytes, the next ones of the data segment, go to `off` of the object that keeps the attributes.
    AttrsWrite {
        off: u64,
        len: u64,
    },
    /// That object goes.
    AttrsRemove,
}

/// Encoded size of a [`RepTxn`]: code, offset, length.
const TXN_BYTES: usize = 17;

impl RepTxn {
    fn encode(self, e: &mut Encoder<'_>) {
        let (code, off, len) = match self {
            RepTxn::Touch => (1, 0, 0),
            RepTxn::Write { off, len } => (2, off, len),
            RepTxn::Zero { off, len } => (3, off, len),
            RepTxn::Truncate { size } => (4, size, 0),
            RepTxn::Remove => (5, 0, 0),
            RepTxn::AttrsWrite { off, len } => (6, off, len),
            RepTxn::AttrsRemove => (7, 0, 0),
        };
        e.u8(code);
        e.u64(off);
        e.u64(len);
    }

    fn decode(d: &mut Decoder<'_>) -> Result<RepTxn> {
        let (code, off, len) = (d.u8()?, d.u64()?, d.u64()?);
        Ok(match code {
            1 => RepTxn::Touch,
            2 => RepTxn::Write { off, len },
            3 => RepTxn::Zero { off, len },
            4 => RepTxn::Truncate { size: off },
            5 => RepTxn::Remove,
            6 => RepTxn::AttrsWrite { off, len },
            7 => RepTxn::AttrsRemove,
            value => return Err(DecodeError::BadValue { what: "transaction step", value: value.into() }),
        })
    }
}

/// Primary to replica: apply this entry, the next one of the PG's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepOp {
    pub head: Head,
    pub entry: RepEntry,
    /// Log entries up to and with this version may go; zero: keep all.
    pub trim_to: Eversion,
    pub txn: SmallVec<[RepTxn; 2]>,
}

impl Front for RepOp {
    const KIND: u16 = 0x8001;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.eversion(self.trim_to);
        self.entry.encode(e);
        e.vec(&self.txn, |e, step| step.encode(e));
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<RepOp> {
        let head = Head::decode(d)?;
        let trim_to = d.eversion()?;
        let entry = RepEntry::decode(d, head.pg.pool)?;
        let mut txn = SmallVec::new();
        for _ in 0..d.count(TXN_BYTES)? {
            txn.push(RepTxn::decode(d)?);
        }
        Ok(RepOp { head, entry, trim_to, txn })
    }
}

/// Replica to primary: every entry up to and with `version` is durable here. With a negative `result` nothing was
/// applied, and `version` is the last entry that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepAck {
    pub head: Head,
    pub version: Eversion,
    pub result: i32,
}

impl Front for RepAck {
    const KIND: u16 = 0x8002;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.eversion(self.version);
        e.i32(self.result);
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<RepAck> {
        Ok(RepAck { head: Head::decode(d)?, version: d.eversion()?, result: d.i32()? })
    }
}
