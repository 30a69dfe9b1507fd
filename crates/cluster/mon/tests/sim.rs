//! The monitor and its sessions in one simulated world: what clients and OSDs see of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_client::{Client, MonHandler, MonSession, Options};
use carmine_messenger::{ClientConfig, Message};
use carmine_mon::{DownLimits, InitialCluster, InitialPool, MapRules, Mon, MonConfig, MonError};
use carmine_reactor::Shard;
use carmine_reactor::sim::{NodeId, Sim};
use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid, errno};
use carmine_wire::mon_msg::{LogEntry, LogMsg, PoolOp, log_level};
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Failure, MarkMeDown, Superblock};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::pg_stat::PgStat;
use carmine_wire::private::OsdStats;
use carmine_wire::{EntityAddr, EntityName, EntityType, FEATURES};

const LIMIT: Duration = Duration::from_secs(300);

fn mon_addr() -> SocketAddr {
    "127.0.0.1:3300".parse().unwrap()
}

fn config(fsid: u8) -> MonConfig {
    let pool = InitialPool { name: "bench".into(), size: 1, min_size: 1, pg_num: 8 };
    MonConfig {
        auth: None,
        dir: "/mon".into(),
        listen: mon_addr(),
        open_files: 1 << 10,
        limits: DownLimits::default(),
        rules: MapRules::default(),
        facts: Vec::new(),
        initial: InitialCluster { fsid: Uuid([fsid; 16]), osds: 3, pool, host: None },
    }
}

fn start_mon(sim: &Sim) -> NodeId {
    start_mon_with(sim, DownLimits::default())
}

fn start_mon_with(sim: &Sim, limits: DownLimits) -> NodeId {
    sim.node("mon", 1, move |shard: Shard| async move {
        let config = MonConfig { limits, ..config(5) };
        Mon::open(&shard, config).await.unwrap().serve().await.unwrap();
    })
}

/// One with a propose interval of a second.
fn start_slow_mon(sim: &Sim) -> NodeId {
    sim.node("mon", 1, move |shard: Shard| async move {
        let rules = MapRules { propose_interval: Duration::from_secs(1), ..MapRules::default() };
        let config = MonConfig { rules, ..config(5) };
        Mon::open(&shard, config).await.unwrap().serve().await.unwrap();
    })
}

/// Runs `work` as a process of its own until it has ended; the process is killed then.
fn run<F: Future<Output = ()> + 'static>(sim: &Sim, name: &str, work: impl Fn(Shard) -> F + 'static) {
    let node = sim.node(name, 1, {
        let work = Rc::new(work);
        move |shard: Shard| {
            let work = Rc::clone(&work);
            async move {
                work(shard).await;
                ENDED.with(|ended| ended.set(true));
            }
        }
    });
    ENDED.with(|ended| ended.set(false));
    sim.run(|| ENDED.with(Cell::get), LIMIT).unwrap();
    sim.kill(node);
}

thread_local! {
    /// Each test has its own thread, and the world runs in it.
    static ENDED: Cell<bool> = const { Cell::new(false) };
    static UP_THRU: Cell<Epoch> = const { Cell::new(Epoch(0)) };
}

async fn client(shard: &Shard) -> Rc<Client> {
    let options = Options { op_timeout: Some(Duration::from_secs(10)), ..Options::default() };
    Client::connect(shard, &mon_addr().into(), options).await.unwrap()
}

/// An OSD as far as the monitor can tell: it boots in every session.
struct FakeOsd {
    addr: EntityAddr,
    boot: Boot,
    /// Answers to its goodbye.
    goodbyes: RefCell<Vec<MarkMeDown>>,
    /// The newest map that it saw in an earlier life.
    seen: Cell<Epoch>,
    /// The maps that it got in this one.
    maps: RefCell<Vec<u32>>,
}

