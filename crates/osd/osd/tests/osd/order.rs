//! Clients that read and write the same objects at the same time, and what they may see.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{ClientError, Pool, RouteMode};
use carmine_reactor::{Group, Payload, Shard};
use carmine_wire::osd_op::OsdOp;

use super::cluster::{Cluster, Disks, Running};

/// One operation that was answered.
#[derive(Clone, Debug)]
struct Event {
    client: u32,
    /// Order in which its client sent it.
    sent: u64,
    begin_ns: u64,
    end_ns: u64,
    object: u32,
    write: bool,
    /// The object's version after a write, or as a read saw it; 0: it did not exist.
    version: u64,
    value: Vec<u8>,
}

/// The operations of all clients.
#[derive(Clone, Default)]
pub(crate) struct History(Rc<RefCell<Vec<Event>>>);

/// The work of one client.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) client: u32,
    pub(crate) ops: u64,
    pub(crate) objects: u32,
    /// Operations in flight.
    pub(crate) depth: u64,
    /// Longest pause before an operation.
    pub(crate) pause: Duration,
}

impl History {
    /// Starts a client that reads and writes at random.
    pub(crate) fn start(&self, cluster: &Cluster, route: RouteMode, work: Work) -> Running<()> {
        let history = self.clone();
        cluster.background(route, move |client, pool| async move {
            let shard = client.shard().clone();
            let (running, done) = (Rc::new(Cell::new(0)), Rc::new(carmine_reactor::sync::Notify::new()));
            for sent in 0..work.ops {
                while running.get() >= work.depth {
                    done.notified().await;
                }
                let micros = work.pause.as_micros() as u64;
                if micros > 0 {
                    shard.sleep(Duration::from_micros(shard.random_u64() % micros)).await;
                }
                running.set(running.get() + 1);
                let one = history.clone().one(shard.clone(), pool.clone(), work, sent);
                let (running, done) = (Rc::clone(&running), Rc::clone(&done));
                // The operation is sent when its task first runs, and tasks of a group run in order.
                shard.spawn(Group::Client, "op", async move {
                    one.await;
                    running.set(running.get() - 1);
                    done.notify_one();
                });
            }
            while running.get() > 0 {
                done.notified().await;
            }
        })
    }

    async fn one(self, shard: Shard, pool: Pool, work: Work, sent: u64) {
        let dice = shard.random_u64();
        let object = (dice >> 8) as u32 % work.objects;
        let (name, write) = (format!("object-{object}"), dice & 1 == 0);
        let begin_ns = shard.now_ns();
        let (version, value) = if write {
            let value = format!("{}:{sent}:{dice:016x}", work.client).into_bytes();
            let version = match dice >> 4 & 3 {
                0 => pool.write_full(&name, value.clone()).await.unwrap().user_version,
                // As `rados bench` does it.
                1 => {
                    let ops = vec![
                        (OsdOp::set_alloc_hint(64, 64), Payload::new()),
                        (OsdOp::write_full(0), Payload::from(value.clone())),
                    ];
                    pool.exec(&name, ops).await.unwrap().user_version
                }
                _ => {
                    let mut value = value.clone();
                    // Longer than any other, so that it is all that is left.
                    value.resize(64, b' ');
                    let reply = pool.write(&name, 0, value).await.unwrap();
                    reply.user_version
                }
            };
            (version, value)
        } else {
            match pool.exec(&name, vec![(OsdOp::read(0, 0), Payload::new())]).await {
                Ok(mut reply) => (reply.user_version, reply.take_data(0).to_vec().trim_ascii().to_vec()),
                Err(ClientError::Errno { errno, .. }) if errno.0 == -2 => (0, Vec::new()),
                Err(error) => panic!("{error}"),
            }
        };
        let end_ns = shard.now_ns();
        let client = work.client;
        self.0.borrow_mut().push(Event { client, sent, begin_ns, end_ns, object, write, version, value });
    }

    /// Versions are a total order of each object's states. It must agree with what each client sent, with time, and with
    /// what was read. Where OSDs fail (`faults`), a read that was sent again may see a write that the same client sent after
    /// it: that had been applied when the answers to both were lost.
    pub(crate) fn check(&self, faults: bool) {
        let mut objects = BTreeMap::<u32, Vec<Event>>::new();
        for event in self.0.borrow().iter() {
            objects.entry(event.object).or_default().push(event.clone());
        }
        for events in objects.values() {
            let mut written = BTreeMap::from([(0, Vec::new())]);
            for event in events.iter().filter(|event| event.write) {
                assert!(event.version > 0);
                let twice = written.insert(event.version, event.value.clone());
                assert!(twice.is_none(), "version {} was given twice: {event:?}", event.version);
            }
            for event in events.iter().filter(|event| !event.write) {
                let value = written.get(&event.version);
                assert_eq!(value, Some(&event.value), "a read saw what was not written: {event:?}");
            }
            for a in events {
                for b in events {
                    let in_order = a.client == b.client && a.sent < b.sent && (a.write || !faults);
                    let before = a.end_ns < b.begin_ns || in_order;
                    let fits = if b.write { a.version < b.version } else { a.version <= b.version };
                    assert!(!before || fits, "order:\n{a:?}\n{b:?}");
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

/// Nothing fails: replication, hops, and pipelines of one client to one object.
#[test]
fn every_object_has_one_history() {
    for seed in 0..6 {
        let disks = if seed % 2 == 0 { Disks::Cyan } else { Disks::Blue };
        let cluster = Cluster::start(seed, disks, 3, 8, &[2, 3, 1]);
        let history = History::default();
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let route = if client == 0 { RouteMode::Direct } else { RouteMode::Single };
                let work = Work { client, ops: 150, objects: 6, depth: 16, pause: Duration::ZERO };
                history.start(&cluster, route, work)
            })
            .collect();
        cluster.wait("the clients", || clients.iter().all(Running::is_done));
        assert_eq!(history.len(), 450);
        history.check(false);
        cluster.check_equal(&[0, 1, 2]);
    }
}
