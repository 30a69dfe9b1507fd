//! Applying an incremental to the map before it.

use std::sync::Arc;

use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};

use super::consts::{
    AFFINITY_MAX, RELEASE_UNCHANGED, STATE_AUTOOUT, STATE_EXISTS, STATE_NEW, STATE_UP, WEIGHT_OUT,
};
use super::intervals::{subtract, union};
use super::{Incremental, OsdInfo, OsdMap, OsdXinfo, check_osds};
use crate::addr::EntityAddrVec;
use crate::crushmap::CrushMap;
use crate::{DecodeError, Result};

/// Why an incremental does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It leads to epoch `to` from another epoch than that of the map at hand: ask for the maps between, or for a full one.
    #[error("incremental map {to} applies to epoch {}, but the map at hand is epoch {have}", to.saturating_sub(1))]
    WrongEpoch { have: u32, to: u32 },
    /// It belongs to another cluster.
    #[error("incremental map is of cluster {theirs}, the map at hand of cluster {ours}")]
    WrongCluster { ours: Uuid, theirs: Uuid },
    /// It speaks of an OSD beyond the `max_osd` that it leads to.
    #[error("incremental map {epoch} changes {osd}, but max_osd is {max_osd}")]
    NoSuchOsd { epoch: u32, osd: OsdId, max_osd: u32 },
    /// A map inside it cannot be read.
    #[error("incremental map: {0}")]
    Wire(#[from] DecodeError),
}

impl OsdMap {
    /// Turns this map into the next epoch. On an error the map is half-changed: drop it (`Incremental::applied`
    /// leaves the old one alone).
    pub fn apply(&mut self, inc: &Incremental) -> std::result::Result<(), ApplyError> {
        if inc.epoch.0 == 1 {
            self.fsid = inc.fsid;
        } else if inc.fsid != self.fsid {
            return Err(ApplyError::WrongCluster { ours: self.fsid, theirs: inc.fsid });
        }
        // One that carries a full map may leap over epochs: it needs nothing of this one.
        if !inc.fullmap.is_empty() {
            *self = OsdMap::decode(&inc.fullmap)?;
            return Ok(());
        }
        if self.epoch.0.checked_add(1) != Some(inc.epoch.0) {
            return Err(ApplyError::WrongEpoch { have: self.epoch.0, to: inc.epoch.0 });
        }
        self.epoch = inc.epoch;
        self.modified = inc.modified;
        self.apply_sizes(inc)?;
        self.check_osds_of(inc)?;
        self.apply_pools(inc);
        self.apply_weights(inc);
        self.apply_profiles(inc);
        self.apply_states(inc);
        self.apply_up(inc);
        self.apply_history(inc);
        self.apply_pins(inc);
        self.apply_blocklist(inc);
        self.apply_limits(inc);
        self.apply_snaps(inc);
        if !inc.crush.is_empty() {
            self.crush = Arc::new(CrushMap::decode(&inc.crush)?);
            self.crush_version = self.crush_version.wrapping_add(1);
        }
        Ok(())
    }

    fn apply_sizes(&mut self, inc: &Incremental) -> Result<()> {
        if inc.new_flags >= 0 {
            self.flags = inc.new_flags as u32;
        }
        // A map may come without some of the vectors; from here on all are there.
        let max_osd = if inc.new_max_osd >= 0 { inc.new_max_osd as u32 } else { self.max_osd };
        self.set_max_osd(check_osds("incremental max_osd", max_osd.into())?);
        Ok(())
    }

