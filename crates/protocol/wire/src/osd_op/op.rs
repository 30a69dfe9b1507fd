//! One operation of a request.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use super::args::{ARG_BYTES, Arg};
use super::{AllocHint, AssertVer, Call, Extent, Notify, PgLs, Snap, Watch, WriteSame, Xattr, flags, ops};
use crate::{DecodeError, Decoder, Encoder, Result};

/// Encoded length of an operation.
pub const OP_BYTES: usize = 38;

/// The operations of a request or reply. Two fit without allocation: a hint and a write.
pub type OpList = SmallVec<[OsdOp; 2]>;

/// osd_op_t, without its payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OsdOp {
    /// One of [`ops`].
    pub code: u16,
    /// Bits of [`flags::op`], and hints how the data will be used.
    pub flags: u32,
    /// Arguments; which they are depends on the code. See the accessors ([`OsdOp::extent`] and so on).
    pub arg: [u8; ARG_BYTES],
    /// Bytes of this operation in the data segment: input in a request, output in a reply.
    pub payload_len: u32,
}

impl OsdOp {
    fn new(code: u16, arg: impl Into<Arg>, payload_len: u32) -> OsdOp {
        OsdOp { code, flags: 0, arg: arg.into().0, payload_len }
    }

    fn without_args(code: u16) -> OsdOp {
        OsdOp { code, flags: 0, arg: [0; ARG_BYTES], payload_len: 0 }
    }

    fn range(code: u16, offset: u64, length: u64, payload_len: u32) -> OsdOp {
        OsdOp::new(code, Extent { offset, length, ..Extent::default() }, payload_len)
    }

    /// Reads `length` bytes, or up to the end if `length` is 0.
    pub fn read(offset: u64, length: u64) -> OsdOp {
        OsdOp::range(ops::READ, offset, length, 0)
    }

    pub fn sparse_read(offset: u64, length: u64) -> OsdOp {
        OsdOp::range(ops::SPARSE_READ, offset, length, 0)
    }

    /// The extents of a range that were written.
    pub fn mapext(offset: u64, length: u64) -> OsdOp {
        OsdOp::range(ops::MAPEXT, offset, length, 0)
    }

    pub fn stat() -> OsdOp {
        OsdOp::without_args(ops::STAT)
    }

    /// Writes the payload (`len` bytes) at `offset`; creates and extends the object.
    pub fn write(offset: u64, len: u32) -> OsdOp {
        OsdOp::range(ops::WRITE, offset, len.into(), len)
    }

    /// Replaces the object's data by the payload.
    pub fn write_full(len: u32) -> OsdOp {
        OsdOp::range(ops::WRITE_FULL, 0, len.into(), len)
    }

    pub fn append(len: u32) -> OsdOp {
        OsdOp::range(ops::APPEND, 0, len.into(), len)
    }

    /// Cuts or extends the object to `size` bytes.
    pub fn truncate(size: u64) -> OsdOp {
        OsdOp::range(ops::TRUNCATE, size, 0, 0)
    }

    pub fn zero(offset: u64, length: u64) -> OsdOp {
        OsdOp::range(ops::ZERO, offset, length, 0)
    }

    /// Creates the object; if `exclusive`, it must not exist.
    pub fn create(exclusive: bool) -> OsdOp {
        let flags = if exclusive { flags::op::EXCL } else { 0 };
        OsdOp { flags, ..OsdOp::without_args(ops::CREATE) }
    }

    pub fn delete() -> OsdOp {
        OsdOp::without_args(ops::DELETE)
    }

    /// ROLLBACK: the object becomes what it was at a snapshot.
    pub fn rollback(snapid: u64) -> OsdOp {
        OsdOp::new(ops::ROLLBACK, Snap { snapid }, 0)
    }

    /// Tells sizes to expect, in bytes. Creates the object.
    pub fn set_alloc_hint(object_size: u64, write_size: u64) -> OsdOp {
        OsdOp::new(ops::SET_ALLOC_HINT, AllocHint { object_size, write_size, flags: 0 }, 0)
    }

    /// Lists a PG from the cursor that is the payload (`cursor_len` bytes).
    pub fn pgnls(max_entries: u64, start_epoch: u32, cursor_len: u32) -> OsdOp {
        OsdOp::new(ops::PGNLS, PgLs { max_entries, start_epoch }, cursor_len)
    }

    /// An operation whose arguments are all in its payload: omap, class-less attributes and the like.
    pub fn with_payload(code: u16, payload_len: u32) -> OsdOp {
        OsdOp { payload_len, ..OsdOp::without_args(code) }
    }

    /// GET_XATTR, SET_XATTR, RM_XATTR: the payload is the name, then the value.
    pub fn xattr_op(code: u16, name_len: u32, value_len: u32) -> OsdOp {
        OsdOp::new(code, Xattr { name_len, value_len, ..Xattr::default() }, name_len + value_len)
    }

    /// Fails unless the given value and the stored one compare so ([`flags::compare`]); the payload is name and value.
    pub fn cmp_xattr(name_len: u32, value_len: u32, cmp_op: u8, cmp_mode: u8) -> OsdOp {
        let arg = Xattr { name_len, value_len, cmp_op, cmp_mode };
        OsdOp::new(ops::CMP_XATTR, arg, name_len + value_len)
    }

