//! Methods about clones: of the clone's header, of its parent's, and of `rbd_children`, which has the clones of the first
//! format in one pool.

use std::collections::BTreeSet;

use carmine_types::errno;
use carmine_wire::Encoder;

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, read, write};
use super::header::{feature, require};
use super::records::{Child, Operations, Parent, ParentSpec, Snap, kind, operation};
use super::{NO_SNAP, done, number};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    read("parent_get", parent_get),
    read("parent_overlap_get", overlap_get),
    write("parent_attach", attach_spec),
    write("parent_detach", |h, _| detach(h, false)),
    read("get_parent", get_parent),
    write("set_parent", set_parent),
    write("remove_parent", |h, _| detach(h, true)),
    write("child_attach", child_attach),
    write("child_detach", child_detach),
    read("children_list", children_list),
    write("add_child", add_child),
    write("remove_child", remove_child),
    read("get_children", get_children),
];

/// The parent of an image that may have one.
fn parent_of(h: &mut Handle<'_, '_>) -> Result<Option<Parent>, OpError> {
    if may_have_parent(h)? { Parent::load(h) } else { Ok(None) }
}

fn may_have_parent(h: &mut Handle<'_, '_>) -> Result<bool, OpError> {
    Ok(number(h, "features")?.unwrap_or(0) & feature::LAYERING != 0)
}

fn parent_get(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let spec = match parent_of(h)? {
        Some(Parent { pool, namespace, image, snap, .. }) => ParentSpec { pool, namespace, image, snap },
        None => ParentSpec { pool: -1, namespace: Vec::new(), image: Vec::new(), snap: NO_SNAP },
    };
    Ok(Encoder::collect(|e| e.put(&spec)))
}

/// The overlap with the parent, of the image or of a snapshot. As in Ceph, an image that can have no parent need not have the
/// snapshot.
fn overlap_get(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let snap = decode(input, |d| d.u64())?;
    let overlap = if snap == NO_SNAP {
        parent_of(h)?.and_then(|parent| parent.head_overlap)
    } else if may_have_parent(h)? {
        Snap::load(h, snap)?.parent_overlap
    } else {
        None
    };
    Ok(Encoder::collect(|e| e.put(&overlap)))
}

/// The older form, which does not support namespaces (EXDEV) and requires the snapshot to exist.
fn get_parent(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.u64())?;
    let mut parent = parent_of(h)?;
    refuse_if(parent.as_ref().is_some_and(|parent| !parent.namespace.is_empty()), errno::EXDEV)?;
    let mut overlap = parent.as_ref().and_then(|parent| parent.head_overlap);
    if id != NO_SNAP {
        overlap = Snap::find(h, id)?.and_then(|snap| snap.parent_overlap);
        parent = parent.filter(|_| overlap.is_some());
    }
    Ok(Encoder::collect(|e| {
        e.i64(parent.as_ref().map_or(-1, |parent| parent.pool));
        e.blob(parent.as_ref().map_or(b"", |parent| &parent.image));
        e.u64(parent.as_ref().map_or(NO_SNAP, |parent| parent.snap));
        e.u64(overlap.unwrap_or(0));
    }))
}

fn attach_spec(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (spec, overlap, again) = decode(input, |d| Ok((d.get::<ParentSpec>()?, d.u64()?, d.bool()?)))?;
    let ParentSpec { pool, namespace, image, snap } = spec;
    attach(h, Parent { pool, namespace, image, snap, head_overlap: Some(overlap) }, again)
}

fn set_parent(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (pool, image, snap, overlap) =
        decode(input, |d| Ok((d.i64()?, d.blob()?.to_vec(), d.u64()?, d.u64()?)))?;
    attach(h, Parent { pool, namespace: Vec::new(), image, snap, head_overlap: Some(overlap) }, false)
}

/// EEXIST: it has a parent already. A parent that only snapshots still have may become the image's again.
fn attach(h: &mut Handle<'_, '_>, parent: Parent, again: bool) -> Done {
    require(h, feature::LAYERING)?;
    let size = number(h, "size")?.ok_or(OpError::new(errno::ENOENT))?;
    let wanted = parent.head_overlap.unwrap_or(0);
    refuse_if(!parent.exists() || wanted == 0, errno::EINVAL)?;
    if let Some(old) = Parent::load(h)? {
        let same = Parent { head_overlap: parent.head_overlap, ..old.clone() } == parent;
        refuse_if((old.head_overlap.is_some() || !same) && !again, errno::EEXIST)?;
    }
    Parent { head_overlap: Some(wanted.min(size)), ..parent }.store(h);
    done()
}

