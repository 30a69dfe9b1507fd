//! The `uring` driver against the real kernel: sockets, files, shards, aliens, timers, shutdown.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real threads and time are the subject

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carmine_reactor::{
    Buf, Bytes, Chunk, Config, FileOptions, Group, PollPolicy, ReactorStats, Reactors, Shard, ShardId,
    TcpStream, block_on,
};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn config(shards: u16, poll: PollPolicy) -> Config {
    Config { poll, arena_bytes_per_shard: 8 << 20, ..Config::unpinned("test", shards) }
}

fn policies() -> [PollPolicy; 3] {
    [PollPolicy::Sleep, PollPolicy::Adaptive { spin_us: 20 }, PollPolicy::Poll]
}

async fn echo(stream: TcpStream, shard: Shard) {
    loop {
        let (n, buf) = stream.recv(shard.buf(65536), 0).await;
        match n {
            Ok(n) if n > 0 => stream.send(vec![Chunk::Slice(buf.freeze())]).await.expect("send"),
            _ => return,
        }
    }
}

async fn read_exact(stream: &TcpStream, shard: &Shard, n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < n {
        let (r, buf) = stream.recv(shard.buf(65536), 0).await;
        let r = r.expect("recv");
        assert!(r > 0, "end of stream after {} of {n} bytes", out.len());
        out.extend_from_slice(&buf);
    }
    out
}

#[test]
fn echo_over_loopback_with_every_poll_policy() {
    for poll in policies() {
        let got = block_on(config(1, poll), async |shard| {
            let listener = shard.listen(LOOPBACK).await.expect("listen");
            let addr = listener.local_addr();
            let s = shard.clone();
            shard.spawn(Group::Admin, "accept", async move {
                let (socket, _) = listener.accept().await.expect("accept");
                echo(socket.into_stream(&s), s.clone()).await;
            });
            let c = shard.connect(addr).await.expect("connect");
            assert_eq!(c.peer_addr(), addr);
            let mut sum = 0u64;
            for i in 0..200u32 {
                let len = 1 + (i as usize * 997) % 20_000;
                let body = vec![i as u8; len];
                let mut data = shard.buf(len);
                data.copy_from_slice(&body);
                let data = data.freeze();
                c.send(vec![
                    Chunk::Bytes(i.to_le_bytes().to_vec()),
                    Chunk::Slice(data.slice(1..)),
                    Chunk::Slice(data.slice(..1)),
                ])
                .await
                .expect("send");
                let back = read_exact(&c, &shard, len + 4).await;
                assert_eq!(back[..4], i.to_le_bytes());
                assert_eq!(back[4..], body);
                sum += back.len() as u64;
            }
            sum
        })
        .expect("block_on");
        assert!(got > 200);
    }
}

#[test]
fn a_large_gathered_send_arrives_whole() {
    block_on(config(1, PollPolicy::Sleep), async |shard| {
        let listener = shard.listen(LOOPBACK).await.expect("listen");
        let c = shard.connect(listener.local_addr()).await.expect("connect");
        let (socket, _) = listener.accept().await.expect("accept");
        let server = socket.into_stream(&shard);
        // More chunks than one system call takes, more bytes than the socket holds.
        let mut want = Vec::new();
        let mut chunks = Vec::new();
        for i in 0..2500usize {
            let v: Vec<u8> = (0..4096).map(|j| (i * 31 + j) as u8).collect();
            want.extend_from_slice(&v);
            chunks.push(if i % 2 == 0 { Chunk::Bytes(v) } else { Chunk::Slice(Bytes::from(v)) });
        }
        let done = Rc::new(Cell::new(false));
        let flag = Rc::clone(&done);
        shard.spawn(Group::Client, "send", async move {
            server.send(chunks).await.expect("send");
            flag.set(true);
            server.shutdown();
        });
        let got = read_exact(&c, &shard, want.len()).await;
        assert!(got == want);
        let (end, _) = c.recv(shard.buf(4096), 0).await;
        assert_eq!(end.expect("recv"), 0);
        assert!(done.get());
    })
    .expect("block_on");
}

