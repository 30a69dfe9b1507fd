//! The changes of a write, in the order in which they are applied.

use carmine_pgtypes::{LogEntry, ObjectChange, Step, Transaction};
use carmine_types::{Eversion, LogOp, SpgId, is_mutated};

/// The changes of a write: first the clones and the snapshot mapper, then the object that gets the version of the log entry: the
/// head, which the entry names, or the clone that a scrub repairs. Empty if the request failed or has no effect.
#[derive(Default)]
pub(crate) struct Changes {
    /// Boxed, since it is long and the box goes to the store. It has nothing but the changes.
    txn: Box<Transaction>,
    /// Whether the last change is that of the object that gets the version.
    has_object: bool,
}

impl Changes {
    /// Sets the change of the object that gets the version.
    ///
    /// # Panics
    /// If it was set before.
    #[inline]
    pub(in crate::pg) fn set_object(&mut self, change: ObjectChange) {
        assert!(!self.has_object, "the change of {} is given twice", change.oid);
        self.has_object = true;
        self.txn.changes.push(change);
    }

    /// Adds a change of another object, after the earlier ones and before that of the object that gets the version.
    pub(in crate::pg) fn add_other(&mut self, change: ObjectChange) {
        let is_before = self.has_object && !is_mutated("clone_last");
        let at = self.txn.changes.len() - usize::from(is_before);
        self.txn.changes.insert(at, change);
    }

    /// All changes, in order.
    pub(in crate::pg) fn all(&self) -> &[ObjectChange] {
        &self.txn.changes
    }

    /// Most bytes that they have in a message.
    pub(in crate::pg) fn bytes_max(&self) -> u64 {
        self.txn.bytes_max()
    }

    /// The transaction of a write with this entry of the log, which is trimmed up to `trim_to` with it.
    ///
    /// # Panics
    /// If the entry says that an object is modified and there is no change of it: it would keep its old version.
    #[inline]
    pub(in crate::pg) fn into_transaction(
        self,
        pg: SpgId,
        bits: u32,
        entry: &LogEntry,
        trim_to: Option<Eversion>,
    ) -> Box<Transaction> {
        let Changes { mut txn, has_object } = self;
        if entry.op == LogOp::Modify {
            let is_only = txn.changes.len() == 1;
            let object = txn.changes.last_mut().filter(|_| has_object);
            let object =
                object.unwrap_or_else(|| panic!("pg {pg}: {} has a new version, and no change", entry.oid));
            // Not in release builds, since it compares names.
            debug_assert!(
                is_only || object.oid == entry.oid,
                "pg {pg}: {} gets the version {:?} of {}",
                object.oid,
                entry.version,
                entry.oid
            );
            let LogEntry { version, user_version, mtime, .. } = *entry;
            object.steps.push(Step::SetMeta { version, user_version, mtime });
        }
        (txn.pg, txn.bits) = (pg, bits);
        txn.log.push(entry.clone());
        txn.log_trim_to = trim_to;
        txn
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carmine_types::{ObjectId, ReqId, UTime};

    use super::*;

    fn change(name: u8) -> ObjectChange {
        ObjectChange::new(ObjectId::head(1, b"", b"", &[name]), [Step::Touch])
    }

    fn entry(op: LogOp, oid: &Arc<ObjectId>) -> LogEntry {
        LogEntry {
            version: Eversion::new(3, 4),
            prior: Eversion::ZERO,
            reqid: ReqId::default(),
            oid: Arc::clone(oid),
            op,
            user_version: 5,
            result: 0,
            mtime: UTime::ZERO,
            clones: Box::default(),
            returned: None,
        }
    }

    /// Names and steps of the transaction, in its order.
    fn steps(changes: Changes, entry: &LogEntry) -> Vec<(u8, Vec<Step>)> {
        let trim_to = Some(Eversion::new(1, 1));
        let txn = changes.into_transaction(SpgId::default(), 6, entry, trim_to);
        assert_eq!(
            (txn.bits, txn.log.as_slice(), txn.log_trim_to),
            (6, std::slice::from_ref(entry), trim_to)
        );
        txn.changes.iter().map(|change| (change.oid.name[0], change.steps.to_vec())).collect()
    }

    #[test]
    fn the_object_comes_last_and_gets_the_version_whenever_others_are_added() {
        let object = change(9);
        let mut changes = Changes::default();
        changes.add_other(change(1));
        changes.set_object(object.clone());
        changes.add_other(change(2));
        assert_eq!(changes.all().len(), 3);
        let meta = Step::SetMeta { version: Eversion::new(3, 4), user_version: 5, mtime: UTime::ZERO };
        let want = vec![(1, vec![Step::Touch]), (2, vec![Step::Touch]), (9, vec![Step::Touch, meta])];
        assert_eq!(steps(changes, &entry(LogOp::Modify, &object.oid)), want);
    }

    #[test]
    fn nothing_gets_a_version_where_the_object_is_not_modified() {
        let object = change(9);
        for op in [LogOp::Delete, LogOp::Error] {
            let mut changes = Changes::default();
            changes.add_other(change(1));
            assert_eq!(steps(changes, &entry(op, &object.oid)), [(1, vec![Step::Touch])]);
        }
    }

    #[test]
    #[should_panic(expected = "has a new version, and no change")]
    fn no_other_object_gets_the_version() {
        let mut changes = Changes::default();
        changes.add_other(change(1));
        steps(changes, &entry(LogOp::Modify, &change(9).oid));
    }
}
