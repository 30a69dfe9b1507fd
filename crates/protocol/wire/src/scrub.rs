//! Scrub as Ceph's tools see it: the order to scrub (MOSDScrub2), and the operation SCRUBLS with what it tells of
//! inconsistent objects, which `rados list-inconsistent-obj` prints (PROTOCOL.md §6).

use carmine_codec::coded;
use carmine_types::{Epoch, ObjectId, OsdId, SpgId, Uuid};

use crate::header::messages;
use crate::{Decoder, Encoder, Result};

messages! {
    /// MOSDScrub2: "scrub these PGs, of which you are the primary".
    pub struct OsdScrub: OSD_SCRUB2, 1, compat 1 {
        pub fsid: Uuid,
        pub epoch: Epoch,
        pub pgs: Vec<SpgId>,
        /// Repair what is found.
        pub repair: bool,
        /// Read and compare the data, too.
        pub deep: bool,
    }
}

coded! {
    /// Input of SCRUBLS (scrub_ls_arg_t): which inconsistent objects are wanted.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScrubLsArg: versioned "scrub_ls_arg", 1, compat 1, oldest 1 {
        /// The interval of the answer before, or 0.
        pub interval: u32,
        /// Not objects but snapshot sets are asked for.
        pub snapsets: u32,
        /// The last object of the answer before; an empty name: from the first one on.
        pub name: Vec<u8>,
        pub nspace: Vec<u8>,
        pub snap: u64,
        /// Most objects in the answer.
        pub max: u64,
    }
}

impl ScrubLsArg {
    pub fn decode(payload: &[u8]) -> Result<ScrubLsArg> {
        Decoder::all(payload, "scrub_ls_arg", |d| d.get())
    }

    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| e.put(self))
    }
}

/// Bits of [`InconsistentCopy::errors`] (librados' err_t), with the names by which `rados` prints them.
pub mod copy_errors {
    pub const MISSING: u64 = 1 << 1;
    /// Its metadata cannot be read, or has other versions or another time than the authoritative copy. (For the latter Ceph has
    /// errors by which `rados` looks for an object_info_t among the attributes: it ends if there is none.)
    pub const STAT_ERROR: u64 = 1 << 2;
    pub const READ_ERROR: u64 = 1 << 3;
    /// `data_digest_mismatch_info`: other data than the authoritative copy.
    pub const DATA_DIGEST: u64 = 1 << 9;
    /// `omap_digest_mismatch_info`.
    pub const OMAP_DIGEST: u64 = 1 << 10;
    /// `size_mismatch_info`.
    pub const SIZE: u64 = 1 << 11;
}

/// Bits of [`InconsistentObject::errors`] (librados' obj_err_t): how the copies differ from each other.
pub mod object_errors {
    pub const DATA_DIGEST_MISMATCH: u64 = 1 << 4;
    pub const OMAP_DIGEST_MISMATCH: u64 = 1 << 5;
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    pub const ATTR_VALUE_MISMATCH: u64 = 1 << 7;
    pub const ATTR_NAME_MISMATCH: u64 = 1 << 8;
}

/// One copy of an inconsistent object (shard_info_t).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InconsistentCopy {
    /// Bits of [`copy_errors`].
    pub errors: u64,
    pub primary: bool,
    /// Names and values, if it is they that differ. Those of clients begin with `_`.
    pub attrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub size: u64,
    /// Checksum of the omap, if it was compared.
    pub omap_digest: Option<u32>,
    /// Checksum of the data, if it was compared.
    pub data_digest: Option<u32>,
}

/// An object whose copies are not equal (inconsistent_obj_t).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InconsistentObject {
    pub oid: ObjectId,
    /// Version of the authoritative copy, as clients see it.
    pub version: u64,
    /// Bits of [`object_errors`].
    pub errors: u64,
    pub copies: Vec<(OsdId, InconsistentCopy)>,
}

/// Bits of [`InconsistentSnapset::errors`] (inconsistent_snapset_t), with the names by which `rados` prints them.
pub mod snapset_errors {
    pub const SNAPSET_CORRUPTED: u64 = 1 << 1;
    pub const CLONE_MISSING: u64 = 1 << 2;
    /// `headless`: a clone of which no head tells.
    pub const HEADLESS: u64 = 1 << 5;
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// A clone as the SnapSet of its head tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownClone {
    pub id: u64,
    pub size: u64,
    /// Offsets and lengths that are equal to the next newer clone, or to the head.
    pub overlap: Vec<(u64, u64)>,
    /// Descending.
    pub snaps: Vec<u64>,
}

/// What a head tells of its clones, the oldest first (SnapSet).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownSnapset {
    pub seq: u64,
    pub clones: Vec<ShownClone>,
}

/// A head or a clone that contradict each other (inconsistent_snapset_t).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InconsistentSnapset {
    pub oid: ObjectId,
    /// Bits of [`snapset_errors`].
    pub errors: u64,
    /// Clones of which the head does not tell.
    pub extra: Vec<u64>,
    /// Clones of which it tells, and which there are not.
    pub missing: Vec<u64>,
    /// Of a head.
    pub snapset: Option<ShownSnapset>,
}

/// Output of SCRUBLS (scrub_ls_result_t): objects or snapsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubLsReply {
    /// Epoch at which the interval of the scrub began.
    pub interval: u32,
    pub objects: Vec<InconsistentObject>,
    pub snapsets: Vec<InconsistentSnapset>,
}

