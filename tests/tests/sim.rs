//! A whole cluster in one thread: monitor, OSDs and a client in the simulator, against a model in memory.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use carmine_client::{Client, ClientError, Options, Pool, RouteMode};
use carmine_mon::{DownLimits, InitialCluster, InitialPool, MapRules, Mon, MonConfig};
use carmine_osd::{OsdConfig, RecoveryOptions, RunOptions};
use carmine_reactor::sim::{NodeId, Sim};
use carmine_reactor::{Group, Payload, Shard};
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, MemKv, StoreShared};
use carmine_types::{OsdId, PgId, Uuid, errno};
use serde_json::{Value, json};

/// Virtual time within which everything must be done.
const LIMIT: Duration = Duration::from_secs(300);
const OBJECTS: u64 = 10;
const OBJECT_BYTES: u64 = 40_000;
/// Operations in flight.
const WINDOW: usize = 12;
const POOL: &str = "bench";

fn mon_addr() -> SocketAddr {
    "127.0.0.1:3300".parse().unwrap()
}

/// A world with a monitor and OSDs. The key-value stores outlive the OSDs, as the simulated files do.
struct Cluster {
    sim: Sim,
    blue: bool,
    kvs: Vec<Arc<MemKv>>,
    osds: Vec<NodeId>,
    starts: u32,
}

impl Cluster {
    fn new(seed: u64, osds: u32, shards: u16, blue: bool) -> Cluster {
        Cluster::of_size(seed, osds, osds as u8, shards, blue)
    }

    fn of_size(seed: u64, osds: u32, size: u8, shards: u16, blue: bool) -> Cluster {
        Cluster::of_pool(seed, osds, (size, 1), shards, blue)
    }

    /// A pool of this size and `min_size`.
    fn of_pool(seed: u64, osds: u32, (size, min_size): (u8, u8), shards: u16, blue: bool) -> Cluster {
        let sim = Sim::new(seed);
        sim.node("mon", 1, move |shard: Shard| async move {
            let pool = InitialPool { name: POOL.into(), size, min_size, pg_num: 8 };
            let initial = InitialCluster { fsid: Uuid([7; 16]), osds, pool, host: None };
            let (listen, limits) = (mon_addr(), DownLimits::default());
            let config = MonConfig {
                auth: None,
                dir: "/mon".into(),
                listen,
                open_files: 1 << 10,
                limits,
                rules: MapRules::default(),
                facts: Vec::new(),
                initial,
            };
            Mon::open(&shard, config).await.unwrap().serve().await.unwrap();
        });
        let kvs = (0..osds).map(|_| Arc::new(MemKv::new())).collect();
        let mut cluster = Cluster { sim, blue, kvs, osds: Vec::new(), starts: 0 };
        cluster.osds = (0..osds).map(|id| cluster.start(id, shards, true)).collect();
        cluster
    }

    /// Starts an OSD on what it left.
    fn start(&mut self, id: u32, shards: u16, fresh: bool) -> NodeId {
        self.starts += 1;
        // All PGs at the same time: the next OSD dies soon.
        let recovery = RecoveryOptions { max_backfills: 8, ..RecoveryOptions::default() };
        let config = OsdConfig::with_defaults(mon_addr(), OsdId(id), self.starts);
        let config =
            Arc::new(OsdConfig { options: RunOptions { recovery, ..RunOptions::default() }, ..config });
        let kv = self.blue.then(|| Arc::clone(&self.kvs[id as usize]) as Arc<dyn Kv>);
        let opened: Rc<RefCell<Option<StoreShared>>> = Rc::default();
        self.sim.node(&id.to_string(), shards, move |shard: Shard| {
            let (config, kv, opened) = (Arc::clone(&config), kv.clone(), Rc::clone(&opened));
            async move {
                if shard.id().0 == 0 {
                    let store = match kv {
                        Some(kv) => open_blue(&shard, config.id, kv, fresh).await,
                        None => StoreShared::cyan(64 << 20),
                    };
                    *opened.borrow_mut() = Some(store);
                }
                let store = loop {
                    let ready = opened.borrow().clone();
                    match ready {
                        Some(store) => break store,
                        None => shard.sleep(Duration::from_micros(100)).await,
                    }
                };
                carmine_osd::run(shard, config, store, None).await.unwrap();
            }
        })
    }

