//! The PG log in memory: the entries, and an index by request id that finds resends.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use carmine_pgtypes::{LogEntry, PgInfo, PgState, pg_first_object};
use carmine_types::{Eversion, ObjectId, ReqId, SpgId, is_mutated};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::config::{LOG_RETURNED_BYTES_MAX, LogLimits};

/// Entries and info of one PG; the same as what the store holds once everything submitted is durable.
#[derive(Debug, Default)]
pub(crate) struct PgLog {
    info: PgInfo,
    entries: VecDeque<LogEntry>,
    /// Number of the oldest entry; each that is appended has the next one. It wraps.
    first: u32,
    /// Numbers of the entries, by their request ids: of those with the same one the newest. A few bytes an entry, for an OSD
    /// has hundreds of thousands, and each write looks here.
    by_reqid: HashTable<u32>,
    outputs: Outputs,
    /// The name that all stubs share; `None` before there is one. A PG that was split has thousands.
    stub_name: Option<Arc<ObjectId>>,
}

/// The entries that have outputs.
#[derive(Debug, Default)]
struct Outputs {
    /// Their numbers, oldest first.
    numbers: VecDeque<u32>,
    /// Memory that they take, bytes: [`LOG_RETURNED_BYTES_MAX`] at most.
    bytes: usize,
}

impl PgLog {
    pub(crate) fn new(pg: SpgId) -> PgLog {
        PgLog { info: PgInfo { pg, ..PgInfo::default() }, ..PgLog::default() }
    }

    /// Takes what the store has of the PG; false if that is no log. The store's log of a PG that was split still has the entries
    /// of its children's objects, which become stubs here.
    #[must_use]
    pub(crate) fn load(&mut self, state: PgState) -> bool {
        *self = PgLog::new(state.info.pg);
        let PgState { info, log } = state;
        if !is_run(info.log_tail, &log, info.last_update) {
            return false;
        }
        self.info.log_tail = info.log_tail;
        self.info.last_update = info.log_tail;
        let first = Arc::new(pg_first_object(info.pg));
        for entry in log {
            self.push(match info.bits() {
                Some(bits) => entry.stub_unless_in(info.pg, bits, &first),
                None => entry,
            });
        }
        self.change_info(|old| *old = info);
        true
    }

    /// The log of one part of the PG after a split; `info` is that of the part ([`PgInfo::divide`]).
    pub(crate) fn divide(&self, info: PgInfo) -> PgLog {
        let mut part = PgLog::default();
        let is_log = part.load(PgState { info, log: self.entries.iter().cloned().collect() });
        assert!(is_log, "pg {}: the log of a part has the same versions", self.info.pg);
        part
    }

    /// Goes on as the log of one part of its PG.
    pub(in crate::pg) fn become_part(&mut self, info: PgInfo) {
        *self = self.divide(info);
    }

    /// Begins as the log of one part of another PG.
    pub(in crate::pg) fn inherit(&mut self, parent: &PgLog, info: PgInfo) {
        *self = parent.divide(info);
    }

    /// Forgets all: the copy is removed.
    pub(in crate::pg) fn clear(&mut self) {
        *self = PgLog::new(self.info.pg);
    }

    /// The version with which the log ends if entries after `keep_to` go.
    pub(crate) fn end_of(&self, keep_to: Eversion) -> Eversion {
        let kept = self.entries.partition_point(|entry| entry.version <= keep_to);
        kept.checked_sub(1).and_then(|last| self.entries.get(last)).map_or(self.info.log_tail, |e| e.version)
    }

    /// Replaces the entries after `keep_to`, or all if that is zero, with those of another log. `info` is that of the new log.
    pub(crate) fn replace(&mut self, keep_to: Eversion, entries: Vec<LogEntry>, info: PgInfo) {
        self.rewind(keep_to);
        if keep_to == Eversion::ZERO {
            (self.info.log_tail, self.info.last_update) = (info.log_tail, info.log_tail);
        }
        entries.into_iter().for_each(|entry| self.push(entry));
        self.forget_to(info.log_tail);
        self.change_info(|old| *old = info);
    }

    /// The PG's own record of its state.
    pub(crate) fn info(&self) -> &PgInfo {
        &self.info
    }

    /// Changes the info, which is given to the store in the same step, or with the next activation.
    pub(crate) fn change_info(&mut self, change: impl FnOnce(&mut PgInfo)) {
        change(&mut self.info);
        self.check();
    }

