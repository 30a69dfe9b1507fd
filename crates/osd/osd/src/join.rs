//! An OSD's session with the monitor: it boots and hears maps, says that it lives, and says goodbye.
//!
//! The map is the monitor's only answer. An OSD that it shows as up at its own addresses has booted; one that it contradicts,
//! since the number is unknown or belongs to another store, stops.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use carmine_client::{MonHandler, MonSession};
use carmine_crush::MapView;
use carmine_messenger::{ClientConfig, Message};
use carmine_reactor::Group;
use carmine_types::{Epoch, OsdId, UTime};
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Superblock};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::{EntityAddr, EntityType, FEATURES};

use crate::admin::Hook;
use crate::shard::OsdShard;
use crate::stats;

/// Pause between boot messages while the map does not show this OSD as up, and between other wishes that are not met: a
/// message may be lost with its session, and a map may say "down" by mistake.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two beacons (Ceph's osd_beacon_report_interval).
const BEACON_PERIOD: Duration = Duration::from_secs(300);

/// Shard 0's session with the monitor.
struct Member {
    osd: Rc<OsdShard>,
    /// The public address of this start of this OSD.
    addr: EntityAddr,
    session: RefCell<Weak<MonSession>>,
    /// The newest map shows it as up.
    is_up: Cell<bool>,
    /// The newest epoch in which an interval of a PG began that it leads.
    interval: Cell<Epoch>,
    /// When the next beacon is due.
    beacon_ns: Cell<u64>,
}

/// Keeps a session with the monitor for as long as the OSD runs.
pub(crate) fn start(osd: &Rc<OsdShard>, addr: EntityAddr) {
    let client = ClientConfig::daemon(EntityType::OSD, osd.config.id.0.to_string(), addr);
    let member = Rc::new(Member {
        osd: Rc::clone(osd),
        addr,
        session: RefCell::default(),
        is_up: Cell::new(false),
        interval: Cell::default(),
        beacon_ns: Cell::new(0),
    });
    let mon = EntityAddr::msgr2(osd.config.mon, 0);
    let handler = Rc::clone(&member) as Rc<dyn MonHandler>;
    let session = MonSession::start(&osd.shard, vec![mon], Rc::new(client), handler);
    osd.shard.spawn(Group::Admin, "member", member.insist());
    stats::start(osd, session);
}

impl MonHandler for Member {
    fn on_session(&self, session: &Rc<MonSession>) {
        *self.session.borrow_mut() = Rc::downgrade(session);
        self.ask();
    }

    fn on_map(&self, map: &Arc<OsdMap>) {
        let id = self.osd.config.id;
        if let Some(why) = contradicts(map, id, self.osd.config.uuid) {
            tracing::error!("the map of epoch {} refuses this OSD: {why}", map.epoch);
            self.osd.stopping.set(true);
            return self.osd.shard.stop();
        }
        let is_up = map.client_addr(id).is_some_and(|addrs| addrs.contains(&self.addr));
        if self.is_up.replace(is_up) && !is_up {
            tracing::warn!("the map of epoch {} says that this OSD is down: it boots again", map.epoch);
        }
        let before = self.osd.view();
        self.osd.take_map(map);
        if let Some(now) = self.osd.view()
            && begins_interval(before.as_deref(), &now, id)
        {
            self.interval.set(map.epoch);
        }
        self.ask();
    }
}

/// Why an OSD with this number and store is not the map's.
fn contradicts(map: &OsdMap, osd: OsdId, uuid: carmine_types::Uuid) -> Option<String> {
    if !map.exists(osd) {
        return Some(format!("{osd} is not in this cluster of {} OSDs", map.max_osd));
    }
    let known = map.osd_uuid.get(osd.0 as usize).copied().unwrap_or_default();
    let is_other = !known.is_nil() && known != uuid;
    is_other.then(|| {
        format!("{osd} has the store {uuid}, the map knows {known}: is this the folder of another cluster?")
    })
}

/// Whether a PG that `osd` leads now had other members in the view before, or another primary.
fn begins_interval(before: Option<&MapView>, now: &MapView, osd: OsdId) -> bool {
    let led = now.pgs_of(osd).filter(|(_, mapping)| mapping.acting_primary == Some(osd));
    let mut before = led.map(|(pg, mapping)| (before.map(|view| view.mapping(pg)), mapping));
    before.any(|(before, now)| {
        before
            .is_none_or(|before| (&before.acting, before.acting_primary) != (&now.acting, now.acting_primary))
    })
}

impl Member {
    /// Tells the monitor what the map lacks: that this OSD is up, or that it was so when its PGs' intervals began.
    fn ask(&self) {
        let (Some(session), Some(view)) = (self.session.borrow().upgrade(), self.osd.view()) else { return };
        let (map, version) = (view.map(), u64::from(view.epoch().0));
        let interval = self.interval.get();
        if !self.is_up.get() {
            session.send(Message::of(&self.boot(map)));
        } else if map.up_thru(self.osd.config.id) < interval {
            session.send(Message::of(&Alive { version, want: interval }));
        }
    }

    /// Asks again for as long as something is lacking, and sends beacons.
    async fn insist(self: Rc<Self>) {
        while !self.osd.stopping.get() {
            self.osd.shard.sleep(PAUSE).await;
            self.ask();
            self.beacon();
        }
    }

    fn boot(&self, map: &OsdMap) -> Boot {
        let config = &self.osd.config;
        let metadata = self.osd.shard.local::<Hook>().map(|hook| hook.0.metadata()).unwrap_or_default();
        let superblock = Superblock {
            cluster_fsid: map.fsid,
            whoami: config.id,
            current_epoch: map.epoch,
            oldest_map: map.epoch,
            newest_map: map.epoch,
            osd_fsid: config.uuid,
            ..Superblock::default()
        };
        Boot {
            version: map.epoch.0.into(),
            superblock,
            hb_back: self.addr.into(),
            cluster: self.addr.into(),
            boot_epoch: Epoch(0),
            hb_front: self.addr.into(),
            metadata: metadata.into_iter().collect(),
            features: FEATURES,
        }
    }

    fn beacon(&self) {
        let (Some(session), Some(view)) = (self.session.borrow().upgrade(), self.osd.view()) else { return };
        let (now_ns, own) = (self.osd.shard.now_ns(), self.osd.config.id);
        if !self.is_up.get() || now_ns < self.beacon_ns.get() {
            return;
        }
        let led = view.pgs_of(own).filter(|(_, mapping)| mapping.acting_primary == Some(own));
        let beacon = Beacon {
            version: view.epoch().0.into(),
            pgs: led.map(|(pg, _)| pg).collect(),
            min_last_epoch_clean: Epoch(0),
            last_purged_snaps_scrub: UTime::ZERO,
            interval_s: BEACON_PERIOD.as_secs() as i32,
        };
        if session.send(Message::of(&beacon)) {
            self.beacon_ns.set(now_ns + BEACON_PERIOD.as_nanos() as u64);
        }
    }
}