    fn kill(&self, id: u32) {
        self.sim.kill(self.osds[id as usize]);
    }

    fn restart(&mut self, id: u32, shards: u16) {
        self.osds[id as usize] = self.start(id, shards, false);
    }

    /// Starts the client of a test; the flag says that it is done.
    fn client<F: Future<Output = ()> + 'static>(
        &self,
        work: impl Fn(Shard, Pool) -> F + 'static,
    ) -> Rc<Cell<bool>> {
        let done = Rc::new(Cell::new(false));
        let (flag, work) = (Rc::clone(&done), Rc::new(work));
        // Both ways to an OSD's reactors are taken.
        let route = if self.sim.seed().is_multiple_of(2) { RouteMode::Single } else { RouteMode::Direct };
        self.sim.node("client", 1, move |shard: Shard| {
            let (flag, work) = (Rc::clone(&flag), Rc::clone(&work));
            async move {
                let client =
                    Client::connect(&shard, &mon_addr().into(), Options::route(route)).await.unwrap();
                work(shard, client.pool(POOL).unwrap()).await;
                flag.set(true);
            }
        });
        done
    }

    /// Gives the monitor a command and waits for its answer. It may be refused.
    fn command(&self, json: Value) {
        let done = Rc::new(Cell::new(false));
        let flag = Rc::clone(&done);
        self.sim.node("operator", 1, move |shard: Shard| {
            let (flag, json) = (Rc::clone(&flag), json.to_string());
            async move {
                let options = Options::route(RouteMode::Single);
                let client = Client::connect(&shard, &mon_addr().into(), options).await.unwrap();
                let _ = client.mon_command(&json).await;
                client.shutdown();
                flag.set(true);
            }
        });
        self.run(|| done.get());
    }

    fn run(&self, until: impl FnMut() -> bool) {
        // The error names the seed, also that of a panic in a task.
        self.sim.run(until, LIMIT).unwrap_or_else(|stuck| panic!("{stuck}"));
    }

    /// Lets virtual time pass.
    fn pass(&self, time: Duration) {
        let end_ns = self.sim.now_ns() + time.as_nanos() as u64;
        self.run(|| self.sim.now_ns() >= end_ns);
    }
}

async fn open_blue(shard: &Shard, osd: OsdId, kv: Arc<dyn Kv>, fresh: bool) -> StoreShared {
    let path = Path::new("/block");
    if fresh {
        let fsid = Uuid([7; 16]);
        let options = MkfsOptions { fsid, osd, size_bytes: Some(8 << 20), fill: Fill::Nothing, force: false };
        blue::mkfs(shard, path, options, Arc::clone(&kv), &mut |_, _| ()).await.unwrap();
    }
    StoreShared::Blue(BlueShared::mount(shard, path, kv, MountOptions::default()).await.unwrap())
}

/// An object's states since the start, newest last: `None` while it does not exist.
type History = Vec<Option<Rc<Vec<u8>>>>;

/// The content that the cluster must hold, and the progress of the load.
#[derive(Default)]
struct Model {
    objects: RefCell<BTreeMap<String, History>>,
    in_flight: Cell<usize>,
    acknowledged: Cell<u64>,
    /// OSDs are still being killed.
    troubled: Cell<bool>,
}

impl Model {
    fn now(&self, name: &str) -> (usize, Option<Rc<Vec<u8>>>) {
        let mut objects = self.objects.borrow_mut();
        let history = objects.entry(name.to_owned()).or_insert_with(|| vec![None]);
        (history.len() - 1, history.last().cloned().flatten())
    }

    fn set(&self, name: &str, state: Option<Vec<u8>>) {
        self.objects.borrow_mut().get_mut(name).unwrap().push(state.map(Rc::new));
    }

