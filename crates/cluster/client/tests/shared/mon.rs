//! The fake monitor of all tests: the authority on maps, as much of a monitor as clients and OSDs need, and as obedient as a
//! test wants. The client's tests run it on their own shard and change the map at once; the OSD's tests run it as a process
//! of its own, which carries out the changes that it is asked for.
#![allow(dead_code, reason = "the tests of each crate use a part of it")]

mod creating;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_crush::{build_simple_crush, pg_mapping};
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::{Group, Listener, Shard};
use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};
use carmine_wire::mgr_msg::MgrMapMsg;
use carmine_wire::mon_msg::{
    Command, CommandAck, ConfigMsg, GetVersion, GetVersionReply, LogMsg, MonMapMsg, OsdMapMsg, StatFs,
    StatFsReply, Subscribe,
};
use carmine_wire::monmap::MonMap;
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Failure, MarkMeDown, PgCreated, PgTemp, ReadyToMerge};
use carmine_wire::osdmap::{Incremental, MergeMeta, OsdMap, OsdXinfo, PgPool};
use carmine_wire::pg_stat::{PgStat, state};
use carmine_wire::private::{OsdDamage, OsdStats};
use carmine_wire::scrub::OsdScrub;
use carmine_wire::{EntityAddr, EntityType, kinds};

use creating::Creating;

/// Name and number of the pool that every test has.
pub(crate) const POOL: &str = "data";
pub(crate) const POOL_ID: i64 = 1;

/// Full maps in one message, at the most.
const MAPS_MAX: usize = 4;

type Change = Box<dyn FnOnce(&OsdMap, &mut Incremental)>;

/// Someone who is connected.
struct Session {
    conn: Rc<Connection>,
    /// The epoch from which it wants maps; 0: it has not asked.
    maps_from: Epoch,
    /// The epoch from which it wants orders to create PGs; `None`: it has not asked.
    creates_from: Option<Epoch>,
    /// The epoch from which it wants maps of managers; `None`: it has not asked.
    managers_from: Option<Epoch>,
}

/// The map and who wants to hear of it.
pub(crate) struct FakeMon {
    pub(crate) addr: SocketAddr,
    fsid: Uuid,
    /// All maps and the increments that led to them, from epoch 1 on.
    maps: RefCell<Vec<(Arc<OsdMap>, Incremental)>>,
    changes: RefCell<Vec<Change>>,
    sessions: RefCell<Vec<Session>>,
    next_gid: Cell<u64>,
    /// The map of managers, in a cluster that has some.
    manager: RefCell<Option<MgrMapMsg>>,
    /// PGs that were never active.
    creating: RefCell<Creating>,
    /// Maps of odd epochs go to those who have the one before as an increment, not in full.
    pub(crate) increments: Cell<bool>,
    /// Primaries are not ordered to create PGs.
    pub(crate) withholds_creates: Cell<bool>,
    /// Nobody gets another map than the newest.
    pub(crate) forgets_maps: Cell<bool>,
    /// Several changes that come at once make one map: nobody sees the steps in between.
    pub(crate) merge: Cell<bool>,
    /// What OSDs said of PGs that were to be merged.
    pub(crate) merges: RefCell<Vec<ReadyToMerge>>,
    /// Nobody is told of new maps, unless they ask.
    pub(crate) mute: Cell<bool>,
    /// Sessions of these OSDs are not told of new maps; the answer to a subscription they get.
    pub(crate) deaf: RefCell<Vec<u32>>,
    /// OSDs that cannot read their metadata, and why.
    pub(crate) damage: RefCell<BTreeMap<OsdId, String>>,
    /// OSDs that have said goodbye.
    pub(crate) gone: RefCell<Vec<OsdId>>,
    /// Each OSD's last report, without its PGs.
    pub(crate) stats: RefCell<BTreeMap<OsdId, OsdStats>>,
    /// Scrubs that OSDs are to be told of.
    pub(crate) orders: RefCell<Vec<(OsdId, OsdScrub)>>,
    /// What was last told of each PG, and by whom.
    pub(crate) pg_stats: RefCell<BTreeMap<PgId, (OsdId, PgStat)>>,
    /// Lines for the cluster's log.
    pub(crate) log: RefCell<Vec<String>>,
    /// Primaries that ask for another acting set do not get it.
    pub(crate) stubborn: Cell<bool>,
    /// Failure reports, each with the OSD that sent it.
    pub(crate) failures: RefCell<Vec<(OsdId, Failure)>>,
    /// The processes of these OSDs have ended: a map that says they are down says that, too.
    pub(crate) dead: RefCell<BTreeSet<u32>>,
    /// Commands that came.
    pub(crate) commands: Cell<u32>,
    /// This many commands get no answer.
    pub(crate) drop_commands: Cell<u32>,
}

