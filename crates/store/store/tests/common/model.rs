//! The reference: what a store should hold, kept in the most obvious way.

use std::collections::BTreeMap;

use carmine_pgtypes::{LogEntry, ObjectMeta, PgInfo, PgState, Step, Transaction, pg_bits, pg_contains};
use carmine_store::{OmapRange, Store};
use carmine_types::{Eversion, LogOp, ObjectId, SpgId, UTime};

/// Every object whole, every PG's log as a list.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub objects: BTreeMap<ObjectId, Object>,
    pgs: BTreeMap<SpgId, Pg>,
}

#[derive(Clone, Debug, Default)]
pub struct Object {
    pub bytes: Vec<u8>,
    pub meta: ObjectMeta,
    header: Vec<u8>,
    omap: BTreeMap<Box<[u8]>, Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
struct Pg {
    info: PgInfo,
    tail: Eversion,
    log: Vec<LogEntry>,
}

impl Model {
    pub fn apply(&mut self, txn: &Transaction) {
        for change in &txn.changes {
            change.steps.iter().for_each(|step| self.apply_step(&change.oid, step));
        }
        if !txn.log.is_empty() || txn.log_trim_to.is_some() || txn.info.is_some() {
            self.pgs
                .entry(txn.pg)
                .or_insert_with(|| Pg { info: PgInfo { pg: txn.pg, ..PgInfo::default() }, ..Pg::default() });
        }
        let Some(pg) = self.pgs.get_mut(&txn.pg) else { return };
        if let Some(keep_to) = txn.log_rewind_to {
            pg.log.retain(|entry| entry.version <= keep_to);
            pg.tail = Eversion::ZERO;
        }
        if let Some(info) = &txn.info {
            pg.info = PgInfo::clone(info);
        }
        pg.log.extend(txn.log.iter().cloned());
        if let Some(to) = txn.log_trim_to {
            pg.log.retain(|entry| entry.version > to);
            pg.tail = pg.tail.max(to);
        }
        let child = |info: &PgInfo| {
            let log = pg.log.iter().filter(|entry| entry.version > info.log_tail);
            let log = log.map(|entry| part_of(entry, info)).collect();
            (info.pg, Pg { info: info.clone(), tail: Eversion::ZERO, log })
        };
        let children: Vec<_> = txn.split.iter().map(child).collect();
        self.pgs.extend(children);
        for gone in txn.merge.iter().chain(txn.forget_pg.then_some(&txn.pg)) {
            self.pgs.remove(gone);
        }
    }

    fn apply_step(&mut self, oid: &ObjectId, step: &Step) {
        if matches!(step, Step::Remove) {
            self.objects.remove(oid);
        } else if let Step::CloneFrom { from } = step {
            match self.objects.get(&**from).cloned() {
                Some(copy) => drop(self.objects.insert(oid.clone(), copy)),
                None => drop(self.objects.remove(oid)),
            }
        } else if step.creates() || self.objects.contains_key(oid) {
            self.objects.entry(oid.clone()).or_default().apply(step);
        }
    }

    /// Info and log of a PG; the info follows the log.
    #[must_use]
    pub fn pg(&self, id: SpgId) -> Option<PgState> {
        let pg = self.pgs.get(&id)?;
        let mut info = pg.info.clone();
        info.log_tail = info.log_tail.max(pg.tail);
        let newest = pg.log.last().map_or(Eversion::ZERO, |entry| entry.version);
        info.last_update = info.last_update.max(info.log_tail).max(newest);
        Some(PgState { info, log: pg.log.clone() })
    }

    /// All PGs.
    #[must_use]
    pub fn pgs(&self) -> Vec<SpgId> {
        self.pgs.keys().copied().collect()
    }

    /// The objects of a PG, in order.
    pub fn objects_of(&self, pg: SpgId, bits: u32) -> impl Iterator<Item = &ObjectId> {
        self.objects.keys().filter(move |oid| pg_contains(pg, bits, oid))
    }

