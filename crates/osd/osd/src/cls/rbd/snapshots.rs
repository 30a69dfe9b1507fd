//! Methods of an image's header about its snapshots.

use carmine_types::errno;
use carmine_wire::Encoder;

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, read, write};
use super::header::{feature, require};
use super::records::{Namespace, Operations, Parent, Snap, kind, operation};
use super::{NO_SNAP, done, number, text, u64_bytes};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    write("snapshot_add", add),
    write("snapshot_remove", remove),
    write("snapshot_rename", rename),
    write("snapshot_trash_add", trash_add),
    read("snapshot_get", get),
    read("get_snapshot_name", |h, input| Ok(text(&one(h, input)?.name))),
    read("get_snapshot_timestamp", |h, input| {
        one(h, input).map(|snap| Encoder::collect(|e| e.utime(snap.time)))
    }),
    read("get_snapcontext", context),
    read("snapshot_get_limit", |h, _| Ok(u64_bytes(number(h, "snap_limit")?.unwrap_or(u64::MAX)))),
    write("snapshot_set_limit", set_limit),
    read("get_protection_status", protection),
    write("set_protection_status", protect),
];

/// Values of [`Snap::protection`]: an unprotected snapshot may be removed, a protected one may have clones.
pub(super) mod protection {
    pub(super) const NONE: u8 = 0;
    /// The largest value.
    pub(super) const PROTECTED: u8 = 2;
}

fn one(h: &mut Handle<'_, '_>, input: &[u8]) -> Result<Snap, OpError> {
    let id = decode(input, |d| d.u64())?;
    Snap::load_one(h, id)
}

/// ESTALE: there is a newer one, so the client has lost a race. EEXIST: the name is taken. EDQUOT: the limit is reached.
fn add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (name, id, namespace) = decode(input, |d| {
        let (name, id) = (d.blob()?.to_vec(), d.u64()?);
        Ok((name, id, if d.is_empty() { Namespace::default() } else { d.get()? }))
    })?;
    refuse_if(namespace.kind > kind::MIRROR, errno::EINVAL)?;
    let newest = number(h, "snap_seq")?.ok_or(OpError::new(errno::ENOENT))?;
    refuse_if(id < newest, errno::ESTALE)?;
    let size = number(h, "size")?.ok_or(OpError::new(errno::ENOENT))?;
    let flags = number(h, "flags")?.unwrap_or(0);
    let limit = number(h, "snap_limit")?.unwrap_or(u64::MAX);
    let all = Snap::all(h)?;
    let is_same = |old: &Snap| old.id == id || (old.name == name && old.namespace == namespace);
    refuse_if(all.iter().any(is_same), errno::EEXIST)?;
    refuse_if(all.len() as u64 >= limit, errno::EDQUOT)?;
    let parent_overlap = Parent::load(h)?.and_then(|parent| parent.head_overlap);
    let time = h.now();
    let snap = Snap {
        id,
        name,
        size,
        protection: protection::NONE,
        flags,
        namespace,
        time,
        children: 0,
        parent_overlap,
    };
    snap.store(h);
    h.set_omap(b"snap_seq", u64_bytes(id));
    done()
}

/// EBUSY: it is protected, or has clones.
fn remove(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.u64())?;
    let snap = Snap::load(h, id)?;
    refuse_if(snap.protection != protection::NONE || snap.children > 0, errno::EBUSY)?;
    let others = Snap::all(h)?;
    let others = others.iter().filter(|other| other.id != id);
    let (parent, operations) = (Parent::load(h)?, Operations::load(h)?);
    let (mut has_trash, mut has_parent) = (false, false);
    others.for_each(|other| {
        has_trash |= other.namespace.kind == kind::TRASH;
        has_parent |= other.parent_overlap.is_some();
    });
    snap.remove(h);
    // The image has nothing of its parent any more.
    if parent.is_some_and(|parent| parent.head_overlap.is_none()) && !has_parent {
        Parent::remove(h);
    }
    if !has_trash {
        operations.set(h, 0, operation::SNAP_TRASH);
    }
    done()
}

fn rename(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, name) = decode(input, |d| Ok((d.u64()?, d.blob()?.to_vec())))?;
    let is_same = |old: &Snap| old.name == name && old.namespace.kind == kind::USER;
    refuse_if(Snap::all(h)?.iter().any(is_same), errno::EEXIST)?;
    let mut snap = Snap::load(h, id)?;
    snap.name = name;
    snap.store(h);
    done()
}

/// A snapshot that has clones is kept without its name until they are gone.
fn trash_add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.u64())?;
    let mut snap = Snap::load(h, id)?;
    refuse_if(snap.protection != protection::NONE, errno::EBUSY)?;
    refuse_if(snap.namespace.kind == kind::TRASH, errno::EEXIST)?;
    let operations = Operations::load(h)?;
    snap.namespace = Namespace::trash(&snap.name, snap.namespace.kind);
    snap.name = h.new_uuid().to_string().into_bytes();
    operations.set(h, operation::SNAP_TRASH, operation::SNAP_TRASH);
    snap.store(h);
    done()
}

/// cls::rbd::SnapshotInfo.
fn get(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let snap = one(h, input)?;
    Ok(Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            e.u64(snap.id);
            e.put(&snap.namespace);
            e.blob(&snap.name);
            e.u64(snap.size);
            e.utime(snap.time);
            e.u32(snap.children);
        });
    }))
}

/// The newest id given out, and all snapshots, newest first.
fn context(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let newest = number(h, "snap_seq")?.ok_or(OpError::new(errno::ENOENT))?;
    let all = Snap::all(h)?;
    Ok(Encoder::collect(|e| {
        e.u64(newest);
        e.vec(all.iter().rev(), |e, snap| e.u64(snap.id));
    }))
}

fn set_limit(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let limit = decode(input, |d| d.u64())?;
    // The largest value means no limit.
    if limit == u64::MAX {
        h.must_exist()?;
        h.remove_omap(b"snap_limit");
        return done();
    }
    refuse_if((Snap::all(h)?.len() as u64) > limit, errno::ERANGE)?;
    h.set_omap(b"snap_limit", u64_bytes(limit));
    done()
}

fn protection(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.u64())?;
    let snap = Snap::load_one(h, id)?;
    refuse_if(snap.protection > protection::PROTECTED, errno::EIO)?;
    Ok(vec![snap.protection])
}

fn protect(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, status) = decode(input, |d| Ok((d.u64()?, d.u8()?)))?;
    require(h, feature::LAYERING)?;
    refuse_if(status > protection::PROTECTED || id == NO_SNAP, errno::EINVAL)?;
    let mut snap = Snap::load(h, id)?;
    snap.protection = status;
    snap.store(h);
    done()
}
