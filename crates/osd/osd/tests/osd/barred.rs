//! Clients that the map keeps out.

use std::cell::Cell;
use std::time::Duration;

use carmine_types::{UTime, errno};
use carmine_wire::osd_op::{OsdOp, flags::watch, ops};
use carmine_wire::{Decoder, EntityAddr, EntityName};

use super::cluster::{Cluster, Disks};
use super::raw::{Answer, Raw};

struct Client<'a> {
    cluster: &'a Cluster,
    raw: Raw,
    tid: Cell<u64>,
}

impl<'a> Client<'a> {
    fn new(cluster: &'a Cluster, gid: u64) -> Client<'a> {
        Client { cluster, raw: Raw::of_client(cluster, 0, gid), tid: Cell::new(cluster.sim.now_ns()) }
    }

    fn ask(&self, name: &str, op: OsdOp, data: &[u8]) -> Answer {
        self.tid.set(self.tid.get() + 1);
        let request = self.raw.request(self.cluster, name, op);
        self.raw.ask(self.cluster, request, data, self.tid.get()).expect("an answer")
    }

    /// Results of writing and of reading some objects: they are on both reactors.
    fn results(&self) -> Vec<i32> {
        let both = |name: &str| {
            [
                self.ask(name, OsdOp::write(0, 4), b"data").result,
                self.ask(name, OsdOp::read(0, 4), b"").result,
            ]
        };
        ["a", "b", "c", "d", "e", "f"].into_iter().flat_map(both).collect()
    }

    /// Addresses of those who watch.
    fn watchers(&self) -> Vec<EntityAddr> {
        let data = self.ask("o", OsdOp::with_payload(ops::LIST_WATCHERS, 0), b"").data;
        let read = |d: &mut Decoder<'_>| {
            d.envelope("watchers", 1)?.body.vec(1, |d| {
                let mut item = d.envelope("watcher", 2)?.body;
                item.get::<EntityName>()?;
                item.bytes(8 + 4)?; // cookie, timeout
                item.get()
            })
        };
        Decoder::all(&data, "watchers", read).unwrap()
    }
}

#[test]
fn who_is_kept_out_is_refused_and_watches_no_longer() {
    for seed in 0..4 {
        let cluster = Cluster::start(seed, Disks::Cyan, 1, 8, &[2]);
        let (gone, other) = (Client::new(&cluster, 11), Client::new(&cluster, 12));
        assert_eq!(gone.ask("o", OsdOp::create(false), b"").result, 0);
        assert_eq!(gone.ask("o", OsdOp::watch_op(watch::WATCH, 1, 3600), b"").result, 0);
        let addr = other.watchers()[0];
        assert_eq!(addr.nonce, 11, "an address as the client gave it");
        assert_eq!(gone.results(), [0; 12]);

        cluster.mon.change(move |inc| inc.new_blocklist.push((addr, UTime::ZERO)));
        cluster.wait("the map", || !cluster.mon.map().blocklist.is_empty());
        cluster.pass(Duration::from_secs(1));
        assert_eq!(gone.results(), [errno::ESHUTDOWN; 12]);
        assert_eq!(gone.ask("o", OsdOp::watch_op(watch::PING, 1, 0), b"").result, errno::ESHUTDOWN);
        assert_eq!(other.results(), [0; 12]);
        assert_eq!(other.watchers(), [], "long before its hour is over");
        // Another connection of the same client does not help.
        assert_eq!(Client::new(&cluster, 11).results(), [errno::ESHUTDOWN; 12]);

        cluster.mon.change(move |inc| inc.old_blocklist.push(addr));
        cluster.wait("the map", || cluster.mon.map().blocklist.is_empty());
        cluster.pass(Duration::from_secs(1));
        assert_eq!(gone.results(), [0; 12]);
    }
}

/// A client that knows the map in which another one is kept out sees what that one wrote before, and nothing of it
/// comes later.
#[test]
fn nothing_comes_late() {
    for seed in 0..20 {
        let cluster = Cluster::start(seed, Disks::Cyan, 1, 8, &[2]);
        let (gone, other) = (Client::new(&cluster, 11), Client::new(&cluster, 12));
        assert_eq!(gone.ask("o", OsdOp::create(false), b"").result, 0);
        assert_eq!(gone.ask("o", OsdOp::watch_op(watch::WATCH, 1, 0), b"").result, 0);
        let addr = other.watchers()[0];
        let mut seen = None;
        for number in 0..100u64 {
            if number == 30 {
                cluster.mon.change(move |inc| inc.new_blocklist.push((addr, UTime::ZERO)));
            }
            let request = gone.raw.request(&cluster, "o", OsdOp::write(0, 8));
            gone.raw.send(&request, &number.to_le_bytes(), 1_000_000 + number);
            cluster.pass(Duration::from_micros(40));
            if seen.is_none() && !cluster.mon.map().blocklist.is_empty() {
                seen = Some(other.ask("o", OsdOp::read(0, 8), b"").data);
            }
        }
        assert!(seen.as_ref().is_some_and(|bytes| bytes.len() == 8), "{seen:?}");
        assert_eq!(Some(other.ask("o", OsdOp::read(0, 8), b"").data), seen, "seed {seed}");
    }
}

/// What waits for something else when the map comes is not executed any more: queued behind a slow operation of its object,
/// planned, or queued by a client that has closed its connection since.
#[test]
fn nothing_that_was_queued_is_executed() {
    for closes in [false, true] {
        let cluster = Cluster::start(7, Disks::Blue, 1, 1, &[1]);
        let (gone, other) = (Client::new(&cluster, 11), Client::new(&cluster, 12));
        for name in ["o", "p"] {
            assert_eq!(other.ask(name, OsdOp::write_full(8192), &[1; 8192]).result, 0);
        }
        assert_eq!(gone.ask("o", OsdOp::watch_op(watch::WATCH, 1, 0), b"").result, 0);
        let addr = other.watchers()[0];
        // Reads of data wait for the drive, and writes of their object for them.
        cluster.disk(0).slower(Duration::from_secs(5));
        other.raw.send(&other.raw.request(&cluster, "o", OsdOp::read(0, 8192)), b"", 1);
        cluster.pass(Duration::from_millis(10));
        gone.raw.send(&gone.raw.request(&cluster, "o", OsdOp::write(0, 4)), b"late", 2);
        // A part of a block is read before it is written.
        gone.raw.send(&gone.raw.request(&cluster, "p", OsdOp::write(4, 4)), b"late", 3);
        cluster.pass(Duration::from_millis(10));
        if closes {
            cluster.sim.reset_connections("raw", "osd.0", false);
            cluster.pass(Duration::from_millis(10));
        }
        cluster.mon.change(move |inc| inc.new_blocklist.push((addr, UTime::ZERO)));
        cluster.wait("the map", || !cluster.mon.map().blocklist.is_empty());
        cluster.pass(Duration::from_secs(30));
        cluster.disk(0).slower(Duration::ZERO);
        if !closes {
            assert_eq!(other.raw.answers(1)[0].data.len(), 8192);
            let results = [2, 3].map(|tid| gone.raw.answers(tid)[0].result);
            assert_eq!(results, [errno::ESHUTDOWN; 2]);
        }
        let reader = Client::new(&cluster, 13);
        for name in ["o", "p"] {
            assert_eq!(reader.ask(name, OsdOp::read(0, 8), b"").data, [1; 8], "{name}, closed: {closes}");
        }
    }
}