    /// Fails if the PG's info and log are not the model's. (They are read as they are durable.)
    pub async fn compare_pg(&self, store: &Store, pg: SpgId) {
        assert_eq!(store.load_pg(pg).await.unwrap(), self.pg(pg), "{}, pg {pg}", store.kind());
    }

    /// Fails if the objects of this PG (of a pool of `pg_num`), their listing in pages, metadata, bytes and omaps are not
    /// the model's.
    pub async fn compare(&self, store: &Store, pg: SpgId, pg_num: u32, page: usize) {
        let kind = store.kind();
        let bits = pg_bits(pg.pgid.ps, pg_num);
        let wanted: Vec<&ObjectId> = self.objects_of(pg, bits).collect();
        let mut listed: Vec<ObjectId> = Vec::new();
        loop {
            // `from` is inclusive: the last one comes again.
            let part = store.list(pg, bits, listed.last(), page + 1).await.unwrap();
            let fresh: Vec<_> = part.into_iter().filter(|oid| listed.last() != Some(oid)).collect();
            if fresh.is_empty() {
                break;
            }
            listed.extend(fresh);
        }
        assert!(listed.iter().eq(wanted), "{kind}, pg {pg}: {listed:?}");
        for oid in &listed {
            let Object { bytes, meta, .. } = &self.objects[oid];
            assert_eq!(store.stat(oid).await.unwrap().as_ref(), Some(meta), "{oid} on {kind}");
            let data = store.read(oid, 0, u64::MAX).await.unwrap().to_vec();
            assert_eq!(data.len(), bytes.len(), "{oid} on {kind}");
            let differ = data.iter().zip(bytes).position(|(a, b)| a != b);
            assert_eq!(differ, None, "{oid} differs there, on {kind}");
            self.compare_omap(store, oid, page).await;
        }
    }

    /// Fails if an object's omap is not the model's: its header, its values by key, and pages of at most `page` keys from
    /// the first key on, and behind one in the middle among those with its prefix.
    pub async fn compare_omap(&self, store: &Store, oid: &ObjectId, page: usize) {
        let nothing = Object::default();
        let Object { header, omap, .. } = self.objects.get(oid).unwrap_or(&nothing);
        let found = store.omap_header(oid).await.unwrap();
        assert_eq!(found.as_slice(), header, "header of {oid} on {}", store.kind());
        let mut keys: Vec<Box<[u8]>> = omap.keys().cloned().collect();
        keys.push((*b"missing").into());
        let found = store.omap_values(oid, &keys).await.unwrap();
        let found = found.iter().map(|value| value.as_ref().map(|value| value.to_vec()));
        assert!(
            found.eq(keys.iter().map(|key| omap.get(key).cloned())),
            "values of {oid} on {}",
            store.kind()
        );
        let all = OmapRange { entries_max: page, ..OmapRange::all(usize::MAX) };
        self.compare_pages(store, oid, all.clone()).await;
        if let Some(middle) = keys.get(omap.len() / 2) {
            let prefix = middle[..middle.len().min(1)].to_vec();
            let behind = OmapRange { start: middle.to_vec(), is_after: true, prefix, bytes_max: 50, ..all };
            self.compare_pages(store, oid, behind).await;
        }
    }

