//! MOSDOpReply, version 8.

use carmine_types::{Epoch, Eversion, PgId};
use smallvec::SmallVec;

use super::{OP_BYTES, OpList, OsdOp, OsdRequest, flags};
use crate::header::{Header2, check_header};
use crate::{DecodeError, Decoder, Encoder, Result, kinds};
use carmine_codec::basic::size;

const VERSION: u16 = 8;
const COMPAT: u16 = 2;

/// Front without name and operations, each of which takes [`OP_BYTES`] and 4 for its result.
const FRONT_BYTES: usize = 102;

/// An OSD's answer to one [`OsdRequest`]. The name is borrowed in both directions: neither decoding nor
/// encoding allocates (up to two operations).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdReply<'a> {
    /// Object name, as in the request.
    pub name: &'a [u8],
    pub pg: PgId,
    /// The request's flags, with ACK and ONDISK for writes.
    pub flags: u32,
    /// 0 or a negative errno; PG listings use 1 for the end of the PG.
    pub result: i32,
    /// (user version, epoch).
    pub bad_replay: Eversion,
    /// The OSD's map.
    pub epoch: Epoch,
    /// As in the request, but `payload_len` is the length of the output; a read's extent has the length
    /// that was really read.
    pub ops: OpList,
    /// Must be the request's, else the client drops the reply without a word.
    pub retry_attempt: i32,
    /// Result of each operation.
    pub rvals: SmallVec<[i32; 2]>,
    /// Version of the PG log entry of a write; zero for reads.
    pub replay_version: Eversion,
    /// The object's version as the user sees it.
    pub user_version: u64,
}

impl<'a> OsdReply<'a> {
    /// The reply to `request` about the object `name` with this result: its operations with no output and
    /// result 0. The versions are zero.
    #[inline(always)] // otherwise the long reply is copied once more
    pub fn to(request: &OsdRequest, name: &'a [u8], epoch: Epoch, result: i32) -> OsdReply<'a> {
        let done = if request.flags & flags::WRITE != 0 { flags::ACK | flags::ONDISK } else { flags::ACK };
        let mut ops = OpList::from_slice(&request.ops);
        ops.iter_mut().for_each(|op| op.payload_len = 0);
        OsdReply {
            name,
            pg: request.pg,
            flags: request.flags | done,
            result,
            bad_replay: Eversion::ZERO,
            epoch,
            ops,
            retry_attempt: request.retry_attempt,
            rvals: SmallVec::from_elem(0, request.ops.len()),
            replay_version: Eversion::ZERO,
            user_version: 0,
        }
    }

    /// The message header to send it with; `tid` is the request's.
    pub const fn header(tid: u64) -> Header2 {
        Header2::new(kinds::OSD_OP_REPLY, VERSION, COMPAT).with_tid(tid)
    }

    /// Decodes a message's front. Every byte must be used.
    pub fn decode(header: &Header2, front: &'a [u8]) -> Result<OsdReply<'a>> {
        check_header(header, kinds::OSD_OP_REPLY, VERSION, VERSION)?;
        let mut d = Decoder::new(front, kinds::name(kinds::OSD_OP_REPLY));
        let reply = OsdReply::decode_fields(&mut d)?;
        if header.version == VERSION {
            d.finish()?;
        }
        Ok(reply)
    }

    fn decode_fields(d: &mut Decoder<'a>) -> Result<OsdReply<'a>> {
        let name = d.blob()?;
        // Flags are 64 bits here, but no flag above 32 bits exists.
        let (pg, flags, result) = (d.pg()?, d.i64()? as u32, d.i32()?);
        let (bad_replay, epoch) = (d.eversion()?, Epoch(d.u32()?));
        let count = d.count(OP_BYTES + 4)?;
        let ops = OsdOp::decode_list(d, count)?;
        let retry_attempt = d.i32()?;
        let mut rvals = SmallVec::with_capacity(count);
        for _ in 0..count {
            rvals.push(d.i32()?);
        }
        let (replay_version, user_version) = (d.eversion()?, d.u64()?);
        if d.bool()? {
            // Only cache tiers redirect.
            return Err(DecodeError::BadValue { what: "redirect", value: 1 });
        }
        d.array::<{ size::TRACE }>()?;
        Ok(OsdReply {
            name,
            pg,
            flags,
            result,
            bad_replay,
            epoch,
            ops,
            retry_attempt,
            rvals,
            replay_version,
            user_version,
        })
    }

    /// Appends the front. Missing `rvals` are written as 0.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(FRONT_BYTES + self.name.len() + (OP_BYTES + 4) * self.ops.len());
        let mut e = Encoder::new(out);
        e.blob(self.name);
        e.bytes(&self.behind_name());
        self.ops.iter().for_each(|op| op.encode(&mut e));
        e.i32(self.retry_attempt);
        let rvals = self.rvals.iter().copied().chain(std::iter::repeat(0));
        rvals.take(self.ops.len()).for_each(|rval| e.i32(rval));
        e.bytes(&self.end());
    }

    /// The fields between the name and the operations: they always lie at the same places.
    fn behind_name(&self) -> [u8; BEHIND_NAME_BYTES] {
        let mut bytes = [0; BEHIND_NAME_BYTES];
        bytes[0] = 1; // version of the pg
        bytes[1..9].copy_from_slice(&self.pg.pool.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.pg.ps.to_le_bytes());
        bytes[13..17].copy_from_slice(&(-1_i32).to_le_bytes()); // was "preferred"
        bytes[17..21].copy_from_slice(&self.flags.to_le_bytes()); // a u64
        bytes[25..29].copy_from_slice(&self.result.to_le_bytes());
        bytes[29..41].copy_from_slice(&eversion(self.bad_replay));
        bytes[41..45].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[45..49].copy_from_slice(&(self.ops.len() as u32).to_le_bytes());
        bytes
    }

    /// The fields behind the results; no redirect, and no trace.
    fn end(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[0..12].copy_from_slice(&eversion(self.replay_version));
        bytes[12..20].copy_from_slice(&self.user_version.to_le_bytes());
        bytes
    }
}

const BEHIND_NAME_BYTES: usize = size::PG + 8 + 4 + size::EVERSION + 4 + 4;
const END_BYTES: usize = size::EVERSION + 8 + 1 + size::TRACE;

fn eversion(version: Eversion) -> [u8; size::EVERSION] {
    let mut bytes = [0; size::EVERSION];
    bytes[0..8].copy_from_slice(&version.version.to_le_bytes());
    bytes[8..12].copy_from_slice(&version.epoch.to_le_bytes());
    bytes
}