    /// The info says where the log begins and ends. Not in builds for release: every operation on the log would cost four
    /// comparisons of what `push` has asserted.
    fn check(&self) {
        let (info, first, last) = (&self.info, self.entries.front(), self.entries.back());
        debug_assert!(
            info.log_tail <= info.last_update,
            "pg {}: a log ends before its tail: {info:?}",
            info.pg
        );
        debug_assert!(
            info.complete_to <= info.last_update,
            "pg {}: a copy is complete to an entry that the log does not have: {info:?}",
            info.pg
        );
        debug_assert!(
            first.is_none_or(|entry| follows(info.log_tail, entry.version)),
            "pg {}: entry {:?} is the oldest, and the tail is {:?}",
            info.pg,
            first.map(|entry| entry.version),
            info.log_tail
        );
        debug_assert_eq!(
            last.map_or(info.log_tail, |entry| entry.version),
            info.last_update,
            "pg {}: the newest entry is the last update",
            info.pg
        );
    }

    /// Notes with how many PGs in its pool this one was made, unless that is known.
    pub(crate) fn note_pg_num(&mut self, pg_num: u32) {
        if self.info.pg_num == 0 {
            self.info.pg_num = pg_num;
        }
    }

    /// Appends an entry; its version becomes the last update.
    ///
    /// # Panics
    /// It does not follow that: logs from disk and from other OSDs are checked before.
    pub(crate) fn push(&mut self, mut entry: LogEntry) {
        let last = self.info.last_update;
        assert!(
            follows(last, entry.version),
            "pg {}: version {:?} comes after {last:?}: versions rise by one",
            self.info.pg,
            entry.version
        );
        self.info.last_update = entry.version;
        self.share_name(&mut entry);
        let number = self.first.wrapping_add(self.entries.len() as u32);
        let (reqid, is_stub, output_bytes) = (entry.reqid, entry.is_stub(), returned_bytes(&entry));
        self.entries.push_back(entry);
        if output_bytes > 0 {
            self.note_outputs(number, output_bytes);
        }
        // Entries without a client (repairs) have a zero id, which no resend carries. A resend of a stub's request finds the PG that
        // has the object.
        if reqid != ReqId::default() && !is_stub {
            self.index(reqid, number);
        }
    }

    /// This entry has outputs. Those of the oldest are forgotten where all together take too much memory.
    #[cold]
    fn note_outputs(&mut self, number: u32, bytes: usize) {
        self.outputs.numbers.push_back(number);
        self.outputs.bytes += bytes;
        while self.outputs.bytes > LOG_RETURNED_BYTES_MAX
            && let Some(oldest) = self.outputs.numbers.pop_front()
        {
            let entry = self.entries.get_mut(oldest.wrapping_sub(self.first) as usize);
            let returned = entry.and_then(|entry| entry.returned.take());
            self.outputs.bytes -= returned.map_or(0, |returned| returned.memory_bytes());
        }
    }

    /// An object's entries share its name with the one before, if that is still here; stubs share theirs.
    fn share_name(&mut self, entry: &mut LogEntry) {
        if entry.is_stub() {
            entry.oid = Arc::clone(self.stub_name.get_or_insert_with(|| Arc::clone(&entry.oid)));
            return;
        }
        let Some(prior) = self.find_version(entry.prior) else { return };
        if *prior.oid == *entry.oid {
            entry.oid = Arc::clone(&prior.oid);
        }
    }

    fn index(&mut self, reqid: ReqId, number: u32) {
        let PgLog { entries, first, by_reqid, .. } = self;
        let reqid_of = |number: &u32| entries.get(number.wrapping_sub(*first) as usize).map(|e| e.reqid);
        let is_it = |number: &u32| reqid_of(number) == Some(reqid);
        let hash_of = |number: &u32| hash(&reqid_of(number).unwrap_or_default());
        match by_reqid.entry(hash(&reqid), is_it, hash_of) {
            Entry::Occupied(mut older) => *older.get_mut() = number,
            Entry::Vacant(place) => drop(place.insert(number)),
        }
    }

    /// The newest entry of this request: another one with the same id is a resend.
    pub(crate) fn find(&self, reqid: &ReqId) -> Option<&LogEntry> {
        let entry_of = |number: &u32| self.entries.get(number.wrapping_sub(self.first) as usize);
        let is_it = |number: &u32| entry_of(number).is_some_and(|entry| entry.reqid == *reqid);
        entry_of(self.by_reqid.find(hash(reqid), is_it)?)
    }

