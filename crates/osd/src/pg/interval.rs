//! What a new map means for a PG: who its members are, and whether a new interval begins.

use std::rc::Rc;

use carmine_crush::MapView;
use carmine_reactor::Group;
use carmine_store::pg_bits;
use carmine_types::{Epoch, OsdId};
use carmine_wire::EntityAddr;

use super::{Pg, PgLog, Phase, activate};
use crate::shard::OsdShard;

impl Pg {
    /// Reads the PG's state from the store and then follows the newest map.
    pub(crate) fn load(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let (pg, osd) = (Rc::clone(self), Rc::clone(osd));
        let shard = osd.shard.clone();
        shard.spawn(Group::Recovery, "pg-load", async move {
            match osd.store.load_pg(pg.id).await {
                Ok(state) => {
                    if let Some(state) = state {
                        *pg.log.borrow_mut() = PgLog::load(state);
                    }
                    pg.begin(&osd);
                }
                Err(error) => {
                    tracing::error!("pg {}: its state cannot be read: {error}", pg.id);
                    pg.set_phase(Phase::Incomplete(format!("osd.{}: {error}", osd.config.id.0)));
                }
            }
        });
    }

    /// Follows a new map.
    pub(crate) fn on_map(self: &Rc<Self>, osd: &Rc<OsdShard>, view: &MapView) {
        let members = members(view, self);
        if *self.members.borrow() == members && self.interval.get() != Epoch(0) {
            return;
        }
        *self.members.borrow_mut() = members;
        self.interval.set(view.epoch());
        // Nothing of the interval before is taken from its primary any more, until this interval's primary asks.
        self.replica.interval.set(Epoch(0));
        if *self.phase.borrow() != Phase::Loading {
            self.begin(osd);
        }
    }

    /// Begins the interval that `members` describes.
    fn begin(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let me = osd.config.id;
        let acting = self.acting();
        if acting.first() != Some(&me) {
            self.abandon_in_flight();
            let dropped = std::mem::take(&mut *self.waiting.borrow_mut());
            osd.metrics.borrow_mut().ops_dropped.add(dropped.len() as u64);
            self.set_phase(if acting.contains(&me) { Phase::Replica } else { Phase::Stray });
            return;
        }
        if let Some(why) = self.missing_members(osd) {
            self.set_phase(Phase::Down(why));
            return;
        }
        self.set_phase(Phase::Peering);
        activate::start(osd, self);
    }

    /// Who is missing for the PG to be active, in words; `None` if all are here.
    fn missing_members(&self, osd: &OsdShard) -> Option<String> {
        let view = osd.view()?;
        let size = view.map().pool(self.id.pool).map_or(0, |pool| usize::from(pool.size));
        let acting = self.acting();
        if acting.len() >= size {
            return None;
        }
        let mapping = view.mapping(self.id);
        let down = mapping.raw.iter().filter_map(|o| OsdId::from_item(*o)).filter(|o| !acting.contains(o));
        let down: Vec<String> = down.map(|o| format!("osd.{}", o.0)).collect();
        Some(match down.as_slice() {
            [] => {
                format!("{} of {size} OSDs found by CRUSH: add OSDs or lower the pool's size", acting.len())
            }
            _ => format!("waits for {}, which is down", down.join(", ")),
        })
    }
}

/// The acting set with the address of each OSD: a restarted OSD has another one.
fn members(view: &MapView, pg: &Pg) -> Vec<(OsdId, EntityAddr)> {
    let map = view.map();
    if let Some(pool) = map.pool(pg.id.pool) {
        pg.bits.set(pg_bits(pg.id.ps, pool.pg_num));
    }
    let addr = |osd: OsdId| map.client_addrs.get(osd.0 as usize).and_then(|addrs| addrs.msgr2());
    view.mapping(pg.id).acting_osds().filter_map(|osd| Some((osd, addr(osd)?))).collect()
}