impl MonHandler for FakeOsd {
    fn seen(&self) -> Epoch {
        self.seen.get()
    }
    fn on_map(&self, map: &Arc<OsdMap>) {
        self.maps.borrow_mut().push(map.epoch.0);
    }
    fn on_session(&self, session: &Rc<MonSession>) {
        session.send(Message::encode(&self.boot));
    }
    fn on_message(&self, _: &Rc<MonSession>, msg: Message) {
        self.goodbyes.borrow_mut().push(msg.decode().unwrap());
    }
}

impl FakeOsd {
    /// Its word about another, which has been silent for so long.
    fn says(&self, other: &FakeOsd, flags: u8, failed_for_s: u32) -> Message {
        Message::encode(&Failure {
            version: 0,
            fsid: Uuid([5; 16]),
            osd: other.boot.superblock.whoami,
            addrs: other.addr.into(),
            epoch: Epoch(0),
            flags,
            failed_for_s,
        })
    }

    fn goodbye(&self) -> MarkMeDown {
        MarkMeDown {
            version: 0,
            fsid: Uuid([5; 16]),
            osd: self.boot.superblock.whoami,
            addrs: self.addr.into(),
            epoch: Epoch(0),
            request_ack: true,
            is_dead: true,
        }
    }

    /// Another session of the same process.
    fn session(self: &Rc<Self>, shard: &Shard) -> Rc<MonSession> {
        let config = ClientConfig::daemon(EntityType::OSD, self.boot.superblock.whoami.0, self.addr);
        let handler = Rc::clone(self) as Rc<dyn MonHandler>;
        MonSession::start(shard, vec![EntityAddr::msgr2(mon_addr(), 0)], Rc::new(config), None, handler)
    }
}

fn boot(shard: &Shard, osd: u32, uuid: u8) -> (Rc<FakeOsd>, Rc<MonSession>) {
    let at = |port: u32| {
        let sock = format!("127.0.0.1:{}", port + osd).parse().unwrap();
        EntityAddr::msgr2(sock, shard.random_u64() as u32)
    };
    let addr = at(6800);
    let superblock = Superblock { whoami: OsdId(osd), osd_fsid: Uuid([uuid; 16]), ..Superblock::default() };
    let boot = Boot {
        version: 0,
        superblock,
        hb_back: at(6900).into(),
        cluster: addr.into(),
        boot_epoch: Epoch(0),
        hb_front: at(7000).into(),
        metadata: BTreeMap::new(),
        features: FEATURES,
    };
    let fake =
        FakeOsd { addr, boot, goodbyes: RefCell::default(), seen: Cell::default(), maps: RefCell::default() };
    let fake = Rc::new(fake);
    let session = fake.session(shard);
    (fake, session)
}

