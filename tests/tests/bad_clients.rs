//! Clients that break the rules harm only themselves: real processes, a healthy client beside the bad ones. About 40 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // sockets, threads and clocks of the bad clients

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carmine_client::{Client, Options, Pool};
use carmine_messenger::Message;
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{ONE_BLUE, ONE_CYAN};
use carmine_tests::{Background, Testbed, installed, succeed};
use carmine_types::{Epoch, ObjectId, OsdId, PgId, crc32c, errno};
use carmine_wire::frame::{self, FrameReader, Preamble, SEGMENTS_MAX, Tag};
use carmine_wire::handshake::*;
use carmine_wire::mon_msg::{Subscribe, Subscription};
use carmine_wire::osd_op::{OsdOp, OsdReply, OsdRequest, flags};
use carmine_wire::private::VERSION;
use carmine_wire::{EntityAddr, EntityType, FEATURES, Header2, kinds};

const OBJECT: &str = "four-megabytes";
const OBJECT_BYTES: usize = 4 << 20;
/// Clients that ask and do not read. Each may have 64 MiB of answers under way and 16 MiB that wait to be sent: before that it
/// is not read from any more.
const SILENT: u64 = 2;
/// Bytes by which all bad clients together may make the OSD grow: the silent clients' answers, and 32 MiB for the
/// sockets' buffers of all and the memory that the allocator keeps. Without the first limit it was 400 MiB after 3 s.
const GROWN_BYTES_MAX: u64 = (SILENT * (64 + 16) + 32) << 20;
/// Times that windows without and with bad clients alternate, so that whatever else the machine does meets both.
const ROUNDS: usize = 9;
/// Operations of the healthy client in a window.
const OPS: usize = 100;
/// Time by which the lower quartile of the healthy client's operations may be longer beside bad ones, unless it is less than
/// twice as long: a quarter of a turn's quota. A client that holds the reactor delays every operation, so that the quartile shows it:
/// it was 13 times as long when a flood had a whole turn's quota each time. Operations that lose the CPU to others on the
/// machine, the bad clients' own threads among them, are in the upper half.
const DELAY_MAX: Duration = Duration::from_micros(125);
/// Messages of a flood that the OSD takes in each round.
const FLOOD_MESSAGES_MIN: u64 = 10_000;

/// An OSD that waits for what is announced never hangs up.
const HANG_UP_LIMIT: Duration = Duration::from_secs(60);
/// Time in which bad clients get what they can, and in which the OSD forgets them.
const AT_WORK: Duration = Duration::from_millis(300);

/// A client made by hand, on a plain socket.
struct Bad {
    stream: TcpStream,
    target: EntityAddr,
}

impl Bad {
    fn connect(target: EntityAddr) -> Bad {
        let stream = TcpStream::connect(target.sock.expect("an address")).expect("the OSD listens");
        stream.set_read_timeout(Some(HANG_UP_LIMIT)).expect("a time limit");
        stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a time limit");
        Bad { stream, target }
    }

    fn control(&mut self, control: &impl Control) {
        let mut bytes = Vec::new();
        control.frame_into(&mut bytes);
        self.stream.write_all(&bytes).expect("the OSD takes it");
    }

    /// The next frame: its tag and segments.
    fn next(&mut self) -> (Tag, [Vec<u8>; SEGMENTS_MAX]) {
        let mut frames = FrameReader::default();
        let mut head = vec![0; frames.need()];
        self.stream.read_exact(&mut head).expect("a preamble");
        frames.preamble(&mut head).expect("a preamble");
        let mut body = vec![0; frames.need()];
        self.stream.read_exact(&mut body).expect("a frame");
        let frame = frames.body(&mut body).expect("a frame");
        (frame.tag, frame.segments.map(<[u8]>::to_vec))
    }

    /// The payload of the next frame.
    fn frame(&mut self) -> Vec<u8> {
        let (_, [payload, ..]) = self.next();
        payload
    }

    /// Sends a request with its data and waits for its result.
    fn ask(&mut self, seq: u64, request: &OsdRequest, data: &[u8]) -> i32 {
        let mut bytes = Vec::new();
        push_request(&mut bytes, seq, request, data);
        assert!(self.send(&bytes), "the OSD takes it");
        loop {
            let (tag, [header, front, ..]) = self.next();
            if tag != Tag::Message {
                continue;
            }
            let header = Header2::decode(&header).expect("a header");
            if header.kind == kinds::OSD_OP_REPLY {
                return OsdReply::decode(&header, &front).expect("an answer").result;
            }
        }
    }