/// Detaches the image from its parent; with the feature deep-flatten its snapshots, too.
fn detach(h: &mut Handle<'_, '_>, is_old_form: bool) -> Done {
    require(h, feature::LAYERING)?;
    let features = number(h, "features")?.unwrap_or(0);
    let parent =
        Parent::load(h)?.filter(|parent| parent.head_overlap.is_some()).ok_or(OpError::new(errno::ENOENT))?;
    refuse_if(is_old_form && !parent.namespace.is_empty(), errno::EXDEV)?;
    let operations = Operations::load(h)?;
    let of_snaps: Vec<Snap> =
        Snap::all(h)?.into_iter().filter(|snap| snap.parent_overlap.is_some()).collect();
    if features & feature::DEEP_FLATTEN != 0 {
        of_snaps.into_iter().for_each(|snap| Snap { parent_overlap: None, ..snap }.store(h));
        Parent::remove(h);
    } else if of_snaps.is_empty() {
        Parent::remove(h);
    } else {
        Parent { head_overlap: None, ..parent }.store(h);
        return done();
    }
    operations.set(h, 0, operation::CLONE_CHILD);
    done()
}

fn children_key(snap: u64) -> Vec<u8> {
    format!("snap_children_{snap:016x}").into_bytes()
}

/// A clone of the second format.
fn child_attach(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, child) = decode(input, |d| Ok((d.u64()?, d.get::<Child>()?)))?;
    let mut snap = Snap::load(h, id)?;
    // A snapshot kept only for its clones gets no new ones.
    refuse_if(snap.namespace.kind == kind::TRASH, errno::ENOENT)?;
    let mut all: Vec<Child> = h.record(&children_key(id))?.unwrap_or_default();
    refuse_if(all.contains(&child), errno::EEXIST)?;
    let operations = Operations::load(h)?;
    snap.children = snap.children.checked_add(1).ok_or(OpError::new(errno::E2BIG))?;
    all.push(child);
    all.sort_by(|a, b| a.rank().cmp(&b.rank()));
    h.set_omap(&children_key(id), Encoder::collect(|e| e.put(&all)));
    snap.store(h);
    operations.set(h, operation::CLONE_PARENT, operation::CLONE_PARENT);
    done()
}

fn child_detach(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (id, child) = decode(input, |d| Ok((d.u64()?, d.get::<Child>()?)))?;
    let mut snap = Snap::load(h, id)?;
    let mut all: Vec<Child> = h.record(&children_key(id))?.unwrap_or_default();
    let at = all.iter().position(|known| *known == child).ok_or(OpError::new(errno::ENOENT))?;
    all.remove(at);
    let is_last = Snap::all(h)?.iter().all(|other| other.id == id || other.children == 0);
    let operations = Operations::load(h)?;
    snap.children = all.len() as u32;
    if all.is_empty() {
        h.remove_omap(&children_key(id));
    } else {
        h.set_omap(&children_key(id), Encoder::collect(|e| e.put(&all)));
    }
    snap.store(h);
    if all.is_empty() && is_last {
        operations.set(h, 0, operation::CLONE_PARENT);
    }
    done()
}

fn children_list(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let id = decode(input, |d| d.u64())?;
    Snap::load(h, id)?;
    let all: Vec<Child> = h.record(&children_key(id))?.ok_or(OpError::new(errno::ENOENT))?;
    Ok(Encoder::collect(|e| e.put(&all)))
}

// `rbd_children`: the key is the parent's pool, image and snapshot, the value the images.

type Images = BTreeSet<Vec<u8>>;

/// The key, and the image.
fn in_pool(input: &[u8], with_child: bool) -> Result<(&[u8], Vec<u8>), OpError> {
    let child = decode(input, |d| {
        d.i64()?;
        d.blob()?;
        d.u64()?;
        if with_child { d.blob().map(<[u8]>::to_vec) } else { Ok(Vec::new()) }
    })?;
    let tail = if with_child { 4 + child.len() } else { 0 };
    Ok((input.get(..input.len() - tail).unwrap_or_default(), child))
}

fn add_child(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (key, child) = in_pool(input, true)?;
    let mut all: Images = h.record(key)?.unwrap_or_default();
    refuse_if(!all.insert(child), errno::EEXIST)?;
    h.set_omap(key, Encoder::collect(|e| e.put(&all)));
    done()
}

fn remove_child(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (key, child) = in_pool(input, true)?;
    let mut all: Images = h.record(key)?.ok_or(OpError::new(errno::ENOENT))?;
    refuse_if(!all.remove(&child), errno::ENOENT)?;
    if all.is_empty() {
        h.remove_omap(key);
    } else {
        h.set_omap(key, Encoder::collect(|e| e.put(&all)));
    }
    done()
}

fn get_children(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (key, _) = in_pool(input, false)?;
    let all: Images = h.record(key)?.ok_or(OpError::new(errno::ENOENT))?;
    Ok(Encoder::collect(|e| e.put(&all)))
}