    /// Did a read see the state at its issue, or, if it may have been sent twice, a later one?
    fn check<T: PartialEq>(
        &self,
        name: &str,
        at: usize,
        exact: bool,
        of: impl Fn(Option<&Vec<u8>>) -> T,
        seen: &T,
    ) {
        let objects = self.objects.borrow();
        let states = &objects[name][at..];
        let states = if exact { &states[..1] } else { states };
        assert!(states.iter().any(|s| of(s.as_deref()) == *seen), "{name}: a read saw what never was there");
    }

    fn existing(&self) -> Vec<String> {
        let objects = self.objects.borrow();
        objects
            .iter()
            .filter(|(_, h)| h.last().is_some_and(Option::is_some))
            .map(|(n, _)| n.clone())
            .collect()
    }
}

fn found<T>(result: Result<T, ClientError>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(error) if error.errno() == errno::ENOENT => None,
        Err(error) => panic!("{error}"),
    }
}

fn noise(shard: &Shard, len: u64) -> Vec<u8> {
    let mut state = shard.random_u64() | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Sends an operation now (the first poll sends it, so that those of one object go in the model's order) and lets it
/// end on its own.
async fn issue(shard: &Shard, model: &Rc<Model>, op: impl Future<Output = ()> + 'static) {
    let own = Rc::clone(model);
    own.in_flight.set(own.in_flight.get() + 1);
    let mut op = Box::pin(async move {
        op.await;
        own.in_flight.set(own.in_flight.get() - 1);
        own.acknowledged.set(own.acknowledged.get() + 1);
    });
    if poll_fn(|cx| Poll::Ready(op.as_mut().poll(cx))).await.is_pending() {
        shard.spawn(Group::Client, "op", op);
    }
    while model.in_flight.get() >= WINDOW {
        shard.sleep(Duration::from_micros(50)).await;
    }
}

async fn drain(shard: &Shard, model: &Model) {
    while model.in_flight.get() > 0 {
        shard.sleep(Duration::from_micros(50)).await;
    }
}

/// One random operation. `exact`: nothing is ever sent twice, so a read sees just what was sent before it.
async fn one(shard: &Shard, pool: &Pool, model: &Rc<Model>, exact: bool) {
    let below = |n: u64| shard.random_u64() % n;
    let name = format!("o{}", below(OBJECTS));
    let (at, state) = model.now(&name);
    let (pool, own) = (pool.clone(), Rc::clone(model));
    let (off, len) = (below(OBJECT_BYTES), 1 + below(9_000));
    match (below(10), state) {
        (0..=3, state) => {
            let data = noise(shard, len);
            let mut bytes = state.map_or_else(Vec::new, |s| s.to_vec());
            let end = (off + len) as usize;
            bytes.resize(bytes.len().max(end), 0);
            bytes[off as usize..end].copy_from_slice(&data);
            model.set(&name, Some(bytes));
            let op = async move { drop(pool.write(name, off, Payload::from(data)).await.unwrap()) };
            issue(shard, model, op).await;
        }
        (4, _) => {
            let data = noise(shard, len);
            model.set(&name, Some(data.clone()));
            let op = async move { drop(pool.write_full(name, Payload::from(data)).await.unwrap()) };
            issue(shard, model, op).await;
        }
        // With kills only what exists is deleted: the log keeps no failures, so a resent one may hit a later object.
        (5, state) if exact || state.is_some() => {
            model.set(&name, None);
            let op = async move {
                let existed = found(pool.remove(&name).await).is_some();
                assert_eq!(existed, state.is_some(), "{name}: delete");
            };
            issue(shard, model, op).await;
        }
        (6, Some(state)) => {
            let mut bytes = state.to_vec();
            bytes.resize(off as usize, 0);
            model.set(&name, Some(bytes));
            issue(shard, model, async move { drop(pool.truncate(name, off).await.unwrap()) }).await;
        }
        (7, _) => {
            let op = async move {
                let size = found(pool.stat(&name).await).map(|s| s.size);
                own.check(&name, at, exact, |s| s.map(|s| s.len() as u64), &size);
            };
            issue(shard, model, op).await;
        }
        _ => {
            let op = async move {
                let data = found(pool.read(&name, off, len).await).map(|d| d.to_vec());
                let part = |s: Option<&Vec<u8>>| s.map(|s| range(s, off, len).to_vec());
                own.check(&name, at, exact, part, &data);
            };
            issue(shard, model, op).await;
        }
    }
}

fn range(bytes: &[u8], off: u64, len: u64) -> &[u8] {
    let (from, to) = ((off as usize).min(bytes.len()), ((off + len) as usize).min(bytes.len()));
    &bytes[from..to]
}

/// Waits until all OSDs serve by the same map, and all of their PGs have all copies. An OSD that was killed a moment ago may
/// still be up in the maps of the others, for which its PGs are clean.
async fn whole(shard: &Shard, pool: &Pool, osds: u32) {
    loop {
        let mut statuses = Vec::new();
        for osd in (0..osds).map(OsdId) {
            let said = pool.client().admin(osd, r#"{"prefix":"status"}"#).await;
            statuses.push(said.map_or(Value::Null, |said| serde_json::from_str(&said).unwrap()));
        }
        let are_whole = statuses.iter().all(|status| {
            let is_current = status["state"] == "active" && status["epoch"] == statuses[0]["epoch"];
            is_current && status["pgs"]["clean"] == status["pgs"]["total"]
        });
        if are_whole {
            break;
        }
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// Everything is as the model says, on every member of each PG.
async fn verify(shard: &Shard, pool: &Pool, model: &Model, osds: u32) {
    drain(shard, model).await;
    whole(shard, pool, osds).await;
    let mut listed: Vec<String> =
        pool.list().await.unwrap().iter().map(|o| String::from_utf8_lossy(&o.name).into_owned()).collect();
    listed.sort();
    assert_eq!(listed, model.existing(), "the listing");
    let names: Vec<String> = model.objects.borrow().keys().cloned().collect();
    for name in names {
        let (_, state) = model.now(&name);
        let data = found(pool.read(&name, 0, 0).await).map(|d| d.to_vec());
        assert!(data.as_ref() == state.as_deref(), "{name}: an acknowledged change is not there");
    }
    // A connection of the killed OSD's last life may have ended meanwhile: its PGs peer again then.
    whole(shard, pool, osds).await;
    let mut copies = Vec::new();
    for osd in (0..osds).map(OsdId) {
        copies.push(admin(pool, osd, r#"{"prefix":"pg_contents"}"#).await);
    }
    let view = pool.client().view().unwrap();
    let size = usize::from(view.map().pool(pool.id()).unwrap().size);
    let mut objects = 0;
    for pg in (0..8).map(|ps| PgId::new(pool.id(), ps)) {
        let members: Vec<OsdId> = view.mapping(pg).acting_osds().collect();
        assert_eq!(members.len(), size, "{pg}: {members:?}");
        let of = |osd: OsdId| &copies[osd.0 as usize]["pgs"][pg.to_string()];
        objects += of(members[0])["objects"].as_object().unwrap().len();
        members.iter().for_each(|osd| assert_eq!(of(*osd), of(members[0]), "{pg}: {osd} and {}", members[0]));
    }
    assert_eq!(objects, listed.len());
}

async fn admin(pool: &Pool, osd: OsdId, question: &str) -> Value {
    serde_json::from_str(&pool.client().admin(osd, question).await.unwrap()).unwrap()
}

/// A load of `count` operations, and more for as long as there is trouble, checked at its end.
fn load(cluster: &Cluster, model: &Rc<Model>, count: u64, exact: bool) -> Rc<Cell<bool>> {
    let (model, osds) = (Rc::clone(model), cluster.osds.len() as u32);
    cluster.client(move |shard, pool| {
        let model = Rc::clone(&model);
        async move {
            let mut issued = 0;
            while issued < count || model.troubled.get() {
                one(&shard, &pool, &model, exact).await;
                issued += 1;
            }
            verify(&shard, &pool, &model, osds).await;
        }
    })
}

fn trace(seed: u64, osds: u32, shards: u16, blue: bool) -> u64 {
    let cluster = Cluster::new(seed, osds, shards, blue);
    let done = load(&cluster, &Rc::default(), 200, true);
    cluster.run(|| done.get());
    cluster.sim.trace_hash()
}

#[test]
fn put_get_stat_list_delete() {
    let cluster = Cluster::new(1, 1, 1, false);
    let done = cluster.client(|_, pool| async move {
        assert!(found(pool.stat("a").await).is_none());
        pool.write_full("a", Payload::from(vec![7; 10_000])).await.unwrap();
        assert_eq!(pool.stat("a").await.unwrap().size, 10_000);
        assert_eq!(pool.read("a", 9_000, 4_096).await.unwrap().to_vec(), [7; 1_000]);
        let names: Vec<_> = pool.list().await.unwrap().into_iter().map(|o| o.name.to_vec()).collect();
        assert_eq!(names, [b"a"]);
        pool.remove("a").await.unwrap();
        assert!(found(pool.read("a", 0, 0).await).is_none() && pool.list().await.unwrap().is_empty());
    });
    cluster.run(|| done.get());
}

#[test]
fn a_random_load_on_three_replicas_agrees_with_the_model() {
    for seed in 10..30 {
        trace(seed, 3, 1 + (seed / 2 % 2) as u16, seed > 11);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for shards in [1, 2] {
        assert_eq!(trace(3, 3, shards, true), trace(3, 3, shards, true), "seed 3, {shards} shards");
        assert_ne!(trace(3, 3, shards, true), trace(4, 3, shards, true), "seeds 3 and 4, {shards} shards");
    }
}

#[test]
fn a_killed_osd_comes_back_with_all_that_was_acknowledged() {
    for seed in 20..40u32 {
        let shards = 1 + (seed / 2 % 2) as u16;
        let mut cluster = Cluster::new(seed.into(), 3, shards, true);
        let model = Rc::<Model>::default();
        model.troubled.set(true);
        let done = load(&cluster, &model, 200, false);
        for round in 1..4 {
            cluster.run(|| model.acknowledged.get() >= u64::from(round) * 45);
            let victim = (seed + round) % 3;
            cluster.kill(victim);
            cluster.pass(Duration::from_millis(20));
            cluster.restart(victim, shards);
        }
        model.troubled.set(false);
        cluster.run(|| done.get());
    }
}

#[test]
fn all_osds_killed_at_once_come_back_with_another_number_of_shards() {
    for seed in 40..60u32 {
        let mut cluster = Cluster::new(seed.into(), 3, 1 + (seed / 2 % 2) as u16, true);
        let model = Rc::<Model>::default();
        let done = load(&cluster, &model, 200, false);
        for round in 1..4u32 {
            cluster.run(|| model.acknowledged.get() >= u64::from(round) * 45);
            (0..3).for_each(|id| cluster.kill(id));
            cluster.pass(Duration::from_millis(5));
            (0..3).for_each(|id| cluster.restart(id, 1 + ((seed + round) % 2) as u16));
        }
        cluster.run(|| done.get());
    }
}

/// With `min_size` copies left clients go on after a short pause; the one that comes back is given what it missed.
#[test]
fn clients_go_on_while_an_osd_is_down() {
    for seed in 60..66u32 {
        let shards = 1 + (seed / 2 % 2) as u16;
        let mut cluster = Cluster::new(seed.into(), 3, shards, true);
        let model = Rc::<Model>::default();
        model.troubled.set(true);
        let done = load(&cluster, &model, 200, false);
        for round in 1..4u64 {
            cluster.run(|| model.acknowledged.get() >= round * 50);
            let victim = (seed + round as u32) % 3;
            cluster.kill(victim);
            let (killed_ns, before) = (cluster.sim.now_ns(), model.acknowledged.get());
            // More than may be in flight: each of its PGs was written to.
            cluster.run(|| model.acknowledged.get() >= before + 3 * WINDOW as u64);
            let pause = Duration::from_nanos(cluster.sim.now_ns() - killed_ns);
            assert!(pause < Duration::from_secs(1), "seed {seed}: clients waited for {pause:?}");
            cluster.restart(victim, shards);
            // The monitor hears that it has all copies again.
            cluster.pass(Duration::from_millis(100));
        }
        model.troubled.set(false);
        cluster.run(|| done.get());
    }
}

const MANY: usize = 100;

/// Writes an object of a recovery's test; the time that it took.
async fn write_one(shard: &Shard, pool: &Pool, n: usize, value: u8) -> Duration {
    let begin_ns = shard.now_ns();
    pool.write(format!("o{n}"), 0, Payload::from(vec![value; 30_000])).await.unwrap();
    Duration::from_nanos(shard.now_ns() - begin_ns)
}

async fn write_all(shard: Shard, pool: Pool, value: u8) {
    for n in 0..MANY {
        write_one(&shard, &pool, n, value).await;
    }
}

/// Names of the states of all PGs that these OSDs lead; `unknown` if one does not answer.
async fn states(pool: &Pool, osds: u32) -> BTreeSet<String> {
    let mut states = BTreeSet::new();
    for osd in (0..osds).map(OsdId) {
        let Ok(status) = pool.client().admin(osd, r#"{"prefix":"status"}"#).await else {
            states.insert("unknown".to_owned());
            continue;
        };
        let status: Value = serde_json::from_str(&status).unwrap();
        let leads = status["pg_states"].as_array().unwrap().iter().filter(|pg| pg["primary"] == true);
        states.extend(leads.map(|pg| pg["state"].as_str().unwrap().to_owned()));
    }
    states
}

/// An OSD that comes back is given what it lacks while clients write, also if it dies meanwhile.
#[test]
fn clients_do_not_wait_for_a_recovery() {
    for (seed, is_interrupted) in [(90, false), (91, true)] {
        let mut cluster = Cluster::of_pool(seed, 4, (3, 2), 1, true);
        let filled = cluster.client(|shard, pool| write_all(shard, pool, 0));
        cluster.run(|| filled.get());
        cluster.kill(1);
        cluster.pass(Duration::from_millis(100));
        let written = cluster.client(|shard, pool| write_all(shard, pool, 1));
        cluster.run(|| written.get());
        cluster.restart(1, 1);
        let seen = Rc::<RefCell<BTreeSet<String>>>::default();
        let own = Rc::clone(&seen);
        let done = cluster.client(move |shard, pool| {
            let own = Rc::clone(&own);
            async move {
                let (mut longest, mut values) = (Duration::ZERO, vec![1; MANY]);
                for n in 0..5_000 {
                    values[n % MANY] = n as u8;
                    longest = longest.max(write_one(&shard, &pool, n % MANY, n as u8).await);
                    let now = states(&pool, 4).await;
                    let is_clean = now.iter().all(|state| state == "active+clean");
                    own.borrow_mut().extend(now);
                    if is_clean && own.borrow().iter().any(|state| state.contains("recovering")) {
                        break;
                    }
                }
                assert!(own.borrow().iter().any(|state| state.contains("recovering")), "{own:?}");
                assert!(longest < Duration::from_millis(100), "a write took {longest:?}");
                for (n, value) in values.into_iter().enumerate() {
                    assert_eq!(pool.read(format!("o{n}"), 0, 0).await.unwrap().to_vec(), vec![value; 30_000]);
                }
            }
        });
        if is_interrupted {
            cluster.run(|| seen.borrow().iter().any(|state| state.contains("recovering")));
            cluster.kill(1);
            cluster.pass(Duration::from_millis(100));
            cluster.restart(1, 1);
        }
        cluster.run(|| done.get());
    }
}

/// One copy less than `min_size` serves nobody; the next one that comes up is enough.
#[test]
fn below_min_size_clients_wait() {
    let mut cluster = Cluster::of_pool(81, 3, (3, 2), 1, true);
    let model = Rc::<Model>::default();
    let done = load(&cluster, &model, 300, false);
    cluster.run(|| model.acknowledged.get() >= 50);
    [1, 2].iter().for_each(|osd| cluster.kill(*osd));
    cluster.pass(Duration::from_secs(3));
    let before = model.acknowledged.get();
    cluster.pass(Duration::from_secs(20));
    assert_eq!(model.acknowledged.get(), before, "one copy of three is below min_size 2");
    cluster.restart(2, 1);
    cluster.run(|| model.acknowledged.get() >= before + 50);
    cluster.restart(1, 1);
    cluster.run(|| done.get());
}

/// OSDs are taken out and put back, the pool's size changes, OSDs die and come back, all while clients write: also while
/// copies are being made, and before the last change is done.
fn thrash_members(seed: u64) {
    const OSDS: u32 = 4;
    let mut cluster = Cluster::of_size(seed, OSDS, 2, 1 + (seed / 2 % 2) as u16, true);
    let model = Rc::<Model>::default();
    let (loaded, settled) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let done = {
        let (model, loaded, settled) = (Rc::clone(&model), Rc::clone(&loaded), Rc::clone(&settled));
        cluster.client(move |shard, pool| {
            let (model, loaded, settled) = (Rc::clone(&model), Rc::clone(&loaded), Rc::clone(&settled));
            async move {
                for _ in 0..300 {
                    one(&shard, &pool, &model, false).await;
                }
                loaded.set(true);
                while !settled.get() {
                    shard.sleep(Duration::from_millis(1)).await;
                }
                pool.client().wait_newest_map().await.unwrap();
                verify(&shard, &pool, &model, OSDS).await;
            }
        })
    };
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = move |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice >> 11) % sides
    };
    let weigh = |word: &str, osd: u64| json!({ "prefix": format!("osd {word}"), "ids": [osd.to_string()] });
    let set_size =
        |size: u64| json!({ "prefix": "osd pool set", "pool": POOL, "var": "size", "val": size.to_string() });
    for _ in 0..14 {
        // Mostly in the middle of what the last change began; sometimes the monitor hears that it is done.
        let pause = if roll(4) == 0 { roll(5_000_000) } else { roll(100_000) };
        cluster.pass(Duration::from_micros(pause));
        let osd = roll(OSDS.into());
        match roll(6) {
            0 | 1 => cluster.command(weigh("out", osd)),
            2 => cluster.command(weigh("in", osd)),
            3 => cluster.command(set_size(1 + roll(3))),
            4 => {
                cluster.kill(osd as u32);
                // With `out` of the one that is down, or of another.
                if roll(2) == 0 {
                    cluster.pass(Duration::from_micros(roll(50_000)));
                    cluster.command(weigh("out", if roll(2) == 0 { osd } else { roll(OSDS.into()) }));
                }
                cluster.pass(Duration::from_micros(roll(3_000_000)));
                cluster.restart(osd as u32, 1 + roll(2) as u16);
            }
            _ => {
                (0..OSDS).for_each(|osd| cluster.kill(osd));
                cluster.pass(Duration::from_micros(roll(20_000)));
                (0..OSDS).for_each(|osd| cluster.restart(osd, 1 + roll(2) as u16));
            }
        }
    }
    (0..u64::from(OSDS)).for_each(|osd| cluster.command(weigh("in", osd)));
    cluster.command(set_size(2));
    cluster.run(|| loaded.get());
    // The members that CRUSH wants are complete, and the monitor knows it.
    cluster.pass(Duration::from_secs(20));
    settled.set(true);
    cluster.run(|| done.get());
}

#[test]
fn members_and_size_change_under_load_0() {
    (100..112).for_each(thrash_members);
}

#[test]
fn members_and_size_change_under_load_1() {
    (112..124).for_each(thrash_members);
}