#[test]
fn direct_file_io_reads_what_was_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("dir");
    let path = dir.path().join("data");
    // Some buffers of the last one are registered, and some are not.
    for register_bytes in [0, 8 << 20, 1 << 20] {
        let cfg = Config { register_bytes, ..config(1, PollPolicy::default()) };
        direct_file_io(cfg, &path);
        std::fs::remove_file(&path).expect("remove");
    }
}

fn direct_file_io(cfg: Config, path: &Path) {
    block_on(cfg, async |shard| {
        let opts =
            FileOptions { read: true, write: true, create: true, direct: true, ..FileOptions::default() };
        let f = shard.open(path, opts).await.expect("open");
        f.set_len(1 << 20).await.expect("set_len");
        assert_eq!(f.len().await.expect("len"), 1 << 20);
        let mut a = shard.buf(8192);
        a.as_mut_slice().fill(7);
        let mut b = shard.buf(4096);
        b.as_mut_slice().fill(9);
        let b = b.freeze();
        f.write_at(vec![a.freeze(), b.clone()], 4096, false).await.expect("writev");
        f.write_at(vec![b], 65536, true).await.expect("dsync write");
        f.fdatasync().await.expect("fdatasync");
        let (n, buf) = f.read_at(shard.buf(65536), 65536, 0).await;
        assert_eq!(n.expect("read"), 65536);
        assert!(buf[..4096].iter().all(|x| *x == 0));
        assert!(buf[4096..12288].iter().all(|x| *x == 7));
        assert!(buf[12288..16384].iter().all(|x| *x == 9));
        let (n, buf) = f.read_at(buf, 65536, (1 << 20) - 4096).await;
        assert_eq!(n.expect("short read"), 4096);
        assert_eq!(buf.len(), 4096);
        let (n, _) = f.read_at(buf, 1 << 20, 0).await;
        assert!(n.expect_err("does not fit").to_string().contains("1048576"));
        let e = shard.open(Path::new("/nonexistent/x"), opts).await.err().expect("no such folder");
        assert!(e.to_string().contains("/nonexistent/x"), "{e}");
        assert_eq!(shard.stats().buf_fallbacks, 0);
    })
    .expect("block_on");
}

/// Two parts of 512 bytes, which say whose they are.
fn parts_of(n: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![n as u8; 512]), Bytes::from(vec![!(n as u8); 512])]
}

fn flat(parts: &[Bytes]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.as_slice()).copied().collect()
}