    /// The whole handshake, as an honest client.
    fn handshake(target: EntityAddr) -> Bad {
        let mut bad = Bad::connect(target);
        let mut banner = Vec::new();
        Banner::default().encode_into(&mut banner);
        bad.stream.write_all(&banner).expect("the OSD takes it");
        bad.control(&Hello { entity: EntityType::CLIENT, peer_addr: EntityAddr::default() });
        bad.stream.read_exact(&mut [0; BANNER_BYTES]).expect("a banner");
        bad.frame();
        let name = AuthNone {
            target: AuthTarget::Osd,
            entity: EntityType::CLIENT,
            name: "bad".to_owned(),
            global_id: 4_000_000,
        };
        bad.control(&AuthRequest::none(&name));
        bad.frame();
        bad.frame();
        bad.control(&Signature::default());
        bad.control(&ClientIdent {
            addrs: EntityAddr::client("127.0.0.1".parse().expect("an address"), 5).into(),
            target: bad.target,
            gid: 4_000_000,
            global_seq: 1,
            supported: FEATURES,
            required: 0,
            flags: FLAG_LOSSY,
            cookie: 0,
        });
        bad.frame();
        bad
    }

    /// Sends as much as the OSD takes; false once it takes no more.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

/// Appends a request as a frame.
fn push_request(bytes: &mut Vec<u8>, seq: u64, request: &OsdRequest, data: &[u8]) {
    let mut front = Vec::new();
    request.encode_into(&mut front);
    let header = Header2 { seq, ..OsdRequest::header(seq) };
    let tail = frame::message_head(bytes, &header, &front, data.len());
    bytes.extend_from_slice(data);
    frame::message_tail(bytes, tail, crc32c::raw(crc32c::SEED, data));
}

/// Reads of the whole object, one after the other, as many as there is room for.
fn reads(pg: PgId, epoch: Epoch, from: u64, count: u64) -> Vec<u8> {
    let object = ObjectId::head(pg.pool, b"", b"", OBJECT.as_bytes());
    let mut bytes = Vec::new();
    for seq in from..from + count {
        let ops = [OsdOp::read(0, OBJECT_BYTES as u64)].into_iter().collect();
        let request = OsdRequest::new(pg, epoch, flags::CLIENT_READ, &object, ops);
        push_request(&mut bytes, seq, &request, &[]);
    }
    bytes
}

/// Keeps a bad client at work until the flag falls.
fn keep(on: &Arc<AtomicBool>, work: impl Fn(&AtomicBool) + Send + 'static) -> JoinHandle<()> {
    let on = Arc::clone(on);
    std::thread::spawn(move || work(&on))
}

fn wait(on: &AtomicBool) {
    while on.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks for 2,000 × 4 MiB and reads nothing.
fn never_reads(target: EntityAddr, pg: PgId, epoch: Epoch, on: &AtomicBool) {
    let mut bad = Bad::handshake(target);
    let mut seq = 1;
    while seq < 2_000 && bad.send(&reads(pg, epoch, seq, 50)) {
        seq += 50;
    }
    wait(on);
}

/// A preamble and half of what it promises.
fn half_a_frame(target: EntityAddr, on: &AtomicBool) {
    let mut bad = Bad::handshake(target);
    bad.send(&Preamble::new(Tag::Message, [41, 2_000, 0, 8 << 20]).encode());
    bad.send(&[7; 1_000]);
    wait(on);
}

/// Preambles with segments of 4 GiB, each on a connection of its own, again and again.
fn four_gib(target: EntityAddr, on: &AtomicBool) {
    while on.load(Ordering::Relaxed) {
        let mut bad = Bad::handshake(target);
        bad.send(&Preamble::new(Tag::Message, [41, 200, 0, u32::MAX]).encode());
        // It hangs up at once: nothing of that length is waited for.
        let mut rest = Vec::new();
        let begin = Instant::now();
        let _ = bad.stream.read_to_end(&mut rest);
        assert!(begin.elapsed() < HANG_UP_LIMIT, "the OSD waits for 4 GiB");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Small messages of a kind that nobody knows, as fast as the OSD takes them, and not few.
fn flood(target: EntityAddr, on: &AtomicBool) {
    let mut bad = Bad::handshake(target);
    bad.stream.set_write_timeout(Some(HANG_UP_LIMIT)).expect("a time limit");
    let mut seq = 0;
    while on.load(Ordering::Relaxed) || seq < FLOOD_MESSAGES_MIN {
        let mut bytes = Vec::new();
        for _ in 0..500 {
            seq += 1;
            let header = Header2 { seq, ..Header2::new(0x8fff, VERSION, VERSION) };
            let tail = frame::message_head(&mut bytes, &header, &[0; 100], 0);
            frame::message_tail(&mut bytes, tail, crc32c::SEED);
        }
        assert!(bad.send(&bytes), "the OSD takes no more after {seq} messages");
    }
}

/// Times of 4 KiB writes and reads, one after the other.
async fn window(shard: &Shard, pool: &Pool) -> Vec<Duration> {
    let mut times = Vec::new();
    for i in 0..OPS {
        let begin_ns = shard.now_ns();
        if i % 2 == 0 {
            pool.write("healthy", 0, vec![i as u8; 4096]).await.expect("a write");
        } else {
            let read = pool.read("healthy", 0, 4096).await.expect("a read");
            assert_eq!(read.to_vec(), vec![(i - 1) as u8; 4096]);
        }
        times.push(Duration::from_nanos(shard.now_ns() - begin_ns));
    }
    times
}

/// The lower quartile, and the median.
fn quartiles(mut times: Vec<Duration>) -> [Duration; 2] {
    times.sort_unstable();
    [times[times.len() / 4], times[times.len() / 2]]
}

/// Bad clients at work.
struct AtWork {
    on: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl AtWork {
    fn start(target: EntityAddr, pg: PgId, epoch: Epoch) -> AtWork {
        let on = Arc::new(AtomicBool::new(true));
        let mut threads: Vec<_> =
            (0..SILENT).map(|_| keep(&on, move |on| never_reads(target, pg, epoch, on))).collect();
        threads.push(keep(&on, move |on| half_a_frame(target, on)));
        threads.push(keep(&on, move |on| four_gib(target, on)));
        threads.push(keep(&on, move |on| flood(target, on)));
        AtWork { on, threads }
    }

    fn stop(self) {
        self.on.store(false, Ordering::Relaxed);
        let harmed = self.threads.into_iter().map(|thread| thread.join().is_err());
        assert_eq!(
            harmed.filter(|harmed| *harmed).count(),
            0,
            "a bad client saw something that it should not"
        );
    }
}

fn mon_addr(bed: &Testbed) -> SocketAddr {
    let addr = std::fs::read_to_string(bed.dir().join("run/mon.addr")).expect("run/mon.addr");
    addr.trim().parse().expect("an address")
}

fn resident_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the OSD lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Loads an OSD beside bad clients; the times of a healthy one alone, and beside them.
async fn beside_bad_clients(client: Rc<Client>, shard: Shard, pid: i32) -> [Vec<Duration>; 2] {
    let pool = client.pool("bench").expect("the pool");
    pool.write_full(OBJECT, vec![1; OBJECT_BYTES]).await.expect("a write");
    // Once more than needed: caches and buffers are as large as they get by honest work.
    for _ in 0..20 {
        pool.read(OBJECT, 0, OBJECT_BYTES as u64).await.expect("a read");
    }
    let before = resident_bytes(pid);
    let map = client.osdmap().expect("a map");
    let target = map.client_addr(OsdId(0)).and_then(|addrs| addrs.msgr2()).expect("an address");
    let (pg, epoch) = (pool.pg_of(OBJECT).expect("a PG"), map.epoch);
    let (mut alone, mut beside, mut grown) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        alone.extend(window(&shard, &pool).await);
        let bad = AtWork::start(target, pg, epoch);
        shard.sleep(AT_WORK).await;
        beside.extend(window(&shard, &pool).await);
        grown = resident_bytes(pid).saturating_sub(before).max(grown);
        bad.stop();
        shard.sleep(AT_WORK).await;
    }
    eprintln!("{} MiB more for bad clients", grown >> 20);
    assert!(grown < GROWN_BYTES_MAX, "the OSD took {} MiB for bad clients", grown >> 20);
    [alone, beside]
}

#[test]
fn bad_clients_harm_only_themselves() {
    harmed(&Testbed::up(ONE_BLUE));
}

carmine_testkit::measures!(bad_clients_delay_nobody);

fn bad_clients_delay_nobody() {
    let [alone, beside] = harmed(&Testbed::up_alone(ONE_BLUE)).map(quartiles);
    eprintln!("lower quartile and median: {alone:?} alone, {beside:?} beside bad clients");
    assert!(
        beside[0] < alone[0] + alone[0].max(DELAY_MAX),
        "{:?} beside bad clients, {:?} alone",
        beside[0],
        alone[0]
    );
}

/// What bad clients do to a healthy one: its times alone, and beside them.
fn harmed(bed: &Testbed) -> [Vec<Duration>; 2] {
    let mon = mon_addr(bed);
    let pid = bed.pid("osd.0").expect("a pid");
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("healthy", 1) };
    let times = block_on(config, async move |shard: Shard| {
        let options = Options { op_timeout: Some(Duration::from_secs(60)), ..Options::default() };
        let client = Client::connect(&shard, &mon.into(), options).await.expect("a session");
        beside_bad_clients(client, shard.clone(), pid).await
    })
    .expect("a reactor");
    assert_eq!(bed.pid("osd.0"), Some(pid), "the OSD is the same process");
    times
}

/// Files that the daemons may have open in the test of many connections: the OSD lets a quarter of them be clients, the monitor
/// half.
const OPEN_FILES: u32 = 1024;
const CLIENTS_MAX: usize = 256;
/// A daemon closes the connections that it refused in less, on a busy machine, too.
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// Connections that say nothing, as many as are let in, to several addresses in turn. Those that are refused are closed at once.
fn crowd(targets: &[SocketAddr], each: usize) -> Vec<TcpStream> {
    let connect = |target| TcpStream::connect_timeout(target, Duration::from_secs(1));
    (0..each).flat_map(|_| targets).filter_map(|target| connect(target).ok()).collect()
}

fn open_files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}

async fn beside_a_crowd(client: Rc<Client>, shard: Shard, mon: SocketAddr, pids: [i32; 2]) {
    let pool = client.pool("bench").expect("the pool");
    window(&shard, &pool).await;
    let before = pids.map(open_files);
    let map = client.osdmap().expect("a map");
    let osd = map.client_addr(OsdId(0)).and_then(|addrs| addrs.msgr2()).expect("an address");
    let crowd = crowd(&[osd.sock.expect("an address"), mon], 2 * CLIENTS_MAX + OPEN_FILES as usize / 2);
    let grown = || [open_files(pids[0]) - before[0], open_files(pids[1]) - before[1]];
    let most = [CLIENTS_MAX, OPEN_FILES as usize / 2];
    // A connection that was just refused has its descriptor until the daemon has closed it.
    let begin = Instant::now();
    while (grown()[0] > most[0] || grown()[1] > most[1]) && begin.elapsed() < CLOSE_LIMIT {
        shard.sleep(Duration::from_millis(10)).await;
    }
    let grown = grown();
    assert!(grown[0] <= most[0] && grown[1] <= most[1], "{grown:?} connections more, of at most {most:?}");
    assert!(grown[0] > most[0] / 2, "a crowd of {} is none", grown[0]);
    // A client with a connection goes on, and one that comes after the crowd gets in beside it: who says nothing for a second gives way.
    window(&shard, &pool).await;
    shard.sleep(Duration::from_secs(2)).await;
    let options = Options { op_timeout: Some(Duration::from_secs(60)), ..Options::default() };
    let next = Client::connect(&shard, &mon.into(), options).await.expect("a session");
    window(&shard, &next.pool("bench").expect("the pool")).await;
    drop(crowd);
}

/// Connections take files, which the store needs, too: without a bound its next table could not be opened, and the OSD ended.
#[test]
fn a_crowd_of_connections_leaves_files_for_the_store() {
    let bed = Testbed::up_with_files(OPEN_FILES, ONE_BLUE);
    let mon = mon_addr(&bed);
    let pids = ["osd.0", "mon"].map(|daemon| bed.pid(daemon).expect("a pid"));
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("healthy", 1) };
    block_on(config, async move |shard: Shard| {
        let options = Options { op_timeout: Some(Duration::from_secs(60)), ..Options::default() };
        let client = Client::connect(&shard, &mon.into(), options).await.expect("a session");
        beside_a_crowd(client, shard.clone(), mon, pids).await;
    })
    .expect("a reactor");
    assert_eq!(["osd.0", "mon"].map(|daemon| bed.pid(daemon)), pids.map(Some), "the same processes");
    let log = std::fs::read_to_string(bed.dir().join("osd.0.log")).expect("a log");
    let gave_way = format!("{CLIENTS_MAX} connections are open, the most there may be");
    assert!(log.contains(&gave_way), "the log does not say it");
}

/// Two OSDs with two reactors each, on files, and two copies of everything.
const TWO_BLUE: &[&str] = &[
    "--osds",
    "2",
    "--size",
    "2",
    "--reactors",
    "2",
    "--store",
    "blue",
    "--osd-size",
    "256M",
    "--sparse",
    "--pgs",
    "16",
    "--overprovisioned",
];
/// Objects of the healthy client beside liars.
const HONEST: u8 = 8;
/// Lines that an OSD's log may have in the end: those of two starts, and few more. It was 62,000.
const LOG_LINES_MAX: usize = 300;

async fn write_honest(pool: &Pool, round: u8) {
    for n in 0..HONEST {
        pool.write_full(format!("honest-{n}"), vec![n + round; 20_000]).await.expect("a write");
    }
}

async fn read_honest(pool: &Pool, round: u8) {
    for n in 0..HONEST {
        let data = pool.read(format!("honest-{n}"), 0, 0).await.expect("a read").to_vec();
        assert!(data == vec![n + round; 20_000], "honest-{n}");
    }
}

/// A client that names other PGs than its objects' is refused, and so is one that sends more data than its operations take.
async fn beside_a_liar(client: Rc<Client>) {
    let pool = client.pool("bench").expect("the pool");
    write_honest(&pool, 0).await;
    let view = client.view().expect("a map");
    let first = OsdId(0);
    let target = view.map().client_addr(first).and_then(|addrs| addrs.msgr2()).expect("an address");
    let mut bad = Bad::handshake(target);
    let pg_num = view.map().pool(pool.id()).expect("the pool").pg_num;
    let pgs = (0..pg_num).map(|ps| PgId::new(pool.id(), ps));
    let led: Vec<PgId> = pgs.filter(|pg| view.acting_primary(*pg) == Some(first)).collect();
    let (mut seq, mut surplus) = (0, 0);
    for n in 0..HONEST {
        let object = ObjectId::head(pool.id(), b"", b"", format!("honest-{n}").as_bytes());
        for pg in &led {
            let own = *pg == PgId::of_hash(pool.id(), object.hash, pg_num);
            let ops = [OsdOp::write(0, 4096)].into_iter().collect();
            let request = OsdRequest::new(*pg, view.epoch(), flags::CLIENT_WRITE, &object, ops);
            let (bytes, wanted) = if own { (8192, errno::EINVAL) } else { (4096, errno::ENXIO) };
            surplus += usize::from(own);
            seq += 1;
            assert_eq!(bad.ask(seq, &request, &vec![0xbd; bytes]), wanted, "{object} in {pg}");
        }
    }
    assert!(surplus > 0 && led.len() > 1, "osd.0 leads {} PGs, and {surplus} of the objects", led.len());
    read_honest(&pool, 0).await;
    write_honest(&pool, 100).await;
}

/// Runs a client's work against a testbed.
fn with_client<F: Future<Output = ()>>(bed: &Testbed, work: impl FnOnce(Rc<Client>) -> F) {
    let mon = mon_addr(bed);
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("healthy", 1) };
    block_on(config, async move |shard: Shard| {
        let options = Options { op_timeout: Some(Duration::from_secs(60)), ..Options::default() };
        work(Client::connect(&shard, &mon.into(), options).await.expect("a session")).await;
    })
    .expect("a reactor");
}

