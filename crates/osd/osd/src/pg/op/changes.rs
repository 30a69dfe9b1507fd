//! The changes of a write, in the order in which they are applied.

use carmine_pgtypes::{LogEntry, ObjectChange, Step, Transaction};
use carmine_types::{Eversion, LogOp, SpgId};

/// What a write changes: clones, and the list of the PG's snapshots, first; then the object that its log entry names, which gets
/// the version of that entry. None: the request failed, or has no effect.
#[derive(Default)]
pub(crate) struct Changes {
    /// In the box that goes to the store: it is long. It has nothing but the changes.
    txn: Box<Transaction>,
    /// The last change is that of the entry's object.
    has_object: bool,
}

impl Changes {
    /// The change of the entry's object.
    ///
    /// # Panics
    /// It was given before.
    #[inline]
    pub(in crate::pg) fn set_object(&mut self, change: ObjectChange) {
        assert!(!self.has_object, "the change of {} is given twice", change.oid);
        self.has_object = true;
        self.txn.changes.push(change);
    }

    /// A change of another object, after those before it, and before that of the entry's object.
    pub(in crate::pg) fn add_other(&mut self, change: ObjectChange) {
        let at = self.txn.changes.len() - usize::from(self.has_object);
        self.txn.changes.insert(at, change);
    }

    /// All of them, in their order.
    pub(in crate::pg) fn all(&self) -> &[ObjectChange] {
        &self.txn.changes
    }

    /// Bytes that they take in a message at most.
    pub(in crate::pg) fn bytes_max(&self) -> u64 {
        self.txn.bytes_max()
    }

    /// The transaction of a write with this entry of the log, which is trimmed up to `trim_to` with it.
    ///
    /// # Panics
    /// By the entry its object is modified, and there are no steps of it: it would keep its old version.
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
            let object = txn.changes.last_mut().filter(|_| has_object);
            let object =
                object.unwrap_or_else(|| panic!("pg {pg}: {} has a new version, and no change", entry.oid));
            let LogEntry { version, user_version, mtime, .. } = *entry;
            object.steps.push(Step::SetMeta { version, user_version, mtime });
        }
        (txn.pg, txn.bits) = (pg, bits);
        txn.log.push(entry.clone());
        txn.log_trim_to = trim_to;
        txn
    }
}
