//! The authority on maps: as much of a monitor as an OSD and a client need, and as obedient as a test wants.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_crush::build_simple_crush;
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::{Group, Shard};
use carmine_types::{Epoch, OsdId, UTime, Uuid};
use carmine_wire::mon_msg::{ConfigMsg, GetVersion, GetVersionReply, MonMapMsg, OsdMapMsg, Subscribe};
use carmine_wire::monmap::MonMap;
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};
use carmine_wire::private::{OsdBeacon, OsdBoot, OsdBootAck};
use carmine_wire::{EntityAddr, EntityType, kinds};

/// Name and number of the pool that every test has.
pub(crate) const POOL: &str = "data";
pub(crate) const POOL_ID: i64 = 1;

type Change = Box<dyn FnOnce(&OsdMap, &mut Incremental)>;

/// The map and who wants to hear of it. The test changes it from outside; a task of the mon's node sends it around.
pub(crate) struct FakeMon {
    fsid: Uuid,
    map: RefCell<Arc<OsdMap>>,
    changes: RefCell<Vec<Change>>,
    /// Sessions, and the epoch from which each wants maps.
    sessions: RefCell<Vec<(Rc<Connection>, Epoch)>>,
    next_gid: Cell<u64>,
    /// Several changes that come at once make one map: nobody sees the steps in between.
    pub(crate) merge: Cell<bool>,
    /// Sessions of these OSDs get no maps.
    pub(crate) deaf: RefCell<Vec<u32>>,
    /// What each OSD said last about its space.
    pub(crate) beacons: RefCell<BTreeMap<OsdId, OsdBeacon>>,
}

pub(crate) fn mon_addr() -> SocketAddr {
    "10.0.0.100:3300".parse().unwrap()
}

impl FakeMon {
    pub(crate) fn new(osds: u32, size: u8, pgs: u32) -> Rc<FakeMon> {
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
            fsid,
            map: RefCell::new(Arc::new(map)),
            changes: RefCell::default(),
            sessions: RefCell::default(),
            next_gid: Cell::new(4096),
            merge: Cell::new(false),
            deaf: RefCell::default(),
            beacons: RefCell::default(),
        })
    }

    /// The mon's process.
    pub(crate) async fn run(self: Rc<Self>, shard: Shard) {
        let listener = shard.listen(mon_addr()).await.unwrap();
        let mon = Rc::clone(&self);
        let config = ServerConfig::new(EntityType::MON, 0, EntityAddr::msgr2(mon_addr(), 0).into());
        let config = Rc::new(config.assigning(move |claim| {
            mon.next_gid.set(mon.next_gid.get() + 1);
            if claim.gid == 0 { mon.next_gid.get() } else { claim.gid }
        }));
        let (mon, task_shard) = (Rc::clone(&self), shard.clone());
        shard.spawn(Group::Admin, "accept", async move {
            while let Ok((socket, _)) = listener.accept().await {
                serve(&task_shard, socket, Rc::clone(&config), Rc::new(MonSide(Rc::clone(&mon)))).await;
            }
        });
        loop {
            shard.sleep(Duration::from_micros(200)).await;
            let mut changes = std::mem::take(&mut *self.changes.borrow_mut()).into_iter();
            while let Some(change) = changes.next() {
                let mut inc = Incremental::next(&self.map(), UTime::ZERO);
                let map = self.map();
                change(&map, &mut inc);
                if self.merge.get() {
                    changes.by_ref().for_each(|change| change(&map, &mut inc));
                }
                let next = inc.applied(&self.map()).unwrap();
                *self.map.borrow_mut() = next;
                self.publish();
            }
        }
    }

    pub(crate) fn map(&self) -> Arc<OsdMap> {
        Arc::clone(&self.map.borrow())
    }

    /// Changes the map soon.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Incremental) + 'static) {
        self.changes.borrow_mut().push(Box::new(|_, inc| change(inc)));
    }

    /// Changes the map soon, by what it is then.
    pub(crate) fn changes_with(&self, change: impl FnOnce(&OsdMap, &mut Incremental) + 'static) {
        self.changes.borrow_mut().push(Box::new(change));
    }

    /// The map says that an OSD is down, whether it is or not.
    pub(crate) fn down(&self, osd: u32) {
        self.changes.borrow_mut().push(Box::new(move |map, inc| {
            if map.is_up(OsdId(osd)) {
                inc.mark_down(OsdId(osd));
            }
        }));
    }

    /// The map says that an OSD is up where it was.
    pub(crate) fn up_again(&self, osd: u32) {
        let addrs = self.map().client_addrs[osd as usize].clone();
        self.change(move |inc| {
            inc.new_up_client.insert(OsdId(osd), addrs);
        });
    }

    fn publish(&self) {
        let map = self.map();
        let deaf = self.deaf.borrow().clone();
        for (conn, wants) in self.sessions.borrow_mut().iter_mut() {
            let is_deaf = conn.peer().entity == EntityType::OSD
                && deaf.iter().any(|osd| conn.peer().name == osd.to_string());
            if wants.0 > 0 && *wants <= map.epoch && !is_deaf {
                conn.send(Message::of(&OsdMapMsg::full(self.fsid, map.epoch, map.encode())));
                *wants = Epoch(map.epoch.0 + 1);
            }
        }
    }

    /// Sends what deaf sessions missed.
    pub(crate) fn hear(&self) {
        self.deaf.borrow_mut().clear();
        self.change(|_| {});
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: &Message) {
        let tid = msg.header.tid;
        match msg.header.kind {
            kinds::MON_GET_MAP => {
                let addr = EntityAddr::msgr2(mon_addr(), 0);
                let monmap = MonMap::single(self.fsid, UTime::ZERO, "a", addr.into()).encode();
                conn.send(Message::of(&MonMapMsg { monmap }).with_tid(tid));
            }
            kinds::MON_SUBSCRIBE => {
                let wish: Subscribe = msg.decode().unwrap();
                if wish.what.iter().any(|item| item.what == "config") {
                    conn.send(Message::of(&ConfigMsg::default()));
                }
                if let Some(item) = wish.what.iter().find(|item| item.what == "osdmap") {
                    let mut sessions = self.sessions.borrow_mut();
                    if let Some(session) = sessions.iter_mut().find(|(c, _)| Rc::ptr_eq(c, conn)) {
                        session.1 = Epoch((item.start as u32).max(1));
                    }
                    drop(sessions);
                    self.publish();
                }
            }
            kinds::MON_GET_VERSION => {
                let ask: GetVersion = msg.decode().unwrap();
                let newest = self.map().epoch.0.into();
                conn.send(
                    Message::of(&GetVersionReply { handle: ask.handle, newest, oldest: 1 }).with_tid(tid),
                );
            }
            kinds::OSD_BEACON => {
                let beacon: OsdBeacon = msg.decode().unwrap();
                self.beacons.borrow_mut().insert(beacon.osd, beacon);
            }
            kinds::OSD_BOOT => {
                let boot: OsdBoot = msg.decode().unwrap();
                self.change(move |inc| {
                    inc.new_up_client.insert(boot.osd, boot.addr.into());
                });
                let ack = OsdBootAck { result: 0, epoch: Epoch(0), reason: String::new() };
                conn.send(Message::of(&ack).with_tid(tid));
            }
            _ => {}
        }
    }
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
