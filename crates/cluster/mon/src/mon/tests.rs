//! A whole monitor in the simulator, looked at from inside.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::Duration;

use carmine_messenger::{ClientConfig, Dispatcher, connect};
use carmine_reactor::sim::{NodeId, Sim};
use carmine_types::{Eversion, PgId};
use carmine_wire::mon_msg::{
    Command, GetPoolStats, LogMsg, ONETIME, OsdMapMsg, PoolOp, Subscribe, Subscription,
};
use carmine_wire::osd_msg::{Beacon, Boot, PgCreate, PgCreated, ReadyToMerge, Superblock};
use carmine_wire::osdmap::consts::POOL_CREATING;
use carmine_wire::pg_stat::{PgStat, state};
use carmine_wire::{EntityAddr, kinds};

use super::*;
use crate::accept::HELD_MESSAGES;
use crate::push::PUSH_BYTES;
use crate::testing::{addrs_of, all_addrs};
use crate::{InitialCluster, InitialPool};

const LIMIT: Duration = Duration::from_secs(300);

thread_local! {
    /// The monitor that runs: each test has its own thread, and the world runs in it.
    static MON: RefCell<Option<Rc<Mon>>> = const { RefCell::new(None) };
    static ENDED: Cell<bool> = const { Cell::new(false) };
}

fn address() -> SocketAddr {
    "127.0.0.1:3300".parse().unwrap()
}

async fn open(shard: &Shard) -> Rc<Mon> {
    open_with(shard, MapRules::default()).await
}

async fn open_with(shard: &Shard, rules: MapRules) -> Rc<Mon> {
    let pool = InitialPool { name: "bench".into(), size: 1, min_size: 1, pg_num: 8 };
    let config = MonConfig {
        auth: None,
        dir: "/mon".into(),
        listen: address(),
        open_files: 1 << 10,
        limits: DownLimits::default(),
        rules,
        facts: Vec::new(),
        initial: InitialCluster { fsid: Uuid([5; 16]), osds: 3, pool, host: None },
    };
    Mon::open(shard, config).await.unwrap()
}

/// A monitor that compacts its state file when that has grown by so much.
fn start(sim: &Sim, compact_bytes: u64) -> NodeId {
    sim.node("mon", 1, move |shard: Shard| async move {
        let mon = open(&shard).await;
        mon.state.borrow_mut().as_mut().unwrap().compact_bytes = compact_bytes;
        MON.with(|cell| cell.replace(Some(Rc::clone(&mon))));
        mon.serve().await.unwrap();
    })
}

fn mon() -> Rc<Mon> {
    MON.with(|cell| cell.borrow().clone()).unwrap()
}

fn run<F: Future<Output = ()> + 'static>(sim: &Sim, name: &str, work: impl Fn(Shard) -> F + 'static) {
    let work = Rc::new(work);
    let node = sim.node(name, 1, move |shard: Shard| {
        let work = Rc::clone(&work);
        async move {
            work(shard).await;
            ENDED.with(|ended| ended.set(true));
        }
    });
    ENDED.with(|ended| ended.set(false));
    sim.run(|| ENDED.with(Cell::get), LIMIT).unwrap();
    sim.kill(node);
}

