//! Counts the omaps of a PG's objects in a deep scrub: one that is too large slows recovery and listings.

use std::collections::BTreeMap;

use carmine_pgtypes::OmapSize;
use carmine_types::{ObjectId, OsdId, PgId};
use carmine_wire::mon_msg::log_level;

use super::compare::Map;
use super::run::Run;
use crate::join;

impl Run {
    /// Counts the omaps of these objects, from the primary's copies.
    pub(super) fn count_omaps(&mut self, maps: &BTreeMap<OsdId, Map>) {
        let own = maps.get(&self.osd.config.id).filter(|_| self.order.deep);
        for object in own.into_iter().flat_map(BTreeMap::values).filter(|object| object.omap_size.keys > 0) {
            self.omaps.objects += 1;
            self.omaps.size.keys += object.omap_size.keys;
            self.omaps.size.bytes += object.omap_size.bytes;
            let (size, options) = (object.omap_size, self.osd.options.borrow().scrub.clone());
            if size.keys > options.large_omap_keys || size.bytes > options.large_omap_bytes {
                self.omaps.large += 1;
                self.report_large_omap(&object.oid, object.omap_size);
            }
        }
    }

    /// Warns in Ceph's words, which tools look for in the cluster's log.
    fn report_large_omap(&self, oid: &ObjectId, size: OmapSize) {
        let (pg, raw) = (self.pg.id.pgid, PgId::new(oid.pool, oid.hash));
        let text = format!(
            "Large omap object found. Object: {oid} PG: {raw} ({pg}) Key count: {} Size (bytes): {}",
            size.keys, size.bytes
        );
        join::write_cluster_log(&self.osd, log_level::WARN, text);
    }
}
