//! Changes that depend on the content of the key-value store: copies of omaps, rewinds of PG logs, and their division when a PG is
//! split. A batch only names them; they are expanded where the batch is applied, which may be slow.

use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_pgtypes::pg_first_object;
use carmine_types::{Eversion, SpgId};

use crate::blue::meta::{codec, keys};
use crate::kv::{Kv, KvBatch, KvError, KvOp, Lookup};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The batches with each of these changes replaced by plain ones, according to the content of `kv` and the earlier batches. On an
/// alien thread.
pub(crate) fn expand(kv: &dyn Kv, batches: Vec<KvBatch>) -> Result<Vec<KvBatch>, KvError> {
    if batches.iter().all(|batch| batch.lookups().is_empty()) {
        return Ok(batches);
    }
    let lookups = batches.iter().flat_map(KvBatch::lookups).map(|(_, lookup)| lookup);
    let mut earlier = Earlier::new(lookups.flat_map(reads));
    let mut done: Vec<KvBatch> = Vec::new();
    for batch in batches {
        let mut lookups = batch.lookups().iter().peekable();
        let mut part = KvBatch::default();
        for (at, op) in batch.iter().map(Some).chain([None]).enumerate() {
            while let Some((_, lookup)) = lookups.next_if(|(before, _)| *before == at) {
                let comes_to = look_up(&Content { kv, earlier: &earlier }, lookup)?;
                comes_to.iter().for_each(|op| earlier.note(op));
                done.extend([std::mem::take(&mut part), comes_to]);
            }
            if let Some(op) = op {
                earlier.note(op);
                part.push_op(op);
            }
        }
        done.push(part);
    }
    Ok(done)
}

/// A range of keys: from the first (inclusive) to the second (exclusive).
type KeyRange = (Vec<u8>, Vec<u8>);

/// The keys that a lookup reads.
fn reads(lookup: &Lookup) -> Vec<KeyRange> {
    match lookup {
        Lookup::CopyOmap { from, .. } => vec![only(keys::omap_header(from)), keys::omap_range(from, &[])],
        Lookup::RewindLog { pg, .. } => vec![only(keys::pg(keys::PG_TAIL, *pg)), keys::log_range(*pg)],
        Lookup::SplitLog { from, .. } => vec![keys::log_range(*from)],
    }
}

fn only(key: Vec<u8>) -> KeyRange {
    let end = [key.as_slice(), &[0]].concat();
    (key, end)
}

fn look_up(content: &Content<'_>, lookup: &Lookup) -> Result<KvBatch, KvError> {
    match lookup {
        Lookup::CopyOmap { from, to } => copy_omap(content, from, to),
        Lookup::RewindLog { pg, keep_to } => rewind_log(content, *pg, *keep_to),
        Lookup::SplitLog { from, to, bits, tail } => split_log(content, *from, (*to, *bits), *tail),
    }
}

/// Copies an object's omap to another object.
fn copy_omap(content: &Content<'_>, from: &[u8], to: &[u8]) -> Result<KvBatch, KvError> {
    let mut puts = KvBatch::default();
    let header = keys::omap_header(from);
    if let Some(value) = content.value(&header)? {
        put(&mut puts, &header, &keys::omap_header(to), &value);
    }
    for (key, value) in content.pairs(keys::omap_range(from, &[]))? {
        let name = key.get(1 + from.len()..).unwrap_or_default();
        put(&mut puts, &key, &keys::omap(to, name), &value);
    }
    Ok(puts)
}

/// Rewrites a PG's log up to `keep_to` and without trimmed entries. A damaged run stays.
fn rewind_log(content: &Content<'_>, pg: SpgId, keep_to: Eversion) -> Result<KvBatch, KvError> {
    let tail = tail(content, pg)?;
    let mut kept = without_log(pg);
    for (key, value) in content.pairs(keys::log_range(pg))? {
        let Ok(entries) = codec::decode_log(&key, &value) else {
            kept.put(&key, &value);
            continue;
        };
        for entry in entries.iter().filter(|entry| tail < entry.version && entry.version <= keep_to) {
            codec::put_log(&mut kept, pg, entry);
        }
    }
    Ok(kept)
}

/// Gives a PG its part of the log of another one that is split. A damaged run is damaged in both.
fn split_log(
    content: &Content<'_>,
    from: SpgId,
    (to, bits): (SpgId, u32),
    tail: Eversion,
) -> Result<KvBatch, KvError> {
    let mut log = without_log(to);
    let first = Arc::new(pg_first_object(to));
    for (key, value) in content.pairs(keys::log_range(from))? {
        let Ok(entries) = codec::decode_log(&key, &value) else {
            if let Ok(last) = keys::decode_log(&key) {
                // Its checksum is not right for this key either.
                log.put(&keys::log(to, last), &value);
            }
            continue;
        };
        for entry in entries.into_iter().filter(|entry| entry.version > tail) {
            codec::put_log(&mut log, to, &entry.stub_unless_in(to, bits, &first));
        }
    }
    Ok(log)
}

