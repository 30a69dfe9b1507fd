//! What transactions that clone objects need in memory. No others come here.

use std::rc::Rc;

use carmine_pgtypes::{OBJECT_BYTES_MAX, ObjectChange};
use carmine_types::ObjectId;

use crate::blue::device::PIECE_BLOCKS;
use crate::blue::objects::apply::needs;
use crate::blue::objects::onode::{Onode, PreparedPin};
use crate::blue::shard::Blue;
use crate::blue::shard::load::Prepared;
use crate::blue::shard::submit::{Counted, TouchedList, check_names};
use crate::{BLOCK_BYTES, StoreError};

/// All of a block map.
const WHOLE: std::ops::Range<u64> = 0..u64::MAX;

/// Whether a step of these changes copies an object.
pub(crate) fn has_clones(changes: &[ObjectChange]) -> bool {
    changes.iter().flat_map(|change| &change.steps).any(|step| step.source().is_some())
}

/// For each object that a transaction clones to: the object, as it is before the transaction, that its content comes from.
#[derive(Default)]
struct Origins<'a>(Vec<(&'a ObjectId, &'a ObjectId)>);

impl<'a> Origins<'a> {
    fn origin_of(&self, oid: &'a ObjectId) -> &'a ObjectId {
        self.0.iter().rev().find(|(cloned, _)| *cloned == oid).map_or(oid, |(_, origin)| origin)
    }

    fn note_clone(&mut self, to: &'a ObjectId, from: &'a ObjectId) {
        if to != from {
            self.0.push((to, self.origin_of(from)));
        }
    }
}

impl Blue {
    /// See [`crate::Store::prepare`].
    pub(crate) async fn prepare_clones(&self, changes: &[ObjectChange]) -> Result<Prepared, StoreError> {
        let (mut prepared, mut origins) = (Prepared::default(), Origins::default());
        for change in changes {
            let oid = &*change.oid;
            prepared.pins.push(PreparedPin::new(self.load(oid, &(0..0)).await?));
            for step in &change.steps {
                if let Some(from) = step.source() {
                    for object in [oid, from, origins.origin_of(from)] {
                        prepared.pins.push(PreparedPin::new(self.load(object, &WHOLE).await?));
                    }
                    origins.note_clone(oid, from);
                    continue;
                }
                let needs = needs(step);
                let origin = PreparedPin::new(self.load(origins.origin_of(oid), &needs.map).await?);
                self.load_edges(&origin, &needs).await?;
                prepared.pins.push(origin);
            }
        }
        Ok(prepared)
    }

    /// Checks the changes of a transaction with clones; see [`Blue::admit`].
    pub(crate) fn admit_clones(
        &self,
        changes: &[ObjectChange],
        touched: &mut TouchedList,
    ) -> Result<Counted, StoreError> {
        if self.shared.is_kv_low() {
            return Err(StoreError::NoSpace { needed_bytes: BLOCK_BYTES, free_bytes: 0 });
        }
        let (mut counted, mut origins) = (Counted::default(), Origins::default());
        for change in changes {
            let oid = &*change.oid;
            check_names(oid)?;
            let place = self.touch(touched, oid)?;
            counted.places.push(place);
            for step in &change.steps {
                if step.end() > OBJECT_BYTES_MAX {
                    return Err(StoreError::TooLarge { oid: oid.clone(), size: step.end() });
                }
                let (needs, origin) = (needs(step), self.in_memory(origins.origin_of(oid))?);
                let state = origin.state.borrow();
                let mut edges = needs.edges.into_iter().flatten();
                if !state.is_loaded(&needs.map) || !edges.all(|index| state.has_content(index)) {
                    return Err(StoreError::NotPrepared(oid.clone()));
                }
                let has = (state.map.len() * PIECE_BLOCKS) as u64 + counted.blocks + needs.blocks;
                let (first, end) = (needs.map.start / BLOCK_BYTES, needs.map.end.div_ceil(BLOCK_BYTES));
                counted.freed += has.min(end - first);
                counted.blocks += needs.blocks;
                counted.reserve &= needs.blocks == 0 || needs.reserve;
                counted.omap_bytes += step.omap_bytes();
                if let Some(from) = step.source() {
                    check_names(from)?;
                    let (source, own) = (self.in_memory(from)?, self.in_memory(oid)?);
                    let is_loaded = |onode: &Onode| onode.state.borrow().is_loaded(&WHOLE);
                    if !own.is_prepared()
                        || !is_loaded(&own)
                        || !is_loaded(&*self.in_memory(origins.origin_of(from))?)
                    {
                        return Err(StoreError::NotPrepared(oid.clone()));
                    }
                    counted.sources.push(source);
                    origins.note_clone(oid, from);
                }
            }
        }
        Ok(counted)
    }

    /// An object in memory; an error if it is not.
    fn in_memory(&self, oid: &ObjectId) -> Result<Rc<Onode>, StoreError> {
        let onode = self.cache.borrow().get(oid).map(Rc::clone);
        onode.ok_or_else(|| StoreError::NotPrepared(oid.clone()))
    }
}
