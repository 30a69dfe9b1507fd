//! Reads omaps: the index, overlaid with changes that it lacks.

use std::collections::BTreeMap;

use carmine_reactor::Bytes;
use carmine_types::ObjectId;

use crate::blue::meta::index::{GrowingPages, Page, Scan};
use crate::blue::meta::{codec, keys};
use crate::blue::objects::omap::OverlayPart;
use crate::blue::objects::onode::Pin;
use crate::blue::shard::Blue;
use crate::{OmapPage, OmapRange, StoreError};

impl Blue {
    /// See [`crate::Store::omap_header`].
    pub(crate) async fn omap_header(&self, oid: &ObjectId) -> Result<Bytes, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(Bytes::new()) };
        let changed = object.state.borrow().omap.header().cloned();
        if let Some(header) = changed {
            return Ok(header);
        }
        let mut found = self.load_values(vec![keys::omap_header(&object.key)]).await?;
        Ok(found.pop().flatten().unwrap_or_default())
    }

    /// See [`crate::Store::omap_values`].
    pub(crate) async fn omap_values(
        &self,
        oid: &ObjectId,
        wanted: &[Box<[u8]>],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(vec![None; wanted.len()]) };
        let changed: Vec<_> = {
            let state = object.state.borrow();
            wanted.iter().map(|key| state.omap.value(key)).collect()
        };
        let rest = wanted.iter().zip(&changed).filter(|(_, changed)| changed.is_none());
        let rest: Vec<_> = rest.map(|(key, _)| keys::omap(&object.key, key)).collect();
        let found = if rest.is_empty() { Vec::new() } else { self.load_values(rest).await? };
        let mut found = found.into_iter();
        Ok(changed.into_iter().map(|changed| changed.or_else(|| found.next()).flatten()).collect())
    }

    /// See [`crate::Store::omap_page`].
    pub(crate) async fn omap_page(&self, oid: &ObjectId, range: &OmapRange) -> Result<OmapPage, StoreError> {
        let mut page = OmapPage::default();
        let Some(object) = self.load_omap(oid).await? else { return Ok(page) };
        let (mut start, end) = (range.first(), keys::omap_range(&object.key, &range.prefix).1);
        let skip = 1 + object.key.len();
        let mut pages = GrowingPages::default();
        loop {
            // One more than wanted shows whether there are more.
            let pairs_max = pages.next((range.entries_max - page.entries.len()).saturating_add(1));
            // Read before the scan: changes fed to the index meanwhile may be seen twice, but are never missed.
            let part = object.state.borrow().omap.part(&start, &range.prefix, pairs_max);
            let scan = match part.first_visible(&start) {
                Some(first) => Scan { pairs_max, ..Scan::new((keys::omap(&object.key, first), end.clone())) },
                None => Scan::new((end.clone(), end.clone())),
            };
            let found = self.shared.index().scan(&self.shard, scan).await?;
            let last = found.pairs.last().filter(|_| found.is_full).and_then(|(key, _)| key.get(skip..));
            // Keys after the nearer end of the two are left for the next iteration.
            let last =
                last.map(<[u8]>::to_vec).into_iter().chain(part.last.as_deref().map(<[u8]>::to_vec)).min();
            for (key, value) in merge(&found, part, skip, last.as_deref())? {
                if !page.push(range, &key, value) {
                    return Ok(page);
                }
            }
            let Some(mut next) = last else { return Ok(page) };
            next.push(0); // the smallest key above it
            start = next;
        }
    }

    /// The values of these keys of the index.
    async fn load_values(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Bytes>>, StoreError> {
        let values = self.shared.index().load(&self.shard, keys.clone()).await?;
        let decode = |(key, value): (Vec<u8>, Option<Vec<u8>>)| match value {
            Some(value) => Ok(Some(Bytes::from(codec::decode_omap(&key, &value)?.to_vec()))),
            None => Ok(None),
        };
        keys.into_iter().zip(values).map(decode).collect()
    }

    /// An object that has an omap, pinned so that it stays cached.
    async fn load_omap(&self, oid: &ObjectId) -> Result<Option<Pin>, StoreError> {
        let pin = self.load(oid, &(0..0)).await?;
        let is_long = pin.state.borrow().omap.is_long();
        if is_long {
            self.feed_all().await?;
        }
        while pin.state.borrow().omap.has_copy() {
            self.feed_all().await?;
        }
        let has_omap = pin.state.borrow().meta.has_omap;
        Ok(has_omap.then_some(pin))
    }
}

/// The keys up to `last` (inclusive) and their values: those of the index, overridden by the overlay.
fn merge(
    found: &Page,
    part: OverlayPart,
    skip: usize,
    last: Option<&[u8]>,
) -> Result<BTreeMap<Box<[u8]>, Bytes>, StoreError> {
    let is_within = |key: &[u8]| last.is_none_or(|last| key <= last);
    let mut merged = BTreeMap::new();
    for (key, value) in &found.pairs {
        let name = key.get(skip..).unwrap_or_default();
        if is_within(name) && !part.overrides(name) {
            merged.insert(name.into(), Bytes::from(codec::decode_omap(key, value)?.to_vec()));
        }
    }
    let changed = part.values.into_iter().filter(|(key, _)| is_within(key));
    merged.extend(changed.filter_map(|(key, value)| Some((key, value?))));
    Ok(merged)
}