/// Waits until the client's map has the wanted OSDs up.
async fn wait_up(client: &Client, up: &[u32]) -> Epoch {
    loop {
        let map = client.osdmap().unwrap();
        let now: Vec<u32> = map.osds().filter(|osd| map.is_up(*osd)).map(|osd| osd.0).collect();
        if now == up {
            return map.epoch;
        }
        client.shard().sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn osds_come_and_go() {
    let sim = Sim::new(11);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        assert_eq!(wait_up(&client, &[]).await, Epoch(1));
        let (one, session) = boot(&shard, 1, 1);
        assert_eq!(wait_up(&client, &[1]).await, Epoch(2));
        let map = client.osdmap().unwrap();
        assert_eq!(map.client_addr(OsdId(1)), Some(&one.addr.into()));
        assert_eq!((&map.hb_back_addrs[1], &map.hb_front_addrs[1]), (&one.boot.hb_back, &one.boot.hb_front));
        session.wait_for_map(Epoch(2), LIMIT).await.unwrap();
        // A second store under the same number does not come in, and the first one stays.
        let (_wrong, other) = boot(&shard, 1, 9);
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(client.osdmap().unwrap().epoch, Epoch(2));
        other.shutdown();
        // Its statistics are what STATFS tells.
        let mut stat = PgStat::default();
        (stat.stats.sum.num_objects, stat.stats.sum.num_bytes) = (3, 12_288);
        let pgs = vec![(PgId::new(1, 0), stat)];
        session.send(Message::encode(&OsdStats {
            total_bytes: 1 << 30,
            used_bytes: 1 << 20,
            commit_latency_ns: 0,
            pgs,
            slow_ops: 0,
            slowest_s: 0,
        }));
        shard.sleep(Duration::from_millis(100)).await;
        let space = client.mon().statfs(None, LIMIT).await.unwrap();
        assert_eq!((space.total_kib, space.used_kib, space.objects), (1 << 20, 1 << 10, 3));
        // Its lines are in the cluster's log.
        let entry = LogEntry {
            name: (EntityType::OSD.0.into(), "1".to_owned()),
            rank: EntityName { kind: EntityType::OSD, num: 1 },
            addrs: one.addr.into(),
            stamp: UTime::ZERO,
            seq: 1,
            level: log_level::WARN,
            text: "tea".to_owned(),
            channel: "cluster".to_owned(),
        };
        session.send(Message::encode(&LogMsg { version: 0, fsid: Uuid([5; 16]), entries: vec![entry] }));
        shard.sleep(Duration::from_millis(100)).await;
        let log = client.mon_command(r#"{"prefix":"log last","num":1}"#).await.unwrap();
        let log = String::from_utf8(log.data).unwrap();
        assert!(log.contains("osd.1 (osd.1) 2 : cluster [WRN] tea"), "{log}");
        // The end of the session takes it down, and its space goes with it.
        session.shutdown();
        wait_up(&client, &[]).await;
        assert_eq!(client.mon().statfs(None, LIMIT).await.unwrap().total_kib, 0);
        // It comes back with a new nonce, and says goodbye.
        let (again, session) = boot(&shard, 1, 1);
        let epoch = wait_up(&client, &[1]).await;
        assert!(client.osdmap().unwrap().is_in(OsdId(1)));
        let mut goodbye = again.goodbye();
        goodbye.addrs = one.addr.into();
        session.send(Message::encode(&goodbye));
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(wait_up(&client, &[1]).await, epoch, "a goodbye of an earlier start is ignored");
        session.send(Message::encode(&again.goodbye()));
        let epoch = wait_up(&client, &[]).await;
        assert_eq!(client.osdmap().unwrap().osd_xinfo[1].dead_epoch, epoch);
        shard.sleep(Duration::from_millis(10)).await;
        let acks = again.goodbyes.borrow();
        assert_eq!((acks.len(), acks[1].request_ack, acks[1].epoch), (2, false, epoch));
    });
}

#[test]
fn failures_need_two_reporters_and_the_grace() {
    let sim = Sim::new(18);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let [(a, first), (b, second), (c, _third)] = [0, 1, 2].map(|osd| boot(&shard, osd, 1));
        let epoch = wait_up(&client, &[0, 1, 2]).await;
        let stays = async |why: &str| {
            shard.sleep(Duration::from_secs(8)).await;
            assert_eq!(client.osdmap().unwrap().epoch, epoch, "{why}");
        };
        first.send(a.says(&c, Failure::FAILED, 100));
        stays("one reporter").await;
        first.send(a.says(&c, 0, 0));
        second.send(b.says(&c, Failure::FAILED, 100));
        stays("the first one took it back").await;
        first.send(a.says(&c, Failure::FAILED, 5));
        stays("13 s are within the grace").await;
        shard.sleep(Duration::from_secs(8)).await;
        let epoch = wait_up(&client, &[0, 1]).await;
        assert_eq!(client.osdmap().unwrap().osd_xinfo[2].dead_epoch, Epoch(0), "it may live");
        // With two left, one is enough; a report about an earlier start is not.
        let (again, _fourth) = boot(&shard, 2, 1);
        wait_up(&client, &[0, 1, 2]).await;
        for session in [&first, &second] {
            session.send(a.says(&c, Failure::FAILED | Failure::IMMEDIATE, 0));
        }
        shard.sleep(Duration::from_secs(1)).await;
        assert_eq!(wait_up(&client, &[0, 1, 2]).await.0, epoch.0 + 1);
        first.send(a.says(&again, Failure::FAILED | Failure::IMMEDIATE, 0));
        let epoch = wait_up(&client, &[0, 1]).await;
        assert_eq!(client.osdmap().unwrap().osd_xinfo[2].dead_epoch, epoch, "its port is closed");
        first.send(a.says(&b, Failure::FAILED, 20));
        wait_up(&client, &[0]).await;
    });
}

