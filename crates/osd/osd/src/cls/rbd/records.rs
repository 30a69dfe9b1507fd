//! The records of snapshots, parents and children in the omap of an image's header.

use carmine_codec::{Coded, coded};
use carmine_types::{UTime, errno};
use carmine_wire::{DecodeError, Decoder, Encoder};

use super::super::handle::{Handle, stored};
use super::{NO_SNAP, number, u64_bytes};
use crate::error::OpError;

/// Bits of the operations on an image: it has the feature `operations` as long as one is set.
pub(super) mod operation {
    /// Images were cloned from its snapshots, in the second format.
    pub(in super::super) const CLONE_PARENT: u64 = 1;
    /// It is a clone of that format.
    pub(in super::super) const CLONE_CHILD: u64 = 2;
    const GROUP: u64 = 4;
    /// A removed snapshot is kept for its clones.
    pub(in super::super) const SNAP_TRASH: u64 = 8;
    pub(in super::super) const ALL: u64 = CLONE_PARENT | CLONE_CHILD | GROUP | SNAP_TRASH;
}

/// Kinds of snapshots ([`Namespace::kind`]).
pub(super) mod kind {
    pub(in super::super) const USER: u32 = 0;
    pub(in super::super) const TRASH: u32 = 2;
    pub(in super::super) const MIRROR: u32 = 3;
}

/// cls::rbd::SnapshotNamespace: who a snapshot is for. The fields of each kind are kept undecoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) kind: u32,
    pub(super) rest: Vec<u8>,
}

impl Namespace {
    /// The namespace of a removed snapshot: its former name and kind.
    pub(super) fn trash(name: &[u8], kind: u32) -> Namespace {
        let rest = Encoder::collect(|e| {
            e.blob(name);
            e.u32(kind);
        });
        Namespace { kind: kind::TRASH, rest }
    }
}

impl Coded for Namespace {
    const BYTES_MIN: usize = 6 + 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.envelope(1, 1, |e| {
            e.u32(self.kind);
            e.bytes(&self.rest);
        });
    }

    fn get(d: &mut Decoder<'_>) -> Result<Namespace, DecodeError> {
        let mut body = d.envelope("snapshot namespace", 1)?.body;
        let kind = body.u32()?;
        Ok(Namespace { kind, rest: body.rest().to_vec() })
    }
}

coded! {
    /// cls_rbd_snap.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Snap: versioned "snapshot", 8, compat 8, oldest 8 {
        pub(super) id: u64,
        pub(super) name: Vec<u8>,
        /// Size of the image at that time.
        pub(super) size: u64,
        /// One of [`super::snapshots::PROTECTION`].
        pub(super) protection: u8,
        pub(super) flags: u64,
        pub(super) namespace: Namespace,
        pub(super) time: UTime,
        /// Clones in the second format.
        pub(super) children: u32,
        /// Its overlap with the image's parent.
        pub(super) parent_overlap: Option<u64>,
    }
}

const SNAPSHOT: &[u8] = b"snapshot_";

fn snap_key(id: u64) -> Vec<u8> {
    format!("snapshot_{id:016x}").into_bytes()
}

impl Snap {
    pub(super) fn find(h: &mut Handle<'_, '_>, id: u64) -> Result<Option<Snap>, OpError> {
        h.record(&snap_key(id))
    }

    /// ENOENT if there is none.
    pub(super) fn load(h: &mut Handle<'_, '_>, id: u64) -> Result<Snap, OpError> {
        Snap::find(h, id)?.ok_or(OpError::new(errno::ENOENT))
    }

    /// Loads a snapshot; EINVAL if the id means the image.
    pub(super) fn load_one(h: &mut Handle<'_, '_>, id: u64) -> Result<Snap, OpError> {
        if id == NO_SNAP { Err(OpError::new(errno::EINVAL)) } else { Snap::load(h, id) }
    }

    /// All snapshots of the image, by rising id.
    pub(super) fn all(h: &mut Handle<'_, '_>) -> Result<Vec<Snap>, OpError> {
        let all = h.omap_all(SNAPSHOT)?;
        all.iter().map(|(_, value)| stored(value, |d| d.get())).collect()
    }

    pub(super) fn store(&self, h: &mut Handle<'_, '_>) {
        h.set_omap(&snap_key(self.id), Encoder::collect(|e| e.put(self)));
    }

    pub(super) fn remove(&self, h: &mut Handle<'_, '_>) {
        h.remove_omap(&snap_key(self.id));
    }
}

coded! {
    /// cls_rbd_parent: the snapshot that an image is a clone of.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Parent: versioned "parent", 2, compat 2, oldest 2 {
        pub(super) pool: i64,
        pub(super) namespace: Vec<u8>,
        pub(super) image: Vec<u8>,
        pub(super) snap: u64,
        /// The image's own overlap; none if only its snapshots have one.
        pub(super) head_overlap: Option<u64>,
    }
}

const PARENT: &[u8] = b"parent";

impl Parent {
    pub(super) fn load(h: &mut Handle<'_, '_>) -> Result<Option<Parent>, OpError> {
        h.record(PARENT)
    }

    pub(super) fn store(&self, h: &mut Handle<'_, '_>) {
        h.set_omap(PARENT, Encoder::collect(|e| e.put(self)));
    }

    pub(super) fn remove(h: &mut Handle<'_, '_>) {
        h.remove_omap(PARENT);
    }

    /// Whether it names a snapshot.
    pub(super) fn exists(&self) -> bool {
        self.pool >= 0 && !self.image.is_empty() && self.snap != NO_SNAP
    }
}

coded! {
    /// cls::rbd::ParentImageSpec.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct ParentSpec: versioned "parent image", 1, compat 1, oldest 1 {
        pub(super) pool: i64,
        pub(super) namespace: Vec<u8>,
        pub(super) image: Vec<u8>,
        pub(super) snap: u64,
    }
}

coded! {
    /// cls::rbd::ChildImageSpec.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Child: versioned "child image", 2, compat 1, oldest 1 {
        pub(super) pool: i64,
        pub(super) image: Vec<u8>,
        pub(super) namespace: Vec<u8>; since 2,
    }
}

impl Child {
    /// The order in which they are stored.
    pub(super) fn rank(&self) -> (i64, &[u8], &[u8]) {
        (self.pool, &self.namespace, &self.image)
    }
}

/// The bits of the operations that an image has seen (`op_features`), and the feature that says that there are any.
pub(super) struct Operations {
    features: u64,
    bits: Option<u64>,
}

/// Feature of an image: clients have to look at its operations.
const FEATURE_OPERATIONS: u64 = 0x100;

impl Operations {
    pub(super) fn load(h: &mut Handle<'_, '_>) -> Result<Operations, OpError> {
        let features = number(h, "features")?.ok_or(OpError::new(errno::ENOENT))?;
        Ok(Operations { features, bits: number(h, "op_features")? })
    }

    pub(super) fn set(&self, h: &mut Handle<'_, '_>, bits: u64, mask: u64) {
        let old = self.bits.unwrap_or(0);
        let bits = old & !mask | bits & mask;
        let features = self.features & !FEATURE_OPERATIONS | if bits == 0 { 0 } else { FEATURE_OPERATIONS };
        if features != self.features {
            h.set_omap(b"features", u64_bytes(features));
        }
        if bits == 0 && self.bits.is_some() {
            h.remove_omap(b"op_features");
        } else if bits != old {
            h.set_omap(b"op_features", u64_bytes(bits));
        }
    }
}