/// Clients that ask the monitor for one map again and again in one message, how often, and what that may cost.
const GREEDY: usize = 8;
const ASKED: usize = 200_000;
const MON_GROWN_BYTES_MAX: u64 = 128 << 20;
const MON_WAIT_MAX: Duration = Duration::from_secs(5);

/// The monitor's memory was 4.7 GiB, and others waited 12 s.
#[test]
fn a_map_that_is_asked_for_many_times_is_sent_once() {
    let bed = Testbed::up(ONE_CYAN);
    let mon = bed.pid("mon").expect("a pid");
    let before = resident_bytes(mon);
    let addr = mon_addr(&bed);
    with_client(&bed, |client| async move {
        let shard = client.shard();
        let mut greedy = Vec::new();
        for _ in 0..GREEDY {
            greedy.push(Client::connect(shard, &addr.into(), Options::default()).await.expect("a session"));
        }
        let what = vec![Subscription::new("osdmap", 0, true); ASKED];
        let wish = Subscribe { what, hostname: String::new() };
        greedy.iter().for_each(|client| assert!(client.mon().send(Message::encode(&wish))));
        let begin = Instant::now();
        let late = Client::connect(shard, &addr.into(), Options::default()).await.expect("a session");
        late.mon().newest_osdmap(MON_WAIT_MAX).await.expect("an answer");
        assert!(begin.elapsed() < MON_WAIT_MAX, "others wait {:?}", begin.elapsed());
        for client in greedy {
            client.mon().newest_osdmap(MON_WAIT_MAX).await.expect("an answer");
        }
        let grown = resident_bytes(mon).saturating_sub(before);
        eprintln!("{} KiB more after {:?}", grown >> 10, begin.elapsed());
        assert!(grown < MON_GROWN_BYTES_MAX, "the monitor took {} MiB for greedy clients", grown >> 20);
    });
}