    /// Calls a method; the payload is the class' name, the method's name and the input.
    pub fn call_method(class_len: u8, method_len: u8, input_len: u32) -> OsdOp {
        let arg = Call { class_len, method_len, argc: 0, input_len };
        OsdOp::new(ops::CALL, arg, u32::from(class_len) + u32::from(method_len) + input_len)
    }

    /// WATCH with one of [`flags::watch`]; `timeout` in seconds, 0 for the OSD's own.
    pub fn watch_op(op: u8, cookie: u64, timeout: u32) -> OsdOp {
        OsdOp::new(ops::WATCH, Watch { cookie, op, timeout, ..Watch::default() }, 0)
    }

    /// Notifies the object's watchers; the payload says what.
    pub fn notify_op(cookie: u64, payload_len: u32) -> OsdOp {
        OsdOp::new(ops::NOTIFY, Notify { cookie }, payload_len)
    }

    /// Writes the payload (`data_length` bytes) over and over, `length` bytes in all.
    pub fn write_same_op(offset: u64, length: u64, data_length: u32) -> OsdOp {
        let arg = WriteSame { offset, length, data_length: data_length.into() };
        OsdOp::new(ops::WRITE_SAME, arg, data_length)
    }

    /// Fails unless the object has this version.
    pub fn assert_version(ver: u64) -> OsdOp {
        OsdOp::new(ops::ASSERT_VER, AssertVer { unused: 0, ver }, 0)
    }

    /// The same operation with another range.
    #[inline]
    pub fn with_extent(mut self, extent: Extent) -> OsdOp {
        self.arg = Arg::from(extent).0;
        self
    }

    /// Whether its code has the write bit. CALL has not: what its method does tells; and WATCH has, also for a ping.
    #[inline]
    pub fn is_write(&self) -> bool {
        self.code & ops::MODE_WRITE != 0
    }

    #[inline]
    pub fn is_pg_op(&self) -> bool {
        self.code & ops::TYPE_MASK == ops::TYPE_PG
    }

    #[inline]
    pub(super) fn decode(d: &mut Decoder<'_>) -> Result<OsdOp> {
        let bytes: [u8; OP_BYTES] = d.array()?;
        let mut d = Decoder::new(&bytes, "op");
        Ok(OsdOp { code: d.u16()?, flags: d.u32()?, arg: d.array()?, payload_len: d.u32()? })
    }

    /// Decodes `count` operations. They are all there before memory is taken for them.
    #[inline]
    pub(super) fn decode_list(d: &mut Decoder<'_>, count: usize) -> Result<OpList> {
        let bytes = d.bytes(count.saturating_mul(OP_BYTES))?;
        let mut all = Decoder::new(bytes, "ops");
        let mut list = OpList::with_capacity(count);
        for _ in 0..count {
            list.push(OsdOp::decode(&mut all)?);
        }
        Ok(list)
    }

    #[inline]
    pub(super) fn encode(&self, e: &mut Encoder<'_>) {
        let mut bytes = [0; OP_BYTES];
        bytes[0..2].copy_from_slice(&self.code.to_le_bytes());
        bytes[2..6].copy_from_slice(&self.flags.to_le_bytes());
        bytes[6..34].copy_from_slice(&self.arg);
        bytes[34..38].copy_from_slice(&self.payload_len.to_le_bytes());
        e.bytes(&bytes);
    }
}

/// Bytes of the payloads of all operations.
pub fn payload_bytes(ops: &[OsdOp]) -> u64 {
    ops.iter().map(|op| u64::from(op.payload_len)).sum()
}

/// Where in a data segment of `data_len` bytes the payload of each operation lies. Fails unless they take all of it.
pub fn payload_ranges(ops: &[OsdOp], data_len: usize) -> Result<SmallVec<[Range<usize>; 2]>> {
    let need = payload_bytes(ops);
    let what = "payloads of ops";
    match need.cmp(&(data_len as u64)) {
        Ordering::Greater => return Err(DecodeError::Truncated { what, need, left: data_len }),
        Ordering::Less => return Err(DecodeError::Trailing { what, left: data_len - need as usize }),
        Ordering::Equal => {}
    }
    let mut end = 0;
    let range = |op: &OsdOp| {
        let start = end;
        end += op.payload_len as usize;
        start..end
    };
    Ok(ops.iter().map(range).collect())
}

impl fmt::Debug for OsdOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ops::name(self.code))?;
        match self.code {
            ops::STAT | ops::CREATE | ops::DELETE => (),
            ops::SET_ALLOC_HINT => write!(f, " {:?}", self.alloc_hint())?,
            ops::PGNLS => write!(f, " {:?}", self.pgls())?,
            ops::WATCH => write!(f, " {:?}", self.watch())?,
            code if code & ops::TYPE_MASK == ops::TYPE_DATA => {
                let Extent { offset, length, .. } = self.extent();
                write!(f, " {offset}~{length}")?;
            }
            code => write!(f, " code={code:#x} arg={:02x?}", self.arg)?,
        }
        if self.flags != 0 {
            write!(f, " flags={:#x}", self.flags)?;
        }
        if self.payload_len != 0 {
            write!(f, " payload={}", self.payload_len)?;
        }
        Ok(())
    }
}