impl FakeMon {
    /// A monitor that will be at `addr`, and its first map: OSDs that are not up, and the pool.
    pub(crate) fn new(addr: SocketAddr, osds: u32, size: u8, pgs: u32) -> Rc<FakeMon> {
        let fsid = Uuid([7; 16]);
        let mut map = OsdMap::new(fsid, UTime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(osds);
        let weights: Vec<_> = (0..osds).map(|osd| (OsdId(osd), 0x10000)).collect();
        map.crush = Arc::new(build_simple_crush(&weights, true));
        map.osd_weight.iter_mut().for_each(|weight| *weight = 0x10000);
        map.osd_state.iter_mut().for_each(|state| *state = 1);
        map.pools.insert(POOL_ID, PgPool::replicated(size, 1, pgs, 0, Epoch(1), UTime::ZERO));
        map.pool_names.insert(POOL_ID, POOL.to_owned());
        map.pool_max = POOL_ID as i32;
        let mut creating = Creating::default();
        creating.follow(None, &map);
        Rc::new(FakeMon {
            addr,
            fsid,
            maps: RefCell::new(vec![(Arc::new(map), Incremental::default())]),
            changes: RefCell::default(),
            sessions: RefCell::default(),
            next_gid: Cell::new(4096),
            manager: RefCell::default(),
            creating: RefCell::new(creating),
            increments: Cell::default(),
            withholds_creates: Cell::default(),
            forgets_maps: Cell::default(),
            merge: Cell::default(),
            mute: Cell::default(),
            merges: RefCell::default(),
            deaf: RefCell::default(),
            damage: RefCell::default(),
            gone: RefCell::default(),
            stats: RefCell::default(),
            orders: RefCell::default(),
            pg_stats: RefCell::default(),
            log: RefCell::default(),
            stubborn: Cell::default(),
            failures: RefCell::default(),
            dead: RefCell::default(),
            commands: Cell::default(),
            drop_commands: Cell::default(),
        })
    }

    /// Lets sessions in, as long as the shard lives.
    pub(crate) fn accept(self: &Rc<Self>, shard: &Shard, listener: Listener) {
        let mon = Rc::clone(self);
        let config = ServerConfig::new(EntityType::MON, 0, EntityAddr::msgr2(self.addr, 0).into());
        let config = Rc::new(config.assigning(move |claim| {
            mon.next_gid.set(mon.next_gid.get() + 1);
            Some(if claim.gid == 0 { mon.next_gid.get() } else { claim.gid })
        }));
        let (mon, task_shard) = (Rc::clone(self), shard.clone());
        shard.spawn(Group::Admin, "fake-mon", async move {
            while let Ok((socket, _)) = listener.accept().await {
                serve(&task_shard, socket, Rc::clone(&config), Rc::new(MonSide(Rc::clone(&mon)))).await;
            }
        });
    }

    /// The mon as a process of its own: carries out changes soon after they are asked for.
    pub(crate) async fn run(self: Rc<Self>, shard: Shard) {
        let listener = shard.listen(self.addr).await.unwrap();
        self.accept(&shard, listener);
        loop {
            shard.sleep(Duration::from_micros(200)).await;
            for (osd, order) in self.orders.take() {
                let sessions = self.sessions.borrow();
                let is_it = |conn: &Connection| {
                    conn.peer().entity == EntityType::OSD && conn.peer().name == osd.0.to_string()
                };
                sessions
                    .iter()
                    .filter(|session| is_it(&session.conn))
                    .for_each(|session| session.conn.send(Message::encode(&order)));
            }
            let mut changes = std::mem::take(&mut *self.changes.borrow_mut()).into_iter();
            while let Some(change) = changes.next() {
                self.change_now(|map, inc| {
                    change(map, inc);
                    if self.merge.get() {
                        changes.by_ref().for_each(|change| change(map, inc));
                    }
                });
            }
        }
    }

    pub(crate) fn map(&self) -> Arc<OsdMap> {
        Arc::clone(&self.maps.borrow().last().unwrap().0)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.map().epoch
    }

    /// Makes the next map and sends it around. Only on the mon's own shard.
    pub(crate) fn change_now(&self, change: impl FnOnce(&OsdMap, &mut Incremental)) {
        let map = self.map();
        let mut inc = Incremental::next(&map, UTime::ZERO);
        change(&map, &mut inc);
        let next = with_clean_temps(&map, &mut inc);
        self.creating.borrow_mut().follow(Some(&map), &next);
        self.maps.borrow_mut().push((next, inc));
        if !self.mute.get() {
            let mut sessions = self.sessions.borrow_mut();
            sessions
                .iter_mut()
                .filter(|session| !self.is_deaf(session))
                .for_each(|session| self.send_news(session, true));
        }
    }

    /// Changes the map soon.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Incremental) + 'static) {
        self.changes_with(|_, inc| change(inc));
    }

