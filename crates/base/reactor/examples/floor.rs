//! The reactor's overhead over a bare ring: the same two jobs as `../shared/limit`, done through the public API.
//!
//! `floor net [depth] [connections] [seconds] [poll]`: 256-byte requests, replies of 64 + 4096 bytes, over loopback;
//! server on CPU 0, client on CPU 1. `floor disk FILE [depth] [seconds] [poll]`: random O_DIRECT reads of 4 KiB.
//! Prints CPU per operation of the server's (the reader's) thread, spinning counted apart.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // an instrument: real time

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use carmine_reactor::{
    Bytes, Chunk, Config, FileOptions, Group, PollPolicy, REGISTER_BYTES, ReactorStats, Reactors, Shard,
    ShardId, TcpStream,
};

const REQUEST: usize = 256;
const REPLY: usize = 64 + 4096;

fn config(name: &str, cpu: usize, poll: PollPolicy) -> Config {
    Config { name: name.to_owned(), cpus: vec![Some(cpu)], poll, ..Config::default() }
}

fn report(what: &str, ops: u64, seconds: f64, a: ReactorStats, b: ReactorStats) {
    let n = ops as f64;
    let per = |x: u64, y: u64| (y - x) as f64 / n;
    println!(
        "{what}: {:.0} op/s, {:.2} us/op busy + {:.2} spin, {:.2} op/turn, {:.2} op/enter, {:.2} ring ops/op, {:.3} sleeps/op, {:.2} polls/op",
        n / seconds,
        per(a.busy_ns, b.busy_ns) / 1e3,
        per(a.spin_ns, b.spin_ns) / 1e3,
        n / (b.turns - a.turns) as f64,
        n / (b.enters - a.enters).max(1) as f64,
        per(a.ops, b.ops),
        per(a.sleeps, b.sleeps),
        per(a.polls, b.polls),
    );
}

/// Waits a second, measures for `seconds`, prints, stops.
async fn window(shard: Shard, what: String, ops: Rc<Cell<u64>>, seconds: u64) {
    shard.sleep(Duration::from_millis(700)).await;
    let (a, n, t) = (shard.stats(), ops.get(), shard.now_ns());
    shard.sleep(Duration::from_secs(seconds)).await;
    let (b, m) = (shard.stats(), ops.get());
    report(&what, m - n, (shard.now_ns() - t) as f64 / 1e9, a, b);
    shard.stop();
}

async fn serve(shard: Shard, stream: TcpStream, ops: Rc<Cell<u64>>) {
    let block: Bytes = shard.buf(4096).freeze();
    let mut have = 0;
    loop {
        let (n, buf) = stream.recv(shard.buf(16384), 0).await;
        let Ok(n) = n else { return };
        if n == 0 {
            return;
        }
        drop(buf);
        have += n;
        let requests = have / REQUEST;
        have %= REQUEST;
        if requests == 0 {
            continue;
        }
        let mut chunks = Vec::with_capacity(requests * 2);
        for _ in 0..requests {
            chunks.push(Chunk::Bytes(vec![0u8; 64]));
            chunks.push(Chunk::Slice(block.clone()));
        }
        if stream.send(chunks).await.is_err() {
            return;
        }
        ops.set(ops.get() + requests as u64);
    }
}

async fn ask(shard: Shard, stream: TcpStream, depth: usize) {
    let (mut have, mut ready) = (0, depth);
    loop {
        if ready > 0 && stream.send(vec![Chunk::Bytes(vec![7u8; ready * REQUEST])]).await.is_err() {
            return;
        }
        let (n, _) = stream.recv(shard.buf(65536), 0).await;
        let Ok(n) = n else { return };
        if n == 0 {
            return;
        }
        have += n;
        ready = have / REPLY;
        have %= REPLY;
    }
}