#[test]
fn the_end_of_a_session_is_no_failure_as_long_as_others_watch() {
    let sim = Sim::new(19);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let osds = [0, 1, 2].map(|osd| boot(&shard, osd, 1));
        let epoch = wait_up(&client, &[0, 1, 2]).await;
        osds[0].1.shutdown();
        osds[1].1.shutdown();
        shard.sleep(Duration::from_secs(10)).await;
        assert_eq!(client.osdmap().unwrap().epoch, epoch);
        // One comes back to its place without booting again.
        let _back = osds[1].0.session(&shard);
        shard.sleep(Duration::from_secs(1)).await;
        osds[2].1.shutdown();
        shard.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.osdmap().unwrap().epoch, epoch);
        _back.shutdown();
        wait_up(&client, &[]).await;
        assert_eq!(client.osdmap().unwrap().epoch.0, epoch.0 + 1, "nobody is left who could tell");
    });
}

/// Two OSDs that are called down at the same time are up again before the monitor looks (`carmine sim --seed 593`: it called
/// them down and up for ever, a few thousand times a second).
#[test]
fn who_boots_again_at_once_has_time_for_its_next_beacon() {
    let sim = Sim::new(21);
    let limits = DownLimits { report_timeout: Duration::from_secs(100), ..DownLimits::default() };
    start_mon_with(&sim, limits);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let osds = [0, 1, 2].map(|osd| boot(&shard, osd, 1));
        let epoch = wait_up(&client, &[0, 1, 2]).await;
        shard.sleep(Duration::from_secs(90)).await;
        for _ in 0..200_000 {
            for (osd, session) in &osds {
                let is_up = client.osdmap().unwrap().is_up(osd.boot.superblock.whoami);
                assert!(is_up || session.send(Message::encode(&osd.boot)));
            }
            shard.sleep(Duration::from_micros(100)).await;
        }
        let changes = wait_up(&client, &[0, 1, 2]).await.0 - epoch.0;
        assert_eq!(changes, 6, "each was called down once, and booted");
    });
}

#[test]
fn who_is_down_for_long_goes_out_and_who_sends_no_beacons_goes_down() {
    let sim = Sim::new(20);
    let limits = DownLimits {
        down_out_interval: Duration::from_secs(30),
        report_timeout: Duration::from_secs(100),
        ..DownLimits::default()
    };
    start_mon_with(&sim, limits);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let osds = [0, 1, 2].map(|osd| boot(&shard, osd, 1));
        wait_up(&client, &[0, 1, 2]).await;
        osds[2].1.send(Message::encode(&osds[2].0.goodbye()));
        wait_up(&client, &[0, 1]).await;
        let is_in = || client.osdmap().unwrap().is_in(OsdId(2));
        shard.sleep(Duration::from_secs(25)).await;
        assert!(is_in());
        shard.sleep(Duration::from_secs(15)).await;
        assert!(!is_in());
        let (_again, session) = boot(&shard, 2, 1);
        wait_up(&client, &[0, 1, 2]).await;
        assert!(is_in(), "it comes back in");
        let beacon = Beacon {
            version: 0,
            pgs: Vec::new(),
            min_last_epoch_clean: Epoch(0),
            last_purged_snaps_scrub: UTime::ZERO,
            interval_s: 60,
        };
        osds[0].1.send(Message::encode(&beacon));
        shard.sleep(Duration::from_secs(70)).await;
        // Those that were up from the start have been silent for more than 100 s, but for the one with the beacon.
        wait_up(&client, &[0, 2]).await;
        // Its next beacon comes after 60 s, it says, and one may be missing (`carmine sim --seed 239`: OSDs whose beacons came later than
        // the monitor's time were called down).
        session.send(Message::encode(&beacon));
        shard.sleep(Duration::from_secs(40)).await;
        let up = |osd| client.osdmap().unwrap().is_up(OsdId(osd));
        assert!(up(0) && up(2));
        wait_up(&client, &[2]).await;
    });
}