    /// Every OSD that `inc` names must fit, so that what follows need not care.
    fn check_osds_of(&self, inc: &Incremental) -> std::result::Result<(), ApplyError> {
        // The maps are sorted: the last key of each is enough.
        let last = [
            inc.new_up_client.keys().next_back(),
            inc.new_state.keys().next_back(),
            inc.new_weight.keys().next_back(),
            inc.new_primary_affinity.keys().next_back(),
            inc.new_hb_back_up.keys().next_back(),
            inc.new_up_thru.keys().next_back(),
            inc.new_last_clean_interval.keys().next_back(),
            inc.new_lost.keys().next_back(),
            inc.new_up_cluster.keys().next_back(),
            inc.new_uuid.keys().next_back(),
            inc.new_xinfo.keys().next_back(),
            inc.new_hb_front_up.keys().next_back(),
        ];
        match last.into_iter().flatten().max() {
            Some(osd) if osd.0 >= self.max_osd => {
                Err(ApplyError::NoSuchOsd { epoch: inc.epoch.0, osd: *osd, max_osd: self.max_osd })
            }
            _ => Ok(()),
        }
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        if inc.new_pool_max != -1 {
            self.pool_max = inc.new_pool_max as i32;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = inc.epoch;
            self.pools.insert(*id, pool);
        }
        self.pool_names.extend(inc.new_pool_names.iter().map(|(id, name)| (*id, name.clone())));
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
        if !inc.old_pools.is_empty() {
            let lives = |pg: &PgId| !inc.old_pools.contains(&pg.pool);
            self.pg_temp.retain(|pg, _| lives(pg));
            self.primary_temp.retain(|pg, _| lives(pg));
            self.pg_upmap.retain(|pg, _| lives(pg));
            self.pg_upmap_items.retain(|pg, _| lives(pg));
        }
    }

    fn apply_weights(&mut self, inc: &Incremental) {
        for (osd, weight) in &inc.new_weight {
            put(&mut self.osd_weight, *osd, *weight);
            if *weight != WEIGHT_OUT {
                // Whoever has a weight exists, and is neither new nor out by timeout.
                edit(&mut self.osd_state, *osd, |state| {
                    *state = (*state | STATE_EXISTS) & !(STATE_AUTOOUT | STATE_NEW);
                });
                edit(&mut self.osd_xinfo, *osd, |x| x.old_weight = 0);
            }
        }
        for (osd, affinity) in &inc.new_primary_affinity {
            if self.primary_affinity.is_empty() {
                self.primary_affinity.resize(self.max_osd as usize, AFFINITY_MAX);
            }
            put(&mut self.primary_affinity, *osd, *affinity);
        }
    }

