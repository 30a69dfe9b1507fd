//! A simulated cluster: the mon, OSDs that can be killed and started, and clients.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_client::{Client, Options, Pool, RouteMode};
use carmine_osd::{HeartbeatConfig, OsdConfig, RecoveryOptions, RunOptions, ScrubOptions};
use carmine_pgtypes::{PgInfo, Transaction};
use carmine_reactor::sim::{NodeId, Sim, SimDisk};
use carmine_reactor::{Group, Shard, ShardId};
use carmine_store::blue::{self, Fill, FsckReport, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreShared};
use carmine_types::{MonKind, OsdId, SpgId, Uuid};
use serde_json::Value;

use super::mon::{FakeMon, POOL};

/// Virtual time that any step of a test may take.
const LIMIT: Duration = Duration::from_secs(120);
const DISK_BYTES: u64 = 48 << 20;
const DISK: &str = "/block";
/// Where every OSD serves its metrics.
pub(crate) const METRICS_PORT: u16 = 9283;

fn mon_addr() -> SocketAddr {
    "10.0.0.100:3300".parse().unwrap()
}

/// Which store the OSDs have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disks {
    /// Memory: gone when the OSD is killed.
    Cyan,
    /// Survives a kill.
    Blue,
}

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    pub(crate) mon: Rc<FakeMon>,
    disks: Disks,
    /// Key-value stores by OSD: what survives of it besides its block file.
    kvs: RefCell<BTreeMap<u32, Arc<MemKv>>>,
    /// The part of an OSD's store that its shards share, since its last start.
    blues: Rc<RefCell<BTreeMap<u32, Arc<BlueShared>>>>,
    nodes: RefCell<BTreeMap<u32, NodeId>>,
    starts: Cell<u32>,
    /// Memory for requests, of each reactor.
    request_bytes: usize,
    mon_kind: MonKind,
    /// Of the OSDs that are started from now on.
    pub(crate) scrub: RefCell<ScrubOptions>,
    pub(crate) recovery: RefCell<RecoveryOptions>,
    pub(crate) heartbeat: Cell<HeartbeatConfig>,
    /// They listen for each other at 10.1.0.N.
    pub(crate) apart: Cell<bool>,
}

impl Cluster {
    /// A cluster whose OSDs 0.. run with so many reactors each.
    pub(crate) fn start(seed: u64, disks: Disks, size: u8, pgs: u32, reactors: &[u16]) -> Cluster {
        Cluster::with_memory(seed, disks, size, pgs, reactors, 256 << 20)
    }

    /// The same with so much memory for requests on each reactor.
    pub(crate) fn with_memory(
        seed: u64,
        disks: Disks,
        size: u8,
        pgs: u32,
        reactors: &[u16],
        request_bytes: usize,
    ) -> Cluster {
        Cluster::with_mon(seed, disks, size, pgs, reactors, request_bytes, MonKind::Embedded)
    }

    /// The same with a monitor that the OSDs take for one of this kind.
    pub(crate) fn with_mon(
        seed: u64,
        disks: Disks,
        size: u8,
        pgs: u32,
        reactors: &[u16],
        request_bytes: usize,
        mon_kind: MonKind,
    ) -> Cluster {
        let sim = Sim::new(seed);
        let mon = FakeMon::new(mon_addr(), reactors.len() as u32, size, pgs);
        let mon_of_node = Rc::clone(&mon);
        sim.node("mon", 1, move |shard| Rc::clone(&mon_of_node).run(shard));
        let cluster = Cluster {
            sim,
            mon,
            disks,
            kvs: RefCell::default(),
            blues: Rc::default(),
            nodes: RefCell::default(),
            starts: Cell::new(0),
            request_bytes,
            mon_kind,
            scrub: RefCell::default(),
            recovery: RefCell::default(),
            heartbeat: Cell::default(),
            apart: Cell::default(),
        };
        for (osd, shards) in reactors.iter().enumerate() {
            cluster.start_osd(osd as u32, *shards);
        }
        cluster.wait_up(reactors.len());
        cluster
    }

