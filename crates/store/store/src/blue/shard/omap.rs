//! Reading omaps. They are in the key-value store only, so what was changed and is not there yet is waited for.

use carmine_reactor::Bytes;
use carmine_types::ObjectId;

use crate::blue::meta::index::Scan;
use crate::blue::meta::{codec, keys};
use crate::blue::objects::onode::Pin;
use crate::blue::shard::Blue;
use crate::{OmapPage, OmapRange, StoreError};

impl Blue {
    /// See [`crate::Store::omap_header`].
    pub(crate) async fn omap_header(&self, oid: &ObjectId) -> Result<Bytes, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(Bytes::new()) };
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
        self.load_values(wanted.iter().map(|key| keys::omap(&object.key, key)).collect()).await
    }

    /// See [`crate::Store::omap_page`].
    pub(crate) async fn omap_page(&self, oid: &ObjectId, range: &OmapRange) -> Result<OmapPage, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(OmapPage::default()) };
        let (start, end) =
            (keys::omap(&object.key, &range.first()), keys::omap_range(&object.key, &range.prefix).1);
        // One more than wanted tells whether there are more.
        let mut rest = Some(Scan::of((start, end)));
        let (mut page, skip) = (OmapPage::default(), 1 + object.key.len());
        while let Some(mut scan) = rest {
            scan.pairs_max = scan.pairs_max.min((range.entries_max - page.entries.len()).saturating_add(1));
            let found = self.shared.index().scan(&self.shard, scan.clone()).await?;
            for (key, value) in &found.pairs {
                let value = codec::decode_omap(key, value)?.to_vec();
                if !page.push(range, key.get(skip..).unwrap_or_default(), value) {
                    return Ok(page);
                }
            }
            rest = found.rest(scan);
        }
        Ok(page)
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

    /// An object that has an omap, which is in the key-value store as it is now; held so that it stays cached.
    async fn load_omap(&self, oid: &ObjectId) -> Result<Option<Pin>, StoreError> {
        let pin = self.load(oid, &(0..0)).await?;
        let (has_omap, changed) = {
            let state = pin.state.borrow();
            (state.meta.has_omap, state.omap_changed)
        };
        if !has_omap {
            return Ok(None);
        }
        if let Some(number) = changed {
            self.wait_until(|queue| queue.base > number).await?;
            self.feed_now();
            self.wait_until(|queue| queue.fed > number).await?;
        }
        Ok(Some(pin))
    }
}
