//! Finds the stored object that a read is about.

use std::sync::Arc;

use carmine_pgtypes::ObjectMeta;
use carmine_pgtypes::snaps::{At, SnapSet};
use carmine_types::{ObjectId, SNAP_DIR, SNAP_HEAD};
use carmine_wire::Encoder;

use crate::error::OpError;
use crate::op::ClientOp;
use crate::pg::Pg;
use crate::pg::family::{clone_of, set_of, visible_head};
use crate::shard::OsdShard;

/// A stored object, and its metadata; `None`: it does not exist for the client.
pub(in crate::pg) struct Target {
    pub oid: Arc<ObjectId>,
    pub meta: Option<ObjectMeta>,
}

/// The object of a read (find_object_context).
///
/// # Errors
/// Those of the store.
pub(in crate::pg) async fn find(osd: &OsdShard, pg: &Pg, op: &ClientOp) -> Result<Target, OpError> {
    let objects = pg.objects(osd);
    let head = objects.stat(&op.oid).await?;
    let of_head = |meta| Target { oid: Arc::clone(&op.oid), meta };
    match op.request.snapid {
        SNAP_HEAD => Ok(of_head(visible_head(head)?)),
        // For the list of clones, which a whiteout has as well.
        SNAP_DIR => Ok(of_head(head)),
        snap if pg.ops.snaps.is_removed(snap) => Ok(of_head(None)),
        snap => {
            let set = head.as_ref().map(set_of).transpose()?.flatten().unwrap_or_default();
            match set.at(snap) {
                At::Head => Ok(of_head(visible_head(head)?)),
                At::Nothing => Ok(of_head(None)),
                At::Clone(id) => {
                    let oid = Arc::new(clone_of(&op.oid, id));
                    let meta = objects.stat(&oid).await?;
                    Ok(Target { oid, meta })
                }
            }
        }
    }
}

/// obj_list_snap_response_t: the clones, oldest first, and the head.
pub(in crate::pg) fn list(set: &SnapSet, size: u64) -> Vec<u8> {
    Encoder::collect(|e| {
        e.envelope(2, 1, |e| {
            e.count(set.clones.len() + usize::from(!set.is_whiteout));
            for clone in &set.clones {
                let snaps: Vec<u64> = clone.snaps.iter().rev().copied().collect();
                let overlap: Vec<(u64, u64)> = clone.overlap.iter().collect();
                put(e, clone.id, &snaps, &overlap, clone.size);
            }
            if !set.is_whiteout {
                put(e, SNAP_HEAD, &[], &[], size);
            }
            e.u64(set.seq);
        });
    })
}

/// clone_info.
fn put(e: &mut Encoder<'_>, id: u64, snaps: &[u64], overlap: &[(u64, u64)], size: u64) {
    e.envelope(1, 1, |e| {
        e.u64(id);
        e.vec(snaps, |e, snap| e.u64(*snap));
        e.vec(overlap, |e, (off, len)| {
            e.u64(*off);
            e.u64(*len);
        });
        e.u64(size);
    });
}