    /// Starts an OSD, with the data that it had.
    pub(crate) fn start_osd(&self, osd: u32, shards: u16) {
        self.starts.set(self.starts.get() + 1);
        let (scrub, recovery) = (self.scrub.borrow().clone(), self.recovery.borrow().clone());
        let options = RunOptions { scrub, recovery, ..RunOptions::default() };
        let config = Arc::new(OsdConfig {
            listen: format!("10.0.0.{}", osd + 1).parse().unwrap(),
            cluster: self.apart.get().then(|| format!("10.1.0.{}", osd + 1).parse().unwrap()),
            mon_kind: self.mon_kind,
            request_bytes_per_shard: self.request_bytes,
            options,
            heartbeat: self.heartbeat.get(),
            caps_of: super::caps::caps_of,
            ..OsdConfig::with_defaults(mon_addr(), OsdId(osd), self.starts.get())
        });
        let blank = !self.kvs.borrow().contains_key(&osd);
        let kv = Arc::clone(self.kvs.borrow_mut().entry(osd).or_default());
        let (disks, blues) = (self.disks, Rc::clone(&self.blues));
        let node = self.sim.node(&format!("osd.{osd}"), shards, move |shard| {
            let (config, kv): (_, Arc<dyn Kv>) = (Arc::clone(&config), Arc::clone(&kv) as Arc<dyn Kv>);
            let blues = Rc::clone(&blues);
            async move {
                if shard.id() == ShardId(0) {
                    let store = match disks {
                        Disks::Cyan => StoreShared::cyan(1 << 30),
                        Disks::Blue => {
                            let shared = open_blue(&shard, osd, kv, blank).await;
                            blues.borrow_mut().insert(osd, Arc::clone(&shared));
                            StoreShared::Blue(shared)
                        }
                    };
                    run_all(&shard, config, store).await;
                }
            }
        });
        self.nodes.borrow_mut().insert(osd, node);
    }

    /// `kill -9`; the map does not know yet.
    pub(crate) fn kill(&self, osd: u32) {
        if let Some(node) = self.nodes.borrow_mut().remove(&osd) {
            self.sim.kill(node);
            self.mon.dead.borrow_mut().insert(osd);
        }
        // The key-value store loses the changes that only the process's memory had.
        if let Some(kv) = self.kvs.borrow().get(&osd) {
            kv.crash(0);
        }
    }

    /// The key-value store of an OSD.
    pub(crate) fn kv(&self, osd: u32) -> Arc<MemKv> {
        Arc::clone(&self.kvs.borrow()[&osd])
    }

