//! A cluster of one monitor and some OSDs on the test's own shard. All OSDs share one set of objects, as if every write
//! were replicated at once; the test determines their answers and failures.

use super::fake_osd::FakeOsd;
use super::mon::FakeMon;
use carmine_client::{Client, Options};
use carmine_crush::MapView;
use carmine_reactor::Shard;
use carmine_types::{Epoch, OsdId, UTime};
use carmine_wire::EntityAddrVec;
use carmine_wire::osdmap::{Incremental, OsdMap};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
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
    pub(crate) mon: Rc<FakeMon>,
    pub(crate) view: RefCell<Arc<MapView>>,
    pub(crate) osds: RefCell<BTreeMap<OsdId, Rc<FakeOsd>>>,
    pub(crate) objects: RefCell<BTreeMap<Key, Stored>>,
    /// Versions of writes that were applied, by client and transaction id.
    pub(crate) applied: RefCell<BTreeMap<(u64, u64), u64>>,
    pub(crate) version: Cell<u64>,
}

impl Cluster {
    /// A cluster with OSDs of this many reactors each, and pool 1, `data`.
    pub(crate) async fn start(shard: &Shard, osds: u32, reactors: u16) -> Rc<Cluster> {
        let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let mon = FakeMon::new(listener.local_addr(), osds, 1, PGS);
        mon.increments.set(true);
        mon.accept(shard, listener);
        let cluster = Rc::new(Cluster {
            shard: shard.clone(),
            view: RefCell::new(Arc::new(MapView::new(mon.map()))),
            mon,
            osds: RefCell::default(),
            objects: RefCell::default(),
            applied: RefCell::default(),
            version: Cell::new(0),
        });
        for osd in 0..osds {
            cluster.boot(OsdId(osd), reactors).await;
        }
        cluster
    }

    pub(crate) async fn client(&self, options: Options) -> Rc<Client> {
        Client::connect(&self.shard, &self.mon.addr.into(), options).await.unwrap()
    }

    pub(crate) fn osd(&self, osd: u32) -> Rc<FakeOsd> {
        Rc::clone(&self.osds.borrow()[&OsdId(osd)])
    }

    pub(crate) fn map(&self) -> Arc<OsdMap> {
        self.mon.map()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.mon.epoch()
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

    /// Makes the next map, which OSDs have at once, and sends it to the clients.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Incremental)) {
        self.mon.change_now(|_, inc| change(inc));
        *self.view.borrow_mut() = Arc::new(MapView::new(self.map()));
    }
}
