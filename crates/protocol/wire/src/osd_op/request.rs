//! MOSDOp: versions 8 and 9 are decoded, 8 is written.

use carmine_codec::basic::{NO_SHARD, size};
use carmine_types::{Epoch, ObjectId, PgId, ReqId, SNAP_HEAD, UTime};

use super::{OP_BYTES, OpList, OsdOp};
use crate::header::{Header2, check_header, priority};
use crate::{DecodeError, Decoder, Encoder, FEATURES, Result, kinds};

/// The version that adds a trace context behind `trace`; sent by some non-Ceph clients.
pub(super) const VERSION_OTEL: u16 = 9;
const VERSION: u16 = 8;
const COMPAT: u16 = 3;

/// The first seven bytes: the envelope of the spg (version 1, compat 1, 18 bytes) and the version of the pg in it.
pub(super) const PROLOGUE: [u8; 7] = [1, 1, 18, 0, 0, 0, 1];
/// Bytes up to and with the trace: all requests have the same fields there.
const FIXED_BYTES: usize = 87;
/// Where among them the request's id lies, and its envelope.
const REQID_AT: usize = size::SPG + 12;
const REQID_PROLOGUE: [u8; 6] = [2, 2, 21, 0, 0, 0];

/// Front of one request with one name, one operation, no namespace and no snaps, less the name.
const FRONT_BYTES: usize = 209;

/// A client's request: operations on one object, executed in order.
///
/// Decoding allocates for the object's name, and for namespace, key, snaps and more than two operations if
/// there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdRequest {
    /// Already folded to the pool's pg_num of `epoch`.
    pub pg: PgId,
    /// -1 in replicated pools.
    pub shard: i8,
    /// The object's full placement hash.
    pub hash: u32,
    /// Map that the client used.
    pub epoch: Epoch,
    /// Bits of [`super::flags`].
    pub flags: u32,
    pub client_inc: i32,
    /// The client's clock.
    pub mtime: UTime,
    pub locator: Locator,
    /// Object name; empty in PG operations.
    pub name: Box<[u8]>,
    pub ops: OpList,
    /// Snapshot to read; [`SNAP_HEAD`] for none.
    pub snapid: u64,
    pub snap_seq: u64,
    /// Descending.
    pub snaps: Vec<u64>,
    /// 0 at first, one more with each resend; the reply must echo it.
    pub retry_attempt: i32,
    /// The client's feature bits.
    pub features: u64,
}

impl OsdRequest {
    /// A request for the head of an object, not yet sent before, with the given ops and flags.
    pub fn new(pg: PgId, epoch: Epoch, flags: u32, object: &ObjectId, ops: OpList) -> OsdRequest {
        let (key, nspace) = (object.key.clone(), object.nspace.clone());
        OsdRequest {
            pg,
            shard: NO_SHARD,
            hash: object.hash,
            epoch,
            flags,
            client_inc: 0,
            mtime: UTime::ZERO,
            locator: Locator { pool: pg.pool, key, nspace, hash: -1 },
            name: object.name.clone(),
            ops,
            snapid: SNAP_HEAD,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: 0,
            features: FEATURES,
        }
    }

    /// The message header to send it with.
    pub const fn header(tid: u64) -> Header2 {
        Header2::new(kinds::OSD_OP, VERSION, COMPAT).with_tid(tid).with_priority(priority::OSD_OP)
    }

    /// Takes the object's id out of the request (its name, namespace and key are left empty).
    pub fn take_object_id(&mut self) -> ObjectId {
        ObjectId {
            nspace: std::mem::take(&mut self.locator.nspace),
            key: std::mem::take(&mut self.locator.key),
            name: std::mem::take(&mut self.name),
            snap: self.snapid,
            ..ObjectId::cursor(self.pg.pool, self.hash)
        }
    }

    /// Decodes a message's front. Every byte must be used.
    #[inline(always)] // once for each operation: 18 instructions fewer
    pub fn decode(header: &Header2, front: &[u8]) -> Result<OsdRequest> {
        check_header(header, kinds::OSD_OP, VERSION, VERSION_OTEL)?;
        let mut d = Decoder::new(front, kinds::name(kinds::OSD_OP));
        let request = OsdRequest::decode_fields(header.version, &mut d)?;
        if header.version <= VERSION_OTEL {
            d.finish()?;
        }
        Ok(request)
    }