    /// Fails if the keys and values of a range of an object's omap, read page by page, are not the model's.
    pub async fn compare_pages(&self, store: &Store, oid: &ObjectId, range: OmapRange) {
        let in_range = |key: &[u8]| {
            key.starts_with(&range.prefix) && key >= &*range.start && !(range.is_after && key == range.start)
        };
        let omap = self.objects.get(oid).map(|object| &object.omap);
        let wanted: Vec<(Vec<u8>, Vec<u8>)> = omap
            .into_iter()
            .flatten()
            .filter(|(key, _)| in_range(key))
            .map(|(key, value)| (key.to_vec(), value.clone()))
            .collect();
        let (mut found, mut next) = (Vec::new(), range.clone());
        loop {
            let page = store.omap_page(oid, &next).await.unwrap();
            let bytes: Vec<usize> = page.entries.iter().map(|(key, value)| key.len() + value.len()).collect();
            let before_last: usize = bytes.iter().rev().skip(1).sum();
            assert!(
                bytes.len() <= range.entries_max && (bytes.len() < 2 || before_last < range.bytes_max),
                "a page of {bytes:?} bytes for {range:?}"
            );
            assert!(!page.more || !page.entries.is_empty(), "an empty page, and more behind it: {range:?}");
            found.extend(page.entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
            if !page.more {
                break;
            }
            next = next.after(&page);
        }
        assert_eq!(found, wanted, "{range:?} of {oid} on {}", store.kind());
    }
}

/// An entry of a PG as the log of a part of that has it.
fn part_of(entry: &LogEntry, part: &PgInfo) -> LogEntry {
    let pg = part.pg;
    if pg_contains(pg, pg_bits(pg.pgid.ps, part.pg_num), &entry.oid) {
        return entry.clone();
    }
    LogEntry {
        version: entry.version,
        reqid: entry.reqid,
        oid: super::mapper(pg).into(),
        op: LogOp::Error,
        prior: Eversion::ZERO,
        user_version: 0,
        result: 0,
        mtime: UTime::ZERO,
        clones: Box::default(),
        returned: None,
    }
}

impl Object {
    fn apply(&mut self, step: &Step) {
        let bytes = &mut self.bytes;
        match step {
            Step::MarkLost { .. } => unreachable!("the model's loads lose nothing"),
            Step::Write { off, data, .. } if !data.is_empty() => {
                let (off, data) = (*off as usize, data.to_vec());
                if bytes.len() < off + data.len() {
                    bytes.resize(off + data.len(), 0);
                }
                bytes[off..off + data.len()].copy_from_slice(&data);
            }
            Step::Zero { off, len } => {
                let end = (off + len).min(bytes.len() as u64).max(*off) as usize;
                if let Some(part) = bytes.get_mut(*off as usize..end) {
                    part.fill(0);
                }
            }
            Step::Truncate { size } => bytes.resize(*size as usize, 0),
            Step::SetMeta { version, user_version, mtime } => {
                let meta = &mut self.meta;
                (meta.version, meta.user_version, meta.mtime) = (*version, *user_version, *mtime);
            }
            Step::SetXattr { name, value } => self.meta.xattrs.set(name, value.clone()),
            Step::RemoveXattr { name } => self.meta.xattrs.remove(name),
            Step::ClearXattrs { prefix } => self.meta.xattrs.clear(prefix),
            Step::SetOmap { .. }
            | Step::SetOmapHeader { .. }
            | Step::RemoveOmap { .. }
            | Step::RemoveOmapRange { .. }
            | Step::ClearOmap => self.apply_to_omap(step),
            Step::Write { .. } | Step::Touch | Step::Remove | Step::CloneFrom { .. } => {}
        }
        self.meta.size = self.bytes.len() as u64;
    }

    fn apply_to_omap(&mut self, step: &Step) {
        match step {
            Step::SetOmap { entries } => {
                self.omap.extend(entries.iter().map(|(key, value)| (key.clone(), value.to_vec())));
                self.meta.has_omap = true;
            }
            Step::SetOmapHeader { header } => {
                self.header = header.to_vec();
                self.meta.has_omap = true;
            }
            Step::RemoveOmap { keys } => self.omap.retain(|key, _| !keys.contains(key)),
            Step::RemoveOmapRange { from, to } => self.omap.retain(|key, _| key < from || key >= to),
            _ => {
                (self.omap, self.header) = (BTreeMap::new(), Vec::new());
                self.meta.has_omap = false;
            }
        }
    }
}
