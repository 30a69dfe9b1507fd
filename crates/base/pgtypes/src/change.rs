//! [`ObjectChange`]: what is done to one object, step by step.

use std::sync::Arc;

use carmine_codec::{DecodeError, Decoder, Encoder, Result};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Eversion, ObjectId, UTime};
use smallvec::SmallVec;

use crate::meta::decode_bytes;
use crate::object;
use crate::txn::DataReader;

/// The change of one object: steps that take effect in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// The object.
    pub oid: Arc<ObjectId>,
    /// The steps, in order.
    pub steps: SmallVec<[Step; 2]>,
}

/// One step of a change. A new kind is added here, with its code in [`Step::encode`] and [`Step::decode`], and where each
/// store applies steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates the object, if it does not exist.
    Touch,
    /// Writes bytes; creates and extends the object as needed. A gap before `off` reads as zeros.
    Write {
        /// Offset in bytes.
        off: u64,
        /// The bytes, which are not part of the encoding. Checksums that they carry are trusted.
        data: Payload,
    },
    /// Zeroes bytes. Never changes the size: a part beyond the end is ignored, and a missing object is not created.
    Zero {
        /// Offset in bytes.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Sets the size; creates the object as needed. New bytes are zeros.
    Truncate {
        /// The new size in bytes.
        size: u64,
    },
    /// Removes the object with its xattrs and omap, if it exists.
    Remove,
    /// Replaces the object by a copy of another one of its PG, as that is at this point of the transaction: bytes, size,
    /// versions, time, xattrs and omap. Bytes lost in the source are lost in the copy. If the source does not exist, the object
    /// does not exist afterwards.
    CloneFrom {
        /// The source; if it is the object itself, nothing happens.
        from: Arc<ObjectId>,
    },
    /// Marks blocks as lost, because the source of this copy had lost them: reading these bytes is an error until the blocks are
    /// overwritten whole. A part beyond the end of the object is ignored. Only `blue` supports this.
    MarkLost {
        /// Offset in bytes.
        off: u64,
        /// Length in bytes.
        len: u64,
        /// CRC32C (seed -1) of the block, which must then be a single one. It identifies the content if an OSD still has it.
        /// Zero: unknown.
        crc: u32,
    },
    /// Sets versions and time; creates the object as needed.
    SetMeta {
        /// PG version of this modification.
        version: Eversion,
        /// Version that clients see.
        user_version: u64,
        /// Time of the modification.
        mtime: UTime,
    },
    /// Sets an xattr; creates the object as needed.
    SetXattr {
        /// Its name.
        name: Box<[u8]>,
        /// Its value.
        value: Bytes,
    },
    /// Removes an xattr, if it is there.
    RemoveXattr {
        /// Its name.
        name: Box<[u8]>,
    },
    /// Removes the xattrs whose names begin with `prefix`.
    ClearXattrs {
        /// The prefix of the names; empty: all xattrs.
        prefix: Box<[u8]>,
    },
    /// Sets omap keys; creates the object as needed.
    SetOmap {
        /// Keys and values, in any order; the last value of a repeated key counts.
        entries: Vec<(Box<[u8]>, Bytes)>,
    },
    /// Sets the omap header; creates the object as needed.
    SetOmapHeader {
        /// The header.
        header: Bytes,
    },
    /// Removes omap keys, where they exist.
    RemoveOmap {
        /// Keys, in any order.
        keys: Vec<Box<[u8]>>,
    },
    /// Removes the omap keys from `from` (inclusive) to `to` (exclusive).
    RemoveOmapRange {
        /// The first key.
        from: Box<[u8]>,
        /// The first key that stays.
        to: Box<[u8]>,
    },
    /// Removes all omap keys and the header.
    ClearOmap,
}

impl ObjectChange {
    /// A change of `oid`.
    pub fn new(oid: impl Into<Arc<ObjectId>>, steps: impl IntoIterator<Item = Step>) -> ObjectChange {
        ObjectChange { oid: oid.into(), steps: steps.into_iter().collect() }
    }

