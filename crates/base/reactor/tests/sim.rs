//! The `sim` driver: determinism, virtual time, sockets, disks, killed nodes.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::sim::{Sim, SimStuck};
use carmine_reactor::sync::Notify;
use carmine_reactor::{Chunk, FileOptions, Group, Shard, ShardId, TcpStream};

const MINUTE: Duration = Duration::from_secs(60);

fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 6800))
}

fn file_options() -> FileOptions {
    FileOptions { read: true, write: true, create: true, direct: true, ..FileOptions::default() }
}

async fn read_exact(stream: &TcpStream, shard: &Shard, n: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < n {
        let (r, mut buf) = stream.recv(shard.buf(4096.min(n - out.len())), 0).await;
        let r = r.ok()?;
        if r == 0 {
            return None;
        }
        buf.set_len(r.min(n - out.len()));
        out.extend_from_slice(&buf);
    }
    Some(out)
}

/// Serves requests of 8 bytes: hops to another shard, writes and reads a file there, answers with 4096 bytes.
async fn serve(shard: Shard, stream: TcpStream) {
    let mut n = 0u16;
    while let Some(req) = read_exact(&stream, &shard, 8).await {
        n += 1;
        let to = ShardId(n % shard.shards());
        // Two clients never use the same block: their requests are random.
        let block = (u64::from_le_bytes(req[..8].try_into().expect("8 bytes")) >> 32) * 4096;
        let answer = shard
            .call(to, move |s: Shard| async move {
                let f = s.open(Path::new("/disk"), file_options()).await.expect("open");
                let mut buf = s.buf(4096);
                for c in buf.as_mut_slice().chunks_mut(8) {
                    c.copy_from_slice(&req);
                }
                f.write_at(vec![buf.freeze()], block, true).await.expect("write");
                let (r, buf) = f.read_at(s.buf(4096), 4096, block).await;
                assert_eq!(r.expect("read"), 4096);
                s.alien(30_000, move || buf.freeze()).await
            })
            .await;
        if stream.send(vec![Chunk::Slice(answer)]).await.is_err() {
            return;
        }
    }
}

/// Three nodes of two shards each that all talk to each other; the hash and the virtual time at the end.
fn chatty(seed: u64) -> (u64, u64) {
    let sim = Sim::new(seed);
    let done = Rc::new(Cell::new(0));
    for host in 0..3u8 {
        let done = Rc::clone(&done);
        sim.node(&format!("node{host}"), 2, move |shard| {
            let done = Rc::clone(&done);
            async move {
                if shard.id() != ShardId(0) {
                    return;
                }
                let listener = shard.listen(addr(host)).await.expect("listen");
                let s = shard.clone();
                shard.spawn(Group::Admin, "accept", async move {
                    while let Ok((socket, _)) = listener.accept().await {
                        let stream = socket.into_stream(&s);
                        s.spawn(Group::Client, "serve", serve(s.clone(), stream));
                    }
                });
                shard.sleep(Duration::from_millis(1)).await;
                for peer in (0..3).filter(|p| *p != host) {
                    let (s, done) = (shard.clone(), Rc::clone(&done));
                    shard.spawn(Group::Replication, "client", async move {
                        let c = s.connect(addr(peer)).await.expect("connect");
                        for _ in 0..40 {
                            let req = s.random_u64().to_le_bytes();
                            c.send(vec![Chunk::Bytes(req.to_vec())]).await.expect("send");
                            let back = read_exact(&c, &s, 4096).await.expect("answer");
                            assert!(back.chunks(8).all(|x| x == req));
                        }
                        done.set(done.get() + 1);
                    });
                }
            }
        });
    }
    sim.run(|| done.get() == 6, MINUTE).expect("the chatty nodes finish");
    (sim.trace_hash(), sim.now_ns())
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let first = chatty(1);
    assert_eq!(first, chatty(1));
    assert_ne!(first.0, chatty(2).0);
}

#[test]
fn hours_pass_in_no_time() {
    let sim = Sim::new(3);
    let woke = Rc::new(RefCell::new(Vec::new()));
    let w = Rc::clone(&woke);
    sim.node("a", 1, move |shard| {
        let w = Rc::clone(&w);
        async move {
            let before = (shard.now_ns(), shard.unix_now());
            shard.sleep(Duration::from_secs(36_000)).await;
            assert!(shard.now_ns() - before.0 >= 36_000_000_000_000);
            assert!(shard.unix_now() - before.1 >= Duration::from_secs(36_000));
            w.borrow_mut().push(shard.id());
        }
    });
    let flag = Rc::clone(&woke);
    sim.run(|| !flag.borrow().is_empty(), Duration::from_secs(40_000)).expect("run");
}

