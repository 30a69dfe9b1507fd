//! Metadata that cannot be read. An OSD that meets some ends itself, once, as if its drive had died: then others serve all of its PGs, and
//! make the copies anew elsewhere. It does so only while they can: every PG whose data it owns has at least `min_size` other
//! owners that are up. Until then it serves what it can read, and what it cannot read is an error.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{MonSession, NoHandler};
use carmine_crush::MapView;
use carmine_messenger::{ClientConfig, Message};
use carmine_reactor::{Group, Shard, ShardId};
use carmine_types::{MonKind, OsdId, errno};
use carmine_wire::private::OsdDamage;
use carmine_wire::{EntityAddr, EntityType};

use crate::admin::Hook;
use crate::config::OsdConfig;
use crate::shard::OsdShard;
use crate::{join, stats};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Longest wait of an OSD that cannot serve for the monitor.
const REPORT: Duration = Duration::from_secs(5);

/// Looks after the store's metadata for as long as the OSD runs (shard 0).
pub(crate) fn start(osd: &Rc<OsdShard>) {
    if osd.shard.id() != ShardId(0) {
        return;
    }
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Admin, "damage", async move {
        if own.damaged().await.is_some() && own.spared().await {
            let what = own.store.damage().map(|error| error.to_string()).unwrap_or_default();
            tracing::error!("others have all that this OSD has: it ends itself");
            if let Some(hook) = own.shard.local::<Hook>() {
                hook.0.gave_up(&what);
            }
            join::leave(&own.shard).await;
            own.shard.stop();
        }
    });
}

/// The message that tells the monitor of damage.
pub(crate) fn message(config: &OsdConfig, what: String) -> Message {
    Message::encode(&OsdDamage { osd: config.id, uuid: config.uuid, what })
}

/// Tells the embedded monitor why an OSD does not serve: it cannot be mounted, or has ended itself earlier.
///
/// # Errors
/// The monitor does not answer within some seconds.
pub async fn report_damage(shard: &Shard, config: &OsdConfig, what: String) -> carmine_client::Result<()> {
    if config.mon_kind != MonKind::Embedded {
        return Ok(());
    }
    let addr = EntityAddr::msgr2(SocketAddr::new(config.listen, 0), config.nonce);
    let keys = config.access.keys(shard, false);
    let mut own = ClientConfig::daemon(EntityType::OSD, config.id.0, addr);
    config.access.protect(&mut own, keys.as_ref());
    let session = MonSession::start(shard, config.access.mon_addrs(), Rc::new(own), keys, Rc::new(NoHandler));
    session.ready(REPORT).await?;
    session.send(message(config, what));
    // It answers what comes after the report.
    session.newest_osdmap(REPORT).await.map(drop)
}

impl OsdShard {
    /// Waits until metadata cannot be read; `None`: the OSD stops before.
    async fn damaged(&self) -> Option<()> {
        while !self.stopping.get() {
            self.shard.sleep(EVERY).await;
            if let Some(error) = self.store.damage() {
                tracing::error!("metadata cannot be read, and this OSD has to be replaced: {error}");
                stats::send_soon(self);
                return Some(());
            }
        }
        None
    }

    /// Waits until others can do without this OSD; false: it stops before, or is to go on as it is.
    async fn spared(&self) -> bool {
        if self.stays_damaged() {
            tracing::warn!("it was told to go on, and serves what it can read");
            return false;
        }
        while !self.stopping.get() {
            // The monitor has heard of the damage before it hears the goodbye.
            self.shard.sleep(EVERY).await;
            if self.is_spared() {
                return true;
            }
        }
        false
    }

    fn stays_damaged(&self) -> bool {
        self.shard.local::<Hook>().is_some_and(|hook| hook.0.stays_damaged())
    }

    /// Others can do without it, by the newest map.
    fn is_spared(&self) -> bool {
        let Some(view) = self.view() else { return false };
        let (epoch, known) = self.spared.get();
        if epoch == view.epoch() {
            return known;
        }
        let spared = can_be_spared(&view, self.config.id);
        self.spared.set((view.epoch(), spared));
        spared
    }

    /// This error is no answer, but the end of this OSD: the operation is sent again to whoever leads next. It cannot read its
    /// metadata, and others can; or its store has stopped.
    pub(crate) fn holds_back(&self, error: i32) -> bool {
        match error {
            errno::EIO => self.store.damage().is_some() && !self.stays_damaged() && self.is_spared(),
            errno::ESHUTDOWN => self.store.refusal().is_some(),
            _ => false,
        }
    }
}

/// Each PG that this OSD serves is served without it, by others that need not be given their copies first.
fn can_be_spared(view: &MapView, own: OsdId) -> bool {
    let map = view.map();
    view.pgs().all(|(pg, mapping)| {
        let others = mapping.acting_osds().filter(|osd| *osd != own).count();
        let min_size = map.pool(pg.pool).map_or(1, |pool| usize::from(pool.min_size.max(1)));
        mapping.acting_osds().all(|osd| osd != own) || others >= min_size
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carmine_crush::build_simple_crush;
    use carmine_types::{Epoch, PgId, UTime, Uuid};
    use carmine_wire::osdmap::{OsdMap, PgPool};

    use super::*;

    fn spared(size: u8, min_size: u8, down: &[u32], temp: &[i32], own: u32) -> bool {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.set_max_osd(3);
        map.crush = Arc::new(build_simple_crush(&[0, 1, 2].map(|osd| (OsdId(osd), 0x10000)), true));
        map.osd_weight.fill(0x10000);
        map.osd_state = (0..3).map(|osd| if down.contains(&osd) { 1 } else { 3 }).collect();
        let pool = PgPool::replicated(size, 1, 8, 0, Epoch(1), UTime::ZERO);
        map.pools.insert(1, PgPool { min_size, ..pool });
        if !temp.is_empty() {
            map.pg_temp.insert(PgId::new(1, 0), temp.to_vec());
        }
        can_be_spared(&MapView::new(Arc::new(map)), OsdId(own))
    }

    #[test]
    fn an_osd_can_be_spared_while_enough_others_have_its_data() {
        assert!(spared(3, 2, &[], &[], 1));
        assert!(!spared(3, 2, &[0], &[], 1), "only one other would be left");
        assert!(spared(3, 1, &[0], &[], 1) && !spared(3, 1, &[0, 2], &[], 1));
        assert!(!spared(1, 1, &[], &[], 1), "the only copy of some PGs");
        assert!(!spared(3, 1, &[], &[1], 1), "the others are given their copies by this one");
        assert!(!spared(3, 2, &[], &[1, 2], 1) && spared(3, 1, &[], &[1, 2], 1));
        assert!(spared(3, 2, &[], &[1, 2], 0), "a copy that is being made");
    }
}
