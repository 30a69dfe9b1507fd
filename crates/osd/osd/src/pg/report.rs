//! What a primary tells the monitor of a PG. By that the monitor decides who may leave, and who leads.

use carmine_crush::MapView;
use carmine_types::{Epoch, OsdId};
use carmine_wire::osdmap::Pin;
use carmine_wire::private::PgStuck;

use super::{Pg, Phase};

impl Pg {
    /// Why the PG does not serve clients; `None` if it does. `epoch` is the one that the report speaks of: for a PG that is
    /// active in it, it is a promise to leave all members complete.
    pub(crate) fn report(&self, view: &MapView, epoch: Epoch) -> Option<PgStuck> {
        let Some(state) = self.phase.borrow().stuck() else {
            if view.epoch() == epoch && self.somebody_may_leave(view) {
                self.promised.set(epoch);
            }
            return None;
        };
        let is_well = !matches!(*self.phase.borrow(), Phase::Loading | Phase::Failed(_));
        let is_complete = is_well && !self.log.borrow().info.incomplete;
        Some(PgStuck {
            pg: self.id.pgid,
            state: state.to_owned(),
            is_complete,
            successor: self.successor.get(),
        })
    }

    /// The monitor was told in this epoch that all members are complete. Until its next map, which comes because of that, no
    /// copy may be changed behind its log: those that stay may be the ones that are incomplete then.
    pub(super) fn is_promised(&self, epoch: Epoch) -> bool {
        epoch != Epoch(0) && self.promised.get() == epoch
    }

    fn somebody_may_leave(&self, view: &MapView) -> bool {
        let Some(entry) = view.map().pg_temp.get(&self.id.pgid) else { return false };
        let size = view.map().pool(self.id.pgid.pool).map_or(0, |pool| usize::from(pool.size));
        let mapping = view.mapping(self.id.pgid);
        let stays = |osd: OsdId| mapping.raw.iter().any(|item| OsdId::from_item(*item) == Some(osd));
        let pin = Pin::parse(entry);
        let all_up = pin.members().all(|osd| view.map().is_up(osd));
        all_up && mapping.raw.len() >= size && !pin.members().all(stays)
    }

    /// The monitor counts this member among those that have the PG's data.
    pub(super) fn is_owner(&self, view: &MapView, osd: OsdId) -> bool {
        Pin::of(view.map(), self.id.pgid, &view.mapping(self.id.pgid).raw).is_owner(osd)
    }
}