#[test]
fn up_thru_is_noted_for_all_who_ask_at_once() {
    let sim = Sim::new(17);
    let mon = start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let osds = [0, 1, 2].map(|osd| boot(&shard, osd, 1));
        let epoch = wait_up(&client, &[0, 1, 2]).await;
        let ask = |osd: usize, want| {
            let version = epoch.0.into();
            osds[osd].1.send(Message::encode(&Alive { version, want }));
        };
        (0..3).for_each(|osd| ask(osd, epoch));
        while (0..3).any(|osd| client.osdmap().unwrap().up_thru(OsdId(osd)) != epoch) {
            shard.sleep(Duration::from_millis(1)).await;
        }
        let newest = client.osdmap().unwrap().epoch;
        assert!(newest.0 <= epoch.0 + 2, "{newest}: one map has all that came while another was written");
        // Asked again, and for an epoch that there is not: the first changes nothing, the second goes as far as there is one.
        ask(0, epoch);
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(client.osdmap().unwrap().epoch, newest);
        ask(0, Epoch(1000));
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(client.osdmap().unwrap().up_thru(OsdId(0)), newest);
        UP_THRU.with(|up_thru| up_thru.set(newest));
    });
    sim.kill(mon);
    start_mon(&sim);
    run(&sim, "after", |shard| async move {
        let client = client(&shard).await;
        assert_eq!(client.osdmap().unwrap().up_thru(OsdId(0)), UP_THRU.with(Cell::get), "it is durable");
    });
}

#[test]
fn with_a_propose_interval_one_map_has_all_that_was_asked_within_it() {
    let sim = Sim::new(23);
    start_slow_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let from = shard.now_ns();
        let took_ms = |from: u64| (shard.now_ns() - from) / 1_000_000;
        let osds = [0, 1, 2].map(|osd| boot(&shard, osd, 1));
        assert_eq!(wait_up(&client, &[0, 1, 2]).await, Epoch(2));
        assert!((50..200).contains(&took_ms(from)), "{} ms: nothing happened before", took_ms(from));
        // The next one comes a second after this one.
        let from = shard.now_ns();
        osds[2].1.send(Message::encode(&osds[2].0.goodbye()));
        shard.sleep(Duration::from_millis(500)).await;
        osds[0].1.send(Message::encode(&Alive { version: 2, want: Epoch(1) }));
        let pool = r#"{"prefix":"osd pool create","pool":"p"}"#;
        client.mon_command(pool).await.unwrap();
        assert_eq!(wait_up(&client, &[0, 1]).await, Epoch(3));
        assert!((900..1_100).contains(&took_ms(from)), "{} ms", took_ms(from));
        let map = client.osdmap().unwrap();
        assert!(map.pool_id("p").is_some() && map.up_thru(OsdId(0)) == Epoch(2), "it was up until its map");
        // A fast restart takes two.
        let (_again, _session) = boot(&shard, 1, 1);
        shard.sleep(Duration::from_millis(1_100)).await;
        assert_eq!(wait_up(&client, &[0]).await, Epoch(4));
        assert_eq!(wait_up(&client, &[0, 1]).await, Epoch(5));
    });
}