/// Several benches of one OSD at once, wherever their connections are dealt to.
fn benches(bed: &Testbed) {
    let order =
        r#"{"prefix": "bench", "count": 8388608, "size": 4096, "object_size": 4096, "object_num": 1000}"#;
    let admin = |_| Background::start(bed, "admin", &["--osd", "0", order]);
    let running: Vec<Background> = (0..4).map(admin).collect();
    for bench in running {
        let said = succeed(bench.wait(Duration::from_secs(60)), "carmine admin bench");
        assert!(said.contains(r#""bytes_written":8388608"#), "{said}");
    }
}

#[test]
fn liars_harm_no_store() {
    let bed = Testbed::up(TWO_BLUE);
    let pids = || ["osd.0", "osd.1", "mon"].map(|daemon| bed.pid(daemon).expect("a pid"));
    let before = pids();
    with_client(&bed, beside_a_liar);
    benches(&bed);
    assert_eq!(pids(), before, "the same processes");
    bed.ok("down", &[]);
    for osd in ["0", "1"] {
        let log = std::fs::read_to_string(bed.dir().join(format!("osd.{osd}.log"))).expect("a log");
        assert!(!log.contains("freed twice"), "osd.{osd} freed blocks twice");
        assert!(log.lines().count() < LOG_LINES_MAX, "{} lines in the log of osd.{osd}", log.lines().count());
        let dir = bed.dir();
        let fsck = ["store", "fsck", "--dir", dir.to_str().expect("UTF-8"), "--osd", osd, "--deep"];
        let limit = Duration::from_secs(60);
        succeed(carmine_tests::run(&carmine_tests::carmine_bin(), &fsck, limit), "fsck");
    }
    bed.ok("up", &["--overprovisioned"]);
    with_client(&bed, async |client| {
        let pool = client.pool("bench").expect("the pool");
        read_honest(&pool, 100).await;
        write_honest(&pool, 0).await;
    });
}

/// A client that insists on cephx is told so, and does not wait for ever.
#[test]
fn wrong_authentication_is_refused_with_a_message() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = Testbed::up(ONE_CYAN);
    let keyring = bed.file("keyring");
    let key = "[client.admin]\n\tkey = AQAA8VNlAAAAABAAAAECAwQFBgcICQoLDA0ODw==\n";
    std::fs::write(&keyring, key).expect("a file");
    let out = bed.rados(&["--auth-client-required", "cephx", "--keyring", &keyring, "lspools"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "it was let in");
    let why = "server allowed_methods [1] but i only support [2]";
    assert!(said.contains(why), "rados says: {said}");
    let mut sheet = Sheet::new("authentication");
    sheet.refused("`rados --auth-client-required cephx`", why);
    bed.rados_ok(&["--auth-client-required", "none", "lspools"]);
    sheet.works("`rados --auth-client-required none`", "as the written `ceph.conf` has it");
    sheet.check();
}
