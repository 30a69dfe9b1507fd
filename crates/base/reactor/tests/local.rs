//! Tests that need no kernel: buffers, and the synchronisation primitives of one shard (run under `sim`).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use carmine_reactor::sim::Sim;
use carmine_reactor::sync::{Notify, Semaphore, oneshot};
use carmine_reactor::{Buf, Bytes, Group, Payload, PollPolicy, Shard};

fn in_sim<Fut: Future<Output = ()> + 'static>(main: impl Fn(Shard) -> Fut + 'static) {
    let sim = Sim::new(1);
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    let main = Rc::new(main);
    sim.node("n", 1, move |shard| {
        let (flag, main) = (Rc::clone(&flag), Rc::clone(&main));
        async move {
            main(shard).await;
            flag.set(true);
        }
    });
    sim.run(|| done.get(), Duration::from_secs(60)).expect("the test's task finishes");
}

#[test]
fn payloads_slice_join_and_checksum_across_chunks() {
    let all: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
    let mut p = Payload::new();
    for (from, to) in [(0, 1), (1, 4097), (4097, 4097), (4097, 9000), (9000, 10_000)] {
        p.push(Bytes::from(all[from..to].to_vec()));
    }
    assert_eq!(p.chunks().len(), 4);
    assert_eq!(p.to_vec(), all);
    assert_eq!(p.crc32c(u32::MAX), Payload::from(all.clone()).crc32c(u32::MAX));
    assert_eq!(p, Payload::from(all.clone()));
    for (off, len) in [(0, 10_000), (0, 0), (1, 4096), (4000, 5500), (9999, 1), (10_000, 5), (9000, 5000)] {
        let want = &all[off.min(10_000)..(off + len).min(10_000)];
        assert_eq!(p.slice(off, len).to_vec(), want, "{off}+{len}");
    }
    let mut out = vec![0; 5000];
    assert_eq!(p.copy_to(&mut out), 5000);
    assert_eq!(out, all[..5000]);
    assert_ne!(p, p.slice(0, 9999));
}

#[test]
fn bytes_are_writable_while_nobody_shares_them() {
    let mut b = Buf::heap(100);
    b.as_mut_slice().copy_from_slice(&[3; 100]);
    let mut b = b.freeze();
    let mut part = b.slice(10..=19);
    assert_eq!(part.len(), 10);
    assert!(!part.is_aligned(4096) && b.slice(..0).is_aligned(4096));
    assert!(b.get_mut().is_none() && part.get_mut().is_none());
    drop(b);
    part.get_mut().expect("unique").fill(4);
    assert_eq!(*part, [4; 10]);
    assert_eq!(Bytes::from(vec![1]).get_mut(), Some(&mut [1][..]));
    assert_eq!(Bytes::new().get_mut(), None);
}

#[test]
fn poll_policies_read_back_what_they_print() {
    for text in ["poll", "sleep", "adaptive:50"] {
        assert_eq!(text.parse::<PollPolicy>().expect(text).to_string(), text);
    }
    assert_eq!("adaptive".parse(), Ok(PollPolicy::default()));
    let e = "fast".parse::<PollPolicy>().expect_err("no such policy");
    assert!(e.to_string().contains("fast") && e.to_string().contains("adaptive"));
}

#[test]
fn a_semaphore_can_get_more_permits_and_fewer() {
    in_sim(|shard| async move {
        let sem = Semaphore::new(2);
        let held = sem.acquire(2).await;
        sem.resize(3);
        let third = sem.try_acquire(1).expect("there is one more");
        sem.resize(1);
        let mut waiter = Box::pin(sem.acquire(1));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
        drop(third);
        assert!(waiter.as_mut().poll(&mut cx).is_pending(), "two are held of one");
        drop(held);
        let last = waiter.as_mut().poll(&mut cx);
        assert!(last.is_ready() && sem.try_acquire(1).is_none());
        drop(last);
        shard.next_turn().await;
        assert_eq!((sem.available(), sem.capacity()), (1, 1));
    });
}