/// An OSD that was away sees each map that it missed, and so which OSDs may have served its PGs meanwhile.
#[test]
fn an_osd_gets_all_maps_since_the_newest_that_it_saw() {
    /// The maps that it gets in a life after one that ended in this epoch.
    async fn maps_after(shard: &Shard, osd: &Rc<FakeOsd>, seen: u32) -> Vec<u32> {
        osd.seen.set(Epoch(seen));
        osd.maps.take();
        let session = osd.session(shard);
        session.ready(LIMIT).await.unwrap();
        session.shutdown();
        osd.maps.take()
    }
    let sim = Sim::new(22);
    let mon = start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let (osd, _session) = boot(&shard, 0, 1);
        wait_up(&client, &[0]).await;
        let (away, session) = boot(&shard, 1, 1);
        let seen = wait_up(&client, &[0, 1]).await.0;
        session.send(Message::encode(&away.goodbye()));
        wait_up(&client, &[0]).await;
        session.shutdown();
        let (_other, _second) = boot(&shard, 2, 1);
        let newest = wait_up(&client, &[0, 2]).await.0;
        assert!(newest >= seen + 2);
        let maps = maps_after(&shard, &away, seen).await;
        assert!(maps.starts_with(&(seen..=newest).collect::<Vec<_>>()), "{maps:?}");
        // Each session boots, which may make one more.
        let newest = wait_up(&client, &[0, 1, 2]).await.0;
        for seen in [newest, 0] {
            let maps = maps_after(&shard, &away, seen).await;
            assert_eq!(maps[0], newest, "{seen}: it needs one to go on from");
        }
        let maps = osd.maps.borrow();
        assert!(
            *maps == (1..=maps[maps.len() - 1]).collect::<Vec<_>>(),
            "one that stays sees each: {maps:?}"
        );
        UP_THRU.with(|epoch| epoch.set(Epoch(seen)));
    });
    sim.kill(mon);
    start_mon(&sim);
    run(&sim, "after", |shard| async move {
        let seen = UP_THRU.with(Cell::get).0;
        let newest = client(&shard).await.osdmap().unwrap().epoch.0;
        let (osd, session) = boot(&shard, 1, 1);
        session.shutdown();
        let maps = maps_after(&shard, &osd, seen).await;
        assert!(maps.len() > 2 && maps.starts_with(&(seen..=newest).collect::<Vec<_>>()), "{maps:?}");
    });
}

#[test]
fn an_osd_with_two_sessions_stays_up_when_one_ends() {
    let sim = Sim::new(16);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let (osd, first) = boot(&shard, 1, 1);
        let epoch = wait_up(&client, &[1]).await;
        let second = osd.session(&shard);
        second.ready(LIMIT).await.unwrap();
        first.shutdown();
        shard.sleep(Duration::from_millis(500)).await;
        assert_eq!(wait_up(&client, &[1]).await, epoch);
        second.shutdown();
        wait_up(&client, &[]).await;
    });
}

