//! The fake monitor of all tests: the authority on maps, as much of a monitor as clients and OSDs need, and as obedient as a
//! test wants. The client's tests run it on their own shard and change the map at once; the OSD's tests run it as a process
//! of its own, which carries out the changes that it is asked for.
#![allow(dead_code, reason = "the tests of each crate use a part of it")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_crush::{build_simple_crush, pg_mapping};
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::{Group, Listener, Shard};
use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};
use carmine_wire::mon_msg::{
    Command, CommandAck, ConfigMsg, GetVersion, GetVersionReply, LogMsg, MonMapMsg, OsdMapMsg, StatFs,
    StatFsReply, Subscribe,
};
use carmine_wire::monmap::MonMap;
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Failure, MarkMeDown, PgTemp};
use carmine_wire::osdmap::{Incremental, OsdMap, OsdXinfo, PgPool};
use carmine_wire::pg_stat::PgStat;
use carmine_wire::private::{OsdDamage, OsdStats};
use carmine_wire::scrub::OsdScrub;
use carmine_wire::{EntityAddr, EntityType, kinds};

/// Name and number of the pool that every test has.
pub(crate) const POOL: &str = "data";
pub(crate) const POOL_ID: i64 = 1;

type Change = Box<dyn FnOnce(&OsdMap, &mut Incremental)>;