    /// The object, and the sources of its steps.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        std::iter::once(&*self.oid).chain(self.steps.iter().filter_map(Step::source))
    }

    /// Bytes of data that its steps write.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.steps.iter().map(Step::data_bytes).sum()
    }

    /// See [`Transaction::bytes_max`](crate::Transaction::bytes_max).
    pub(crate) fn bytes_max(&self) -> u64 {
        STEP_BYTES + name_bytes(&self.oid) + self.steps.iter().map(Step::bytes_max).sum::<u64>()
    }
}

/// What a step counts for besides its data, keys and values, so that many short steps account for their memory. An encoded step,
/// or object name in one, needs less than this.
pub const STEP_BYTES: u64 = 640;
/// The same for a key of the omap.
pub const KEY_BYTES: u64 = 64;

fn name_bytes(oid: &ObjectId) -> u64 {
    (oid.nspace.len() + oid.key.len() + oid.name.len()) as u64
}

/// Bytes of the shortest encoding of a step.
pub(crate) const STEP_BYTES_MIN: usize = 1;

impl Step {
    /// Bytes of data that the step writes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        match self {
            Step::Write { data, .. } => data.len() as u64,
            _ => 0,
        }
    }

    /// Most bytes of the step and its data in a message, and roughly in memory: [`STEP_BYTES`], [`KEY_BYTES`] for each omap key,
    /// and all strings.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        let keys = |keys: &[&[u8]]| keys.iter().map(|key| KEY_BYTES + key.len() as u64).sum::<u64>();
        STEP_BYTES
            + match self {
                Step::Write { data, .. } => data.len() as u64,
                Step::SetXattr { name, value } => (name.len() + value.len()) as u64,
                Step::RemoveXattr { name: text } | Step::ClearXattrs { prefix: text } => text.len() as u64,
                Step::SetOmap { entries } => {
                    let pair = |(key, value): &(Box<[u8]>, Bytes)| keys(&[key]) + value.len() as u64;
                    entries.iter().map(pair).sum()
                }
                Step::SetOmapHeader { header } => header.len() as u64,
                Step::RemoveOmap { keys: all } => all.iter().map(|key| keys(&[key])).sum(),
                Step::RemoveOmapRange { from, to } => keys(&[from, to]),
                Step::CloneFrom { from } => name_bytes(from),
                Step::Touch
                | Step::Zero { .. }
                | Step::Truncate { .. }
                | Step::Remove
                | Step::MarkLost { .. }
                | Step::SetMeta { .. }
                | Step::ClearOmap => 0,
            }
    }

    /// Whether the object exists after the step, even if it did not before. (After [`Step::CloneFrom`] it exists if the source
    /// does.)
    #[must_use]
    pub fn creates(&self) -> bool {
        match self {
            Step::Touch
            | Step::Write { .. }
            | Step::Truncate { .. }
            | Step::SetMeta { .. }
            | Step::SetXattr { .. }
            | Step::SetOmap { .. }
            | Step::SetOmapHeader { .. } => true,
            Step::Zero { .. }
            | Step::Remove
            | Step::CloneFrom { .. }
            | Step::MarkLost { .. }
            | Step::RemoveXattr { .. }
            | Step::ClearXattrs { .. }
            | Step::RemoveOmap { .. }
            | Step::RemoveOmapRange { .. }
            | Step::ClearOmap => false,
        }
    }

    /// The object that the step copies.
    #[must_use]
    pub fn source(&self) -> Option<&ObjectId> {
        match self {
            Step::CloneFrom { from } => Some(from),
            _ => None,
        }
    }

    /// Size of the object after the step, if the step sets or raises it; saturating.
    #[must_use]
    pub fn end(&self) -> u64 {
        match self {
            Step::Write { off, data, .. } if !data.is_empty() => off.saturating_add(data.len() as u64),
            Step::Truncate { size } => *size,
            _ => 0,
        }
    }

    /// Bytes that the step adds to the omap of its object.
    #[must_use]
    pub fn omap_bytes(&self) -> u64 {
        match self {
            Step::SetOmap { entries } => {
                entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
            }
            Step::SetOmapHeader { header } => header.len() as u64,
            _ => 0,
        }
    }

    pub(crate) fn encode(&self, e: &mut Encoder<'_>) {
        match self {
            Step::Touch => e.u8(1),
            Step::Write { off, data, .. } => {
                e.u8(2);
                e.u64(*off);
                e.u64(data.len() as u64);
            }
            Step::Zero { off, len } => {
                e.u8(3);
                e.u64(*off);
                e.u64(*len);
            }
            Step::Truncate { size } => {
                e.u8(4);
                e.u64(*size);
            }
            Step::Remove => e.u8(5),
            Step::MarkLost { off, len, crc } => {
                e.u8(if *crc == 0 { 6 } else { 17 });
                e.u64(*off);
                e.u64(*len);
                if *crc != 0 {
                    e.u32(*crc);
                }
            }
            Step::SetMeta { version, user_version, mtime } => {
                e.u8(7);
                e.eversion(*version);
                e.u64(*user_version);
                e.utime(*mtime);
            }
            Step::SetXattr { name, value } => {
                e.u8(8);
                e.blob(name);
                e.blob(value);
            }
            Step::RemoveXattr { name } => {
                e.u8(9);
                e.blob(name);
            }
            Step::SetOmap { entries } => {
                e.u8(10);
                e.vec(entries, |e, (key, value)| {
                    e.blob(key);
                    e.blob(value);
                });
            }
            Step::SetOmapHeader { header } => {
                e.u8(11);
                e.blob(header);
            }
            Step::RemoveOmap { keys } => {
                e.u8(12);
                e.vec(keys, |e, key| e.blob(key));
            }
            Step::RemoveOmapRange { from, to } => {
                e.u8(13);
                e.blob(from);
                e.blob(to);
            }
            Step::ClearOmap => e.u8(14),
            Step::ClearXattrs { prefix } => {
                e.u8(15);
                e.blob(prefix);
            }
            Step::CloneFrom { from } => {
                e.u8(16);
                object::put(from, e);
            }
        }
    }

    pub(crate) fn decode(d: &mut Decoder<'_>, data: &mut DataReader<'_>) -> Result<Step> {
        Ok(match d.u8()? {
            1 => Step::Touch,
            2 => {
                let off = d.u64()?;
                Step::Write { off, data: data.next_bytes(off, d.u64()?)? }
            }
            3 => Step::Zero { off: d.u64()?, len: d.u64()? },
            4 => Step::Truncate { size: d.u64()? },
            5 => Step::Remove,
            6 => Step::MarkLost { off: d.u64()?, len: d.u64()?, crc: 0 },
            7 => Step::SetMeta { version: d.eversion()?, user_version: d.u64()?, mtime: d.utime()? },
            8 => Step::SetXattr { name: d.blob()?.into(), value: decode_bytes(d)? },
            9 => Step::RemoveXattr { name: d.blob()?.into() },
            10 => Step::SetOmap { entries: d.map(8, |d| Ok(d.blob()?.into()), decode_bytes)? },
            11 => Step::SetOmapHeader { header: decode_bytes(d)? },
            12 => Step::RemoveOmap { keys: d.vec(4, |d| Ok(d.blob()?.into()))? },
            13 => Step::RemoveOmapRange { from: d.blob()?.into(), to: d.blob()?.into() },
            14 => Step::ClearOmap,
            15 => Step::ClearXattrs { prefix: d.blob()?.into() },
            16 => Step::CloneFrom { from: object::get(d)? },
            17 => Step::MarkLost { off: d.u64()?, len: d.u64()?, crc: d.u32()? },
            value => return Err(DecodeError::BadValue { what: "step of a change", value: value.into() }),
        })
    }
}
