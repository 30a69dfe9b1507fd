//! A cluster of one monitor and some OSDs on the test's own shard. What OSDs hold is common to all of them, as if every write
//! were replicated at once; what they answer, and when they fail, is up to the test.

use super::fake_osd::FakeOsd;
use carmine_client::{Client, Options};
use carmine_crush::{MapView, build_simple_crush};
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::{Group, Shard};
use carmine_types::{Epoch, OsdId, UTime, Uuid};
use carmine_wire::mon_msg::{
    Command, CommandAck, ConfigMsg, GetVersion, GetVersionReply, MonMapMsg, OsdMapMsg, StatFs, StatFsReply,
    Subscribe,
};
use carmine_wire::monmap::MonMap;
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType, kinds};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) const PGS: u32 = 8;

/// An object's data, and the transaction ids of its writers in the order of their application.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) data: Vec<u8>,
    pub(crate) writers: Vec<u64>,
    pub(crate) mtime: UTime,
}

/// Pool, namespace and name.
pub(crate) type Key = (i64, Vec<u8>, Vec<u8>);

pub(crate) struct Cluster {
    pub(crate) shard: Shard,
    pub(crate) mon: SocketAddr,
    fsid: Uuid,
    monmap: RefCell<Vec<u8>>,
    map: RefCell<Arc<OsdMap>>,
    pub(crate) view: RefCell<Arc<MapView>>,
    pub(crate) osds: RefCell<BTreeMap<OsdId, Rc<FakeOsd>>>,
    pub(crate) objects: RefCell<BTreeMap<Key, Stored>>,
    /// Versions of writes that were applied, by client and transaction id.
    pub(crate) applied: RefCell<BTreeMap<(u64, u64), u64>>,
    pub(crate) version: Cell<u64>,
    /// Connections of clients to the mon, and the epoch from which they want maps.
    clients: RefCell<Vec<(Rc<Connection>, Epoch)>>,
    /// The mon does not tell of new maps.
    pub(crate) mon_mute: Cell<bool>,
    /// The mon drops this many commands.
    pub(crate) drop_commands: Cell<u32>,
    pub(crate) commands: Cell<u32>,
}

impl Cluster {
    /// A cluster with OSDs of this many reactors each, and pool 1, `data`.
    pub(crate) async fn start(shard: &Shard, osds: u32, reactors: u16) -> Rc<Cluster> {
        let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let mon = listener.local_addr();
        let fsid = Uuid([7; 16]);
        let mut map = OsdMap::new(fsid, UTime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(osds);
        let weights: Vec<_> = (0..osds).map(|osd| (OsdId(osd), 0x10000)).collect();
        map.crush = Arc::new(build_simple_crush(&weights, true));
        map.osd_weight.iter_mut().for_each(|weight| *weight = 0x10000);
        map.osd_state.iter_mut().for_each(|state| *state = 1);
        map.pools.insert(1, PgPool::replicated(1, 1, PGS, 0, Epoch(1), UTime::ZERO));
        map.pool_names.insert(1, "data".to_owned());
        map.pool_max = 1;
        let addr = EntityAddr::msgr2(mon, 0);
        let monmap = MonMap::single(fsid, UTime::ZERO, "a", addr.into()).encode();
        let map = Arc::new(map);
        let cluster = Rc::new(Cluster {
            shard: shard.clone(),
            mon,
            fsid,
            monmap: RefCell::new(monmap),
            view: RefCell::new(Arc::new(MapView::new(Arc::clone(&map)))),
            map: RefCell::new(map),
            osds: RefCell::default(),
            objects: RefCell::default(),
            applied: RefCell::default(),
            version: Cell::new(0),
            clients: RefCell::default(),
            mon_mute: Cell::new(false),
            drop_commands: Cell::new(0),
            commands: Cell::new(0),
        });
        let next_gid = Cell::new(4096);
        let config = ServerConfig::new(EntityType::MON, 0, addr.into()).assigning(move |claim| {
            next_gid.set(next_gid.get() + 1);
            if claim.gid == 0 { next_gid.get() } else { claim.gid }
        });
        let (config, dispatcher) = (Rc::new(config), Rc::new(MonSide(Rc::clone(&cluster))));
        let task_shard = shard.clone();
        shard.spawn(Group::Admin, "fake-mon", async move {
            while let Ok((socket, _)) = listener.accept().await {
                serve(&task_shard, socket, Rc::clone(&config), dispatcher.clone()).await;
            }
        });
        for osd in 0..osds {
            cluster.boot(OsdId(osd), reactors).await;
        }
        cluster
    }

    pub(crate) async fn client(&self, options: Options) -> Rc<Client> {
        Client::connect(&self.shard, self.mon, options).await.unwrap()
    }

    pub(crate) fn osd(&self, osd: u32) -> Rc<FakeOsd> {
        Rc::clone(&self.osds.borrow()[&OsdId(osd)])
    }

    pub(crate) fn map(&self) -> Arc<OsdMap> {
        Arc::clone(&self.map.borrow())
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.map.borrow().epoch
    }

    /// (Re)starts an OSD: new ports, a new nonce, and the map says so.
    pub(crate) async fn boot(self: &Rc<Self>, osd: OsdId, reactors: u16) {
        let new = FakeOsd::start(self, osd, reactors).await;
        let addrs = EntityAddrVec::from(new.addr);
        let old = self.osds.borrow_mut().insert(osd, new);
        if let Some(old) = old {
            old.stop();
        }
        self.change(|inc| {
            inc.new_up_client.insert(osd, addrs);
        });
    }

    /// The map says that an OSD is down.
    pub(crate) fn down(&self, osd: u32) {
        assert!(self.map().is_up(OsdId(osd)));
        self.change(|inc| inc.mark_down(OsdId(osd)));
    }

    /// Makes the next map and sends it around: as an increment if its epoch is odd, else in full.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Incremental)) {
        let mut inc = Incremental::next(&self.map(), UTime::ZERO);
        change(&mut inc);
        let next = inc.applied(&self.map()).unwrap();
        *self.view.borrow_mut() = Arc::new(MapView::new(Arc::clone(&next)));
        let msg = if next.epoch.0 % 2 == 1 {
            let incrementals = vec![(next.epoch, inc.encode())];
            let full = Vec::new();
            OsdMapMsg { incrementals, full, ..OsdMapMsg::full(self.fsid, next.epoch, Vec::new()) }
        } else {
            OsdMapMsg::full(self.fsid, next.epoch, next.encode())
        };
        *self.map.borrow_mut() = next;
        if self.mon_mute.get() {
            return;
        }
        for (conn, wants) in self.clients.borrow_mut().iter_mut().filter(|(_, wants)| wants.0 > 0) {
            let send = if wants.0 == msg.newest.0 { msg.clone() } else { self.full_map() };
            conn.send(Message::of(&send));
            *wants = Epoch(msg.newest.0 + 1);
        }
    }