    /// The block file of an OSD, to break it.
    pub(crate) fn disk(&self, osd: u32) -> SimDisk<'_> {
        self.sim.disk(&format!("osd.{osd}"), Path::new(DISK))
    }

    /// Checks an OSD's store, to which nothing is being written: as the OSD has it if it runs, else as the next one would.
    pub(crate) fn fsck(&self, osd: u32) -> FsckReport {
        let running = self.nodes.borrow().contains_key(&osd);
        let mounted = self.blues.borrow().get(&osd).filter(|_| running).cloned();
        let (kv, report) = (self.kv(osd) as Arc<dyn Kv>, Rc::new(RefCell::new(None)));
        let place = Rc::clone(&report);
        let node = self.sim.node(&format!("osd.{osd}"), 1, move |shard| {
            let (kv, place, mounted) = (Arc::clone(&kv), Rc::clone(&place), mounted.clone());
            async move {
                let shared = match mounted {
                    Some(shared) => shared,
                    None => {
                        BlueShared::mount(&shard, Path::new(DISK), kv, MountOptions::default()).await.unwrap()
                    }
                };
                *place.borrow_mut() = Some(blue::fsck(&shared, &shard, true).await.unwrap());
            }
        });
        self.wait("fsck", || report.borrow().is_some());
        self.sim.kill(node);
        report.take().unwrap()
    }

    /// Changes the store of an OSD that does not run.
    pub(crate) fn change_store(&self, osd: u32, txn: Transaction) {
        self.with_store(osd, async move |store| {
            let prepared = store.prepare(&txn.changes).await.unwrap();
            store.submit(txn).await.unwrap();
            drop(prepared);
        });
    }

    /// What the store of an OSD that does not run knows of a PG.
    pub(crate) fn pg_info(&self, osd: u32, pg: SpgId) -> PgInfo {
        self.with_store(osd, async move |store| store.load_pg(pg).await.unwrap().unwrap().info)
    }

    fn with_store<R: 'static>(&self, osd: u32, work: impl AsyncFnOnce(&Store) -> R + 'static) -> R {
        let (kv, result) = (self.kv(osd) as Arc<dyn Kv>, Rc::new(RefCell::new(None)));
        let (place, work) = (Rc::clone(&result), Rc::new(RefCell::new(Some(work))));
        let node = self.sim.node(&format!("osd.{osd}"), 1, move |shard| {
            let (kv, place, work) = (Arc::clone(&kv), Rc::clone(&place), work.borrow_mut().take());
            async move {
                let Some(work) = work else { return };
                let mounted = BlueShared::mount(&shard, Path::new(DISK), kv, MountOptions::default());
                let shared = StoreShared::Blue(mounted.await.unwrap());
                let store = Store::open_shard(&shared, &shard).await.unwrap();
                let value = work(&store).await;
                store.umount().await.unwrap();
                *place.borrow_mut() = Some(value);
            }
        });
        self.wait("work on a store", || result.borrow().is_some());
        self.sim.kill(node);
        result.take().unwrap()
    }

    /// Forgets what an OSD had on disk.
    pub(crate) fn wipe(&self, osd: u32) {
        self.kvs.borrow_mut().remove(&osd);
    }

    pub(crate) fn wait(&self, what: &str, until: impl FnMut() -> bool) {
        if let Err(stuck) = self.sim.run(until, LIMIT) {
            panic!("waiting for {what}: {stuck}");
        }
    }

    /// Lets the world go on for a while.
    pub(crate) fn pass(&self, time: Duration) {
        let end = self.sim.now_ns() + time.as_nanos() as u64;
        self.wait("time to pass", || self.sim.now_ns() >= end);
    }

    /// Waits until the map has so many OSDs up.
    pub(crate) fn wait_up(&self, count: usize) {
        self.wait("OSDs to be up", || {
            let map = self.mon.map();
            map.osds().filter(|osd| map.is_up(*osd)).count() == count
        });
    }

    /// Runs a client until its work is done.
    pub(crate) fn client<F, Fut, R>(&self, route: RouteMode, work: F) -> R
    where
        F: FnOnce(Rc<Client>, Pool) -> Fut + 'static,
        Fut: Future<Output = R> + 'static,
        R: 'static,
    {
        let running = self.background(route, work);
        self.wait("a client", || running.is_done());
        running.result()
    }

    /// Starts a client.
    pub(crate) fn background<F, Fut, R>(&self, route: RouteMode, work: F) -> Running<R>
    where
        F: FnOnce(Rc<Client>, Pool) -> Fut + 'static,
        Fut: Future<Output = R> + 'static,
        R: 'static,
    {
        let work = Rc::new(RefCell::new(Some(work)));
        let result = Rc::new(RefCell::new(None));
        let place = Rc::clone(&result);
        let node = self.sim.node("client", 1, move |shard| {
            let (work, place) = (work.borrow_mut().take(), Rc::clone(&place));
            async move {
                let Some(work) = work else { return };
                let options = Options { route, ..Options::default() };
                let client = Client::connect(&shard, &mon_addr().into(), options).await.unwrap();
                let pool = client.pool(POOL).unwrap();
                let value = work(Rc::clone(&client), pool).await;
                client.shutdown();
                *place.borrow_mut() = Some(value);
            }
        });
        Running { result, node }
    }

    /// Answers of these OSDs to an admin command.
    pub(crate) fn ask(&self, osds: &[u32], prefix: &'static str) -> Vec<Value> {
        let osds = osds.to_vec();
        self.client(RouteMode::Direct, move |client, _| async move {
            let mut answers = Vec::new();
            for osd in osds {
                let json = format!("{{\"prefix\": \"{prefix}\"}}");
                let answer = client.admin(OsdId(osd), &json).await.unwrap();
                answers.push(serde_json::from_str(&answer).unwrap());
            }
            answers
        })
    }

    /// Sum of a counter over all shards of these OSDs.
    pub(crate) fn counter(&self, osds: &[u32], name: &str) -> u64 {
        let answers = self.ask(osds, "dump_metrics");
        let shards = answers.iter().flat_map(|answer| answer["shards"].as_array().unwrap().clone());
        shards.map(|shard| shard["osd"][name].as_u64().unwrap()).sum()
    }

    /// All copies of all PGs are the same.
    pub(crate) fn check_equal(&self, osds: &[u32]) {
        let contents = self.ask(osds, "pg_contents");
        for (osd, other) in osds.iter().zip(&contents) {
            assert_eq!(contents[0]["pgs"], other["pgs"], "osd.{} and osd.{osd} differ", osds[0]);
        }
    }

    /// (state, reason) of every PG that this OSD leads, by the names of the PGs.
    pub(crate) fn states(&self, osd: u32) -> Vec<(String, String)> {
        let status = self.ask(&[osd], "status").remove(0);
        let mut pgs = status["pg_states"].as_array().unwrap().clone();
        pgs.sort_by_key(|pg| pg["pg"].to_string());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        pgs.iter()
            .filter(|pg| pg["primary"] == true)
            .map(|pg| (text(&pg["state"]), text(&pg["why"])))
            .collect()
    }
}

