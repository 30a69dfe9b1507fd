//! Changes that depend on the content of the key-value store: copies of omaps, and rewinds of PG logs. A batch only names them;
//! they are expanded where the batch is applied, which may be slow.

use std::collections::BTreeMap;

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
    let mut done: Vec<KvBatch> = Vec::new();
    for batch in batches {
        let mut lookups = batch.lookups().iter().peekable();
        let mut part = KvBatch::default();
        for (at, op) in batch.iter().map(Some).chain([None]).enumerate() {
            while let Some((_, lookup)) = lookups.next_if(|(before, _)| *before == at) {
                done.push(std::mem::take(&mut part));
                let comes_to = match lookup {
                    Lookup::CopyOmap { from, to } => copy_omap(kv, &done, from, to)?,
                    Lookup::RewindLog { pg, keep_to } => rewind_log(kv, &done, *pg, *keep_to)?,
                };
                done.push(comes_to);
            }
            match op {
                Some(KvOp::Put(key, value)) => part.put(key, value),
                Some(KvOp::Delete(key)) => part.delete(key),
                Some(KvOp::DeleteRange(start, end)) => part.delete_range(start, end),
                None => {}
            }
        }
        done.push(part);
    }
    Ok(done)
}

/// Copies an object's omap, as of these batches, to another object.
fn copy_omap(kv: &dyn Kv, before: &[KvBatch], from: &[u8], to: &[u8]) -> Result<KvBatch, KvError> {
    let mut puts = KvBatch::default();
    let header = keys::omap_header(from);
    if let Some(value) = value(kv, before, &header)? {
        put(&mut puts, &header, &keys::omap_header(to), &value);
    }
    let (start, end) = keys::omap_range(from, &[]);
    for (key, value) in view(kv, before, (&start, &end))? {
        let name = key.get(1 + from.len()..).unwrap_or_default();
        put(&mut puts, &key, &keys::omap(to, name), &value);
    }
    Ok(puts)
}

/// Rewrites a PG's log, as of these batches, up to `keep_to` and without trimmed entries. A damaged run stays.
fn rewind_log(kv: &dyn Kv, before: &[KvBatch], pg: SpgId, keep_to: Eversion) -> Result<KvBatch, KvError> {
    let tail = tail(kv, before, pg)?;
    let (start, end) = keys::log_range(pg);
    let mut kept = KvBatch::default();
    kept.delete_range(&start, &end);
    kept.delete(&keys::pg(keys::PG_TAIL, pg));
    for (key, value) in view(kv, before, (&start, &end))? {
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

/// The PG's log tail after these batches. A damaged value counts as absent.
fn tail(kv: &dyn Kv, before: &[KvBatch], pg: SpgId) -> Result<Eversion, KvError> {
    let key = keys::pg(keys::PG_TAIL, pg);
    let found = value(kv, before, &key)?;
    Ok(found.and_then(|value| codec::decode_tail(&key, &value).ok()).unwrap_or(Eversion::ZERO))
}

/// The value of a key after these batches.
fn value(kv: &dyn Kv, before: &[KvBatch], key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
    let mut end = key.to_vec();
    end.push(0);
    Ok(view(kv, before, (key, &end))?.remove(key))
}

/// The pairs of a range after these batches.
fn view(kv: &dyn Kv, before: &[KvBatch], (start, end): (&[u8], &[u8])) -> Result<Pairs, KvError> {
    let mut pairs = Pairs::new();
    kv.scan(start, end, &mut |key, value| {
        pairs.insert(key.to_vec(), value.to_vec());
        true
    })?;
    let is_within = |key: &[u8]| start <= key && key < end;
    for op in before.iter().flat_map(KvBatch::iter) {
        match op {
            KvOp::Put(key, value) if is_within(key) => {
                pairs.insert(key.to_vec(), value.to_vec());
            }
            KvOp::Delete(key) if is_within(key) => {
                pairs.remove(key);
            }
            KvOp::DeleteRange(from, to) if from < end && start < to => {
                pairs.retain(|key, _| key.as_slice() < from || key.as_slice() >= to);
            }
            _ => {}
        }
    }
    Ok(pairs)
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
    use super::*;
    use crate::MemKv;
    use proptest::prelude::*;

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
                        batch.look_up(Lookup::CopyOmap { from: from_key, to: to_key });
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
}
