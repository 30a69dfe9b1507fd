//! Checks that the clones listed by an object's head are those that exist.

use std::sync::Arc;

use carmine_pgtypes::snaps::{CloneInfo, SnapSet};
use carmine_types::{ObjectId, SNAP_HEAD};
use carmine_wire::scrub::{InconsistentSnapset, ShownClone, ShownSnapset, snapset_errors};

use super::run::{End, Run};
use crate::pg::copies::own_store;
use crate::pg::family;

/// Number of contradictions in an entry. Clones that their head does not list are counted in their own entries.
pub(super) fn errors_of(entry: &InconsistentSnapset) -> u64 {
    let single = snapset_errors::SNAPSET_CORRUPTED | snapset_errors::HEADLESS | snapset_errors::SIZE_MISMATCH;
    u64::from((entry.errors & single).count_ones()) + entry.missing.len() as u64
}

/// Merges another entry of the same object.
pub(super) fn merge(entry: &mut InconsistentSnapset, other: &InconsistentSnapset) {
    entry.errors |= other.errors;
    entry.extra.extend(&other.extra);
    entry.missing.extend(&other.missing);
    if entry.snapset.is_none() {
        entry.snapset.clone_from(&other.snapset);
    }
}

impl Run {
    /// Checks some held objects of this copy; whether all copies are equal is checked elsewhere. Errors are counted, logged and
    /// listed; they are not repaired, since it is unknown whether the head or the clone is right.
    pub(super) async fn check_sets(&mut self, objects: &[Arc<ObjectId>]) -> Result<(), End> {
        for oid in objects {
            let wrong =
                if oid.snap == SNAP_HEAD { self.of_head(oid).await? } else { self.of_clone(oid).await? };
            self.check_current()?;
            for entry in wrong {
                tracing::error!("pg {}: scrub: {}", self.pg.id, describe(&entry));
                self.osd.metrics.borrow_mut().scrub_errors += errors_of(&entry);
                self.found.add_set(entry);
            }
        }
        Ok(())
    }

    /// Checks that the clones listed by a head exist, with their sizes.
    async fn of_head(&self, head: &ObjectId) -> Result<Vec<InconsistentSnapset>, End> {
        let Some(meta) = own_store(&self.osd).stat(head).await? else { return Ok(Vec::new()) };
        let Ok(set) = family::set_of(&meta) else {
            return Ok(vec![entry(head, snapset_errors::SNAPSET_CORRUPTED, None)]);
        };
        let set = set.unwrap_or_default();
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        for clone in &set.clones {
            let oid = family::clone_of(head, clone.id);
            match own_store(&self.osd).stat(&oid).await? {
                None => missing.push(clone.id),
                Some(meta) if meta.size != clone.size => {
                    wrong.push(entry(&oid, snapset_errors::SIZE_MISMATCH, None));
                }
                Some(_) => {}
            }
        }
        if !missing.is_empty() {
            let of_head = entry(head, snapset_errors::CLONE_MISSING, Some(&set));
            wrong.push(InconsistentSnapset { missing, ..of_head });
        }
        Ok(wrong)
    }

    /// Checks that a clone is listed by its head.
    async fn of_clone(&self, oid: &ObjectId) -> Result<Vec<InconsistentSnapset>, End> {
        let head = family::head_of(oid);
        let meta = own_store(&self.osd).stat(&head).await?;
        let set = meta.as_ref().and_then(|meta| family::set_of(meta).ok()).map(Option::unwrap_or_default);
        if set.as_ref().is_some_and(|set| set.clone_of(oid.snap).is_some()) {
            return Ok(Vec::new());
        }
        let mut wrong = vec![entry(oid, snapset_errors::HEADLESS, None)];
        wrong.extend(set.map(|set| {
            let of_head = entry(&head, snapset_errors::EXTRA_CLONES, Some(&set));
            InconsistentSnapset { extra: vec![oid.snap], ..of_head }
        }));
        Ok(wrong)
    }
}

fn entry(oid: &ObjectId, errors: u64, set: Option<&SnapSet>) -> InconsistentSnapset {
    InconsistentSnapset {
        oid: oid.clone(),
        errors,
        extra: Vec::new(),
        missing: Vec::new(),
        snapset: set.map(shown),
    }
}

fn shown(set: &SnapSet) -> ShownSnapset {
    let clone = |clone: &CloneInfo| ShownClone {
        id: clone.id,
        size: clone.size,
        overlap: clone.overlap.iter().collect(),
        snaps: clone.snaps.clone(),
    };
    ShownSnapset { seq: set.seq, clones: set.clones.iter().map(clone).collect() }
}

/// One line for the log.
fn describe(entry: &InconsistentSnapset) -> String {
    let oid = &entry.oid;
    match entry.errors {
        snapset_errors::SNAPSET_CORRUPTED => format!("object {oid}: its list of clones is damaged"),
        snapset_errors::CLONE_MISSING => format!("object {oid}: its clones {:?} are missing", entry.missing),
        snapset_errors::EXTRA_CLONES => {
            format!("object {oid}: it does not know its clones {:?}", entry.extra)
        }
        snapset_errors::SIZE_MISMATCH => format!("object {oid}: its head says another size"),
        _ => format!("object {oid}: its head does not know this clone"),
    }
}