/// The map and who wants to hear of it.
pub(crate) struct FakeMon {
    pub(crate) addr: SocketAddr,
    fsid: Uuid,
    map: RefCell<Arc<OsdMap>>,
    changes: RefCell<Vec<Change>>,
    /// Sessions, and the epoch from which each wants maps; 0: it has not asked.
    sessions: RefCell<Vec<(Rc<Connection>, Epoch)>>,
    next_gid: Cell<u64>,
    /// Maps of odd epochs go to those who have the one before as an increment, not in full.
    pub(crate) increments: Cell<bool>,
    /// Several changes that come at once make one map: nobody sees the steps in between.
    pub(crate) merge: Cell<bool>,
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
    /// OSDs that have to lead, by the reports of primaries, are not made to.
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
        Rc::new(FakeMon {
            addr,
            fsid,
            map: RefCell::new(Arc::new(map)),
            changes: RefCell::default(),
            sessions: RefCell::default(),
            next_gid: Cell::new(4096),
            increments: Cell::default(),
            merge: Cell::default(),
            mute: Cell::default(),
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
                    .filter(|(conn, _)| is_it(conn))
                    .for_each(|(conn, _)| conn.send(Message::encode(&order)));
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
        Arc::clone(&self.map.borrow())
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.map.borrow().epoch
    }

    /// Makes the next map and sends it around. Only on the mon's own shard.
    pub(crate) fn change_now(&self, change: impl FnOnce(&OsdMap, &mut Incremental)) {
        let map = self.map();
        let mut inc = Incremental::next(&map, UTime::ZERO);
        change(&map, &mut inc);
        *self.map.borrow_mut() = inc.applied(&map).unwrap();
        if !self.mute.get() {
            self.sessions.borrow_mut().iter_mut().for_each(|session| self.tell(session, Some(&inc)));
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

    /// Sends what deaf sessions missed.
    pub(crate) fn hear(&self) {
        self.deaf.borrow_mut().clear();
        self.change(|_| {});
    }

    /// Ends all sessions.
    pub(crate) fn cut(&self) {
        self.sessions.borrow().iter().for_each(|(conn, _)| conn.close("cut by the test"));
    }

    pub(crate) fn full_map(&self) -> OsdMapMsg {
        let map = self.map();
        OsdMapMsg::full(self.fsid, map.epoch, map.encode())
    }

    /// The increment to the newest map, which is of no use to whoever missed the one before.
    pub(crate) fn gap(&self) -> OsdMapMsg {
        let inc = Incremental { epoch: self.epoch(), ..Incremental::next(&self.map(), UTime::ZERO) };
        self.increment(&inc)
    }

    fn increment(&self, inc: &Incremental) -> OsdMapMsg {
        OsdMapMsg { incrementals: vec![(inc.epoch, inc.encode())], full: Vec::new(), ..self.full_map() }
    }

    /// Sends the newest map to a session that wants it, if the session is not deaf; `inc` led to it.
    fn tell(&self, (conn, wants): &mut (Rc<Connection>, Epoch), inc: Option<&Incremental>) {
        let (peer, newest) = (conn.peer(), self.epoch());
        let is_deaf = inc.is_some()
            && peer.entity == EntityType::OSD
            && self.deaf.borrow().iter().any(|osd| peer.name == osd.to_string());
        if wants.0 == 0 || *wants > newest || is_deaf {
            return;
        }
        let has_last = self.increments.get() && newest.0 % 2 == 1 && *wants == newest;
        let message = inc.filter(|_| has_last).map_or_else(|| self.full_map(), |inc| self.increment(inc));
        conn.send(Message::encode(&message));
        *wants = Epoch(newest.0 + 1);
    }

    fn subscribe(&self, conn: &Rc<Connection>, wish: &Subscribe) {
        for item in &wish.what {
            match item.what.as_str() {
                "config" => conn.send(Message::encode(&ConfigMsg::default())),
                "monmap" => {}
                "osdmap" => {
                    let mut sessions = self.sessions.borrow_mut();
                    if let Some(session) = sessions.iter_mut().find(|(c, _)| Rc::ptr_eq(c, conn)) {
                        session.1 = Epoch((item.start as u32).max(1));
                        self.tell(session, None);
                    }
                }
                other => panic!("a subscription to {other}"),
            }
        }
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
                self.pg_stats.borrow_mut().extend(pgs.into_iter().map(|(pg, stat)| (pg, (osd, stat))));
                self.stats.borrow_mut().insert(osd, stats);
            }
            kinds::LOG => {
                let lines = msg.decode::<LogMsg>().unwrap().entries.into_iter().map(|entry| entry.text);
                self.log.borrow_mut().extend(lines);
            }
            kinds::OSD_PG_TEMP => self.heed(msg.decode().unwrap()),
            kinds::OSD_DAMAGE => {
                let told: OsdDamage = msg.decode().unwrap();
                self.damage.borrow_mut().insert(told.osd, told.what);
            }
            kinds::OSD_BOOT => self.boot(conn, msg.decode().unwrap()),
            kinds::OSD_ALIVE => {
                let (osd, alive) = (osd_of(conn), msg.decode::<Alive>().unwrap());
                self.change(move |inc| {
                    inc.new_up_thru.insert(osd, alive.want);
                });
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
    /// Makes the OSD that a PG's primary names its next primary. Tests choose the other members themselves.
    fn heed(&self, PgTemp { epoch, pg_temp, .. }: PgTemp) {
        if self.stubborn.get() {
            return;
        }
        self.changes_with(move |map, inc| {
            for (pg, asked) in pg_temp.into_iter().filter(|_| map.epoch == epoch) {
                let mapping = pg_mapping(map, pg);
                let place_in = |osds: &[i32]| osds.iter().position(|osd| Some(osd) == asked.first());
                let follows = place_in(&mapping.acting).is_some_and(|at| at > 0);
                // Those that are down stay members.
                let mut entry = map.pg_temp.get(&pg).cloned().unwrap_or_else(|| mapping.wanted.to_vec());
                if let Some(at) = place_in(&entry).filter(|_| follows) {
                    entry[..=at].rotate_right(1);
                    inc.new_pg_temp.insert(pg, entry);
                }
            }
        });
    }

    fn boot(&self, conn: &Connection, boot: Boot) {
        let (osd, addr) = (osd_of(conn), conn.peer().addr);
        assert_eq!(boot.superblock.whoami, osd);
        self.dead.borrow_mut().remove(&osd.0);
        self.changes_with(move |map, inc| {
            if map.client_addr(osd) != Some(&addr.into()) {
                note_death(inc, osd);
            }
            inc.new_up_client.insert(osd, addr.into());
            inc.new_up_cluster.insert(osd, boot.cluster);
            inc.new_hb_back_up.insert(osd, boot.hb_back);
            inc.new_hb_front_up.insert(osd, boot.hb_front);
        });
    }
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
        self.0.sessions.borrow_mut().push((Rc::clone(conn), Epoch(0)));
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        self.0.on_message(conn, &msg);
    }

    fn on_closed(&self, conn: &Rc<Connection>, _: &str) {
        self.0.sessions.borrow_mut().retain(|(c, _)| !Rc::ptr_eq(c, conn));
    }
}