#[test]
fn a_killed_node_shows_as_end_of_stream_and_keeps_its_files() {
    let sim = Sim::new(4);
    let state = Rc::new(RefCell::new(String::new()));
    let server = |sim: &Sim| {
        sim.node("server", 1, |shard| async move {
            let f = shard.open(Path::new("/d"), file_options()).await.expect("open");
            let old = f.len().await.expect("len");
            let mut b = shard.buf(4096);
            b.as_mut_slice().fill(old as u8 + 1);
            f.write_at(vec![b.freeze()], old, true).await.expect("write");
            let l = shard.listen(addr(1)).await.expect("listen");
            loop {
                let (socket, _) = l.accept().await.expect("accept");
                let stream = socket.into_stream(&shard);
                let (n, _) = f.read_at(shard.buf(65536), 65536, 0).await;
                let n = b'0' + (n.expect("read") / 4096) as u8;
                let _ = stream.send(vec![Chunk::Bytes(vec![n])]).await;
                let s = shard.clone();
                shard.spawn(Group::Client, "hold", async move {
                    let _ = stream.recv(s.buf(16), 0).await;
                });
            }
        })
    };
    let first = server(&sim);
    let s2 = Rc::clone(&state);
    sim.node("client", 1, move |shard| {
        let state = Rc::clone(&s2);
        async move {
            loop {
                shard.sleep(Duration::from_millis(1)).await;
                let Ok(c) = shard.connect(addr(1)).await else {
                    state.borrow_mut().push('x');
                    continue;
                };
                let n = read_exact(&c, &shard, 1).await.expect("greeting");
                state.borrow_mut().push(char::from(n[0]));
                let end = read_exact(&c, &shard, 1).await;
                assert_eq!(end, None);
                state.borrow_mut().push('e');
            }
        }
    });
    sim.run(|| state.borrow().ends_with('1'), MINUTE).expect("connected");
    sim.kill(first);
    assert!(!sim.is_alive(first));
    sim.run(|| state.borrow().ends_with("ex"), MINUTE).expect("end of stream, then refused");
    server(&sim);
    sim.run(|| state.borrow().ends_with('2'), MINUTE).expect("the second server has the file");
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    let sim = Sim::new(5);
    let sent = Rc::new(Cell::new(0usize));
    let got = Rc::new(Cell::new(0usize));
    let (s2, g2) = (Rc::clone(&sent), Rc::clone(&got));
    let go = Rc::new(Notify::new());
    let go2 = Rc::clone(&go);
    sim.node("a", 1, move |shard| {
        let (sent, got, go) = (Rc::clone(&s2), Rc::clone(&g2), Rc::clone(&go2));
        async move {
            let l = shard.listen(addr(9)).await.expect("listen");
            let c = shard.connect(addr(9)).await.expect("connect");
            let (socket, peer) = l.accept().await.expect("accept");
            assert_eq!(peer, c.local_addr());
            shard.spawn(Group::Client, "send", async move {
                for i in 0..64u8 {
                    c.send(vec![Chunk::Bytes(vec![i; 100_000])]).await.expect("send");
                    sent.set(sent.get() + 100_000);
                }
            });
            let server = socket.into_stream(&shard);
            go.notified().await;
            let mut next = 0usize;
            loop {
                let (n, buf) = server.recv(shard.buf(65536), 0).await;
                if n.expect("recv") == 0 {
                    break;
                }
                for b in buf.iter() {
                    assert_eq!(usize::from(*b), next / 100_000);
                    next += 1;
                }
                got.set(next);
            }
        }
    });
    let e = sim.run(|| false, Duration::from_secs(1)).expect_err("stuck");
    assert!(matches!(e, SimStuck::Idle { seed: 5, .. }), "{e}");
    assert!(sent.get() <= 1_200_000, "{}", sent.get());
    go.notify_one();
    sim.run(|| got.get() == 6_400_000, MINUTE).expect("all arrives");
}

#[test]
fn a_livelock_is_an_error_with_its_seed() {
    let sim = Sim::new(77);
    sim.set_step_budget(10_000);
    sim.node("spinner", 1, |shard| async move {
        loop {
            shard.yield_now().await;
        }
    });
    let e = sim.run(|| false, Duration::from_secs(1_000_000)).expect_err("livelock");
    assert!(matches!(e, SimStuck::Steps { seed: 77, .. }));
    assert!(e.to_string().contains("seed 77"));
}

#[test]
fn the_limit_and_a_panic_are_errors_too() {
    let sim = Sim::new(6);
    sim.node("ticker", 1, |shard| async move {
        loop {
            shard.sleep(Duration::from_millis(10)).await;
        }
    });
    let e = sim.run(|| false, Duration::from_secs(1)).expect_err("limit");
    assert!(matches!(e, SimStuck::Limit { .. }));
    sim.node("bad", 1, |shard| async move {
        shard.sleep(Duration::from_millis(1)).await;
        panic!("the {} failed", "thing");
    });
    let e = sim.run(|| false, Duration::from_secs(1)).expect_err("panic");
    assert!(e.to_string().contains("the thing failed") && e.to_string().contains("bad"), "{e}");
}

#[test]
fn stop_ends_the_node() {
    let sim = Sim::new(8);
    let node = sim.node("a", 3, |shard| async move {
        shard.sleep(Duration::from_millis(1)).await;
        if shard.id() == ShardId(2) {
            shard.stop();
        }
        shard.sleep(Duration::from_secs(10)).await;
        panic!("must not get here");
    });
    sim.run(|| !sim.is_alive(node), MINUTE).expect("the node ends");
}

#[test]
fn direct_files_refuse_unaligned_requests() {
    let sim = Sim::new(9);
    let done = Rc::new(Cell::new(false));
    let d = Rc::clone(&done);
    sim.node("a", 1, move |shard| {
        let d = Rc::clone(&d);
        async move {
            let f = shard.open(Path::new("/x"), file_options()).await.expect("open");
            f.set_len(1 << 40).await.expect("sparse");
            assert_eq!(f.len().await.expect("len"), 1 << 40);
            let e = f.write_at(vec![vec![1u8; 100].into()], 0, false).await.expect_err("unaligned");
            assert_eq!(e.raw_os_error(), Some(22));
            let (r, buf) = f.read_at(shard.buf(4096), 4096, 1 << 39).await;
            assert_eq!(r.expect("hole"), 4096);
            assert!(buf.iter().all(|b| *b == 0));
            d.set(true);
        }
    });
    sim.run(|| done.get(), MINUTE).expect("run");
}