#[test]
fn pools_and_commands() {
    let sim = Sim::new(12);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        assert!(client.pool("bench").is_ok() && client.pool("rbd").is_err());
        let create =
            client.mon_command(r#"{"prefix":"osd pool create","pool":"rbd","pg_num":16}"#).await.unwrap();
        assert_eq!(create.status, "pool 'rbd' created");
        assert!(client.wait_pool("rbd").await.is_ok());
        let listed = client.mon_command(r#"{"prefix":"osd pool ls"}"#).await.unwrap();
        assert_eq!(listed.data, b"bench\nrbd\n");
        let unknown = client.mon_command(r#"{"prefix":"make tea"}"#).await.unwrap_err();
        assert_eq!(unknown.errno(), errno::EINVAL);
        let id = client.osdmap().unwrap().pool_id("rbd").unwrap() as u32;
        let fsid = client.mon().fsid();
        let op = |op, name: &str| PoolOp {
            version: 0,
            fsid,
            pool: id,
            op,
            snapid: 0,
            name: name.into(),
            crush_rule: 0,
        };
        client.mon().pool_op(op(PoolOp::DELETE, ""), LIMIT).await.unwrap();
        assert!(client.pool("rbd").is_err());
        let snap = client.mon().pool_op(op(PoolOp::CREATE_SNAP, "s"), LIMIT).await.unwrap_err();
        assert_eq!(snap.errno(), errno::ENOENT, "the pool is gone");
        let unknown = client.mon().pool_op(op(0x99, ""), LIMIT).await.unwrap_err();
        assert_eq!(unknown.errno(), errno::EOPNOTSUPP);
        client.mon().pool_op(op(PoolOp::CREATE, "new"), LIMIT).await.unwrap();
        assert!(client.pool("new").is_ok());
    });
}

/// Each id is given once, is in the map that the answer names, and what is removed waits until the OSD says that it is trimmed.
#[test]
fn snapshot_ids_are_given_taken_back_and_purged() {
    let sim = Sim::new(31);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let (_osd, session) = boot(&shard, 0, 1);
        wait_up(&client, &[0]).await;
        let fsid = client.mon().fsid();
        let op =
            |op, snapid| PoolOp { version: 0, fsid, pool: 1, op, snapid, name: String::new(), crush_rule: 0 };
        let take = async || {
            let reply = client.mon().pool_op(op(PoolOp::CREATE_UNMANAGED_SNAP, 0), LIMIT).await.unwrap();
            let id = u64::from_le_bytes(reply.data.unwrap().try_into().unwrap());
            let map = client.osdmap().unwrap();
            assert!(map.epoch >= reply.epoch && map.pool(1).unwrap().snap_seq >= id);
            id
        };
        assert_eq!([take().await, take().await, take().await], [2, 3, 4]);
        let removed = client.mon().pool_op(op(PoolOp::DELETE_UNMANAGED_SNAP, 3), LIMIT).await.unwrap();
        assert_eq!(removed.data, None);
        let queue = || client.osdmap().unwrap().removed_snaps_queue.get(&1).cloned().unwrap_or_default();
        assert_eq!(queue(), [(3, 1)]);
        let trimmed = PgStat { purged_snaps: vec![(3, 1)], ..PgStat::default() };
        let report = |pgs: u32| OsdStats {
            total_bytes: 1 << 30,
            used_bytes: 0,
            commit_latency_ns: 0,
            pgs: (0..pgs).map(|ps| (PgId::new(1, ps), trimmed.clone())).collect(),
            slow_ops: 0,
            slowest_s: 0,
        };
        let pgs = client.osdmap().unwrap().pool(1).unwrap().pg_num;
        session.send(Message::encode(&report(pgs - 1)));
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(queue(), [(3, 1)], "a PG has not said so");
        session.send(Message::encode(&report(pgs)));
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(queue(), []);
        assert_eq!(client.osdmap().unwrap().new_purged_snaps[&1], [(3, 1)]);
    });
}