/// Runs `work` for each of `count` numbers at once: all of it starts in one turn.
async fn at_once<F>(shard: &Shard, count: usize, work: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let left = Rc::new(Cell::new(count));
    for n in 0..count {
        let (left, work) = (Rc::clone(&left), work(n));
        shard.spawn(Group::Client, "one of many", async move {
            work.await;
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// A full ring is submitted while there is more to push. When the gather list of the entry that was next was lent again, of 200 files
/// some got another's bytes.
#[test]
fn gathered_writes_through_a_ring_of_8_entries_keep_their_bytes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("dir");
    for poll in policies() {
        block_on(Config { ring_entries: 8, ..config(1, poll) }, async |shard| {
            let opts = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
            let mut files = Vec::new();
            for n in 0..200 {
                files.push(shard.open(&dir.path().join(n.to_string()), opts).await.expect("open"));
            }
            at_once(&shard, files.len(), |n| {
                let file = files[n].clone();
                // Plain writes between them: where the ring becomes full differs.
                let data = if n % 5 == 4 { vec![flat(&parts_of(n)).into()] } else { parts_of(n) };
                async move { file.write_at(data, 0, false).await.expect("a write") }
            })
            .await;
            for n in 0..files.len() {
                let bytes = std::fs::read(dir.path().join(n.to_string())).expect("the file");
                assert!(bytes == flat(&parts_of(n)), "file {n} has the bytes of {:?}", bytes.first());
            }
        })
        .expect("block_on");
    }
}

#[test]
fn gathered_sends_through_a_ring_of_8_entries_keep_their_bytes() {
    for poll in policies() {
        block_on(Config { ring_entries: 8, ..config(1, poll) }, async |shard| {
            let listener = shard.listen(LOOPBACK).await.expect("listen");
            let mut pairs = Vec::new();
            for _ in 0..60 {
                let near = shard.connect(listener.local_addr()).await.expect("connect");
                let (far, _) = listener.accept().await.expect("accept");
                pairs.push((Rc::new(near), Rc::new(far.into_stream(&shard))));
            }
            at_once(&shard, pairs.len(), |n| {
                let near = Rc::clone(&pairs[n].0);
                let chunks = parts_of(n).into_iter().map(Chunk::Slice).collect();
                async move { near.send(chunks).await.expect("a send") }
            })
            .await;
            at_once(&shard, pairs.len(), |n| {
                let (far, shard) = (Rc::clone(&pairs[n].1), shard.clone());
                async move {
                    let bytes = read_exact(&far, &shard, 1024).await;
                    assert!(bytes == flat(&parts_of(n)), "socket {n} has the bytes of {}", bytes[0]);
                }
            })
            .await;
        })
        .expect("block_on");
    }
}

/// Operations are cancelled, and their indexes used again, while the ring is always full.
#[test]
fn cancellations_through_a_ring_of_8_entries_hit_nobody_else() {
    block_on(Config { ring_entries: 8, ..config(1, PollPolicy::Sleep) }, async |shard| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("dir");
        let opts = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
        let file = shard.open(&dir.path().join("data"), opts).await.expect("open");
        let listener = Rc::new(shard.listen(LOOPBACK).await.expect("listen"));
        for round in 0..50 {
            at_once(&shard, 60, |n| {
                let (file, listener) = (file.clone(), Rc::clone(&listener));
                async move {
                    if n % 3 == 0 {
                        let mut accept = Box::pin(listener.accept());
                        std::future::poll_fn(|cx| {
                            assert!(accept.as_mut().poll(cx).is_pending());
                            std::task::Poll::Ready(())
                        })
                        .await;
                    }
                    file.write_at(parts_of(n), (n * 1024) as u64, false).await.expect("a write");
                }
            })
            .await;
            let stats = shard.stats();
            assert!(stats.ops_in_flight < 60, "round {round}: {stats:?}");
        }
    })
    .expect("block_on");
}

#[test]
fn an_accept_stands_until_somebody_connects() {
    block_on(config(1, PollPolicy::Sleep), async |shard| {
        let listener = shard.listen(LOOPBACK).await.expect("listen");
        let (own, addr) = (shard.clone(), listener.local_addr());
        let after = Rc::new(Cell::new(None));
        let set = Rc::clone(&after);
        shard.spawn(Group::ALL[0], "accept", async move {
            let accepted = listener.accept().await.is_ok();
            set.set(Some((accepted, own.stats().ops_standing)));
        });
        shard.sleep(Duration::from_millis(20)).await;
        let s = shard.stats();
        assert_eq!((s.ops_standing, s.ops_in_flight), (1, 1), "{s:?}");
        let _stream = shard.connect(addr).await.expect("connect");
        while after.get().is_none() {
            shard.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(after.get(), Some((true, 0)));
    })
    .expect("block_on");
}

#[test]
fn a_dropped_read_keeps_its_buffer_until_the_kernel_is_done() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("dir");
    let path = dir.path().join("data");
    block_on(config(1, PollPolicy::Sleep), async |shard| {
        let opts = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
        let f = shard.open(&path, opts).await.expect("open");
        f.write_at(vec![Bytes::from(vec![5u8; 1 << 20])], 0, false).await.expect("write");
        let listener = shard.listen(LOOPBACK).await.expect("listen");
        for _ in 0..50 {
            let f = f.clone();
            let s = shard.clone();
            // Polled once, then dropped by the other branch.
            let read = async move { f.read_at(s.buf(1 << 20), 1 << 20, 0).await.0.is_ok() };
            let mut read = Box::pin(read);
            std::future::poll_fn(|cx| {
                let _ = read.as_mut().poll(cx);
                std::task::Poll::Ready(())
            })
            .await;
            drop(read);
            let mut accept = Box::pin(listener.accept());
            std::future::poll_fn(|cx| {
                assert!(accept.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            drop(accept);
            shard.yield_now().await;
        }
        shard.sleep(Duration::from_millis(50)).await;
        let s = shard.stats();
        assert_eq!((s.ops_in_flight, s.ops_standing), (0, 0), "cancelled operations are reaped");
    })
    .expect("block_on");
}

#[test]
fn timers_fire_in_order_and_cancelled_ones_do_not() {
    block_on(config(1, PollPolicy::Sleep), async |shard| {
        let order = Rc::new(RefCell::new(Vec::new()));
        for ms in [30u64, 10, 20] {
            let (s, o) = (shard.clone(), Rc::clone(&order));
            shard.spawn(Group::Admin, "timer", async move {
                s.sleep(Duration::from_millis(ms)).await;
                o.borrow_mut().push(ms);
            });
        }
        drop(shard.sleep(Duration::from_millis(1)));
        let start = Instant::now();
        shard.sleep(Duration::from_millis(50)).await;
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert_eq!(*order.borrow(), [10, 20, 30]);
    })
    .expect("block_on");
}

#[test]
fn two_shards_play_ping_pong_under_every_poll_policy() {
    for poll in policies() {
        let total = Arc::new(AtomicU64::new(0));
        let t = Arc::clone(&total);
        let reactors = Reactors::start(config(2, poll), move |shard| {
            let t = Arc::clone(&t);
            async move {
                if shard.id() != ShardId(0) {
                    return;
                }
                for i in 0..2000u64 {
                    let me = shard.id();
                    let (there, r) = shard
                        .call(ShardId(1), move |s: Shard| async move {
                            assert_ne!(s.id(), me);
                            (s.id(), i * 2)
                        })
                        .await;
                    assert_eq!(there, ShardId(1));
                    t.fetch_add(r, Ordering::Relaxed);
                }
                let s = shard.stats();
                assert_eq!(s.hops_sent, 2000);
                assert_eq!(s.hops_received, 2000);
                shard.stop();
            }
        })
        .expect("start");
        reactors.join().expect("join");
        assert_eq!(total.load(Ordering::Relaxed), 2000 * 1999);
    }
}

#[test]
fn messages_keep_their_order_even_through_a_full_queue() {
    let reactors = Reactors::start(config(2, PollPolicy::Sleep), |shard| async move {
        if shard.id() == ShardId(0) {
            for i in 0..5000u64 {
                shard.submit_to(ShardId(1), move |s: &Shard| {
                    let seen = s.local::<Cell<u64>>().unwrap_or_else(|| {
                        let c = Rc::new(Cell::new(0));
                        s.set_local(Rc::clone(&c));
                        c
                    });
                    assert_eq!(seen.get(), i);
                    seen.set(i + 1);
                    if i == 4999 {
                        s.stop();
                    }
                });
            }
            while !shard.is_stopping() {
                shard.sleep(Duration::from_millis(5)).await;
            }
            assert!(shard.stats().hops_delayed > 0);
        }
    })
    .expect("start");
    reactors.join().expect("join");
}

/// An answer that takes longer never comes, also where others have the CPU.
const LOST: Duration = Duration::from_secs(30);

/// Pairs of messages to a shard that falls asleep between them: the second one arrives at every stage of that. The
/// sender never sleeps; a lost wake-up shows as an answer that does not come.
#[test]
fn no_wake_up_of_a_peer_is_lost() {
    let lost = Arc::new(AtomicU64::new(0));
    let l = Arc::clone(&lost);
    let reactors = Reactors::start(config(2, PollPolicy::Sleep), move |shard| {
        let lost = Arc::clone(&l);
        async move {
            if shard.id() != ShardId(0) {
                return;
            }
            let seen = Arc::new(AtomicU64::new(0));
            for i in 1..=40_000u64 {
                for message in [i * 2 - 1, i * 2] {
                    let seen = Arc::clone(&seen);
                    shard.submit_to(ShardId(1), move |_| seen.store(message, Ordering::Relaxed));
                    shard.next_turn().await;
                    if message == i * 2 - 1 {
                        spin_ns(shard.random_u64() % 12_000);
                    }
                }
                let start = Instant::now();
                while seen.load(Ordering::Relaxed) != i * 2 {
                    if start.elapsed() > LOST {
                        lost.store(i, Ordering::Relaxed);
                        shard.stop();
                        return;
                    }
                    shard.next_turn().await;
                }
            }
            shard.stop();
        }
    })
    .expect("start");
    reactors.join().expect("join");
    assert_eq!(lost.load(Ordering::Relaxed), 0, "a wake-up was lost in this round");
}

fn spin_ns(ns: u64) {
    let t = Instant::now();
    while t.elapsed() < Duration::from_nanos(ns) {
        std::hint::spin_loop();
    }
}

/// A thread without a ring wakes a task just when its shard falls asleep.
#[test]
fn no_wake_up_by_another_thread_is_lost() {
    const ROUNDS: u64 = 60_000;
    type Slot = std::sync::Mutex<Option<std::task::Waker>>;
    let round = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let slot = Arc::new(Slot::default());
    let (r, d, s) = (Arc::clone(&round), Arc::clone(&done), Arc::clone(&slot));
    let reactors = Reactors::start(config(1, PollPolicy::Sleep), move |shard| {
        let (round, done, slot) = (Arc::clone(&r), Arc::clone(&d), Arc::clone(&s));
        async move {
            for i in 1..=ROUNDS {
                std::future::poll_fn(|cx| {
                    if done.load(Ordering::Acquire) == i {
                        return std::task::Poll::Ready(());
                    }
                    *slot.lock().expect("lock") = Some(cx.waker().clone());
                    round.store(i, Ordering::Release);
                    std::task::Poll::Pending
                })
                .await;
            }
            shard.stop();
        }
    })
    .expect("start");
    let mut rng = 1u64;
    let mut last = Instant::now();
    let mut seen = 0;
    while seen < ROUNDS {
        if round.load(Ordering::Acquire) > seen {
            (seen, last) = (seen + 1, Instant::now());
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            spin_ns((rng >> 33) % 1_500);
            done.store(seen, Ordering::Release);
            let waker = slot.lock().expect("lock").take();
            waker.expect("a waker").wake();
        } else if last.elapsed() > LOST {
            reactors.stopper().stop();
            break;
        } else {
            std::hint::spin_loop();
        }
    }
    reactors.join().expect("join");
    assert_eq!(done.load(Ordering::Relaxed), ROUNDS);
    assert_eq!(round.load(Ordering::Relaxed), ROUNDS, "a wake-up was lost");
}

/// A process that may run on a part of the machine keeps to it with all of its threads.
#[test]
fn aliens_that_are_not_pinned_run_where_the_reactors_were_started() {
    let home = core_affinity::get_core_ids().expect("CPUs")[0];
    let started = std::thread::spawn(move || {
        assert!(core_affinity::set_for_current(home));
        let cfg = Config { alien_threads: 1, ..config(1, PollPolicy::Sleep) };
        block_on(cfg, async move |shard| {
            let seen = shard.alien(0, || core_affinity::get_core_ids().unwrap_or_default()).await;
            assert_eq!(seen.iter().map(|cpu| cpu.id).collect::<Vec<_>>(), [home.id]);
        })
        .expect("a reactor");
    });
    started.join().expect("aliens at home");
}

#[test]
fn alien_work_comes_back_and_is_accounted() {
    let cfg = Config { alien_threads: 2, ..config(1, PollPolicy::default()) };
    block_on(cfg, async |shard| {
        let me = std::thread::current().id();
        let done = Rc::new(Cell::new(0));
        for i in 0..3000u64 {
            let (s, d) = (shard.clone(), Rc::clone(&done));
            shard.spawn(Group::Client, "alien user", async move {
                let r = s
                    .alien(0, move || {
                        assert_ne!(std::thread::current().id(), me);
                        i + 1
                    })
                    .await;
                assert_eq!(r, i + 1);
                d.set(d.get() + 1);
            });
        }
        while done.get() < 3000 {
            shard.sleep(Duration::from_millis(1)).await;
        }
        shard
            .alien(0, || {
                // Long enough to get a slice of a CPU that many want.
                let t = Instant::now();
                while t.elapsed() < Duration::from_millis(200) {}
            })
            .await;
        let s = shard.stats();
        assert_eq!(s.alien_jobs, 3001);
        assert!(s.alien_busy_ns > 1_000_000, "{}", s.alien_busy_ns);
    })
    .expect("block_on");
}

#[test]
fn a_panic_in_a_task_ends_the_reactors_with_an_error() {
    let reactors = Reactors::start(config(2, PollPolicy::Sleep), |shard| async move {
        if shard.id() == ShardId(1) {
            shard.sleep(Duration::from_millis(5)).await;
            panic!("boom");
        }
    })
    .expect("start");
    let e = reactors.join().expect_err("a panic");
    assert!(e.to_string().contains("boom") && e.to_string().contains("shard 1"), "{e}");
}

#[test]
fn reactors_come_and_go_fifty_times() {
    let fds = || std::fs::read_dir("/proc/self/fd").expect("fd").count();
    let mut before = 0;
    for i in 0..50 {
        if i == 5 {
            before = fds();
        }
        let reactors = Reactors::start(config(2, PollPolicy::default()), |shard| async move {
            let l = shard.listen(LOOPBACK).await.expect("listen");
            let c = shard.connect(l.local_addr()).await.expect("connect");
            let s = shard.clone();
            // Left waiting when the reactor stops.
            shard.spawn(Group::Client, "waits", async move {
                let _ = c.recv(s.buf(4096), 0).await;
            });
            shard.spawn(Group::Client, "accepts", async move { while l.accept().await.is_ok() {} });
            shard.alien(0, || ()).await;
            shard.call(ShardId(1 - shard.id().0), |_| async {}).await;
        })
        .expect("start");
        if i % 2 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
        reactors.stopper().stop();
        reactors.join().expect("join");
    }
    // Other tests of this process open descriptors too: only growth by the number of rounds would be a leak.
    assert!(fds() < before + 45, "descriptors leak: {before} before, {} after", fds());
}

/// The clocks of a reactor that sleeps 20 times and works for 20 ms.
fn clocks() -> ReactorStats {
    block_on(config(1, PollPolicy::Adaptive { spin_us: 200 }), async |shard| {
        for _ in 0..20 {
            shard.sleep(Duration::from_millis(2)).await;
        }
        let t = Instant::now();
        while t.elapsed() < Duration::from_millis(20) {}
        shard.stats()
    })
    .expect("block_on")
}

#[test]
fn the_four_clocks_sum_to_wall() {
    let s = clocks();
    assert_eq!(s.busy_ns + s.spin_ns + s.sleep_ns + s.wait_ns, s.wall_ns);
    assert!(s.sleep_ns > 10_000_000, "{s:?}");
}

carmine_testkit::measures!(spinning_and_working_have_their_clocks, groups_share_the_cpu_by_their_shares);

fn spinning_and_working_have_their_clocks() {
    let s = clocks();
    assert!(s.spin_ns > 500_000, "{s:?}");
    assert!(s.busy_ns > 1_000_000, "{s:?}");
}

#[test]
fn a_stall_is_counted() {
    let cfg = Config { stall_ms: 5, ..config(1, PollPolicy::Sleep) };
    block_on(cfg, async |shard| {
        shard.spawn(Group::Scrub, "slow one", async {
            let t = Instant::now();
            while t.elapsed() < Duration::from_millis(20) {}
        });
        shard.sleep(Duration::from_millis(1)).await;
        shard.yield_now().await;
        assert!(shard.stats().stalls >= 1);
    })
    .expect("block_on");
}

/// How many times more often a client task ran than a scrub task, with four of each always ready.
fn client_to_scrub_ratio() -> f64 {
    block_on(config(1, PollPolicy::Sleep), async |shard| {
        let counts: Rc<[Cell<u64>; 2]> = Rc::default();
        for (i, g) in [Group::Client, Group::Scrub].into_iter().enumerate() {
            for _ in 0..4 {
                let (s, c) = (shard.clone(), Rc::clone(&counts));
                shard.spawn(g, "burner", async move {
                    while !s.is_stopping() {
                        for _ in 0..2000 {
                            std::hint::spin_loop();
                        }
                        c[i].set(c[i].get() + 1);
                        s.yield_now().await;
                    }
                });
            }
        }
        shard.sleep(Duration::from_millis(300)).await;
        counts[0].get() as f64 / counts[1].get().max(1) as f64
    })
    .expect("block_on")
}

fn groups_share_the_cpu_by_their_shares() {
    // On a crowded machine a group also pays for the moments when the thread had lost its CPU: best of a few.
    let ratios: Vec<f64> = (0..5).map(|_| client_to_scrub_ratio()).collect();
    assert!(ratios.iter().any(|r| (5.0..20.0).contains(r)), "1000 to 100 shares gave {ratios:?}");
}

#[test]
fn a_buffer_may_die_on_another_thread() {
    block_on(config(1, PollPolicy::Sleep), async |shard| {
        let bufs: Vec<Buf> = (0..64).map(|_| shard.buf(4096)).collect();
        assert!(bufs.iter().all(|b| (b.as_ptr() as usize).is_multiple_of(4096)));
        shard.alien(0, move || drop(bufs)).await;
        let big = shard.buf(3 << 20);
        assert!(big.capacity() >= 3 << 20);
        assert_eq!(shard.stats().buf_fallbacks, 1);
        let hold: Vec<Buf> = (0..4000).map(|_| shard.buf(4096)).collect();
        assert!(shard.stats().buf_fallbacks > 1, "8 MiB hold less than 4000 buffers of 4 KiB");
        drop(hold);
    })
    .expect("block_on");
}

#[test]
fn a_cpu_that_does_not_exist_is_an_error() {
    let cfg = Config { cpus: vec![Some(4093)], ..config(1, PollPolicy::Sleep) };
    let e = Reactors::start(cfg, |_| async {}).err().expect("no such CPU");
    assert!(e.to_string().contains("4093"), "{e}");
}

#[test]
fn a_unix_socket_serves_and_leaves_nothing() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("tool.sock");
    // Left over by a process that was killed: replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let client = path.clone();
    block_on(config(1, PollPolicy::Sleep), async move |shard| {
        let listener = shard.listen_unix(&path).expect("listen");
        let tool = std::thread::spawn(move || {
            let mut stream = std::os::unix::net::UnixStream::connect(client).expect("connect");
            stream.write_all(b"question").expect("write");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("read");
            answer
        });
        let stream = listener.accept().await.expect("accept");
        let (n, buf) = stream.recv(shard.buf(64), 0).await;
        assert_eq!(&buf.as_slice()[..n.expect("recv")], b"question");
        stream.send(vec![Chunk::Bytes(b"answer".to_vec())]).await.expect("send");
        stream.shutdown();
        let answer = shard.alien(0, move || tool.join().expect("tool")).await;
        assert_eq!(answer, b"answer");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "a file").expect("write");
        assert!(shard.listen_unix(&path).is_err(), "a file that is no socket was replaced");
        let long = folder.path().join("x".repeat(120));
        let error = shard.listen_unix(&long).err().expect("too long").to_string();
        assert!(error.contains("xxx"), "{error}");
    })
    .expect("block_on");
}

#[test]
fn a_folder_is_synced_and_nothing_else_is_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_owned();
    block_on(config(1, PollPolicy::Sleep), async move |shard| {
        shard.sync_folder(&path).await.expect("sync");
        let file = path.join("file");
        std::fs::write(&file, "").expect("a file");
        for other in [file, path.join("missing")] {
            let error = shard.sync_folder(&other).await.expect_err("no folder");
            assert!(error.to_string().contains(&other.display().to_string()), "{error}");
        }
    })
    .expect("runs");
}

/// Whether Linux lets a thread choose the length of its slices: since 6.12.
fn has_slices() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let mut numbers = release.split('.').map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

/// With slices of the usual length a reactor that shares its CPU with an alien in a compaction wakes up to a tick (4 ms) late: one of a
/// hundred wake-ups at half load.
#[test]
fn the_scheduler_gives_reactors_short_slices() {
    if !has_slices() {
        return eprintln!("skipped: Linux 6.12 or later is needed");
    }
    let sched =
        || std::fs::read_to_string("/proc/thread-self/sched").expect("the scheduler's view of a thread");
    let slice_ns = |sched: &str| {
        let line = sched.lines().find(|line| line.starts_with("se.slice")).expect("se.slice");
        line.rsplit(' ').next().expect("a value").parse::<u64>().expect("nanoseconds")
    };
    let before = slice_ns(&sched());
    let within = std::thread::spawn(move || block_on(config(1, PollPolicy::Sleep), async move |_| sched()));
    let within = within.join().expect("the thread").expect("a reactor");
    assert_eq!(slice_ns(&within), 100_000, "{before} without a reactor");
}