#[test]
fn a_semaphore_serves_in_order_and_survives_dropped_waiters() {
    in_sim(|shard| async move {
        let sem = Semaphore::new(10);
        let mut first = sem.acquire(8).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        for (name, want) in [(1, 9), (2, 1), (3, 1)] {
            let (sem, order) = (sem.clone(), Rc::clone(&order));
            shard.spawn(Group::Client, "waiter", async move {
                let p = sem.acquire(want).await;
                order.borrow_mut().push(name);
                drop(p);
            });
        }
        shard.next_turn().await;
        assert!(order.borrow().is_empty(), "light ones do not overtake the heavy one");
        assert!(sem.try_acquire(1).is_none());
        // A waiter at the end that gives up changes nothing.
        let mut gone = Box::pin(sem.acquire(5));
        assert!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(sem.waiting(), 4);
        drop(gone);
        first.release(3);
        assert_eq!(first.count(), 5);
        drop(first);
        shard.sleep(Duration::from_millis(1)).await;
        assert_eq!(*order.borrow(), [1, 2, 3]);
        assert_eq!(sem.available(), 10);
        // More than there is: runs alone instead of never.
        assert_eq!(sem.acquire(1000).await.count(), 10);
        // Granted, but dropped before it was told: the permits are not lost.
        let held = sem.acquire(10).await;
        let mut waiter = Box::pin(sem.acquire(4));
        assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(held);
        drop(waiter);
        assert_eq!(sem.available(), 10);
    });
}

#[test]
fn a_notification_is_stored_once_and_passed_on_by_a_dropped_waiter() {
    in_sim(|_| async move {
        let n = Notify::new();
        n.notify_one();
        n.notify_one();
        n.notified().await;
        let mut cx = Context::from_waker(Waker::noop());
        let mut a = Box::pin(n.notified());
        let mut b = Box::pin(n.notified());
        assert!(a.as_mut().poll(&mut cx).is_pending(), "two notifications were stored");
        assert!(b.as_mut().poll(&mut cx).is_pending());
        n.notify_one();
        drop(a);
        assert_eq!(b.as_mut().poll(&mut cx), Poll::Ready(()));
        let mut c = Box::pin(n.notified());
        assert!(c.as_mut().poll(&mut cx).is_pending());
        n.notify_all();
        assert_eq!(c.as_mut().poll(&mut cx), Poll::Ready(()));
        assert_eq!(n.waiting(), 0);
    });
}

#[test]
fn a_oneshot_delivers_and_says_when_the_other_end_is_gone() {
    in_sim(|shard| async move {
        let (tx, rx) = oneshot::channel();
        let s = shard.clone();
        shard.spawn(Group::Client, "oneshot", async move {
            s.sleep(Duration::from_millis(1)).await;
            let _ = tx.send("value");
        });
        assert_eq!(rx.await, Ok("value"));
        let (tx, rx) = oneshot::channel::<u8>();
        drop(tx);
        assert_eq!(rx.await, Err(oneshot::Closed));
        let (tx, rx) = oneshot::channel();
        drop(rx);
        assert_eq!(tx.send(1), Err(1));
    });
}

#[test]
fn locals_are_by_type_and_the_latest_counts() {
    in_sim(|shard| async move {
        assert!(shard.local::<u32>().is_none());
        shard.set_local(Rc::new(1u32));
        shard.set_local(Rc::new(2u64));
        shard.set_local(Rc::new(3u32));
        assert_eq!(shard.local::<u32>().as_deref(), Some(&3));
        assert_eq!(shard.local::<u64>().as_deref(), Some(&2));
    });
}

#[test]
fn the_turn_after_this_one_comes() {
    in_sim(|shard| async move {
        let before = shard.stats().turns;
        for _ in 0..10 {
            shard.yield_now().await;
        }
        assert_eq!(shard.stats().turns, before);
        for _ in 0..10 {
            shard.next_turn().await;
        }
        assert_eq!(shard.stats().turns, before + 10);
    });
}