    /// Changes the map soon, by what it is then.
    pub(crate) fn changes_with(&self, change: impl FnOnce(&OsdMap, &mut Incremental) + 'static) {
        self.changes.borrow_mut().push(Box::new(change));
    }

    /// The map says soon that an OSD is down, whether it is or not.
    pub(crate) fn down(&self, osd: u32) {
        let is_dead = self.dead.borrow().contains(&osd);
        self.changes_with(move |map, inc| {
            if map.is_up(OsdId(osd)) {
                inc.mark_down(OsdId(osd));
            }
            if is_dead {
                note_death(inc, OsdId(osd));
            }
        });
    }

    /// The map says soon that an OSD is up where it was.
    pub(crate) fn up_again(&self, osd: u32) {
        let addrs = self.map().client_addrs[osd as usize].clone();
        self.change(move |inc| {
            inc.new_up_client.insert(OsdId(osd), addrs);
        });
    }

    /// Lets CRUSH name these OSDs for these PGs of the pool soon, the primary first.
    pub(crate) fn place(&self, pgs: Range<u32>, osds: &[i32]) {
        let osds = osds.to_vec();
        self.change(move |inc| {
            inc.new_pg_upmap.extend(pgs.map(|ps| (PgId::new(POOL_ID, ps), osds.clone())));
        });
    }

    /// The pool needs so many members soon.
    pub(crate) fn min_size(&self, min_size: u8) {
        self.changes_with(move |map, inc| {
            let pool = map.pools[&POOL_ID].clone();
            inc.new_pools.insert(POOL_ID, PgPool { min_size, ..pool });
        });
    }

    /// Sends what deaf sessions missed.
    pub(crate) fn hear(&self) {
        self.deaf.borrow_mut().clear();
        self.change(|_| {});
    }

    /// Says soon who is the manager.
    pub(crate) fn set_manager(&self, map: MgrMapMsg) {
        self.manager.replace(Some(map));
        self.change(|_| {});
    }

    /// Ends all sessions.
    pub(crate) fn cut(&self) {
        self.sessions.borrow().iter().for_each(|session| session.conn.close("cut by the test"));
    }

    pub(crate) fn full_map(&self) -> OsdMapMsg {
        let map = self.map();
        OsdMapMsg::full(self.fsid, map.epoch, map.encode())
    }

    fn full_maps(&self, maps: &[(Arc<OsdMap>, Incremental)]) -> OsdMapMsg {
        let oldest = if self.forgets_maps.get() { self.epoch() } else { Epoch(1) };
        let full = maps.iter().map(|(map, _)| (map.epoch, map.encode())).collect();
        OsdMapMsg { full, oldest, ..self.full_map() }
    }