    fn apply_profiles(&mut self, inc: &Incremental) {
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            self.erasure_code_profiles.insert(name.clone(), profile.clone());
        }
    }

    fn apply_states(&mut self, inc: &Incremental) {
        for (&osd, &bits) in &inc.new_state {
            let flips = if bits == 0 { STATE_UP } else { bits };
            let state = self.state(osd);
            if state & flips & STATE_UP != 0 {
                edit(&mut self.osd_info, osd, |info| info.down_at = inc.epoch);
                edit(&mut self.osd_xinfo, osd, |x| x.down_stamp = inc.modified);
            }
            if state & flips & STATE_EXISTS != 0 {
                self.forget(osd);
            } else {
                put(&mut self.osd_state, osd, state ^ flips);
            }
        }
    }

    /// The OSD is gone for good; its id may come back as another OSD.
    fn forget(&mut self, osd: OsdId) {
        put(&mut self.osd_state, osd, 0);
        put(&mut self.osd_info, osd, OsdInfo::default());
        put(&mut self.osd_xinfo, osd, OsdXinfo::default());
        put(&mut self.osd_uuid, osd, Uuid::default());
        for addrs in [
            &mut self.client_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_back_addrs,
            &mut self.hb_front_addrs,
        ] {
            put(addrs, osd, EntityAddrVec::default());
        }
        if !self.primary_affinity.is_empty() {
            put(&mut self.primary_affinity, osd, AFFINITY_MAX);
        }
    }

    fn apply_up(&mut self, inc: &Incremental) {
        for (&osd, addrs) in &inc.new_up_client {
            edit(&mut self.osd_state, osd, |state| *state |= STATE_EXISTS | STATE_UP);
            put(&mut self.client_addrs, osd, addrs.clone());
            // Very old monitors sent no heartbeat addresses.
            let back = if inc.new_hb_back_up.is_empty() { Some(addrs) } else { inc.new_hb_back_up.get(&osd) };
            put(&mut self.hb_back_addrs, osd, back.cloned().unwrap_or_default());
            if let Some(front) = inc.new_hb_front_up.get(&osd) {
                put(&mut self.hb_front_addrs, osd, front.clone());
            }
            edit(&mut self.osd_info, osd, |info| info.up_from = inc.epoch);
        }
        for (osd, addrs) in &inc.new_up_cluster {
            put(&mut self.cluster_addrs, *osd, addrs.clone());
        }
    }

    fn apply_history(&mut self, inc: &Incremental) {
        for (osd, epoch) in &inc.new_up_thru {
            edit(&mut self.osd_info, *osd, |info| info.up_thru = *epoch);
        }
        for (osd, (begin, end)) in &inc.new_last_clean_interval {
            edit(&mut self.osd_info, *osd, |info| {
                (info.last_clean_begin, info.last_clean_end) = (*begin, *end);
            });
        }
        for (osd, epoch) in &inc.new_lost {
            edit(&mut self.osd_info, *osd, |info| info.lost_at = *epoch);
        }
        for (osd, xinfo) in &inc.new_xinfo {
            put(&mut self.osd_xinfo, *osd, *xinfo);
        }
        for (osd, uuid) in &inc.new_uuid {
            put(&mut self.osd_uuid, *osd, *uuid);
        }
    }

    fn apply_pins(&mut self, inc: &Incremental) {
        for (pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, osds.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            if *osd == -1 {
                self.primary_temp.remove(pg);
            } else {
                self.primary_temp.insert(*pg, *osd);
            }
        }
        self.pg_upmap.extend(inc.new_pg_upmap.iter().map(|(pg, osds)| (*pg, osds.clone())));
        self.pg_upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        self.pg_upmap_items.extend(inc.new_pg_upmap_items.iter().map(|(pg, items)| (*pg, items.clone())));
        self.pg_upmap_items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
    }

    fn apply_limits(&mut self, inc: &Incremental) {
        if !inc.cluster_snapshot.is_empty() {
            self.cluster_snapshot = inc.cluster_snapshot.clone();
            self.cluster_snapshot_epoch = inc.epoch;
        } else if !self.cluster_snapshot.is_empty() {
            self.cluster_snapshot.clear();
            self.cluster_snapshot_epoch = Epoch::default();
        }
        for (ratio, new) in [
            (&mut self.nearfull_ratio, inc.new_nearfull_ratio),
            (&mut self.full_ratio, inc.new_full_ratio),
            (&mut self.backfillfull_ratio, inc.new_backfillfull_ratio),
        ] {
            if new >= 0.0 {
                *ratio = new;
            }
        }
        for (release, new) in [
            (&mut self.require_min_compat_client, inc.new_require_min_compat_client),
            (&mut self.require_osd_release, inc.new_require_osd_release),
        ] {
            if new != RELEASE_UNCHANGED {
                *release = new;
            }
        }
        for (flags, new) in [
            (&mut self.crush_node_flags, &inc.new_crush_node_flags),
            (&mut self.device_class_flags, &inc.new_device_class_flags),
        ] {
            for (id, value) in new {
                if *value == 0 {
                    flags.remove(id);
                } else {
                    flags.insert(*id, *value);
                }
            }
        }
        for (stamp, new) in [
            (&mut self.last_up_change, inc.new_last_up_change),
            (&mut self.last_in_change, inc.new_last_in_change),
        ] {
            if new != UTime::default() {
                *stamp = new;
            }
        }
    }

    fn apply_snaps(&mut self, inc: &Incremental) {
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (pool, snaps) in &inc.new_removed_snaps {
            let queue = self.removed_snaps_queue.entry(*pool).or_default();
            *queue = union(queue, snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(pool) {
                *queue = subtract(queue, snaps);
            }
        }
        self.removed_snaps_queue.retain(|_, queue| !queue.is_empty());
    }
}

/// Sets an entry; ids beyond the vector were refused before.
fn put<T>(entries: &mut [T], osd: OsdId, value: T) {
    edit(entries, osd, |entry| *entry = value);
}

fn edit<T>(entries: &mut [T], osd: OsdId, change: impl FnOnce(&mut T)) {
    if let Some(entry) = entries.get_mut(osd.0 as usize) {
        change(entry);
    }
}