/// A client that works in the background.
pub(crate) struct Running<R> {
    result: Rc<RefCell<Option<R>>>,
    pub(crate) node: NodeId,
}

impl<R> Running<R> {
    pub(crate) fn is_done(&self) -> bool {
        self.result.borrow().is_some()
    }

    pub(crate) fn result(&self) -> R {
        self.result.borrow_mut().take().expect("the client is not done")
    }
}

async fn open_blue(shard: &Shard, osd: u32, kv: Arc<dyn Kv>, blank: bool) -> Arc<BlueShared> {
    let path = Path::new(DISK);
    if blank {
        let options = MkfsOptions {
            fsid: Uuid([7; 16]),
            osd: OsdId(osd),
            size_bytes: Some(DISK_BYTES),
            fill: Fill::Nothing,
            force: true,
        };
        blue::mkfs(shard, path, options, Arc::clone(&kv), &mut |_, _| {}).await.unwrap();
    }
    let options = MountOptions { cache_bytes_per_shard: 64 << 10, ..MountOptions::default() };
    BlueShared::mount(shard, path, kv, options).await.unwrap()
}

/// As the `osd` process does it: shard 0 opens what all share and starts the others.
async fn run_all(shard: &Shard, config: Arc<OsdConfig>, store: StoreShared) {
    for to in (1..shard.shards()).map(ShardId) {
        let (config, store) = (Arc::clone(&config), store.clone());
        shard.submit_to(to, move |shard| {
            let own = shard.clone();
            shard.spawn(Group::Admin, "osd", async move {
                carmine_osd::run(own, config, store, None).await.unwrap();
            });
        });
    }
    let metrics = SocketAddr::new(config.listen, METRICS_PORT);
    let osd = carmine_osd::run(shard.clone(), config, store, None).await.unwrap();
    carmine_osd::measure_load(&osd);
    carmine_osd::serve_http(&osd, metrics).await.unwrap();
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}
