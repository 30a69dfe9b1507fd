//! What the manager of a real cluster is told, by OSDs that take the fake monitor for a real one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::Shard;
use carmine_types::{Epoch, MonKind, PgId};
use carmine_wire::mgr_msg::{HealthMetric, MgrConfigure, MgrMapMsg, MgrOpen, MgrReport, PgStatsMsg};
use carmine_wire::pg_stat::{ObjectStatSum, PgStat, state};
use carmine_wire::{EntityAddr, EntityType, kinds};

use super::cluster::{Cluster, Disks};

/// A manager, and what it has heard of each OSD. It refuses the first session of each.
struct FakeManager {
    addr: EntityAddr,
    opened: RefCell<Vec<String>>,
    reports: RefCell<BTreeMap<String, Vec<MgrReport>>>,
    stats: RefCell<BTreeMap<String, Vec<PgStatsMsg>>>,
}

struct ManagerSide(Rc<FakeManager>);

impl Dispatcher for ManagerSide {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        let (manager, name) = (&self.0, conn.peer().name.clone());
        match msg.header.kind {
            kinds::MGR_OPEN => {
                let open: MgrOpen = msg.decode().unwrap();
                assert_eq!(open, MgrOpen::daemon(name.clone()));
                let is_known = manager.opened.borrow().contains(&name);
                manager.opened.borrow_mut().push(name);
                match is_known {
                    true => conn.send(Message::encode(&MgrConfigure { period_s: 5, threshold: 5 })),
                    false => conn.close("its metadata is not known yet"),
                }
            }
            kinds::MGR_REPORT => {
                manager.reports.borrow_mut().entry(name).or_default().push(msg.decode().unwrap());
            }
            kinds::PG_STATS => {
                manager.stats.borrow_mut().entry(name).or_default().push(msg.decode().unwrap())
            }
            other => panic!("message {other} to the manager"),
        }
    }

    fn on_closed(&self, _conn: &Rc<Connection>, _reason: &str) {}
}

impl FakeManager {
    fn start(cluster: &Cluster, sock: &str) -> Rc<FakeManager> {
        let sock: SocketAddr = sock.parse().unwrap();
        let manager = Rc::new(FakeManager {
            addr: EntityAddr::msgr2(sock, 9),
            opened: RefCell::default(),
            reports: RefCell::default(),
            stats: RefCell::default(),
        });
        let of_node = Rc::clone(&manager);
        cluster.sim.node(&format!("mgr at {sock}"), 1, move |shard| Rc::clone(&of_node).run(shard, sock));
        manager
    }

    async fn run(self: Rc<Self>, shard: Shard, sock: SocketAddr) {
        let listener = shard.listen(sock).await.unwrap();
        let config = Rc::new(ServerConfig::new(EntityType::MGR, 5, self.addr.into()));
        while let Ok((socket, _)) = listener.accept().await {
            let side = Rc::new(ManagerSide(Rc::clone(&self)));
            serve(&shard, socket, Rc::clone(&config), side).await;
        }
    }

    /// The map in which it is the active one.
    fn map(&self, epoch: u32) -> MgrMapMsg {
        MgrMapMsg {
            epoch: Epoch(epoch),
            addrs: self.addr.into(),
            gid: 4711,
            available: true,
            name: "x".into(),
        }
    }

    /// The newest statistics of each PG.
    fn pgs(&self) -> BTreeMap<PgId, PgStat> {
        let mut pgs: BTreeMap<PgId, PgStat> = BTreeMap::new();
        for (pg, stat) in self.stats.borrow().values().flatten().flat_map(|stats| stats.pgs.clone()) {
            let version = |stat: &PgStat| (stat.reported_epoch, stat.reported_seq);
            if pgs.get(&pg).is_none_or(|known| version(known) < version(&stat)) {
                pgs.insert(pg, stat);
            }
        }
        pgs
    }

    fn has_all_active(&self, pgs: usize) -> bool {
        self.pgs().values().filter(|stat| stat.is(state::ACTIVE)).count() == pgs
    }

    fn sum(&self) -> ObjectStatSum {
        let mut all = ObjectStatSum::default();
        self.pgs().values().for_each(|stat| all.add(&stat.stats.sum));
        all
    }

    fn messages(&self) -> usize {
        self.stats.borrow().values().map(Vec::len).sum()
    }
}

#[test]
fn the_active_manager_hears_of_counters_space_and_pgs() {
    let cluster = Cluster::with_mon(60, Disks::Cyan, 2, 8, &[2, 1], 256 << 20, MonKind::Ceph);
    let manager = FakeManager::start(&cluster, "10.0.0.101:6800");
    cluster.mon.set_manager(manager.map(3));
    cluster.wait("reports of all PGs", || manager.has_all_active(8));
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..10 {
            pool.write_full(format!("o{n}"), vec![1; 100]).await.unwrap();
        }
    });
    cluster.wait("ten objects", || manager.sum().num_objects == 10 && manager.sum().num_object_copies == 20);
    assert!(cluster.mon.stats.borrow().is_empty(), "a real monitor gets no message of Carmine's own");
    let flushed = cluster.ask(&[0], "flush_pg_stats").remove(0).as_u64().unwrap();
    for (osd, other) in [("0", 1), ("1", 0)] {
        assert_eq!(manager.opened.borrow().iter().filter(|name| *name == osd).count(), 2, "one was refused");
        let reports = &manager.reports.borrow()[osd];
        let declared = &reports[0].declare;
        assert!(declared.len() > 20 && declared.is_sorted_by_key(|counter| counter.path.as_str()));
        assert!(reports.len() > 1 && reports[1..].iter().all(|report| report.declare.is_empty()));
        let health = [HealthMetric::SLOW_OPS, HealthMetric::PENDING_CREATING_PGS];
        let kinds = |report: &MgrReport| report.health.iter().map(|metric| metric.kind).collect::<Vec<_>>();
        assert!(reports.iter().all(|report| kinds(report) == health));
        let stats = &manager.stats.borrow()[osd];
        assert!(stats.is_sorted_by(|one, next| one.osd.seq < next.osd.seq), "{osd}");
        let last = &stats.last().unwrap().osd;
        assert!(last.up_from > Epoch(0) && last.seq >> 32 == u64::from(last.up_from.0), "{last:?}");
        assert_eq!((last.num_pgs, last.hb_peers.as_slice(), last.num_osds), (8, &[other][..], 1));
        assert!(last.kb == 1 << 20 && last.kb_avail > 0, "{last:?}");
    }
    let of_first = |manager: &FakeManager| manager.stats.borrow()["0"].last().unwrap().osd.seq;
    cluster.wait("what was flushed", || of_first(&manager) >= flushed);
}

#[test]
fn another_manager_takes_over() {
    let cluster = Cluster::with_mon(61, Disks::Cyan, 2, 8, &[1, 1], 256 << 20, MonKind::Ceph);
    let [first, second] =
        ["10.0.0.101:6800", "10.0.0.102:6800"].map(|sock| FakeManager::start(&cluster, sock));
    cluster.mon.set_manager(first.map(3));
    cluster.wait("reports", || first.has_all_active(8));
    cluster.mon.set_manager(second.map(4));
    cluster.wait("reports to the other one", || second.has_all_active(8));
    let before = first.messages();
    cluster.pass(Duration::from_secs(20));
    assert_eq!(first.messages(), before, "it is not told any more");
    assert!(second.messages() >= 8, "every five seconds");
}
