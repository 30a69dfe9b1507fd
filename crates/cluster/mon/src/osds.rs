//! Messages from OSDs: they report that they are up, alive or about to stop, and their state. An OSD is known by its
//! session: its number and its public addresses, which change at every start.

use std::rc::Rc;

use carmine_crush::classes::class_name;
use carmine_crush::pg_mapping;
use carmine_messenger::{Connection, Message};
use carmine_types::{Epoch, OsdId, PgId};
use carmine_wire::mon_msg::LogMsg;
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Failure, MarkMeDown, PgCreated, PgTemp, ReadyToMerge};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::pg_stat::state;
use carmine_wire::private::{OsdDamage, OsdStats};
use carmine_wire::{EntityAddrVec, EntityType, kinds};
use tracing::{debug, info, warn};

use crate::change::{Asked, Change, ClassEdit, OsdAddrs, Refusal, merge, quota, snaps};
use crate::mon::Mon;

/// Lines for the cluster's log that one message of an OSD may bring; more are ignored.
const LINES_MAX: usize = 64;
/// Characters that are kept of an OSD's account of its damage.
const DAMAGE_CHARS_MAX: usize = 500;

/// The OSD at the other end of a connection, and its public addresses; `None` for anybody else.
pub(crate) fn osd_of(conn: &Connection) -> Option<(OsdId, EntityAddrVec)> {
    let peer = conn.peer();
    let id = peer.name.parse().ok().filter(|_| peer.entity == EntityType::OSD)?;
    Some((OsdId(id), peer.addr.into()))
}

fn is_up_at(map: &OsdMap, osd: OsdId, addrs: &EntityAddrVec) -> bool {
    map.client_addr(osd) == Some(addrs)
}

impl Mon {
    /// Handles a message that only OSDs send; anything else is ignored.
    pub(crate) fn hear_osd(&self, conn: &Rc<Connection>, msg: &Message) -> carmine_wire::Result<()> {
        let Some((osd, addrs)) = osd_of(conn) else {
            debug!(peer = %conn.peer(), "ignored a {} message", kinds::name(msg.header.kind));
            return Ok(());
        };
        if is_up_at(&self.current().map, osd, &addrs) {
            // The end of its session would mark it down.
            conn.keep_place();
        }
        match msg.header.kind {
            kinds::OSD_BOOT => self.boot(conn, (osd, addrs), msg.decode()?),
            kinds::OSD_MARK_ME_DOWN => self.mark_me_down(conn, msg, osd, msg.decode()?),
            kinds::OSD_ALIVE => self.alive(osd, &addrs, &msg.decode()?),
            kinds::OSD_BEACON => self.beacon(osd, &addrs, &msg.decode()?),
            kinds::OSD_FAILURE => self.failure(osd, &addrs, msg.decode()?),
            kinds::OSD_PG_TEMP => self.pg_temp(osd, &addrs, msg.decode()?),
            kinds::OSD_PG_CREATED => self.pg_created(osd, &addrs, &msg.decode()?),
            kinds::OSD_PG_READY_TO_MERGE => self.ready_to_merge(osd, &addrs, &msg.decode()?),
            kinds::OSD_STATS => self.stats(osd, &addrs, msg.decode()?),
            kinds::LOG => self.osd_log(osd, &addrs, &msg.decode()?),
            kinds::OSD_DAMAGE => self.damage(osd, &addrs, msg.decode()?),
            other => debug!("ignored a {} message of {osd}", kinds::name(other)),
        }
        Ok(())
    }

    fn boot(&self, conn: &Rc<Connection>, (osd, client): (OsdId, EntityAddrVec), boot: Boot) {
        if boot.superblock.whoami != osd {
            return conn.close("an OSD may boot only itself");
        }
        let mut stats = self.stats.borrow_mut();
        stats.metadata.insert(osd, boot.metadata);
        // It has another store now, or tells of the same damage again when it meets it.
        stats.damage.remove(&osd);
        drop(stats);
        let Boot { superblock, hb_back, cluster, hb_front, .. } = boot;
        let addrs = OsdAddrs { client: client.clone(), cluster, hb_back, hb_front };
        let change = Change::Boot { osd, uuid: superblock.osd_fsid, addrs };
        // An earlier process of this OSD that was never seen to end is taken down first: everybody must see a new
        // interval. Not for a boot that is going to be refused.
        let current = self.current();
        let earlier = current.map.client_addr(osd).filter(|known| **known != client);
        if let Some(earlier) = earlier
            && change.plan(&current.map, current.map.modified).is_ok()
        {
            self.osd_gone(osd, earlier.clone(), "it boots again with another address");
        }
        let done = move |mon: &Mon, result: Result<(), Refusal>| mon.booted(osd, client, result);
        self.change(change, Box::new(done));
    }