    pub(crate) fn full_map(&self) -> OsdMapMsg {
        let map = self.map();
        OsdMapMsg::full(self.fsid, map.epoch, map.encode())
    }

    /// The increment to the newest map, which is of no use to whoever missed the one before.
    pub(crate) fn gap(&self) -> OsdMapMsg {
        let inc = Incremental { epoch: self.epoch(), ..Incremental::next(&self.map(), UTime::ZERO) };
        OsdMapMsg { incrementals: vec![(inc.epoch, inc.encode())], full: Vec::new(), ..self.full_map() }
    }

    /// Ends all sessions with the mon.
    pub(crate) fn cut_mon(&self) {
        self.clients.borrow().iter().for_each(|(conn, _)| conn.close("cut by the test"));
    }

    fn on_mon_message(&self, conn: &Rc<Connection>, msg: &Message) {
        let answer = |reply: Message| conn.send(reply.with_tid(msg.header.tid));
        match msg.header.kind {
            kinds::MON_GET_MAP => answer(Message::of(&MonMapMsg { monmap: self.monmap.borrow().clone() })),
            kinds::MON_SUBSCRIBE => self.subscribe(conn, &msg.decode().unwrap()),
            kinds::MON_GET_VERSION => {
                let ask: GetVersion = msg.decode().unwrap();
                let newest = self.epoch().0.into();
                answer(Message::of(&GetVersionReply { handle: ask.handle, newest, oldest: 1 }));
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
                answer(Message::of(&CommandAck { version: 0, result, status, cmd }).with_data(data));
            }
            kinds::STATFS => {
                msg.decode::<StatFs>().unwrap();
                answer(Message::of(&StatFsReply {
                    fsid: self.fsid,
                    total_kib: 100,
                    ..StatFsReply::default()
                }));
            }
            other => panic!("the client sent message {other} to the mon"),
        }
    }

    fn subscribe(&self, conn: &Rc<Connection>, wish: &Subscribe) {
        for item in &wish.what {
            match item.what.as_str() {
                "config" => conn.send(Message::of(&ConfigMsg::default())),
                "monmap" => {}
                "osdmap" => {
                    let mut wants = Epoch(item.start as u32);
                    if wants <= self.epoch() {
                        conn.send(Message::of(&self.full_map()));
                        wants = Epoch(self.epoch().0 + 1);
                    }
                    let mut clients = self.clients.borrow_mut();
                    clients.retain(|(other, _)| !Rc::ptr_eq(other, conn));
                    clients.push((Rc::clone(conn), wants));
                }
                other => panic!("the client subscribes to {other}"),
            }
        }
    }
}

struct MonSide(Rc<Cluster>);

impl Dispatcher for MonSide {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        self.0.on_mon_message(conn, &msg);
    }

    fn on_closed(&self, conn: &Rc<Connection>, _: &str) {
        self.0.clients.borrow_mut().retain(|(other, _)| !Rc::ptr_eq(other, conn));
    }
}
