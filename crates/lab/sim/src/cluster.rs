//! A simulated cluster: a monitor, OSDs on drives with caches, and clients. An OSD restarts on the state that it left
//! when it died.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_client::{Client, Options, RouteMode};
use carmine_mon::{DownLimits, InitialCluster, InitialPool, MapRules, Mon, MonConfig};
use carmine_osd::{HeartbeatConfig, LogLimits, OsdConfig, OsdShard};
use carmine_reactor::Shard;
use carmine_reactor::sim::{NodeId, Sim, SimStuck};
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, MemKv, StoreShared};
use carmine_types::{OsdId, PgId, Uuid};
use serde_json::Value;

pub(crate) const POOL: &str = "bench";
/// PGs of the pool, mostly.
pub(crate) const PGS: u32 = 8;
/// The pool's number.
pub(crate) const POOL_ID: i64 = 1;
/// The monitor calls an OSD down that missed two beacons.
const BEACON_INTERVAL: Duration = Duration::from_secs(20);
/// Shorter than Ceph's, so that much happens in little virtual time. An OSD that is started again may be told the other one: what
/// it promised before is as long as it was.
pub(crate) const HEARTBEATS: [HeartbeatConfig; 2] = [
    HeartbeatConfig {
        interval: Duration::from_secs(1),
        grace: Duration::from_secs(4),
        beacon_interval: BEACON_INTERVAL,
    },
    HeartbeatConfig {
        interval: Duration::from_millis(600),
        grace: Duration::from_secs(2),
        beacon_interval: BEACON_INTERVAL,
    },
];
/// Longest virtual time of one step of a run.
const LIMIT: Duration = Duration::from_secs(900);
/// Time between two looks at whether a store works.
const STORE_WATCH: Duration = Duration::from_secs(1);
const BLOCK_FILE: &str = "/block";
const FSID: Uuid = Uuid([7; 16]);

/// The size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) osds: u32,
    pub(crate) size: u8,
    pub(crate) min_size: u8,
    /// Bytes of each OSD's drive.
    pub(crate) drive_bytes: u64,
    /// PGs of the pool.
    pub(crate) pgs: u32,
    /// How long their logs are.
    pub(crate) log: LogLimits,
    /// Memory for requests, of each reactor of an OSD.
    pub(crate) request_bytes: usize,
}

impl Shape {
    /// So many OSDs, and copies of each object.
    pub(crate) fn new(osds: u32, size: u8, min_size: u8, drive_bytes: u64) -> Shape {
        let (log, request_bytes) = (LogLimits::default(), 64 << 20);
        Shape { osds, size, min_size, drive_bytes, pgs: PGS, log, request_bytes }
    }
}

/// One OSD: its process, if it runs, and what stays when it does not.
struct Osd {
    node: Option<NodeId>,
    kv: Arc<MemKv>,
    /// It was started before.
    is_made: Rc<Cell<bool>>,
}

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    pub(crate) shape: Shape,
    /// Of one start after the other.
    heartbeats: [HeartbeatConfig; 2],
    osds: Vec<Osd>,
    rules: MapRules,
    mon: Option<NodeId>,
    starts: u32,
    /// The errors of OSDs that ended by themselves.
    pub(crate) ended: Rc<RefCell<Vec<String>>>,
}

/// Half of the seeds have a monitor as slow as Ceph's; half of these and of the others have one that never primes `pg_temp`.
fn map_rules(seed: u64) -> MapRules {
    let propose_interval = Duration::from_secs(seed % 2);
    MapRules { propose_interval, primes_pg_temp: seed % 4 < 2, ..MapRules::default() }
}

pub(crate) fn mon_addr() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 3300))
}

/// The name of an OSD's node.
pub(crate) fn name_of(osd: u32) -> String {
    format!("osd.{osd}")
}

impl Cluster {
    pub(crate) fn new(seed: u64, shape: Shape, heartbeats: [HeartbeatConfig; 2]) -> Cluster {
        let sim = Sim::new(seed);
        let osd = |_| Osd { node: None, kv: Arc::new(MemKv::new()), is_made: Rc::default() };
        let osds = (0..shape.osds).map(osd).collect();
        let mut cluster = Cluster {
            sim,
            shape,
            heartbeats,
            osds,
            rules: map_rules(seed),
            mon: None,
            starts: 0,
            ended: Rc::default(),
        };
        cluster.sim.give_drives_caches();
        cluster.start_mon();
        cluster
    }