    /// The map says that an OSD is up, or never will: whom the map contradicts stops by itself.
    fn booted(&self, osd: OsdId, addrs: EntityAddrVec, result: Result<(), Refusal>) {
        if let Err(refusal) = result {
            return warn!("{osd} may not boot: {}", refusal.text);
        }
        // The time until its next beacon begins anew, also if nobody looked while it was down.
        self.await_beacon(osd, 0);
        self.classify(osd);
        if !self.has_session(osd, &addrs) {
            self.session_ended(osd, addrs, "its session ended while it booted".into());
        }
    }

    /// Gives an OSD that has no device class the one of its drive, as Ceph's OSDs have it done when they start.
    fn classify(&self, osd: OsdId) {
        let stats = self.stats.borrow();
        let class = stats.metadata(osd).find(|(key, _)| *key == "default_device_class");
        let class = class.map(|(_, class)| class.to_owned());
        drop(stats);
        if class.is_some() && class_name(&self.current().map.crush, osd.0 as i32).is_none() {
            let edit = ClassEdit::Set { osds: vec![osd], class };
            self.change(Change::Class(edit), Box::new(|_: &Mon, _| {}));
        }
    }

    /// An OSD's goodbye. It hears of its end by the same message.
    fn mark_me_down(&self, conn: &Rc<Connection>, msg: &Message, osd: OsdId, request: MarkMeDown) {
        if request.osd != osd {
            return conn.close("an OSD may mark down only itself");
        }
        info!("{osd} says goodbye");
        let (conn, tid) = (Rc::clone(conn), msg.header.tid);
        let change = Change::Down { osd, addrs: request.addrs.clone(), is_dead: request.is_dead };
        let done = move |mon: &Mon, _: Result<(), Refusal>| {
            if request.request_ack {
                let epoch = mon.current().map.epoch;
                let ack = MarkMeDown { epoch, request_ack: false, is_dead: false, ..request };
                Mon::reply(&conn, Message::encode(&ack).with_tid(tid));
            }
        };
        self.change(change, Box::new(done));
    }

    /// Notes `up_thru`, together with what else comes before the next change: OSDs ask in crowds, when a map has come.
    fn alive(&self, osd: OsdId, addrs: &EntityAddrVec, alive: &Alive) {
        let map = &self.current().map;
        if !is_up_at(map, osd, addrs) || map.up_thru(osd) >= alive.want.min(map.epoch) {
            return;
        }
        // It was up until its newest map. A map that there is not yet was not used.
        let newest = Epoch(u32::try_from(alive.version).unwrap_or_default());
        let up_thru = alive.want.max(newest).min(map.epoch);
        let mut wishes = self.up_thru.borrow_mut();
        let is_first = wishes.is_empty();
        wishes.insert(osd, up_thru);
        if is_first {
            self.change_soon();
        }
    }

    fn beacon(&self, osd: OsdId, addrs: &EntityAddrVec, beacon: &Beacon) {
        let map = &self.current().map;
        if is_up_at(map, osd, addrs) {
            self.await_beacon(osd, u64::try_from(beacon.interval_s).unwrap_or(0));
            let up = map.osds().filter(|osd| map.is_up(*osd));
            // Those PGs have a history from their creation on.
            let clean =
                if self.creating.borrow().is_empty() { beacon.min_last_epoch_clean } else { Epoch(0) };
            self.history.borrow_mut().trim(osd, clean, up);
        }
    }

    /// One OSD's word about another.
    fn failure(&self, reporter: OsdId, addrs: &EntityAddrVec, failure: Failure) {
        let Failure { osd, flags, failed_for_s, .. } = failure;
        let map = &self.current().map;
        let is_meant = is_up_at(map, reporter, addrs) && is_up_at(map, osd, &failure.addrs);
        if !is_meant || osd == reporter {
            return debug!("ignored a report of {reporter} about {osd}");
        }
        if flags & Failure::FAILED == 0 {
            info!("{reporter} says that {osd} answers again");
            return self.failures.borrow_mut().take_back(osd, reporter);
        }
        if flags & Failure::IMMEDIATE != 0 {
            info!("{reporter} says that {osd} is gone");
            return self.note(map, Change::Down { osd, addrs: failure.addrs, is_dead: true });
        }
        info!("{reporter} says that {osd} has not answered for {failed_for_s} s");
        let since_ns = self.shard.now_ns().saturating_sub(u64::from(failed_for_s) * 1_000_000_000);
        self.failures.borrow_mut().report(osd, reporter, since_ns);
        self.judge_failures();
    }