/// Removes a PG's log and its tail.
fn without_log(pg: SpgId) -> KvBatch {
    let mut batch = KvBatch::default();
    let (start, end) = keys::log_range(pg);
    batch.delete_range(&start, &end);
    batch.delete(&keys::pg(keys::PG_TAIL, pg));
    batch
}

/// The PG's log tail. A damaged value counts as absent.
fn tail(content: &Content<'_>, pg: SpgId) -> Result<Eversion, KvError> {
    let key = keys::pg(keys::PG_TAIL, pg);
    let found = content.value(&key)?;
    Ok(found.and_then(|value| codec::decode_tail(&key, &value).ok()).unwrap_or(Eversion::ZERO))
}

/// The store's content with the earlier changes.
struct Content<'a> {
    kv: &'a dyn Kv,
    earlier: &'a Earlier,
}

impl Content<'_> {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.pairs(only(key.to_vec()))?.remove(key))
    }

    /// The pairs of a range, which is one that a lookup reads.
    fn pairs(&self, (start, end): KeyRange) -> Result<Pairs, KvError> {
        let mut pairs = Pairs::new();
        self.kv.scan(&start, &end, &mut |key, value| {
            pairs.insert(key.to_vec(), value.to_vec());
            true
        })?;
        for op in self.earlier.changes_of(&start).iter() {
            match op {
                KvOp::Put(key, value) => drop(pairs.insert(key.to_vec(), value.to_vec())),
                KvOp::Delete(key) => drop(pairs.remove(key)),
                KvOp::DeleteRange(from, to) => {
                    pairs.retain(|key, _| key.as_slice() < from || key.as_slice() >= to)
                }
            }
        }
        Ok(pairs)
    }
}

/// The earlier changes of those keys that lookups read, by range. Without it each lookup would have to go through all that the
/// earlier ones came to: a thousand PGs may be split in one batch.
struct Earlier {
    /// By first key. No two ranges have a key in common: they are whole omaps, headers, logs, tails.
    ranges: Vec<(KeyRange, KvBatch)>,
}

impl Earlier {
    fn new(reads: impl Iterator<Item = KeyRange>) -> Earlier {
        let mut ranges: Vec<_> = reads.map(|range| (range, KvBatch::default())).collect();
        ranges.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        ranges.dedup_by(|(a, _), (b, _)| a == b);
        Earlier { ranges }
    }

    fn note(&mut self, op: KvOp<'_>) {
        let (first, end) = match op {
            KvOp::Put(key, _) | KvOp::Delete(key) => (key, None),
            KvOp::DeleteRange(start, end) => (start, Some(end)),
        };
        let at = self.ranges.partition_point(|((_, end), _)| end.as_slice() <= first);
        let is_touched = |start: &[u8]| end.map_or(start <= first, |end| start < end);
        let touched = self.ranges.iter_mut().skip(at).take_while(|((start, _), _)| is_touched(start));
        touched.for_each(|(_, changes)| changes.push_op(op));
    }

    /// The changes of the range that begins with this key, in order.
    fn changes_of(&self, start: &[u8]) -> &KvBatch {
        let at = self.ranges.binary_search_by(|((first, _), _)| first.as_slice().cmp(start));
        let range = at.ok().and_then(|at| self.ranges.get(at));
        range.map(|(_, changes)| changes).unwrap_or_else(|| unreachable!("a lookup reads what it says"))
    }
}

/// Puts a value under another key. A damaged one stays damaged.
fn put(batch: &mut KvBatch, old_key: &[u8], key: &[u8], value: &[u8]) {
    match codec::decode_omap(old_key, value) {
        Ok(bytes) => batch
            .put_with(|out| out.extend_from_slice(key), |out, at| codec::push(out, at, |e| e.bytes(bytes))),
        Err(_) => batch.put(key, value),
    }
}

#[cfg(test)]
mod tests {
    use carmine_pgtypes::LogEntry;
    use carmine_types::{ObjectId, PgId};
    use proptest::prelude::*;

    use super::*;
    use crate::MemKv;
    use crate::blue::meta::codec::tests::entry;

    /// Names of three objects, none of which is a prefix of another.
    const NAMES: [&[u8]; 3] = [b"a\0\x01", b"b\0\x01", b"c\0\x01"];