    /// Fields that lie side by side in every request are taken from the bytes together: one look at how many there are.
    #[inline]
    fn decode_fields(version: u16, d: &mut Decoder<'_>) -> Result<OsdRequest> {
        let fixed = d.array::<FIXED_BYTES>()?;
        // The request's id is (gid of the connection, client_inc, tid of the header); the field, as the trace, is all zero.
        if !fixed.starts_with(&PROLOGUE) || !fixed[REQID_AT..].starts_with(&REQID_PROLOGUE) {
            return Err(DecodeError::BadValue { what: "head of an operation", value: fixed[0].into() });
        }
        let mut head = Decoder::new(&fixed[PROLOGUE.len()..], "head of an operation");
        let pg = PgId { pool: head.i64()?, ps: head.u32()? };
        head.array::<4>()?; // was "preferred"
        let (shard, hash, epoch, flags) = (head.i8()?, head.u32()?, Epoch(head.u32()?), head.u32()?);
        if version >= VERSION_OTEL {
            d.envelope("trace context", 1)?;
        }
        let bytes = d.array::<12>()?;
        let mut times = Decoder::new(&bytes, "time");
        let (client_inc, mtime) = (times.i32()?, times.utime()?);
        let locator = Locator::decode(d)?;
        let name = d.blob()?.into();
        let count = d.u16()?.into();
        let ops = OsdOp::decode_list(d, count)?;
        let bytes = d.array::<16>()?;
        let mut ids = Decoder::new(&bytes, "snaps");
        let (snapid, snap_seq) = (ids.u64()?, ids.u64()?);
        let snaps = d.vec(8, |d| d.u64())?;
        let bytes = d.array::<12>()?;
        let mut end = Decoder::new(&bytes, "end of an operation");
        let (retry_attempt, features) = (end.i32()?, end.u64()?);
        Ok(OsdRequest {
            pg,
            shard,
            hash,
            epoch,
            flags,
            client_inc,
            mtime,
            locator,
            name,
            ops,
            snapid,
            snap_seq,
            snaps,
            retry_attempt,
            features,
        })
    }

    /// Appends the front, in version 8.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let strings = self.name.len() + self.locator.nspace.len() + self.locator.key.len();
        out.reserve(FRONT_BYTES + strings + OP_BYTES * self.ops.len() + 8 * self.snaps.len());
        let mut e = Encoder::new(out);
        e.spg(self.pg, self.shard);
        e.u32(self.hash);
        e.u32(self.epoch.0);
        e.u32(self.flags);
        e.reqid(0, ReqId::default());
        e.zeros(size::TRACE);
        e.i32(self.client_inc);
        e.utime(self.mtime);
        self.locator.encode(&mut e);
        e.blob(&self.name);
        e.u16(self.ops.len() as u16);
        self.ops.iter().for_each(|op| op.encode(&mut e));
        e.u64(self.snapid);
        e.u64(self.snap_seq);
        e.vec(&self.snaps, |e, snap| e.u64(*snap));
        e.i32(self.retry_attempt);
        e.u64(self.features);
    }
}

// The place that a request names for its object.

/// object_locator_t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locator {
    pub pool: i64,
    /// Hashed in place of the name, if not empty.
    pub key: Box<[u8]>,
    pub nspace: Box<[u8]>,
    /// -1, or the placement seed of a PG operation.
    pub hash: i64,
}

impl Locator {
    /// The usual locator: by name, without a key.
    pub fn new(pool: i64, nspace: &[u8]) -> Locator {
        Locator { pool, key: [].into(), nspace: nspace.into(), hash: -1 }
    }

    #[inline]
    pub fn decode(d: &mut Decoder<'_>) -> Result<Locator> {
        let mut body = d.envelope("object_locator", 6)?;
        body.at_least(6)?;
        let d = &mut body.body;
        let [pool @ .., _, _, _, _] = d.array::<12>()?; // the last four were "preferred"
        let (key, nspace) = (d.blob()?, d.blob()?);
        Ok(Locator { pool: i64::from_le_bytes(pool), key: key.into(), nspace: nspace.into(), hash: d.i64()? })
    }

    #[inline]
    pub(super) fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(6, 3, |e| {
            e.i64(self.pool);
            e.i32(-1);
            e.blob(&self.key);
            e.blob(&self.nspace);
            e.i64(self.hash);
        });
    }
}
