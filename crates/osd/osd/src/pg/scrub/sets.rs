//! Whether the clones that an object's head tells of are those that there are.

use std::sync::Arc;

use carmine_types::{ObjectId, SNAP_HEAD};

use super::run::{End, Run};
use crate::pg::snaps;

impl Run {
    /// Looks at some objects of this copy, to which nothing is written meanwhile; whether all copies are equal is
    /// checked elsewhere. Errors are counted and logged; nobody can tell whether the head or the clone is right, so
    /// they are not repaired.
    pub(super) async fn check_sets(&mut self, objects: &[Arc<ObjectId>]) -> Result<(), End> {
        for oid in objects {
            let wrong =
                if oid.snap == SNAP_HEAD { self.of_head(oid).await? } else { self.of_clone(oid).await? };
            self.current()?;
            for why in wrong {
                tracing::error!("pg {}: scrub: object {oid}: {why}", self.pg.id);
                self.osd.metrics.borrow_mut().scrub_errors += 1;
                self.found.errors += 1;
            }
        }
        Ok(())
    }

    /// The clones that it tells of are there, with the sizes that it says.
    async fn of_head(&self, head: &ObjectId) -> Result<Vec<String>, End> {
        let Some(meta) = self.osd.store.stat(head).await? else { return Ok(Vec::new()) };
        let Ok(set) = snaps::set_of(&meta) else {
            return Ok(vec!["its list of clones is damaged".to_owned()]);
        };
        let mut wrong = Vec::new();
        for clone in set.unwrap_or_default().clones {
            match self.osd.store.stat(&snaps::clone_of(head, clone.id)).await? {
                None => wrong.push(format!("its clone {} is missing", clone.id)),
                Some(meta) if meta.size != clone.size => {
                    wrong.push(format!("its clone {} has {} bytes, not {}", clone.id, meta.size, clone.size));
                }
                Some(_) => {}
            }
        }
        Ok(wrong)
    }

    /// Its head tells of it.
    async fn of_clone(&self, oid: &ObjectId) -> Result<Vec<String>, End> {
        let head = self.osd.store.stat(&snaps::head_of(oid)).await?;
        let set = head.as_ref().and_then(|head| snaps::set_of(head).ok().flatten()).unwrap_or_default();
        let is_known = set.clone_of(oid.snap).is_some();
        Ok(if is_known { Vec::new() } else { vec!["its head does not know this clone".to_owned()] })
    }
}