    /// The increment to the newest map, which is of no use to whoever missed the one before.
    pub(crate) fn gap(&self) -> OsdMapMsg {
        let inc = Incremental { epoch: self.epoch(), ..Incremental::next(&self.map(), UTime::ZERO) };
        self.increment(&inc)
    }

    fn increment(&self, inc: &Incremental) -> OsdMapMsg {
        OsdMapMsg { incrementals: vec![(inc.epoch, inc.encode())], full: Vec::new(), ..self.full_map() }
    }

    fn is_deaf(&self, session: &Session) -> bool {
        let peer = session.conn.peer();
        peer.entity == EntityType::OSD && self.deaf.borrow().iter().any(|osd| peer.name == osd.to_string())
    }

    /// Sends a session the maps and orders that it wants and has not got. `has_earlier`: it has the maps before those.
    fn send_news(&self, session: &mut Session, has_earlier: bool) {
        let Session { conn, maps_from, creates_from, managers_from } = session;
        let (maps, newest) = (self.maps.borrow(), self.epoch());
        if maps_from.0 > 0 && *maps_from <= newest {
            if has_earlier && *maps_from == newest && self.increments.get() && newest.0 % 2 == 1 {
                conn.send(Message::encode(&self.increment(&maps[newest.0 as usize - 1].1)));
            } else {
                let first = if self.forgets_maps.get() { newest } else { *maps_from };
                let messages = maps[first.0 as usize - 1..].chunks(MAPS_MAX);
                messages.for_each(|maps| conn.send(Message::encode(&self.full_maps(maps))));
            }
            *maps_from = Epoch(newest.0 + 1);
        }
        if let Some(from) = creates_from.as_mut().filter(|_| !self.withholds_creates.get()) {
            let order = self.creating.borrow().order(osd_of(conn), *from, &self.map());
            order.iter().for_each(|order| conn.send(Message::encode(order)));
            *from = Epoch(newest.0 + 1);
        }
        if let (Some(from), Some(map)) = (managers_from, &*self.manager.borrow())
            && *from <= map.epoch
        {
            conn.send(Message::encode(map));
            *from = Epoch(map.epoch.0 + 1);
        }
    }

