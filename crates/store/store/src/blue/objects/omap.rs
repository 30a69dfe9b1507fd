//! [`OmapOverlay`]: the changes of an object's omap that the index lacks, so that reads need not wait for it.

use std::collections::BTreeMap;
use std::ops::Bound;

use carmine_pgtypes::Step;
use carmine_reactor::Bytes;

type Key = Box<[u8]>;

/// Most removed ranges that a read checks for each key.
const RANGES_MAX: usize = 64;

/// The changes of an object's omap by the windows that they belong to, oldest first.
#[derive(Default)]
pub(crate) struct OmapOverlay(Vec<OmapChanges>);

/// The sum of the steps of one window.
#[derive(Default)]
struct OmapChanges {
    window: u64,
    header: Option<Bytes>,
    /// Keys that were set or removed after all in `gone`.
    values: BTreeMap<Key, Option<Bytes>>,
    gone: Vec<Gone>,
    /// Whether they begin with a copy of another object's omap, which does not exist until the index has it.
    is_copy: bool,
}

/// A removed range of keys: the first, and the first after it if the range has an end.
#[derive(Clone)]
struct Gone(Key, Option<Key>);

/// A part of an overlay.
#[derive(Default)]
pub(crate) struct OverlayPart {
    /// New values; `None`: removed.
    pub(crate) values: BTreeMap<Key, Option<Bytes>>,
    gone: Vec<Gone>,
    /// The last key that it covers; `None`: it covers all.
    pub(crate) last: Option<Key>,
}

impl Gone {
    fn has(&self, key: &[u8]) -> bool {
        let Gone(start, end) = self;
        **start <= *key && end.as_ref().is_none_or(|end| *key < **end)
    }
}

impl OmapChanges {
    fn remove_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        let range = (
            Bound::Included(Key::from(start)),
            end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.into())),
        );
        self.values.extract_if(range, |_, _| true).for_each(drop);
        self.gone.push(Gone(start.into(), end.map(Into::into)));
    }
}

impl OmapOverlay {
    /// Notes a change of the omap that belongs to a window, which is the last one or new.
    pub(crate) fn change(&mut self, window: u64, step: &Step) {
        if self.0.last().is_none_or(|last| last.window != window) {
            self.0.push(OmapChanges { window, ..OmapChanges::default() });
        }
        let Some(last) = self.0.last_mut() else { return };
        // Copied, because a client's data lies in a buffer that should be freed.
        let copy = |bytes: &Bytes| Bytes::from(bytes.to_vec());
        match step {
            Step::SetOmap { entries } => {
                last.values.extend(entries.iter().map(|(key, value)| (key.clone(), Some(copy(value)))));
            }
            Step::SetOmapHeader { header } => last.header = Some(copy(header)),
            Step::RemoveOmap { keys } => last.values.extend(keys.iter().map(|key| (key.clone(), None))),
            Step::RemoveOmapRange { from, to } if from < to => last.remove_range(from, Some(to)),
            Step::ClearOmap => {
                last.values.clear();
                last.gone = vec![Gone(Key::default(), None)];
                last.header = Some(Bytes::new());
                last.is_copy = false;
            }
            _ => {}
        }
    }

    /// Notes that the omap, which was cleared, becomes a copy of another object's.
    pub(crate) fn copy(&mut self, window: u64) {
        self.change(window, &Step::ClearOmap);
        if let Some(last) = self.0.last_mut() {
            last.is_copy = true;
        }
    }

    /// Drops the changes up to this window, which the index has.
    pub(crate) fn drop_indexed(&mut self, window: u64) {
        self.0.retain(|changes| changes.window > window);
    }

    /// Whether it cannot be read before the index has it.
    pub(crate) fn has_copy(&self) -> bool {
        self.0.iter().any(|changes| changes.is_copy)
    }

    /// Whether there are so many removed ranges that feeding the index is faster than checking them.
    pub(crate) fn is_long(&self) -> bool {
        self.0.iter().map(|changes| changes.gone.len()).sum::<usize>() > RANGES_MAX
    }

    /// The header, if it overrides the index.
    pub(crate) fn header(&self) -> Option<&Bytes> {
        self.0.iter().rev().find_map(|changes| changes.header.as_ref())
    }

    /// The value of a key, if it overrides the index; `Some(None)`: the key is removed.
    pub(crate) fn value(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.0.iter().rev().find_map(|changes| match changes.values.get(key) {
            Some(value) => Some(value.clone()),
            None => changes.gone.iter().any(|gone| gone.has(key)).then_some(None),
        })
    }