    #[derive(Clone, Debug)]
    enum Act {
        Set(usize, u8, u8),
        Header(usize, u8),
        Remove(usize, u8),
        Clear(usize),
        Copy(usize, usize),
        /// The next batch.
        Next,
        /// All batches are applied.
        Apply,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0usize..3, 0u8..5, any::<u8>()).prop_map(|(object, key, value)| Act::Set(object, key, value)),
            1 => (0usize..3, any::<u8>()).prop_map(|(object, value)| Act::Header(object, value)),
            2 => (0usize..3, 0u8..5).prop_map(|(object, key)| Act::Remove(object, key)),
            1 => (0usize..3).prop_map(Act::Clear),
            3 => (0usize..3, 0usize..3).prop_filter("itself", |(a, b)| a != b).prop_map(|(from, to)| Act::Copy(from, to)),
            1 => Just(Act::Next),
            1 => Just(Act::Apply),
        ]
    }

    fn clear(batch: &mut KvBatch, name: &[u8]) {
        let (start, end) = keys::omap_range(name, &[]);
        batch.delete_range(&start, &end);
        batch.delete(&keys::omap_header(name));
    }

    fn set(batch: &mut KvBatch, key: &[u8], value: u8) {
        batch.put_with(|out| out.extend_from_slice(key), |out, at| codec::push(out, at, |e| e.u8(value)));
    }

    /// The values of the header and the keys.
    fn omap(kv: &MemKv, name: &[u8]) -> Vec<Option<u8>> {
        let keys = std::iter::once(keys::omap_header(name)).chain((0..5).map(|key| keys::omap(name, &[key])));
        keys.map(|key| kv.get(&key).unwrap().map(|value| codec::decode_omap(&key, &value).unwrap()[0]))
            .collect()
    }

    proptest! {
        #[test]
        fn a_copy_has_what_its_source_had_then(acts in prop::collection::vec(act(), 0..40)) {
            let (kv, mut batches) = (MemKv::new(), vec![KvBatch::default()]);
            let mut model = vec![vec![None; 6]; 3];
            for act in acts.iter().chain([&Act::Apply]) {
                let batch = batches.last_mut().unwrap();
                match act {
                    Act::Set(object, key, value) => {
                        set(batch, &keys::omap(NAMES[*object], &[*key]), *value);
                        model[*object][usize::from(*key) + 1] = Some(*value);
                    }
                    Act::Header(object, value) => {
                        set(batch, &keys::omap_header(NAMES[*object]), *value);
                        model[*object][0] = Some(*value);
                    }
                    Act::Remove(object, key) => {
                        batch.delete(&keys::omap(NAMES[*object], &[*key]));
                        model[*object][usize::from(*key) + 1] = None;
                    }
                    Act::Clear(object) => {
                        clear(batch, NAMES[*object]);
                        model[*object] = vec![None; 6];
                    }
                    Act::Copy(from, to) => {
                        clear(batch, NAMES[*to]);
                        let (from_key, to_key) = (NAMES[*from].into(), NAMES[*to].into());
                        batch.look_up(Lookup::CopyOmap { from: from_key, to: to_key }, 0);
                        model[*to] = model[*from].clone();
                    }
                    Act::Next => batches.push(KvBatch::default()),
                    Act::Apply => {
                        let expanded = expand(&kv, std::mem::replace(&mut batches, vec![KvBatch::default()])).unwrap();
                        prop_assert!(expanded.iter().all(|batch| batch.lookups().is_empty()));
                        kv.commit(&expanded, true).unwrap();
                        for (name, wanted) in NAMES.iter().zip(&model) {
                            prop_assert_eq!(&omap(&kv, name), wanted);
                        }
                    }
                }
            }
        }
    }

    fn id(ps: u32) -> SpgId {
        PgId::new(1, ps).into()
    }

    fn log_entry(version: u64, hash: u32) -> LogEntry {
        let oid = ObjectId { name: (*b"object").into(), ..ObjectId::cursor(1, hash) };
        LogEntry { oid: oid.into(), ..entry(Eversion::new(1, version)) }
    }

    #[test]
    fn a_lookup_goes_through_the_changes_of_what_it_reads_only() {
        let lookup =
            |from| Lookup::SplitLog { from: id(from), to: id(from + 4), bits: 3, tail: Eversion::ZERO };
        let mut earlier = Earlier::new([lookup(0), lookup(2), lookup(0)].iter().flat_map(reads));
        let mut batch = KvBatch::default();
        (0..4).for_each(|ps| codec::put_log(&mut batch, id(ps), &log_entry(1, 1)));
        batch.delete(&keys::log(id(2), Eversion::new(1, 1)));
        batch.delete_range(&keys::log_range(id(1)).0, &keys::log_range(id(1)).1);
        batch.delete_range(&keys::log_range(id(1)).0, &keys::log_range(id(2)).1);
        batch.delete_range(&keys::log_range(id(2)).1, &keys::log_range(id(3)).1);
        batch.iter().for_each(|op| earlier.note(op));
        let changes = |ps| earlier.changes_of(&keys::log_range(id(ps)).0).len();
        assert_eq!((earlier.ranges.len(), changes(0), changes(2)), (2, 1, 3));
    }
}