fn net(depth: usize, connections: usize, seconds: u64, poll: PollPolicy) {
    let (tell, told) = mpsc::channel();
    let server = Reactors::start(config("server", 0, poll), move |shard| {
        let tell = tell.clone();
        async move {
            let listener = shard.listen(([127, 0, 0, 1], 0).into()).await.expect("listen");
            let _ = tell.send(listener.local_addr());
            let ops = Rc::new(Cell::new(0));
            let what = format!("net depth {depth} connections {connections} {poll}");
            shard.spawn(Group::Admin, "window", window(shard.clone(), what, Rc::clone(&ops), seconds));
            while let Ok((socket, _)) = listener.accept().await {
                let stream = socket.into_stream(&shard);
                shard.spawn(Group::Client, "serve", serve(shard.clone(), stream, Rc::clone(&ops)));
            }
        }
    })
    .expect("server");
    let addr = told.recv().expect("address");
    let client = Reactors::start(config("client", 1, PollPolicy::Sleep), move |shard| async move {
        for _ in 0..connections {
            let stream = shard.connect(addr).await.expect("connect");
            shard.spawn(Group::Client, "ask", ask(shard.clone(), stream, depth / connections));
        }
    })
    .expect("client");
    server.join().expect("server");
    client.stopper().stop();
    client.join().expect("client");
}

fn disk(path: PathBuf, depth: usize, seconds: u64, poll: PollPolicy) {
    let register_bytes = if std::env::var_os("REGISTER").is_some() { REGISTER_BYTES } else { 0 };
    let reader = Reactors::start(Config { register_bytes, ..config("reader", 0, poll) }, move |shard| {
        let path = path.clone();
        async move {
            let opts = FileOptions { read: true, direct: true, ..FileOptions::default() };
            let file = shard.open(&path, opts).await.expect("open");
            let blocks = file.len().await.expect("len") / 4096;
            let ops = Rc::new(Cell::new(0));
            let what = format!("disk depth {depth} {poll}");
            shard.spawn(Group::Admin, "window", window(shard.clone(), what, Rc::clone(&ops), seconds));
            for _ in 0..depth {
                let (s, f, ops) = (shard.clone(), file.clone(), Rc::clone(&ops));
                shard.spawn(Group::Client, "read", async move {
                    loop {
                        let off = s.random_u64() % blocks * 4096;
                        let (n, _buf) = f.read_at(s.buf(4096), 4096, off).await;
                        assert_eq!(n.expect("read"), 4096);
                        ops.set(ops.get() + 1);
                    }
                });
            }
        }
    })
    .expect("reader");
    reader.join().expect("reader");
}

/// Round trips from shard 0 to shard 1, `depth` at a time.
fn hop(depth: usize, seconds: u64, poll: PollPolicy) {
    let config = Config { cpus: vec![Some(0), Some(1)], ..config("hop", 0, poll) };
    let reactors = Reactors::start(config, move |shard| async move {
        if shard.id() != ShardId(0) {
            return;
        }
        let ops = Rc::new(Cell::new(0));
        shard.spawn(
            Group::Admin,
            "window",
            window(shard.clone(), format!("hop depth {depth} {poll}"), Rc::clone(&ops), seconds),
        );
        for _ in 0..depth {
            let (s, ops) = (shard.clone(), Rc::clone(&ops));
            shard.spawn(Group::Client, "call", async move {
                loop {
                    s.call(ShardId(1), |_| async {}).await;
                    ops.set(ops.get() + 1);
                }
            });
        }
    })
    .expect("reactors");
    reactors.join().expect("reactors");
}

/// Turns that find one task and nothing else.
fn turns(seconds: u64, poll: PollPolicy) {
    let reactors = Reactors::start(config("turn", 0, poll), move |shard| async move {
        let ops = Rc::new(Cell::new(0));
        shard.spawn(
            Group::Admin,
            "window",
            window(shard.clone(), "turn".to_owned(), Rc::clone(&ops), seconds),
        );
        loop {
            shard.next_turn().await;
            ops.set(ops.get() + 1);
        }
    })
    .expect("reactor");
    reactors.join().expect("reactor");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, or: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let poll = |i: usize| args.get(i).map_or(PollPolicy::Sleep, |a| a.parse().expect("poll policy"));
    match args.get(1).map(String::as_str) {
        Some("net") => net(number(2, 64), number(3, 1), number(4, 4) as u64, poll(5)),
        Some("disk") => disk(args[2].clone().into(), number(3, 64), number(4, 4) as u64, poll(5)),
        Some("hop") => hop(number(2, 64), number(3, 4) as u64, poll(4)),
        Some("turn") => turns(number(2, 4) as u64, poll(3)),
        _ => eprintln!(
            "floor hop [depth] [seconds] [poll] | turn [seconds] | net [depth] [connections] [seconds] [poll] | disk FILE [depth] [seconds] [poll]"
        ),
    }
}
