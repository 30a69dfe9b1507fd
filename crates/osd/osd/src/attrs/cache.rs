//! The attributes that a shard has read.

use std::collections::HashMap;
use std::rc::Rc;

use carmine_types::{ObjectId, PgId};
use foldhash::fast::FixedState;

use super::Attrs;

/// What an object without attributes counts for.
const ENTRY_BYTES: usize = 256;

/// Attributes by object, of PGs that this shard is primary of.
pub(crate) struct AttrsCache {
    objects: HashMap<ObjectId, (PgId, Rc<Attrs>), FixedState>,
    bytes: usize,
    /// Bytes of names and values that are kept; what exceeds them empties the cache, for what is in use is soon back.
    bytes_max: usize,
    generation: u64,
}

impl AttrsCache {
    pub(crate) fn new(bytes_max: usize) -> AttrsCache {
        AttrsCache { objects: HashMap::default(), bytes: 0, bytes_max, generation: 0 }
    }

    pub(super) fn get(&self, oid: &ObjectId) -> Option<Rc<Attrs>> {
        self.objects.get(oid).map(|(_, attrs)| Rc::clone(attrs))
    }

    /// Changes when a PG is forgotten: what was read before may be old.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Keeps what was read when the cache had this generation.
    pub(super) fn insert(&mut self, generation: u64, pg: PgId, oid: &ObjectId, attrs: Rc<Attrs>) {
        if generation != self.generation {
            return;
        }
        self.remove(oid);
        let bytes = bytes(&attrs);
        if self.bytes + bytes > self.bytes_max {
            self.objects.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.objects.insert(oid.clone(), (pg, attrs));
    }

    pub(super) fn remove(&mut self, oid: &ObjectId) {
        if let Some((_, attrs)) = self.objects.remove(oid) {
            self.bytes -= bytes(&attrs);
        }
    }

    /// Another OSD may change the objects of this PG from now on.
    pub(crate) fn forget(&mut self, pg: PgId) {
        self.generation += 1;
        if self.objects.is_empty() {
            return;
        }
        self.objects.retain(|_, (of, _)| *of != pg);
        self.bytes = self.objects.values().map(|(_, attrs)| bytes(attrs)).sum();
    }
}

fn bytes(attrs: &Attrs) -> usize {
    attrs.bytes + ENTRY_BYTES
}