/// Changes the map, so often, and waits until that is done.
async fn change(shard: &Shard, times: u32) {
    let (done, first) = (Rc::new(Cell::new(0)), 1 + mon().current().map.epoch.0);
    for weight in first..first + times {
        let done = Rc::clone(&done);
        let note = move |_: &Mon, result: Result<(), Refusal>| {
            result.unwrap();
            done.set(done.get() + 1);
        };
        mon().change(Change::Weight { osds: vec![OsdId(0)], weight }, Box::new(note));
    }
    while done.get() < times {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// The epochs of the maps that can be had.
fn epochs() -> Vec<u32> {
    let mon = mon();
    let older: Vec<u32> = mon.history.borrow().since(Epoch(0)).map(|(epoch, _)| epoch.0).collect();
    older.into_iter().chain([mon.current().map.epoch.0]).collect()
}

#[test]
fn no_map_is_lost_where_the_state_file_is_compacted() {
    for changes in 1..60 {
        let sim = Sim::new(21);
        let node = start(&sim, 0);
        run(&sim, "changes", move |shard| async move {
            while MON.with(|mon| mon.borrow().is_none()) {
                shard.sleep(Duration::from_millis(1)).await;
            }
            change(&shard, changes).await;
        });
        let before = epochs();
        MON.take();
        sim.kill(node);
        start(&sim, 0);
        sim.run(|| MON.with(|mon| mon.borrow().is_some()), LIMIT).unwrap();
        assert_eq!(epochs(), before, "after {changes} changes");
        assert_eq!(before, (1..=changes + 1).collect::<Vec<_>>());
        MON.take();
    }
}

#[test]
fn a_gap_that_an_earlier_build_left_in_the_state_file_is_no_history() {
    let sim = Sim::new(20);
    let node = start(&sim, 1 << 20);
    sim.run(|| MON.with(|mon| mon.borrow().is_some()), LIMIT).unwrap();
    run(&sim, "changes", |shard| async move { change(&shard, 6).await });
    assert_eq!(epochs(), [1, 2, 3, 4, 5, 6, 7]);
    MON.take();
    sim.kill(node);
    run(&sim, "mon", |shard| async move {
        let (mut state, saved) = StateFile::open(&shard, std::path::Path::new("/mon")).await.unwrap();
        state.older.remove(3);
        state.rewrite(&saved.unwrap()).await.unwrap();
    });
    start(&sim, 1 << 20);
    sim.run(|| MON.with(|mon| mon.borrow().is_some()), LIMIT).unwrap();
    assert_eq!(epochs(), [5, 6, 7]);
    run(&sim, "changes", |shard| async move { change(&shard, 2).await });
    // One more: nobody knows how the PGs of the pool fared, so it counts as created.
    assert_eq!(epochs(), [5, 6, 7, 8, 9, 10]);
}

#[test]
fn ids_are_given_out_only_as_far_as_they_are_reserved() {
    let sim = Sim::new(22);
    sim.node("mon", 1, |shard: Shard| async move {
        let mon = open(&shard).await;
        // Nobody writes down a reservation yet: a sync that takes long.
        let given: Vec<u64> = (0..GIDS_RESERVED + 10).filter_map(|_| mon.assign_gid()).collect();
        assert_eq!(given, (FIRST_GID..FIRST_GID + GIDS_RESERVED).collect::<Vec<_>>());
        let served = Rc::clone(&mon);
        shard.spawn(Group::Client, "serve", async move { served.serve().await.unwrap() });
        shard.sleep(Duration::from_secs(1)).await;
        assert_eq!(mon.assign_gid(), Some(FIRST_GID + GIDS_RESERVED));
        ENDED.with(|ended| ended.set(true));
    });
    sim.run(|| ENDED.with(Cell::get), LIMIT).unwrap();
}

/// A peer that keeps what it gets. While it does not read, one message waits at its end.
#[derive(Default)]
struct Peer {
    got: RefCell<Vec<Message>>,
    reads: Cell<bool>,
}

impl Dispatcher for Peer {
    fn on_message(&self, _: &Rc<Connection>, mut msg: Message) {
        if self.reads.get() {
            msg.take_permit();
        }
        self.got.borrow_mut().push(msg);
    }
    fn on_closed(&self, _: &Rc<Connection>, _: &str) {}
}

impl Peer {
    async fn connect(shard: &Shard, kind: EntityType, reads: bool) -> (Rc<Peer>, Rc<Connection>) {
        let peer = Rc::new(Peer { reads: Cell::new(reads), ..Peer::default() });
        let mut config = match kind {
            EntityType::OSD => {
                ClientConfig::daemon(kind, 0, EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 1))
            }
            kind => ClientConfig::new(kind, "admin", 1),
        };
        config.limits.held_messages = 1;
        let config = Rc::new(config);
        let (to, dispatcher) = (EntityAddr::msgr2(address(), 0), Rc::clone(&peer) as Rc<dyn Dispatcher>);
        let conn = loop {
            match connect(shard, to, EntityType::MON, Rc::clone(&config), Rc::clone(&dispatcher)).await {
                Ok(conn) => break conn,
                Err(_) => shard.sleep(Duration::from_millis(1)).await,
            }
        };
        (peer, conn)
    }

    /// Lets it read from now on.
    fn read(&self) {
        self.reads.set(true);
        self.got.borrow_mut().iter_mut().for_each(|msg| drop(msg.take_permit()));
    }

    fn of_kind(&self, kind: u16) -> usize {
        self.got.borrow().iter().filter(|msg| msg.header.kind == kind).count()
    }

    fn maps(&self) -> Vec<u32> {
        let got = self.got.borrow();
        let maps = got.iter().filter(|msg| msg.header.kind == kinds::OSD_MAP);
        maps.flat_map(|msg| msg.decode::<OsdMapMsg>().unwrap().full).map(|(epoch, _)| epoch.0).collect()
    }
}

/// Bytes that wait to be sent by the monitor, on all connections.
fn queued() -> usize {
    mon().sessions.borrow().values().map(|session| session.conn.queued_bytes()).sum()
}

/// The most that waited at any time meanwhile.
async fn most_queued(shard: &Shard, millis: u32) -> usize {
    let mut most = 0;
    for _ in 0..millis {
        shard.sleep(Duration::from_millis(1)).await;
        most = most.max(queued());
    }
    most
}

fn subscribe(what: Vec<Subscription>) -> Message {
    Message::encode(&Subscribe { what, hostname: String::new() })
}

#[test]
fn of_one_name_one_subscription_counts() {
    let sim = Sim::new(23);
    start(&sim, 1 << 20);
    run(&sim, "peer", |shard| async move {
        let (peer, conn) = Peer::connect(&shard, EntityType::CLIENT, true).await;
        let names = ["osdmap", "monmap", "mgrmap", "config", "fsmap", "log-debug", "tea"];
        let many = (0..200_000).map(|n| Subscription::new(names[n % names.len()], 0, false));
        conn.send(subscribe(many.collect()));
        assert!(most_queued(&shard, 500).await <= PUSH_BYTES);
        for kind in [kinds::OSD_MAP, kinds::MON_MAP, kinds::MGR_MAP, kinds::CONFIG, kinds::FS_MAP] {
            assert_eq!(peer.of_kind(kind), 1, "messages of type {}", kinds::name(kind));
        }
        conn.send(Message::encode(&GetPoolStats {
            version: 0,
            fsid: Uuid([5; 16]),
            pools: vec!["bench".into(); 100_000],
        }));
        assert!(most_queued(&shard, 500).await <= PUSH_BYTES);
        assert_eq!(peer.of_kind(kinds::GET_POOL_STATS_REPLY), 1);
        change(&shard, 3).await;
        shard.sleep(Duration::from_millis(10)).await;
        assert_eq!(peer.maps(), [1, 2, 3, 4], "each epoch comes on its own");
        // Once means once.
        conn.send(subscribe(vec![Subscription { what: "osdmap".into(), start: 5, flags: ONETIME }]));
        change(&shard, 2).await;
        shard.sleep(Duration::from_millis(10)).await;
        assert_eq!(peer.maps(), [1, 2, 3, 4, 5]);
    });
}

/// Makes maps of some 100 KiB each.
async fn long_history(shard: &Shard, maps: u32) {
    for n in 0..12 {
        let name = format!("{n}{}", "x".repeat(8_000));
        let pool = Change::CreatePool { name, pg_num: Some(1), size: Some(1), rule: 0, values: Vec::new() };
        mon().change(pool, Box::new(|_, done| done.unwrap()));
    }
    change(shard, 1).await;
    change(shard, maps).await;
}

#[test]
fn who_does_not_read_gets_no_more_than_it_can_hold() {
    let sim = Sim::new(24);
    start(&sim, 1 << 20);
    run(&sim, "peers", |shard| async move {
        // One that reads, to know that the monitor runs.
        let (reader, conn) = Peer::connect(&shard, EntityType::OSD, true).await;
        long_history(&shard, 30).await;
        let (history, newest) = (epochs(), mon().current().map.epoch.0);
        assert!(history.len() > 30, "{history:?}");
        let map_bytes = mon().current().bytes.len();
        let bound = PUSH_BYTES + PUSH_BYTES.max(map_bytes) + 1_000;
        assert!(mon().history.borrow().all().iter().map(|map| map.len()).sum::<usize>() > 4 * bound);
        let mut lazy = Vec::new();
        for _ in 0..8 {
            let (peer, conn) = Peer::connect(&shard, EntityType::OSD, false).await;
            for _ in 0..200 {
                conn.send(subscribe(vec![
                    Subscription::new("log-debug", 1, false),
                    Subscription::new("osdmap", 1, false),
                ]));
            }
            lazy.push((peer, conn));
        }
        let most = most_queued(&shard, 200).await;
        assert!(most <= lazy.len() * bound, "{most} bytes wait, and {bound} may for each connection");
        // What one of them keeps back delays nobody else.
        conn.send(subscribe(vec![Subscription::new("osdmap", 2, false)]));
        shard.sleep(Duration::from_millis(200)).await;
        assert_eq!(reader.maps(), (2..=newest).collect::<Vec<_>>(), "all maps, in order");
        // It gets all of them when it reads again, and the memory is free.
        let (peer, _) = &lazy[0];
        peer.read();
        shard.sleep(Duration::from_secs(2)).await;
        let maps = peer.maps();
        assert_eq!(maps[maps.len() - 3..], [newest - 2, newest - 1, newest]);
        for (peer, conn) in &lazy {
            peer.read();
            conn.close("done");
        }
        shard.sleep(Duration::from_secs(1)).await;
        assert_eq!((queued(), mon().budget.used_bytes()), (0, 0));
    });
}

#[test]
fn each_line_of_the_log_comes_once_however_many_there_are() {
    let sim = Sim::new(25);
    start(&sim, 1 << 20);
    run(&sim, "peer", |shard| async move {
        let (peer, conn) = Peer::connect(&shard, EntityType::CLIENT, false).await;
        for n in 0..900 {
            let text = format!("{n} {}", "x".repeat(3_000));
            mon().log.borrow_mut().add(carmine_wire::mon_msg::log_level::INFO, "mon.a", &text, UTime::ZERO);
        }
        conn.send(subscribe(vec![Subscription::new("log-info", 1, false)]));
        assert!(most_queued(&shard, 200).await <= 2 * PUSH_BYTES + 10_000);
        peer.read();
        shard.sleep(Duration::from_secs(1)).await;
        let got = peer.got.borrow();
        let lines = got.iter().filter(|msg| msg.header.kind == kinds::LOG);
        let seqs: Vec<u64> =
            lines.flat_map(|msg| msg.decode::<LogMsg>().unwrap().entries).map(|line| line.seq).collect();
        assert_eq!(seqs, (1..=900).collect::<Vec<_>>());
    });
}

#[test]
fn a_connection_may_have_few_changes_waiting_and_few_answers_unread() {
    let sim = Sim::new(26);
    start(&sim, 1 << 20);
    run(&sim, "peer", |shard| async move {
        let (_, conn) = Peer::connect(&shard, EntityType::CLIENT, true).await;
        let op = |n: u32| PoolOp {
            version: 0,
            fsid: Uuid([5; 16]),
            pool: 1,
            name: n.to_string(),
            op: PoolOp::CREATE_SNAP,
            snapid: 0,
            crush_rule: 0,
        };
        (0..2_000).for_each(|n| conn.send(Message::encode(&op(n))));
        let mut most = 0;
        while mon().current().map.epoch.0 < 20 {
            most = most.max(mon().work.borrow().len());
            shard.sleep(Duration::from_micros(100)).await;
        }
        assert!(most > 0 && most <= HELD_MESSAGES, "{most} changes waited");
        let (_, conn) = Peer::connect(&shard, EntityType::CLIENT, false).await;
        let cmd = vec![r#"{"prefix":"get_command_descriptions"}"#.to_owned()];
        let ask = || Message::encode(&Command { version: 0, fsid: Uuid([5; 16]), cmd: cmd.clone() });
        (0..1_000).for_each(|_| conn.send(ask()));
        let most = most_queued(&shard, 500).await;
        assert!(most <= 2 * PUSH_BYTES, "{most} bytes of answers");
    });
}

#[test]
fn an_osd_that_wants_to_know_which_pgs_to_create_is_told_until_they_are_active() {
    let sim = Sim::new(27);
    start(&sim, 1 << 20);
    run(&sim, "peer", |shard| async move {
        let (osd, conn) = Peer::connect(&shard, EntityType::OSD, true).await;
        let (client, other) = Peer::connect(&shard, EntityType::CLIENT, true).await;
        let ask = || subscribe(vec![Subscription::new("osd_pg_creates", 0, false)]);
        let orders = |peer: &Peer| peer.of_kind(kinds::OSD_PG_CREATE2);
        other.send(ask());
        conn.send(ask());
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(orders(&osd), 0, "it is not up");
        conn.send(Message::encode(&boot_of(0)));
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!((orders(&osd), orders(&client)), (1, 0));
        // It is told again in another session.
        conn.send(ask());
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(orders(&osd), 2);
        let order = osd.got.borrow().iter().find_map(|msg| msg.decode::<PgCreate>().ok()).unwrap();
        let current = mon().current();
        let led = current.placement().pgs_of(OsdId(0)).map(|(pg, _)| pg.into()).collect::<Vec<_>>();
        assert!(!led.is_empty() && order.pgs.into_keys().eq(led), "those that it leads");
        for pg in (0..8).map(|ps| PgId::new(1, ps)) {
            let is_creating = mon().current().map.pool(1).unwrap().flags & POOL_CREATING != 0;
            assert!(is_creating, "{pg} is not active yet");
            conn.send(Message::encode(&PgCreated { version: 0, pg }));
            shard.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(mon().current().map.pool(1).unwrap().flags & POOL_CREATING, 0);
        conn.send(ask());
        shard.sleep(Duration::from_millis(100)).await;
        assert_eq!(orders(&osd), 2);
    });
}

#[test]
fn no_map_is_dropped_while_a_pool_is_being_created() {
    let sim = Sim::new(28);
    start(&sim, 1 << 20);
    run(&sim, "peer", |shard| async move {
        let (_osd, conn) = Peer::connect(&shard, EntityType::OSD, true).await;
        conn.send(Message::encode(&boot_of(0)));
        change(&shard, 520).await;
        let oldest = async || {
            conn.send(Message::encode(&beacon(Epoch(400))));
            shard.sleep(Duration::from_millis(100)).await;
            epochs()[0]
        };
        assert_eq!(oldest().await, 1);
        (0..8).for_each(|ps| conn.send(Message::encode(&PgCreated { version: 0, pg: PgId::new(1, ps) })));
        assert!(oldest().await > 1);
    });
}

fn beacon(min_last_epoch_clean: Epoch) -> Beacon {
    let last_purged_snaps_scrub = UTime::ZERO;
    Beacon { version: 0, pgs: Vec::new(), min_last_epoch_clean, last_purged_snaps_scrub, interval_s: 300 }
}

/// The boot of an OSD as [`Peer::connect`] makes it.
fn boot_of(osd: u32) -> Boot {
    let addr = EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 1);
    Boot {
        version: 0,
        superblock: Superblock { whoami: OsdId(osd), osd_fsid: Uuid([1; 16]), ..Superblock::default() },
        hb_back: addr.into(),
        cluster: addr.into(),
        boot_epoch: Epoch(0),
        hb_front: addr.into(),
        metadata: BTreeMap::new(),
        features: carmine_wire::FEATURES,
    }
}

/// As if each OSD told of the PGs that it leads: all are well.
fn report_all() {
    let (mon, current) = (mon(), mon().current());
    for (pg, at) in current.placement().pgs() {
        let mut stat = PgStat {
            reported_epoch: current.map.epoch,
            up: at.up.to_vec(),
            acting: at.acting.to_vec(),
            ..PgStat::default()
        };
        stat.set_states(state::ACTIVE | state::CLEAN);
        mon.stats.borrow_mut().pgs.insert(pg, (at.acting_primary.unwrap(), stat));
        mon.creating.borrow_mut().remove(pg);
    }
}

fn numbers_of_pgs() -> (u32, u32) {
    let current = mon().current();
    let pool = current.map.pool(1).unwrap();
    (pool.pg_num, pool.pgp_num)
}

#[test]
fn a_wish_for_more_pgs_is_gone_to_in_steps() {
    let sim = Sim::new(29);
    sim.node("mon", 1, |shard: Shard| async move {
        let mon = open_with(&shard, MapRules::default()).await;
        MON.with(|cell| cell.replace(Some(Rc::clone(&mon))));
        mon.serve().await.unwrap();
    });
    run(&sim, "cluster", |shard| async move {
        while MON.with(|mon| mon.borrow().is_none()) {
            shard.sleep(Duration::from_millis(1)).await;
        }
        (0..3).for_each(|osd| {
            let addrs = all_addrs(&addrs_of(osd, 1));
            let boot = Change::Boot { osd: OsdId(osd), uuid: Uuid([1 + osd as u8; 16]), addrs };
            mon().change(boot, Box::new(|_, result| result.unwrap()));
        });
        let wish = Change::PgNum { pool: "bench".into(), wanted: 16 };
        mon().change(wish, Box::new(|_, result| result.unwrap()));
        shard.sleep(Duration::from_secs(30)).await;
        assert_eq!(numbers_of_pgs(), (8, 8), "nobody has told of the PGs");
        let mut seen = vec![numbers_of_pgs()];
        while seen.last() != Some(&(16, 16)) {
            report_all();
            shard.sleep(Duration::from_millis(100)).await;
            seen.push(numbers_of_pgs());
            seen.dedup();
        }
        let moves = (8..17).map(|pgp_num| (16, pgp_num));
        assert_eq!(seen, [(8, 8)].into_iter().chain(moves).collect::<Vec<_>>());
        assert!(!mon().is_pacing());
    });
}

/// The number of PGs, and what it is after the merge that is under way.
fn pending() -> (u32, u32) {
    let current = mon().current();
    let pool = current.map.pool(1).unwrap();
    (pool.pg_num, pool.pg_num_pending)
}

/// The primary of the PG that is to be merged says whether it is ready.
fn answer(conn: &Rc<Connection>, ready: bool) {
    let epoch = mon().current().map.epoch;
    conn.send(Message::encode(&ReadyToMerge {
        version: epoch.0.into(),
        source: PgId::new(1, pending().1),
        source_version: Eversion::new(3, 4),
        target_version: Eversion::new(3, 5),
        last_epoch_started: epoch,
        last_epoch_clean: epoch,
        ready,
    }));
}

/// Reports for so long, or until these are the numbers; the time it took. The OSD that there is shows that it lives.
async fn report_until(
    (shard, conn): (&Shard, &Rc<Connection>),
    most: Duration,
    wanted: (u32, u32),
) -> Option<Duration> {
    let begun_ns = shard.now_ns();
    loop {
        let took = Duration::from_nanos(shard.now_ns() - begun_ns);
        if pending() == wanted {
            return Some(took);
        }
        if took > most {
            return None;
        }
        report_all();
        conn.send(Message::encode(&beacon(Epoch(0))));
        shard.sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_merge_is_given_up_without_a_word_and_tried_again_later() {
    let sim = Sim::new(30);
    start(&sim, 1 << 20);
    run(&sim, "cluster", |shard| async move {
        let (_, conn) = Peer::connect(&shard, EntityType::OSD, true).await;
        let (_, stranger) = Peer::connect(&shard, EntityType::CLIENT, true).await;
        conn.send(Message::encode(&boot_of(0)));
        // The others are not expected.
        let out = Change::Weight { osds: vec![OsdId(1), OsdId(2)], weight: 0 };
        mon().change(out, Box::new(|_, result| result.unwrap()));
        let fewer = Change::PgNum { pool: "bench".into(), wanted: 6 };
        mon().change(fewer, Box::new(|_, result| result.unwrap()));
        while !mon().current().map.is_up(OsdId(0)) || mon().current().map.is_in(OsdId(1)) {
            shard.sleep(Duration::from_millis(1)).await;
        }
        let (soon, second) = (Duration::from_secs(5), Duration::from_secs(1));
        assert!(report_until((&shard, &conn), soon, (8, 7)).await.is_some());
        answer(&stranger, true);
        // Nobody says a word.
        let took = report_until((&shard, &conn), 100 * second, (8, 8)).await.unwrap();
        assert!((58 * second..63 * second).contains(&took), "{took:?}");
        let took = report_until((&shard, &conn), 100 * second, (8, 7)).await.unwrap();
        assert!((29 * second..33 * second).contains(&took), "{took:?}");
        answer(&conn, false);
        assert!(report_until((&shard, &conn), second / 2, (8, 8)).await.is_some());
        let took = report_until((&shard, &conn), 100 * second, (8, 7)).await.unwrap();
        assert!((29 * second..33 * second).contains(&took), "{took:?}");
        answer(&conn, true);
        assert!(report_until((&shard, &conn), second / 2, (7, 7)).await.is_some());
        let took = report_until((&shard, &conn), soon, (7, 6)).await.unwrap();
        assert!(took < 3 * second, "the next one follows at once: {took:?}");
        assert!(mon().is_pacing());
        answer(&conn, true);
        assert!(report_until((&shard, &conn), soon, (6, 6)).await.is_some());
        assert!(report_until((&shard, &conn), soon, (6, 5)).await.is_none());
        assert_eq!((numbers_of_pgs(), mon().is_pacing()), ((6, 6), false));
    });
}
