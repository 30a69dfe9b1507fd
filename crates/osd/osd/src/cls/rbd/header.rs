//! Methods of an image's header.

use carmine_types::errno;
use carmine_wire::Encoder;

use super::super::handle::{Handle, decode, stored};
use super::super::{Done, Method, read, without_object, write};
use super::records::{Operations, Parent, Snap, operation};
use super::{NO_SNAP, done, number, u64_bytes};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    write("create", create),
    read("get_size", get_size),
    write("set_size", set_size),
    read("get_features", get_features),
    write("set_features", set_features),
    read("get_object_prefix", |h, _| field(h, "object_prefix")),
    read("get_data_pool", get_data_pool),
    read("get_stripe_unit_count", get_striping),
    write("set_stripe_unit_count", set_striping),
    without_object(read("get_create_timestamp", |h, _| time(h, "create_timestamp"))),
    without_object(read("get_access_timestamp", |h, _| time(h, "access_timestamp"))),
    without_object(read("get_modify_timestamp", |h, _| time(h, "modify_timestamp"))),
    write("set_access_timestamp", |h, _| set_time(h, "access_timestamp")),
    write("set_modify_timestamp", |h, _| set_time(h, "modify_timestamp")),
    read("get_flags", get_flags),
    write("set_flags", set_flags),
    read("op_features_get", |h, _| Ok(u64_bytes(number(h, "op_features")?.unwrap_or(0)))),
    write("op_features_set", |h, input| {
        let (bits, mask) = decode(input, |d| Ok((d.u64()?, d.u64()?)))?;
        refuse_if(mask & !operation::ALL != 0, errno::EINVAL)?;
        Operations::load(h)?.set(h, bits, mask);
        done()
    }),
    read("image_group_get", image_group_get),
];

/// Features of images (rbd/features.h).
pub(super) mod feature {
    pub(in super::super) const LAYERING: u64 = 1;
    pub(super) const STRIPING: u64 = 2;
    pub(in super::super) const DEEP_FLATTEN: u64 = 0x20;
    pub(super) const DATA_POOL: u64 = 0x80;
    /// Follow from what happens to an image.
    pub(super) const INTERNAL: u64 = 0x100 | 0x200;
    pub(super) const DIRTY_CACHE: u64 = 0x800;
    /// Can be switched: exclusive-lock, object-map, fast-diff, journaling and those of mirrors and caches.
    pub(super) const MUTABLE: u64 = 4 | 8 | 0x10 | 0x40 | 0x400 | DIRTY_CACHE;
    /// All that there are.
    pub(super) const ALL: u64 = 0xfff;
    /// Features that a client must know to read.
    pub(super) const TO_READ: u64 = LAYERING | STRIPING | DATA_POOL | DIRTY_CACHE;
}

/// All features that images can have.
pub(super) const FEATURES_ALL: u64 = feature::ALL;
/// Objects of an image: 4 KiB to 32 MiB.
const ORDERS: std::ops::RangeInclusive<u8> = 12..=25;

fn create(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (size, order, features, prefix, pool) = decode(input, |d| {
        let (size, order, features, prefix) = (d.u64()?, d.u8()?, d.u64()?, d.blob()?);
        let pool = if d.is_empty() { -1 } else { d.i64()? };
        Ok((size, order, features, prefix, pool))
    })?;
    refuse_if(features & !feature::ALL != 0, errno::ENOSYS)?;
    refuse_if(features & feature::INTERNAL != 0, errno::EINVAL)?;
    let has_data_pool = features & feature::DATA_POOL != 0;
    refuse_if(prefix.is_empty() || !ORDERS.contains(&order) || has_data_pool != (pool >= 0), errno::EINVAL)?;
    refuse_if(h.omap(b"size").is_some(), errno::EEXIST)?;
    h.set_omap(b"size", u64_bytes(size));
    h.set_omap(b"order", vec![order]);
    h.set_omap(b"features", u64_bytes(features));
    h.set_omap(b"object_prefix", super::text(prefix));
    h.set_omap(b"snap_seq", u64_bytes(0));
    if pool >= 0 {
        h.set_omap(b"data_pool_id", pool.to_le_bytes().to_vec());
    }
    for name in ["create_timestamp", "access_timestamp", "modify_timestamp"] {
        set_time(h, name)?;
    }
    done()
}

/// A stored field. ENOENT: it is no header.
fn field(h: &mut Handle<'_, '_>, name: &str) -> Done {
    h.omap(name.as_bytes()).map(|value| value.to_vec()).ok_or(OpError::new(errno::ENOENT))
}

fn get_size(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let snap = decode(input, |d| d.u64())?;
    let order = field(h, "order")?;
    let size = if snap == NO_SNAP { field(h, "size")? } else { u64_bytes(Snap::load(h, snap)?.size) };
    Ok([order, size].concat())
}