    pub(crate) fn start_mon(&mut self) {
        if self.mon.is_some_and(|node| self.sim.is_alive(node)) {
            return;
        }
        let Shape { osds, size, min_size, pgs, .. } = self.shape;
        let (heartbeat_grace, rules) = (self.heartbeats[0].grace, self.rules);
        self.mon = Some(self.sim.node("mon", 1, move |shard: Shard| async move {
            let pool = InitialPool { name: POOL.into(), size, min_size, pg_num: pgs };
            let initial = InitialCluster { fsid: FSID, osds, pool, host: None };
            let limits =
                DownLimits { heartbeat_grace, report_timeout: 3 * BEACON_INTERVAL, ..DownLimits::default() };
            let config = MonConfig {
                auth: None,
                dir: "/mon".into(),
                listen: mon_addr(),
                open_files: 1 << 10,
                limits,
                rules,
                facts: Vec::new(),
                initial,
            };
            match Mon::open(&shard, config).await {
                Ok(mon) => drop(mon.serve().await),
                Err(error) => panic!("the monitor cannot start: {error}"),
            }
        }));
    }

    pub(crate) fn kill_mon(&mut self) {
        if let Some(node) = self.mon.take() {
            self.sim.kill(node);
        }
    }

    pub(crate) fn runs(&self, osd: u32) -> bool {
        self.osds[osd as usize].node.is_some_and(|node| self.sim.is_alive(node))
    }

    pub(crate) fn node(&self, osd: u32) -> Option<NodeId> {
        self.osds[osd as usize].node.filter(|node| self.sim.is_alive(*node))
    }

    /// Starts an OSD, unless it runs, on what it left.
    pub(crate) fn start(&mut self, osd: u32, shards: u16) {
        if self.runs(osd) {
            return;
        }
        self.starts += 1;
        let id = OsdId(osd);
        let config = OsdConfig::with_defaults(mon_addr(), id, self.starts);
        let heartbeat = self.heartbeats[self.starts as usize % 2];
        let request_bytes_per_shard = self.shape.request_bytes;
        let config =
            Arc::new(OsdConfig { heartbeat, log: self.shape.log, request_bytes_per_shard, ..config });
        let own = &self.osds[osd as usize];
        let (kv, is_made, ended) = (Arc::clone(&own.kv), Rc::clone(&own.is_made), Rc::clone(&self.ended));
        let drive_bytes = self.shape.drive_bytes;
        let opened: Rc<RefCell<Option<StoreShared>>> = Rc::default();
        let node = self.sim.node(&name_of(osd), shards, move |shard: Shard| {
            let (config, opened, ended) = (Arc::clone(&config), Rc::clone(&opened), Rc::clone(&ended));
            let (kv, is_made) = (Arc::clone(&kv) as Arc<dyn Kv>, Rc::clone(&is_made));
            async move {
                if shard.id().0 == 0 {
                    match open_store(&shard, id, kv, &is_made, drive_bytes).await {
                        Ok(store) => *opened.borrow_mut() = Some(store),
                        Err(error) => {
                            ended.borrow_mut().push(format!("{id} cannot mount: {error}"));
                            return shard.stop();
                        }
                    }
                }
                let store = loop {
                    let ready = opened.borrow().clone();
                    match ready {
                        Some(store) => break store,
                        None => shard.sleep(Duration::from_micros(100)).await,
                    }
                };
                let error = match carmine_osd::run(shard.clone(), config, store, None).await {
                    Ok(osd) => store_fails(&shard, &osd).await,
                    Err(error) => error.to_string(),
                };
                ended.borrow_mut().push(format!("{id} ended: {error}"));
                shard.stop();
            }
        });
        self.osds[osd as usize].node = Some(node);
    }

    /// It has been started before, and its store was made.
    pub(crate) fn is_made(&self, osd: u32) -> bool {
        self.osds[osd as usize].is_made.get()
    }

    /// Ends an OSD's process.
    pub(crate) fn kill(&mut self, osd: u32) {
        if let Some(node) = self.osds[osd as usize].node.take() {
            self.sim.kill(node);
        }
    }

    /// Cuts an OSD's power: data that its drives had not made durable may be gone.
    pub(crate) fn power_off(&mut self, osd: u32, seed: u64) {
        let own = &mut self.osds[osd as usize];
        if !own.is_made.get() {
            // It dies while its store is being made, which would have to be done again.
            return;
        }
        if let Some(node) = own.node.take() {
            self.sim.power_off(node, seed);
            own.kv.crash((seed % 40) as usize);
        }
    }

    /// Runs until a condition holds.
    ///
    /// # Errors
    /// A task panicked, or the condition never holds.
    pub(crate) fn run(&self, until: impl FnMut() -> bool) -> Result<(), SimStuck> {
        self.sim.run(until, LIMIT)
    }