    /// Its changes of the keys from `start` on that begin with `prefix`: up to `keys_max` of each window.
    pub(crate) fn part(&self, start: &[u8], prefix: &[u8], keys_max: usize) -> OverlayPart {
        let mut part = OverlayPart::default();
        for changes in &self.0 {
            part.values.retain(|key, _| !changes.gone.iter().any(|gone| gone.has(key)));
            part.gone.extend(changes.gone.iter().cloned());
            let from = (Bound::Included(start), Bound::Unbounded);
            let all = changes.values.range::<[u8], _>(from).take_while(|(key, _)| key.starts_with(prefix));
            let mut last = None;
            let mut more = all.peekable();
            for (key, value) in more.by_ref().take(keys_max) {
                part.values.insert(key.clone(), value.clone());
                last = Some(key);
            }
            if more.peek().is_some() {
                let last = last.cloned().unwrap_or_else(|| start.into());
                part.last = Some(part.last.take().map_or(last.clone(), |other| other.min(last)));
            }
        }
        if let Some(last) = &part.last {
            let last = last.clone();
            part.values.retain(|key, _| *key <= last);
        }
        part
    }
}

impl OverlayPart {
    /// Whether the index's value of this key is overridden.
    pub(crate) fn overrides(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.gone.iter().any(|gone| gone.has(key))
    }

    /// The smallest key from `start` on outside all removed ranges, where the index is valid; `None`: there is none.
    pub(crate) fn first_visible<'a>(&'a self, mut start: &'a [u8]) -> Option<&'a [u8]> {
        while let Some(gone) = self.gone.iter().find(|gone| gone.has(start)) {
            start = gone.1.as_deref()?;
        }
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Map = BTreeMap<Key, Bytes>;

    fn key(n: u8) -> Key {
        Box::new([n / 4, n % 4])
    }

    fn step() -> impl Strategy<Value = Step> {
        let keys = || prop::collection::vec((0u8..16).prop_map(key), 0..4);
        let value = || any::<u8>().prop_map(|n| Bytes::from(vec![n]));
        prop_oneof![
            4 => prop::collection::vec(((0u8..16).prop_map(key), value()), 0..4).prop_map(|entries| Step::SetOmap { entries }),
            2 => keys().prop_map(|keys| Step::RemoveOmap { keys }),
            2 => ((0u8..16).prop_map(key), (0u8..16).prop_map(key)).prop_map(|(from, to)| Step::RemoveOmapRange { from, to }),
            1 => Just(Step::ClearOmap),
        ]
    }

    fn apply(map: &mut Map, step: &Step) {
        match step {
            Step::SetOmap { entries } => map.extend(entries.iter().cloned()),
            Step::RemoveOmap { keys } => map.retain(|key, _| !keys.contains(key)),
            Step::RemoveOmapRange { from, to } => map.retain(|key, _| key < from || key >= to),
            _ => map.clear(),
        }
    }

    /// The keys with a prefix as an index and an overlay have them, a few at a time.
    fn read(index: &Map, overlay: &OmapOverlay, prefix: &[u8], keys_max: usize) -> Vec<(Key, Bytes)> {
        let (mut start, mut found) = (prefix.to_vec(), Vec::new());
        loop {
            let part = overlay.part(&start, prefix, keys_max);
            let is_told = |key: &Key| part.last.as_ref().is_none_or(|last| key <= last);
            let all = part
                .first_visible(&start)
                .map(|first| index.range::<[u8], _>((Bound::Included(first), Bound::Unbounded)));
            let mut page: Map = all
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(prefix) && is_told(key) && !part.overrides(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            page.extend(part.values.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))));
            found.extend(page);
            match part.last {
                Some(last) => start = [&last, &[0][..]].concat(),
                None => return found,
            }
        }
    }

    proptest! {
        #[test]
        fn index_and_overlay_are_what_was_submitted(steps in prop::collection::vec((step(), 0u64..2), 0..20), fed in 0usize..20,
                                                    prefix in 0u8..4, keys_max in 1usize..4) {
            let (mut map, mut index, mut overlay, mut window) = (Map::new(), Map::new(), OmapOverlay::default(), 1);
            let mut windows = Vec::new();
            for (step, more) in &steps {
                window += more;
                apply(&mut map, step);
                overlay.change(window, step);
                windows.push(window);
            }
            // The index has some of the windows completely; the overlay may have dropped fewer of them.
            let until = windows.get(fed).copied().unwrap_or(0);
            steps.iter().zip(&windows).filter(|(_, window)| **window <= until).for_each(|((step, _), _)| apply(&mut index, step));
            for settled in [until.saturating_sub(1), until] {
                overlay.drop_indexed(settled);
                for prefix in [&[][..], &[prefix][..]] {
                    let wanted: Vec<_> = map.clone().into_iter().filter(|(key, _)| key.starts_with(prefix)).collect();
                    prop_assert_eq!(read(&index, &overlay, prefix, keys_max), wanted);
                }
                for key in (0..16).map(key) {
                    let found = overlay.value(&key).unwrap_or_else(|| index.get(&key).cloned());
                    prop_assert_eq!(found, map.get(&key).cloned());
                }
            }
        }
    }
}