/// Their time ends without anybody asking.
#[test]
fn clients_are_kept_out_for_a_while() {
    let sim = Sim::new(16);
    start_mon(&sim);
    run(&sim, "client", |shard| async move {
        let client = client(&shard).await;
        let wait = async |listed: usize| {
            while client.osdmap().unwrap().blocklist.len() != listed {
                shard.sleep(Duration::from_millis(10)).await;
            }
        };
        let add = |nonce: u32, seconds: u32| {
            format!(
                r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:0/{nonce}","expire":{seconds}}}"#
            )
        };
        let begin_ns = shard.now_ns();
        client.mon_command(&add(1, 20)).await.unwrap();
        client.mon_command(&add(2, 3600)).await.unwrap();
        wait(2).await;
        wait(1).await;
        let lasted = Duration::from_nanos(shard.now_ns() - begin_ns);
        assert!(lasted >= Duration::from_secs(20) && lasted < Duration::from_secs(21), "{lasted:?}");
        assert_eq!(client.osdmap().unwrap().blocklist[0].0.nonce, 2);
        client.mon_command(r#"{"prefix":"osd blocklist clear"}"#).await.unwrap();
        wait(0).await;
    });
}

#[test]
fn a_killed_monitor_goes_on_where_it_was() {
    let sim = Sim::new(13);
    let seen = Rc::new(Cell::new((0, Epoch(0))));
    let mon = start_mon(&sim);
    let note = Rc::clone(&seen);
    run(&sim, "before", move |shard| {
        let note = Rc::clone(&note);
        async move {
            let client = client(&shard).await;
            client.mon_command(r#"{"prefix":"osd pool create","pool":"kept"}"#).await.unwrap();
            let (_osd, _session) = boot(&shard, 0, 1);
            note.set((client.global_id(), wait_up(&client, &[0]).await));
        }
    });
    sim.kill(mon);
    start_mon(&sim);
    run(&sim, "after", move |shard| {
        let (gid, epoch) = seen.get();
        async move {
            let client = client(&shard).await;
            assert!(client.pool("kept").is_ok());
            assert!(client.global_id() > gid, "global ids are never given twice");
            assert!(wait_up(&client, &[]).await > epoch, "whose sessions ended with it is down");
            let (_osd, _session) = boot(&shard, 0, 1);
            wait_up(&client, &[0]).await;
        }
    });
}

#[test]
fn an_osd_goes_on_after_the_monitor_was_killed() {
    let sim = Sim::new(14);
    let mon = start_mon(&sim);
    let killed = Rc::new(Cell::new(false));
    let is_killed = Rc::clone(&killed);
    let up = Rc::new(Cell::new(0));
    let is_up = Rc::clone(&up);
    sim.node("osd", 1, move |shard: Shard| {
        let (is_killed, is_up) = (Rc::clone(&is_killed), Rc::clone(&is_up));
        async move {
            let (_osd, _session) = boot(&shard, 2, 1);
            let client = client(&shard).await;
            wait_up(&client, &[2]).await;
            is_up.set(1);
            while !is_killed.get() {
                shard.sleep(Duration::from_millis(10)).await;
            }
            // The map of the new monitor first has it down, then up again.
            while client.osdmap().unwrap().epoch < Epoch(4) {
                shard.sleep(Duration::from_millis(10)).await;
            }
            wait_up(&client, &[2]).await;
            is_up.set(2);
        }
    });
    sim.run(|| up.get() == 1, LIMIT).unwrap();
    sim.kill(mon);
    start_mon(&sim);
    killed.set(true);
    sim.run(|| up.get() == 2, LIMIT).unwrap();
}

#[test]
fn another_clusters_state_is_refused() {
    let sim = Sim::new(15);
    let mon = start_mon(&sim);
    run(&sim, "client", |shard| async move { drop(client(&shard).await) });
    sim.kill(mon);
    let refused = Rc::new(Cell::new(false));
    let flag = Rc::clone(&refused);
    sim.node("mon", 1, move |shard: Shard| {
        let flag = Rc::clone(&flag);
        async move {
            let error = Mon::open(&shard, config(6)).await.err().unwrap();
            assert!(matches!(error, MonError::WrongCluster { .. }), "{error}");
            flag.set(true);
        }
    });
    sim.run(|| refused.get(), LIMIT).unwrap();
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let sim = Sim::new(seed);
        start_mon(&sim);
        run(&sim, "client", |shard| async move {
            let client = client(&shard).await;
            let (_osd, _session) = boot(&shard, 1, 1);
            wait_up(&client, &[1]).await;
        });
        sim.trace_hash()
    };
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}