    /// Lets virtual time pass.
    ///
    /// # Errors
    /// A task panicked.
    pub(crate) fn pass(&self, time: Duration) -> Result<(), SimStuck> {
        let end_ns = self.sim.now_ns() + time.as_nanos() as u64;
        self.run(|| self.sim.now_ns() >= end_ns)
    }

    /// Gives the monitor a command and waits for its answer. It may be refused.
    ///
    /// # Errors
    /// A task panicked, or the monitor does not answer.
    pub(crate) fn command(&self, json: &Value) -> Result<(), SimStuck> {
        let json = json.to_string();
        let (node, done) = self.task("operator", move |client| {
            let json = json.clone();
            async move { drop(client.mon_command(&json).await) }
        });
        self.run(|| done.get())?;
        self.sim.kill(node);
        Ok(())
    }

    /// The OSD that leads a PG by the map of a client that has just come.
    ///
    /// # Errors
    /// A task panicked, or the monitor does not answer.
    pub(crate) fn primary(&self, ps: u32) -> Result<Option<u32>, SimStuck> {
        self.look(move |client| Some(client.view()?.acting_primary(PgId::new(POOL_ID, ps))?.0))
    }

    /// The number of PGs of the pool, by such a map.
    ///
    /// # Errors
    /// As [`Cluster::primary`].
    pub(crate) fn pg_num(&self) -> Result<Option<u32>, SimStuck> {
        self.look(|client| Some(client.view()?.map().pool(POOL_ID)?.pg_num))
    }

    fn look(&self, read: impl Fn(&Client) -> Option<u32> + 'static) -> Result<Option<u32>, SimStuck> {
        let found = Rc::<Cell<Option<u32>>>::default();
        let own = Rc::clone(&found);
        let (node, done) = self.task("looker", move |client| {
            own.set(read(&client));
            std::future::ready(())
        });
        self.run(|| done.get())?;
        self.sim.kill(node);
        Ok(found.get())
    }

    /// Starts a client's process; the flag says that its work is done.
    pub(crate) fn task<F: Future<Output = ()> + 'static>(
        &self,
        name: &str,
        work: impl Fn(Rc<Client>) -> F + 'static,
    ) -> (NodeId, Rc<Cell<bool>>) {
        let done = Rc::<Cell<bool>>::default();
        let (flag, work) = (Rc::clone(&done), Rc::new(work));
        // Both ways to an OSD's reactors are taken.
        let route = if self.sim.seed().is_multiple_of(2) { RouteMode::Single } else { RouteMode::Direct };
        let node = self.sim.node(name, 1, move |shard: Shard| {
            let (flag, work) = (Rc::clone(&flag), Rc::clone(&work));
            async move {
                let client = loop {
                    // The monitor may be gone for now, or not reached.
                    match Client::connect(&shard, &mon_addr().into(), Options::route(route)).await {
                        Ok(client) => break client,
                        Err(_) => shard.sleep(Duration::from_millis(100)).await,
                    }
                };
                work(Rc::clone(&client)).await;
                client.shutdown();
                flag.set(true);
            }
        });
        (node, done)
    }

    /// The drive of an OSD.
    pub(crate) fn disk(&self, osd: u32) -> carmine_reactor::sim::SimDisk<'_> {
        self.sim.disk(&name_of(osd), Path::new(BLOCK_FILE))
    }
}

/// Waits until a store has stopped, at which the process ends, as in `carmine-osd`; says why.
async fn store_fails(shard: &Shard, osd: &OsdShard) -> String {
    loop {
        shard.sleep(STORE_WATCH).await;
        if let Err(error) = osd.store.sync().await {
            return error.to_string();
        }
    }
}

async fn open_store(
    shard: &Shard,
    osd: OsdId,
    kv: Arc<dyn Kv>,
    is_made: &Cell<bool>,
    bytes: u64,
) -> Result<StoreShared, String> {
    let path = Path::new(BLOCK_FILE);
    if !is_made.get() {
        let options =
            MkfsOptions { fsid: FSID, osd, size_bytes: Some(bytes), fill: Fill::Nothing, force: true };
        let made = blue::mkfs(shard, path, options, Arc::clone(&kv), &mut |_, _| ()).await;
        made.map_err(|error| error.to_string())?;
        is_made.set(true);
    }
    let mounted = BlueShared::mount(shard, path, kv, MountOptions::default()).await;
    mounted.map(StoreShared::Blue).map_err(|error| error.to_string())
}
