//! What a new map means for a PG: who its members are, and whether a new interval begins.

use std::rc::Rc;

use carmine_crush::MapView;
use carmine_pgtypes::pg_bits;
use carmine_reactor::Group;
use carmine_types::{Epoch, OsdId};
use carmine_wire::EntityAddr;
use carmine_wire::osdmap::Pin;

use super::{Pg, PgLog, Phase, activate};
use crate::shard::OsdShard;

/// One OSD of the acting set. A restarted one has another address; one that was thought dead meanwhile is up from another
/// epoch, also when the map that said so was never seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub osd: OsdId,
    addr: EntityAddr,
    up_from: Epoch,
}

impl Pg {
    /// Reads the PG's state from the store and then follows the newest map.
    pub(crate) fn load(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "pg-load", async move {
            match own.store.load_pg(pg.id).await {
                Ok(state) => {
                    if let Some(state) = state {
                        *pg.log.borrow_mut() = PgLog::load(state);
                    }
                    pg.loaded.set(true);
                    pg.begin(&own);
                }
                Err(error) => pg.fail(&own, "its state cannot be read", &error),
            }
        });
        osd.shard.spawn(Group::Client, "pg-commit", Rc::clone(self).pump_commits(Rc::clone(osd)));
    }

    /// Follows a new map.
    pub(crate) fn on_map(self: &Rc<Self>, osd: &Rc<OsdShard>, view: &MapView) {
        let bits = self.bits.get();
        let members = members(view, self);
        // With other objects it is another PG: what waits or is under way is looked at again.
        let is_same =
            *self.members.borrow() == members && self.bits.get() == bits && self.interval.get() != Epoch(0);
        // The monitor may have given up one who was waited for, though those who are here are the same.
        let may_begin = matches!(*self.phase.borrow(), Phase::Down(_)) && self.missing_members(osd).is_none();
        if is_same && !may_begin {
            return;
        }
        *self.members.borrow_mut() = members;
        self.interval.set(view.epoch());
        self.next_turn();
        // Nothing of the interval before is taken from its primary any more, until this interval's primary asks.
        self.replica.begin((Epoch(0), 0));
        if self.loaded.get() {
            self.begin(osd);
        }
    }

    /// As primary: the replicas have to be asked again.
    pub(super) fn restart(self: &Rc<Self>, osd: &Rc<OsdShard>, why: &str) {
        tracing::info!("pg {}: begins its interval anew: {why}", self.id);
        self.next_turn();
        self.begin(osd);
    }

    /// Begins the interval that `members` describes.
    fn begin(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if matches!(*self.phase.borrow(), Phase::Failed(_)) {
            return;
        }
        let (me, acting) = (osd.config.id, self.acting());
        let last = self.log.borrow().info.last_update.version;
        self.local.set(last);
        self.committed.set(last);
        if acting.first() != Some(&me) {
            self.drop_ops(osd);
            // The clients go to the new primary, which knows who watches.
            self.watches.take();
            self.usage.borrow_mut().reset();
            self.set_phase(if acting.contains(&me) { Phase::Replica(false) } else { Phase::Stray });
            return;
        }
        // What was under way when the interval ended is started over, also if this OSD did not lead in between, unseen:
        // the log tells what was applied.
        if let Some(why) = self.missing_members(osd) {
            self.set_phase(Phase::Down(why));
            return;
        }
        self.set_phase(Phase::Peering("asks the replicas".to_owned()));
        activate::start(osd, self);
    }

    /// The epoch since which all members are up: their interval cannot have begun before.
    pub(super) fn members_since(&self) -> Epoch {
        self.members.borrow().iter().map(|member| member.up_from).max().unwrap_or_default()
    }

    /// Who is missing for the PG to be active, in words; `None` if all are here.
    fn missing_members(&self, osd: &OsdShard) -> Option<String> {
        let view = osd.view()?;
        let size = view.map().pool(self.id.pgid.pool).map_or(0, |pool| usize::from(pool.size));
        let acting = self.acting();
        let owners = Pin::of(view.map(), self.id.pgid, &view.mapping(self.id.pgid).raw).owners;
        let wanted = owners.iter().filter_map(|osd| OsdId::from_item(*osd));
        let down: Vec<String> =
            wanted.filter(|osd| !acting.contains(osd)).map(|osd| osd.to_string()).collect();
        match down.as_slice() {
            [] if acting.len() >= size => None,
            [] => Some(format!(
                "{} of {size} OSDs found by CRUSH: add OSDs or lower the pool's size",
                acting.len()
            )),
            _ => Some(format!("waits for {}, which is down", down.join(", "))),
        }
    }
}

/// The acting set, primary first.
fn members(view: &MapView, pg: &Pg) -> Vec<Member> {
    let map = view.map();
    if let Some(pool) = map.pool(pg.id.pgid.pool) {
        pg.bits.set(pg_bits(pg.id.pgid.ps, pool.pg_num));
    }
    let mapping = view.mapping(pg.id.pgid);
    let mut members: Vec<Member> = mapping
        .acting_osds()
        .filter_map(|osd| {
            let addr = map.client_addrs.get(osd.0 as usize)?.msgr2()?;
            let up_from = map.osd_info.get(osd.0 as usize).map_or(Epoch(0), |info| info.up_from);
            Some(Member { osd, addr, up_from })
        })
        .collect();
    // Stable: the primary to the front, if it is not there.
    members.sort_by_key(|member| Some(member.osd) != mapping.acting_primary);
    members
}
