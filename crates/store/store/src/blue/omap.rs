//! Reading omaps. They are in the key-value store only, so what was changed and is not there yet is waited for.

use std::sync::Arc;

use carmine_reactor::Bytes;
use carmine_types::ObjectId;

use super::onode::Pin;
use super::{Blue, codec, keys};
use crate::kv::Kv;
use crate::{OmapPage, OmapRange, StoreError};

/// Virtual time of a look in the simulator.
const SIM_LOOK_NS: u64 = 20_000;

impl Blue {
    /// See [`crate::Store::omap_header`].
    pub(crate) async fn omap_header(&self, oid: &ObjectId) -> Result<Bytes, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(Bytes::new()) };
        let (kv, key) = (Arc::clone(self.shared.kv()), keys::omap_header(&object.key));
        let header = self.shard.alien(SIM_LOOK_NS, move || fetch(&*kv, &key)).await?;
        Ok(header.unwrap_or_default())
    }

    /// See [`crate::Store::omap_values`].
    pub(crate) async fn omap_values(
        &self,
        oid: &ObjectId,
        wanted: &[Box<[u8]>],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(vec![None; wanted.len()]) };
        let kv = Arc::clone(self.shared.kv());
        let wanted: Vec<_> = wanted.iter().map(|key| keys::omap(&object.key, key)).collect();
        self.shard.alien(SIM_LOOK_NS, move || wanted.iter().map(|key| fetch(&*kv, key)).collect()).await
    }

    /// See [`crate::Store::omap_page`].
    pub(crate) async fn omap_page(&self, oid: &ObjectId, range: &OmapRange) -> Result<OmapPage, StoreError> {
        let Some(object) = self.load_omap(oid).await? else { return Ok(OmapPage::default()) };
        let (kv, oid, range) = (Arc::clone(self.shared.kv()), object.key.clone(), range.clone());
        self.shard.alien(SIM_LOOK_NS, move || fetch_page(&*kv, &oid, &range)).await
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
            self.start_feeding();
            self.wait_until(|queue| queue.fed > number).await?;
        }
        Ok(Some(pin))
    }
}

/// On an alien thread: the value of an omap key, or a header.
fn fetch(kv: &dyn Kv, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
    let Some(value) = kv.get(key)? else { return Ok(None) };
    Ok(Some(Bytes::from(codec::decode_omap(key, &value)?.to_vec())))
}

/// On an alien thread: a page of an object's omap.
fn fetch_page(kv: &dyn Kv, oid: &[u8], range: &OmapRange) -> Result<OmapPage, StoreError> {
    let (start, end) = (keys::omap(oid, &range.first()), keys::omap_range(oid, &range.prefix).1);
    let (mut page, mut result, skip) = (OmapPage::default(), Ok(()), 1 + oid.len());
    kv.scan(&start, &end, &mut |key, value| match codec::decode_omap(key, value) {
        Ok(value) => page.push(range, key.get(skip..).unwrap_or_default(), value.to_vec()),
        Err(error) => {
            result = Err(error);
            false
        }
    })?;
    result.map(|()| page)
}
