//! The PG log in memory: the entries, and an index by request id that finds resends.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use carmine_pgtypes::{LogEntry, PgInfo, PgState};
use carmine_types::{Eversion, ReqId, SpgId};
use foldhash::fast::FixedState;

use crate::config::{LOG_ENTRIES_MIN, LOG_TRIM_BATCH};

/// What a resend is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub version: Eversion,
    pub user_version: u64,
    pub result: i32,
}

/// Entries and info of one PG; the same as what the store holds once everything submitted is durable.
#[derive(Debug)]
pub(crate) struct PgLog {
    info: PgInfo,
    entries: VecDeque<LogEntry>,
    by_reqid: HashMap<ReqId, Done, FixedState>,
}

impl PgLog {
    pub(crate) fn new(pg: SpgId) -> PgLog {
        let info = PgInfo { pg, ..PgInfo::default() };
        PgLog { info, entries: VecDeque::new(), by_reqid: HashMap::default() }
    }

    /// Takes what the store has of the PG.
    pub(crate) fn load(&mut self, state: PgState) {
        *self = PgLog::new(state.info.pg);
        self.info = state.info;
        state.log.into_iter().for_each(|entry| self.push(entry));
    }

    /// What the PG remembers of itself.
    pub(crate) fn info(&self) -> &PgInfo {
        &self.info
    }

    /// Takes an info that was given to the store.
    pub(crate) fn set_info(&mut self, info: PgInfo) {
        self.info = info;
    }

    /// Appends an entry; its version becomes the last update.
    pub(crate) fn push(&mut self, entry: LogEntry) {
        self.info.last_update = entry.version;
        // Entries without a client (repairs) have a zero id, which no resend carries.
        if entry.reqid != ReqId::default() {
            let done =
                Done { version: entry.version, user_version: entry.user_version, result: entry.result };
            self.by_reqid.insert(entry.reqid, done);
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn find(&self, reqid: &ReqId) -> Option<Done> {
        self.by_reqid.get(reqid).copied()
    }

    /// Where to cut the log now, if it is long enough for a batch.
    pub(crate) fn trim_point(&self) -> Option<Eversion> {
        let extra = self.entries.len().checked_sub(LOG_ENTRIES_MIN)?;
        (extra >= LOG_TRIM_BATCH).then(|| self.entries.get(extra - 1).map(|e| e.version)).flatten()
    }

    /// Drops entries up to and including `to`.
    pub(crate) fn trim(&mut self, to: Eversion) {
        while self.entries.front().is_some_and(|e| e.version <= to) {
            if let Some(entry) = self.entries.pop_front() {
                self.forget(&entry);
                self.info.log_tail = entry.version;
            }
        }
    }

    /// Drops entries after `keep_to`: they did not happen.
    pub(crate) fn rewind(&mut self, keep_to: Eversion) {
        while self.entries.back().is_some_and(|e| e.version > keep_to) {
            if let Some(entry) = self.entries.pop_back() {
                self.forget(&entry);
            }
        }
        self.info.last_update = self.entries.back().map_or(self.info.log_tail, |e| e.version);
    }

    fn forget(&mut self, entry: &LogEntry) {
        if let Entry::Occupied(found) = self.by_reqid.entry(entry.reqid)
            && found.get().version == entry.version
        {
            found.remove();
        }
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

    fn find_version(&self, version: Eversion) -> Option<&LogEntry> {
        let at = self.entries.binary_search_by(|e| e.version.cmp(&version)).ok()?;
        self.entries.get(at)
    }
}