fn set_size(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let size = decode(input, |d| d.u64())?;
    field(h, "size")?;
    let parent = Parent::load(h)?;
    h.set_omap(b"size", u64_bytes(size));
    // The part that is cut off is never read from the parent again.
    if let Some(parent) = parent.filter(|parent| parent.head_overlap.is_some_and(|overlap| overlap > size)) {
        Parent { head_overlap: Some(size), ..parent }.store(h);
    }
    done()
}

fn features(h: &mut Handle<'_, '_>) -> Result<u64, OpError> {
    number(h, "features")?.ok_or(OpError::new(errno::ENOENT))
}

fn get_features(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    // Snapshots have the image's features: it does not matter whether this snapshot exists.
    let read_only = decode(input, |d| {
        d.u64()?;
        Ok(!d.is_empty() && d.bool()?)
    })?;
    let features = features(h)?;
    let needed = features & if read_only { feature::TO_READ } else { feature::ALL };
    Ok([u64_bytes(features), u64_bytes(needed)].concat())
}

/// ENOEXEC: the image lacks one of these features, or it is no header; ENOENT: there is no object.
pub(super) fn require(h: &mut Handle<'_, '_>, wanted: u64) -> Result<(), OpError> {
    h.must_exist()?;
    let features = number(h, "features")?.unwrap_or(0);
    if features & wanted == wanted { Ok(()) } else { Err(OpError::new(errno::ENOEXEC)) }
}

fn set_features(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (bits, mask) = decode(input, |d| Ok((d.u64()?, d.u64()?)))?;
    // Newer clients may disable features that are unknown here.
    let mask = mask & feature::ALL;
    let (on, off) = (bits & mask, !bits & mask);
    let is_fixed = on & !feature::MUTABLE != 0 || off & !(feature::MUTABLE | feature::DEEP_FLATTEN) != 0;
    refuse_if(is_fixed, errno::EINVAL)?;
    set_bits(h, "features", bits, mask)
}

fn set_bits(h: &mut Handle<'_, '_>, name: &str, bits: u64, mask: u64) -> Done {
    let old = number(h, name)?.unwrap_or(0);
    h.set_omap(name.as_bytes(), u64_bytes(old & !mask | bits & mask));
    done()
}

fn get_data_pool(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    field(h, "size")?;
    Ok(field(h, "data_pool_id").unwrap_or_else(|_| (-1i64).to_le_bytes().to_vec()))
}

/// ENOEXEC: the image is not striped.
fn get_striping(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    h.must_exist()?;
    refuse_if(number(h, "features")?.unwrap_or(0) & feature::STRIPING == 0, errno::ENOEXEC)?;
    Ok([field(h, "stripe_unit")?, field(h, "stripe_count")?].concat())
}

fn set_striping(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (unit, count) = decode(input, |d| Ok((d.u64()?, d.u64()?)))?;
    refuse_if(features(h)? & feature::STRIPING == 0, errno::ENOEXEC)?;
    let order = stored(&field(h, "order")?, |d| d.u8())?;
    let object = 1u64.checked_shl(order.into()).unwrap_or(0);
    refuse_if(unit == 0 || unit > object || !object.is_multiple_of(unit) || count == 0, errno::EINVAL)?;
    h.set_omap(b"stripe_unit", u64_bytes(unit));
    h.set_omap(b"stripe_count", u64_bytes(count));
    done()
}

fn time(h: &mut Handle<'_, '_>, name: &str) -> Done {
    Ok(field(h, name).unwrap_or_else(|_| vec![0; 8]))
}

fn set_time(h: &mut Handle<'_, '_>, name: &str) -> Done {
    let now = h.now();
    h.set_omap(name.as_bytes(), Encoder::collect(|e| e.utime(now)));
    done()
}

fn get_flags(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    match decode(input, |d| d.u64())? {
        NO_SNAP => Ok(u64_bytes(number(h, "flags")?.unwrap_or(0))),
        snap => Ok(u64_bytes(Snap::load(h, snap)?.flags)),
    }
}

fn set_flags(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (bits, mask, snap) =
        decode(input, |d| Ok((d.u64()?, d.u64()?, if d.is_empty() { NO_SNAP } else { d.u64()? })))?;
    if snap == NO_SNAP {
        return set_bits(h, "flags", bits, mask);
    }
    let mut snap = Snap::load(h, snap)?;
    snap.flags = snap.flags & !mask | bits & mask;
    snap.store(h);
    done()
}

/// No group: pool -1, no name.
fn image_group_get(_: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    Ok(Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            e.i64(-1);
            e.str("");
        });
    }))
}