    fn subscribe(&self, conn: &Rc<Connection>, wish: &Subscribe) {
        let mut sessions = self.sessions.borrow_mut();
        let Some(session) = sessions.iter_mut().find(|session| Rc::ptr_eq(&session.conn, conn)) else {
            return;
        };
        for item in &wish.what {
            match item.what.as_str() {
                "config" => conn.send(Message::encode(&ConfigMsg::default())),
                "monmap" => {}
                // Zero stands for the newest.
                "osdmap" => {
                    session.maps_from = if item.start == 0 { self.epoch() } else { Epoch(item.start as u32) };
                }
                "osd_pg_creates" => session.creates_from = Some(Epoch(item.start as u32)),
                "mgrmap" => session.managers_from = Some(Epoch(item.start as u32)),
                other => panic!("a subscription to {other}"),
            }
        }
        self.send_news(session, false);
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: &Message) {
        let answer = |reply: Message| conn.send(reply.with_tid(msg.header.tid));
        match msg.header.kind {
            kinds::MON_GET_MAP => {
                let addr = EntityAddr::msgr2(self.addr, 0);
                let monmap = MonMap::single(self.fsid, UTime::ZERO, "a", addr.into()).encode();
                answer(Message::encode(&MonMapMsg { monmap }));
            }
            kinds::MON_SUBSCRIBE => self.subscribe(conn, &msg.decode().unwrap()),
            kinds::MON_GET_VERSION => {
                let ask: GetVersion = msg.decode().unwrap();
                let newest = self.epoch().0.into();
                answer(Message::encode(&GetVersionReply { handle: ask.handle, newest, oldest: 1 }));
            }
            kinds::MON_COMMAND => {
                self.commands.set(self.commands.get() + 1);
                if self.drop_commands.get() > 0 {
                    return self.drop_commands.set(self.drop_commands.get() - 1);
                }
                let cmd = msg.decode::<Command>().unwrap().cmd;
                let result = if cmd[0].contains("bad") { -22 } else { 0 };
                let status = format!("did {}", cmd[0]);
                let data = msg.data.clone();
                answer(Message::encode(&CommandAck { version: 0, result, status, cmd }).with_data(data));
            }
            kinds::STATFS => {
                msg.decode::<StatFs>().unwrap();
                let reply = StatFsReply { fsid: self.fsid, total_kib: 100, ..StatFsReply::default() };
                answer(Message::encode(&reply));
            }
            kinds::OSD_STATS => {
                let (osd, mut stats) = (osd_of(conn), msg.decode::<OsdStats>().unwrap());
                let pgs = std::mem::take(&mut stats.pgs);
                let is_active = |(_, stat): &&(PgId, PgStat)| stat.is(state::ACTIVE);
                pgs.iter().filter(is_active).for_each(|(pg, _)| self.creating.borrow_mut().remove(*pg));
                self.pg_stats.borrow_mut().extend(pgs.into_iter().map(|(pg, stat)| (pg, (osd, stat))));
                self.stats.borrow_mut().insert(osd, stats);
            }
            kinds::LOG => {
                let lines = msg.decode::<LogMsg>().unwrap().entries.into_iter().map(|entry| entry.text);
                self.log.borrow_mut().extend(lines);
            }
            kinds::OSD_PG_CREATED => self.creating.borrow_mut().remove(msg.decode::<PgCreated>().unwrap().pg),
            kinds::OSD_PG_READY_TO_MERGE => self.merge_pgs(msg.decode().unwrap()),
            kinds::OSD_PG_TEMP => self.set_temps(osd_of(conn), msg.decode().unwrap()),
            kinds::OSD_DAMAGE => {
                let told: OsdDamage = msg.decode().unwrap();
                self.damage.borrow_mut().insert(told.osd, told.what);
            }
            kinds::OSD_BOOT => self.boot(conn, msg.decode().unwrap()),
            kinds::OSD_ALIVE => {
                let (osd, Alive { want, .. }) = (osd_of(conn), msg.decode().unwrap());
                if self.map().up_thru(osd) < want {
                    self.changes_with(move |map, inc| {
                        let up_thru = inc.new_up_thru.entry(osd).or_insert(map.up_thru(osd));
                        *up_thru = want.max(*up_thru);
                    });
                }
            }
            kinds::OSD_BEACON => drop(msg.decode::<Beacon>().unwrap()),
            // The tests say themselves who is down.
            kinds::OSD_FAILURE => self.failures.borrow_mut().push((osd_of(conn), msg.decode().unwrap())),
            kinds::OSD_MARK_ME_DOWN => self.gone.borrow_mut().push(msg.decode::<MarkMeDown>().unwrap().osd),
            other => panic!("message {other} to the mon"),
        }
    }
}

impl FakeMon {
    /// Makes the merge that its map announces, or gives it up.
    fn merge_pgs(&self, word: ReadyToMerge) {
        self.merges.borrow_mut().push(word.clone());
        self.pg_stats.borrow_mut().remove(&word.source);
        self.changes_with(move |map, inc| {
            let Some(pool) = map.pool(word.source.pool).filter(|pool| pool.pg_num_pending == word.source.ps)
            else {
                return;
            };
            if pool.pg_num_pending == pool.pg_num {
                return;
            }
            let pool = match word.ready {
                true => PgPool {
                    pg_num: pool.pg_num_pending,
                    last_pg_merge_meta: MergeMeta {
                        source_pg: word.source,
                        ready_epoch: Epoch(word.version as u32 + 1),
                        last_epoch_started: word.last_epoch_started,
                        last_epoch_clean: word.last_epoch_clean,
                        source_version: word.source_version,
                        target_version: word.target_version,
                    },
                    ..pool.clone()
                },
                false => PgPool { pg_num_pending: pool.pg_num, ..pool.clone() },
            };
            inc.new_pools.insert(word.source.pool, pool);
        });
    }