impl ScrubLsReply {
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.envelope(1, 1, |e| {
                e.u32(self.interval);
                e.count(self.objects.len() + self.snapsets.len());
                self.objects.iter().for_each(|object| e.with_len(|e| object.encode(e)));
                self.snapsets.iter().for_each(|snapset| e.with_len(|e| snapset.encode(e)));
            });
        })
    }
}

/// object_id_t.
fn put_name(oid: &ObjectId, e: &mut Encoder<'_>) {
    e.envelope(1, 1, |e| {
        e.blob(&oid.name);
        e.blob(&oid.nspace);
        e.blob(&oid.key);
        e.u64(oid.snap);
    });
}

impl InconsistentSnapset {
    fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(2, 1, |e| {
            e.u64(self.errors);
            put_name(&self.oid, e);
            e.put(&self.extra);
            e.put(&self.missing);
            e.blob(&self.snapset.as_ref().map(ShownSnapset::encode).unwrap_or_default());
        });
    }
}

impl ShownSnapset {
    /// As a real OSD keeps it, for `rados` to print.
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.envelope(3, 2, |e| {
                e.u64(self.seq);
                e.bool(true); // the head exists
                e.u32(0); // snaps: those of each clone stand below
                e.vec(&self.clones, |e, clone| e.u64(clone.id));
                e.vec(&self.clones, |e, clone| {
                    e.u64(clone.id);
                    e.put(&clone.overlap);
                });
                e.vec(&self.clones, |e, clone| {
                    e.u64(clone.id);
                    e.u64(clone.size);
                });
                e.vec(&self.clones, |e, clone| {
                    e.u64(clone.id);
                    e.put(&clone.snaps);
                });
            });
        })
    }
}

impl InconsistentObject {
    fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(2, 2, |e| {
            e.u64(self.errors);
            put_name(&self.oid, e);
            e.u64(self.version);
            e.vec(&self.copies, |e, (osd, copy)| {
                e.envelope(1, 1, |e| {
                    e.osd(*osd);
                    e.i8(self.oid.shard);
                });
                copy.encode(e);
            });
            e.u64(self.copies.iter().fold(0, |errors, (_, copy)| errors | copy.errors));
        });
    }
}

impl InconsistentCopy {
    fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(3, 3, |e| {
            e.u64(self.errors);
            e.bool(self.primary);
            if self.errors & copy_errors::MISSING != 0 {
                return;
            }
            e.put(&self.attrs);
            e.u64(self.size);
            for digest in [self.omap_digest, self.data_digest] {
                e.bool(digest.is_some());
                e.u32(digest.unwrap_or_default());
            }
            e.bool(false); // its object_info_t is not shown
        });
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::PgId;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_bytes, round_trip};

    proptest! {
        #[test]
        fn both_ways(epoch: u32, pgs: Vec<(i64, u32)>, repair: bool, deep: bool, bytes: Vec<u8>) {
            let pgs = pgs.into_iter().map(|(pool, ps)| PgId::new(pool, ps).into()).collect();
            round_trip(OsdScrub { fsid: Uuid([7; 16]), epoch: Epoch(epoch), pgs, repair, deep });
            any_bytes::<OsdScrub>(&bytes);
            let arg = ScrubLsArg { interval: epoch, snapsets: 0, name: bytes.clone(), nspace: vec![1], snap: 5, max: 9 };
            prop_assert_eq!(ScrubLsArg::decode(&arg.encode()), Ok(arg));
            let _ = ScrubLsArg::decode(&bytes);
        }
    }

    /// Seq 5 and one clone, 4, of 100 bytes, which has 0~10 in common with the head and shows the snapshots 4 and 2.
    #[test]
    fn a_snapset_has_ceph_s_layout() {
        let clone = ShownClone { id: 4, size: 100, overlap: vec![(0, 10)], snaps: vec![4, 2] };
        let long = |n: u64| n.to_le_bytes();
        let short = |n: u32| n.to_le_bytes();
        let mut wanted = [&[3, 2][..], &short(109), &long(5), &[1], &short(0)].concat();
        wanted.extend([&short(1)[..], &long(4)].concat());
        wanted.extend([&short(1)[..], &long(4), &short(1), &long(0), &long(10)].concat());
        wanted.extend([&short(1)[..], &long(4), &long(100)].concat());
        wanted.extend([&short(1)[..], &long(4), &short(2), &long(4), &long(2)].concat());
        assert_eq!(ShownSnapset { seq: 5, clones: vec![clone] }.encode(), wanted);
    }

    /// Scrubbing PG 1.0 deeply, as a manager of Ceph 16 writes it.
    #[test]
    fn an_order_has_ceph_s_layout() {
        let order = OsdScrub {
            fsid: Uuid([1; 16]),
            epoch: Epoch(5),
            pgs: vec![PgId::new(1, 0).into()],
            repair: false,
            deep: true,
        };
        let mut wanted = vec![1; 16];
        wanted.extend([5, 0, 0, 0, 1, 0, 0, 0]);
        wanted.extend([1, 1, 18, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255]);
        wanted.extend([0, 1]);
        assert_eq!(crate::Front::to_front(&order), wanted);
    }
}