    /// Where to cut the log now, if it is long enough for a batch. What is not committed everywhere, up to the version number
    /// `committed`, stays: in the next interval its requests come again, and are found here.
    pub(crate) fn trim_point(&self, limits: LogLimits, committed: u64) -> Option<Eversion> {
        let extra = self.entries.len().checked_sub(limits.entries_min())?;
        if extra < limits.trim_batch() {
            return None;
        }
        let is_committed = |entry: &LogEntry| entry.version.version <= committed;
        let count = match is_mutated("trim_uncommitted") {
            true => extra,
            false => extra.min(self.entries.partition_point(is_committed)),
        };
        (count >= limits.trim_batch()).then(|| self.entries.get(count - 1).map(|e| e.version)).flatten()
    }

    /// Drops entries up to and including `to`.
    pub(crate) fn trim(&mut self, to: Eversion) {
        self.forget_to(to);
        self.check();
    }

    fn forget_to(&mut self, to: Eversion) {
        while let Some(entry) = self.entries.pop_front_if(|e| e.version <= to) {
            self.forget(&entry, self.first);
            self.first = self.first.wrapping_add(1);
            if !is_mutated("keep_tail") {
                self.info.log_tail = entry.version;
            }
        }
    }

    /// Drops entries after `keep_to`: they did not happen.
    fn rewind(&mut self, keep_to: Eversion) {
        while let Some(entry) = self.entries.pop_back_if(|e| e.version > keep_to) {
            self.forget(&entry, self.first.wrapping_add(self.entries.len() as u32));
        }
        self.info.last_update = self.entries.back().map_or(self.info.log_tail, |e| e.version);
    }

    /// The entry of this number, the oldest or the newest, is gone.
    fn forget(&mut self, entry: &LogEntry, number: u32) {
        if let Ok(found) = self.by_reqid.find_entry(hash(&entry.reqid), |n| *n == number) {
            found.remove();
        }
        if entry.returned.is_some() {
            self.outputs.bytes -= returned_bytes(entry);
            let numbers = &mut self.outputs.numbers;
            numbers.pop_front_if(|oldest| *oldest == number).or_else(|| numbers.pop_back());
        }
    }

    /// Number of its entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries after `from`, oldest first.
    pub(crate) fn after(&self, from: Eversion) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().filter(move |e| e.version > from)
    }

    /// The newest version that this log has in common with another one (its tail and its entries), and thus up to which
    /// both copies went through the same changes. `None` if they do not touch.
    pub(crate) fn common_with(&self, other_tail: Eversion, other: &[LogEntry]) -> Option<Eversion> {
        let mine = |e: &LogEntry| self.find_version(e.version).is_some_and(|m| m.reqid == e.reqid);
        if let Some(entry) = other.iter().rev().find(|e| mine(e) || e.version == self.info.log_tail) {
            return Some(entry.version);
        }
        let touches = other_tail == self.info.log_tail || self.find_version(other_tail).is_some();
        touches.then_some(other_tail)
    }

    /// The version with this number, which is one of the log, or that of its tail.
    pub(crate) fn version_of(&self, number: u64) -> Eversion {
        let count = number.checked_sub(self.info.log_tail.version);
        let count = count.unwrap_or_else(|| panic!("pg {}: version {number} is trimmed", self.info.pg));
        let entry = (count as usize).checked_sub(1).and_then(|at| self.entries.get(at));
        let version = entry.map_or(self.info.log_tail, |entry| entry.version);
        assert_eq!(version.version, number, "pg {}: an entry of the log", self.info.pg);
        version
    }

    fn find_version(&self, version: Eversion) -> Option<&LogEntry> {
        let first = self.entries.front()?.version.version;
        let at = usize::try_from(version.version.checked_sub(first)?).ok()?;
        self.entries.get(at).filter(|entry| entry.version == version)
    }
}

fn returned_bytes(entry: &LogEntry) -> usize {
    entry.returned.as_ref().map_or(0, |returned| returned.memory_bytes())
}

/// A version is the next one: numbers rise by one, and epochs do not fall.
fn follows(last: Eversion, next: Eversion) -> bool {
    last.version.checked_add(1) == Some(next.version) && last.epoch <= next.epoch
}

/// Whether these entries continue a log after this tail without a gap, up to this version.
pub(crate) fn is_run(tail: Eversion, entries: &[LogEntry], end: Eversion) -> bool {
    let mut last = tail;
    let rises =
        entries.iter().all(|entry| follows(std::mem::replace(&mut last, entry.version), entry.version));
    rises && last == end
}

fn hash(reqid: &ReqId) -> u64 {
    FixedState::default().hash_one(reqid)
}

#[cfg(test)]
mod tests;