    /// Sets the acting set that a PG's primary asks for; an empty list ends its entry, and the up set serves.
    fn set_temps(&self, primary: OsdId, PgTemp { pg_temp, .. }: PgTemp) {
        let is_obeyed = move |map: &OsdMap, pg: PgId, asked: &Vec<i32>| {
            let now = map.pg_temp.get(&pg).map_or(&[][..], Vec::as_slice);
            now != asked && pg_mapping(map, pg).acting_primary == Some(primary)
        };
        let map = self.map();
        if self.stubborn.get() || pg_temp.iter().all(|(pg, asked)| !is_obeyed(&map, *pg, asked)) {
            return;
        }
        self.changes_with(move |map, inc| {
            inc.new_pg_temp.extend(pg_temp.into_iter().filter(|(pg, asked)| is_obeyed(map, *pg, asked)));
        });
    }

    /// An OSD has started, or heard that it was said to be down. One that is up by the map was another process: its end comes in a
    /// map of its own.
    fn boot(&self, conn: &Connection, boot: Boot) {
        let (osd, addr) = (osd_of(conn), conn.peer().addr);
        assert_eq!(boot.superblock.whoami, osd);
        self.dead.borrow_mut().remove(&osd.0);
        let is_other = move |map: &OsdMap| map.client_addr(osd) != Some(&addr.into());
        let map = self.map();
        if map.is_up(osd) {
            if !is_other(&map) {
                return;
            }
            self.changes_with(move |map, inc| {
                if map.is_up(osd) && is_other(map) {
                    inc.mark_down(osd);
                    note_death(inc, osd);
                }
            });
        }
        self.changes_with(move |map, inc| {
            if is_other(map) {
                note_death(inc, osd);
            }
            inc.new_up_client.insert(osd, addr.into());
            inc.new_up_cluster.insert(osd, boot.cluster);
            let known = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
            inc.new_xinfo.entry(osd).or_insert(known).features = boot.features;
            inc.new_hb_back_up.insert(osd, boot.hb_back);
            inc.new_hb_front_up.insert(osd, boot.hb_front);
        });
    }
}

/// The map that a change leads to. It keeps no useless entries of `pg_temp`: those whose OSDs are all down or gone, those
/// with more OSDs than the pool has replicas, and those equal to the up set.
fn with_clean_temps(map: &OsdMap, inc: &mut Incremental) -> Arc<OsdMap> {
    let next = inc.applied(map).unwrap();
    let is_useless = |(pg, osds): &(&PgId, &Vec<i32>)| {
        let is_up = |osd: &i32| OsdId::from_item(*osd).is_some_and(|osd| next.is_up(osd));
        let too_many = next.pool(pg.pool).is_none_or(|pool| osds.len() > pool.size.into());
        too_many || !osds.iter().any(is_up) || pg_mapping(&next, **pg).up[..] == osds[..]
    };
    let useless: Vec<PgId> = next.pg_temp.iter().filter(is_useless).map(|(pg, _)| *pg).collect();
    if useless.is_empty() {
        return next;
    }
    inc.new_pg_temp.extend(useless.into_iter().map(|pg| (pg, Vec::new())));
    inc.applied(map).unwrap()
}

/// The process of an OSD that was up before this map has ended.
fn note_death(inc: &mut Incremental, osd: OsdId) {
    inc.new_xinfo.insert(osd, OsdXinfo { dead_epoch: inc.epoch, ..OsdXinfo::default() });
}

/// The OSD at the other end.
fn osd_of(conn: &Connection) -> OsdId {
    assert_eq!(conn.peer().entity, EntityType::OSD);
    OsdId(conn.peer().name.parse().unwrap())
}

struct MonSide(Rc<FakeMon>);

impl Dispatcher for MonSide {
    fn on_accepted(&self, conn: &Rc<Connection>) {
        let session =
            Session { conn: Rc::clone(conn), maps_from: Epoch(0), creates_from: None, managers_from: None };
        self.0.sessions.borrow_mut().push(session);
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        self.0.on_message(conn, &msg);
    }

    fn on_closed(&self, conn: &Rc<Connection>, _: &str) {
        self.0.sessions.borrow_mut().retain(|session| !Rc::ptr_eq(&session.conn, conn));
    }
}