    fn stats(&self, osd: OsdId, addrs: &EntityAddrVec, stats: OsdStats) {
        let current = self.current();
        if !is_up_at(&current.map, osd, addrs) {
            return;
        }
        let OsdStats { used_bytes, total_bytes, .. } = stats;
        let mut creating = self.creating.borrow_mut();
        stats.pgs.iter().filter(|(_, stat)| stat.is(state::ACTIVE)).for_each(|(pg, _)| creating.remove(*pg));
        drop(creating);
        self.judge_created();
        let exists = |pg: PgId| current.map.pool(pg.pool).is_some_and(|pool| pg.ps < pool.pg_num);
        self.stats.borrow_mut().accept(osd, stats, self.shard.now_ns(), exists);
        self.note(&current.map, Change::Fullness { osd, used_bytes, total_bytes });
        let news: Vec<Change> = {
            let stats = self.stats.borrow();
            let purged = snaps::due(&current.map, |pg| stats.trimmed(pg));
            quota::due(&current.map, &stats.pools()).into_iter().chain(purged).collect()
        };
        news.into_iter().for_each(|news| self.note(&current.map, news));
    }

    /// A PG is active.
    fn pg_created(&self, osd: OsdId, addrs: &EntityAddrVec, created: &PgCreated) {
        if is_up_at(&self.current().map, osd, addrs) {
            self.creating.borrow_mut().remove(created.pg);
            self.judge_created();
        }
    }

    /// A primary says whether a PG can be merged.
    fn ready_to_merge(&self, osd: OsdId, addrs: &EntityAddrVec, told: &ReadyToMerge) {
        // It may have been quick: a merge that is given up is not tried again at once.
        self.judge_merges();
        let map = &self.current().map;
        let leads = || pg_mapping(map, told.source).acting_primary == Some(osd);
        match merge::heed(map, told).filter(|_| is_up_at(map, osd, addrs) && leads()) {
            Some(change) => {
                info!(
                    "{osd} says that pg {} is {}ready to be merged",
                    told.source,
                    if told.ready { "" } else { "not " }
                );
                self.note(map, change);
            }
            None => debug!("ignored the word of {osd} on the merge of pg {}", told.source),
        }
    }

    /// A primary asks for other acting sets of its PGs.
    fn pg_temp(
        &self,
        osd: OsdId,
        addrs: &EntityAddrVec,
        PgTemp { epoch, pg_temp: temps, forced, .. }: PgTemp,
    ) {
        let map = &self.current().map;
        if is_up_at(map, osd, addrs) {
            self.note(map, Change::PgTemp(Asked { leader: osd, epoch, temps, forced }));
        }
    }

    /// An OSD cannot read its metadata, while it serves or when it starts.
    fn damage(&self, osd: OsdId, addrs: &EntityAddrVec, told: OsdDamage) {
        let map = &self.current().map;
        if told.osd != osd || map.osd_uuid.get(osd.0 as usize) != Some(&told.uuid) {
            return debug!("ignored the damage of a store that is not {osd}'s");
        }
        let what: String = told.what.chars().take(DAMAGE_CHARS_MAX).collect();
        self.stats.borrow_mut().damage.insert(osd, what);
        // Its store has one process at a time.
        if let Some(earlier) = map.client_addr(osd).filter(|known| *known != addrs) {
            self.osd_gone(osd, earlier.clone(), "it starts again, and cannot read its metadata");
        }
    }

    /// Lines for the cluster's log.
    fn osd_log(&self, osd: OsdId, addrs: &EntityAddrVec, told: &LogMsg) {
        if !is_up_at(&self.current().map, osd, addrs) {
            return;
        }
        for entry in told.entries.iter().take(LINES_MAX) {
            self.log.borrow_mut().add(entry.level, &osd.to_string(), &entry.text, self.now());
        }
        self.push_news();
    }
}
