//! The merge of PGs, when the number of PGs of their pool falls: the sources become parts of the PG that they were split off once, or
//! would have been.
//!
//! The parts are neighbours in the objects' order, so no object changes. Their logs end: the new one has the answers of both, so that
//! resends find them, with versions that all complete copies compute alike.

use std::sync::Arc;

use carmine_types::{Epoch, Eversion, LogOp, SpgId, is_mutated};

use crate::{LogEntry, Omaps, PgInfo, PgState, pg_children, pg_first_object};

/// Answers of each part that the log of a merged PG keeps: all, as logs are shorter.
const ANSWERS_MAX: u64 = 4096;
/// The merged log ends so far after the newest change of its parts: its entries are newer than all objects, at most
/// [`ANSWERS_MAX`] of either part.
const JUMP: u64 = 2 * ANSWERS_MAX;

/// What a map says of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// The new number of PGs.
    pub pg_num: u32,
    /// Its epoch.
    pub epoch: Epoch,
    /// The newest versions of source and target, which no longer changed, if this map is the one that merges them: copies that have
    /// others are not whole.
    pub versions: Option<(Eversion, Eversion)>,
}

impl PgState {
    /// The merged copy of a PG: this one, `None` if there is no copy here, with those of its sources that are here.
    ///
    /// It is complete if both parts are here, complete, and of the versions that the map names. Otherwise it has to be copied anew:
    /// nobody knows which changes of a part it lacks.
    ///
    /// # Panics
    /// If this PG does not become larger by the merge, or a source is none of its parts.
    #[must_use]
    pub fn absorb(target: Option<PgState>, pg: SpgId, sources: &[PgState], merge: &Merge) -> PgState {
        let Merge { pg_num, epoch, versions } = *merge;
        assert!(pg_num > 0 && pg.pgid.ps < pg_num, "PG {pg} of {pg_num} absorbs others");
        let made = sources.iter().chain(&target).map(|part| part.info.pg_num).max().unwrap_or_default();
        let parts: Vec<u32> = pg_children(pg.pgid.ps, pg_num, made).collect();
        for source in sources {
            let PgInfo { pg: id, .. } = source.info;
            let is_part = parts.contains(&id.pgid.ps) && (id.pgid.pool, id.shard) == (pg.pgid.pool, pg.shard);
            assert!(is_part, "PG {id} of {made} is no part of PG {pg} of {pg_num}");
        }
        let is_whole = is_whole(target.as_ref(), sources, &parts, versions) || is_mutated("merge_any");
        let all = || sources.iter().chain(&target).map(|part| &part.info);
        let newest = all().map(|info| info.last_update.version).max().unwrap_or_default();
        let known = versions.map_or(0, |(source, target)| source.version.max(target.version));
        let last_update = Eversion::new(epoch.0, newest.max(known) + JUMP);
        let log = match (&target, sources) {
            (Some(target), [source]) if is_whole => {
                answers(pg, &target.own_log(), &source.own_log(), last_update)
            }
            _ => Vec::new(),
        };
        let first_made = all().map(|info| info.made).max().unwrap_or_default();
        let made = if target.is_some() { first_made } else { epoch };
        let old = target.map(|target| target.info).unwrap_or_default();
        let mut scrubs = old.scrubs;
        scrubs.omaps = Omaps::default();
        let unfound = old.unfound.iter().chain(sources.iter().flat_map(|source| &source.info.unfound));
        let info = PgInfo {
            pg,
            pg_num,
            last_update,
            log_tail: Eversion::new(epoch.0, last_update.version - log.len() as u64),
            made,
            incomplete: !is_whole,
            complete_to: Eversion::ZERO,
            last_backfill: None,
            unfound: unfound.cloned().collect(),
            scrubs,
            split: epoch,
            ..old
        };
        PgState { info, log }
    }

    /// The log, with stubs for what a split left in it of other PGs' objects.
    fn own_log(&self) -> Vec<LogEntry> {
        let (pg, bits) = (self.info.pg, self.info.bits().unwrap_or_default());
        let first = Arc::new(pg_first_object(pg));
        self.log.iter().map(|entry| entry.clone().stub_unless_in(pg, bits, &first)).collect()
    }
}

fn is_whole(
    target: Option<&PgState>,
    sources: &[PgState],
    parts: &[u32],
    versions: Option<(Eversion, Eversion)>,
) -> bool {
    let (Some(target), [source], [_], Some(versions)) = (target, sources, parts, versions) else {
        return false;
    };
    !target.info.incomplete
        && !source.info.incomplete
        && (source.info.last_update, target.info.last_update) == versions
}

/// The merged log, oldest first: answers of both parts, the newest last. The version of an answer follows from that which it had alone, so
/// that copies whose logs are trimmed to different lengths agree.
fn answers(pg: SpgId, target: &[LogEntry], source: &[LogEntry], last: Eversion) -> Vec<LogEntry> {
    let first = Arc::new(pg_first_object(pg));
    let count = target.len().max(source.len()).min(ANSWERS_MAX as usize);
    let back = |log: &[LogEntry], at: usize| log.len().checked_sub(at + 1).map(|at| log[at].clone());
    let mut entries = Vec::with_capacity(2 * count);
    for at in (0..count).rev() {
        for (part, log) in [source, target].into_iter().enumerate() {
            let version = Eversion { version: last.version - (2 * at + 1 - part) as u64, ..last };
            let entry =
                back(log, at).filter(|entry| !entry.is_stub()).unwrap_or_else(|| LogEntry::stub(&first));
            entries.push(LogEntry { version, ..answer(entry) });
        }
    }
    entries
}

/// An entry that changes nothing, and answers resends of its request.
fn answer(entry: LogEntry) -> LogEntry {
    let prior = entry.given_version();
    LogEntry { op: LogOp::Error, prior, clones: Box::default(), ..entry }
}

impl LogEntry {
    /// The version that its client was given: that of this entry, or the one that it had before a merge gave it a new place.
    #[must_use]
    pub fn given_version(&self) -> Eversion {
        if self.op == LogOp::Error && self.prior > Eversion::ZERO { self.prior } else { self.version }
    }
}
