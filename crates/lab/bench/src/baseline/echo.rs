//! The raw messenger: messages of the load's size between a reactor on an OSD's CPU and one on a client's, over loopback,
//! with checksums as always. The payload goes the way it goes in the load: with the request of a write, with the answer to
//! a read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use carmine_load::baseline::RawFigures;
use carmine_load::{JobSetup, LoadSpec, Prefill, Target, TargetError, run_dealt_job};
use carmine_messenger::{ClientConfig, Connection, Dispatcher, Message, ServerConfig, connect, serve};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Config, Group, Payload, PollPolicy, Reactors, Shard};
use carmine_testbed::{Plan, usage};
use carmine_types::FlushMode;
use carmine_wire::{EntityAddr, EntityType};

use super::figures;
use crate::steering::{reactors, run_raw};

/// A message type that Ceph does not use.
const ECHO: u16 = 0x7e0;
/// Time for the server to say where it listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Measures one connection.
pub(super) fn measure(plan: &Plan, spec: &LoadSpec, cancel: &AtomicBool) -> Result<RawFigures> {
    let osd_cpu = plan.grid.osds.first().and_then(|osd| osd.reactor_cpus().first().copied());
    let poll: PollPolicy = plan.poll.parse().map_err(|e| usage!("poll policy of the plan: {e}"))?;
    let (sender, receiver) = channel();
    let bs = usize::try_from(spec.bs_bytes).context("--bs")?;
    let config = Config { cpus: vec![osd_cpu], poll, ..reactors("echo") };
    let server = Reactors::start(config, move |shard: Shard| listen(shard, bs, sender.clone()))?;
    let addr = receiver.recv_timeout(START_LIMIT).map_err(|_| anyhow!("the echo server did not start"));
    let measured = addr.and_then(|addr| {
        let load = LoadSpec { prefill: Prefill::Never, numjobs: 1, ..spec.clone() };
        let cpus = plan.grid.client_cpus().to_vec();
        let job = async move |shard, setup| job(shard, addr, setup).await;
        run_raw(&load, &cpus, reactors("raw"), cancel, &mut || Ok(()), job)
    });
    server.stopper().stop();
    let joined = server.join();
    let measured = measured.context("raw messenger")?;
    joined.context("raw messenger")?;
    Ok(figures(spec, &measured, FlushMode::None, "one connection on loopback"))
}

/// The answering side, until it is stopped.
async fn listen(shard: Shard, bs: usize, told: Sender<EntityAddr>) {
    let Ok(listener) = shard.listen(([127, 0, 0, 1], 0).into()).await else { return };
    let addr = EntityAddr::msgr2(listener.local_addr(), std::process::id());
    // If nobody waits any more, the command has failed already.
    let _ = told.send(addr);
    let config = Rc::new(ServerConfig::new(EntityType::OSD, 0, addr.into()));
    let mut block = shard.buf(bs);
    block.fill(0xa5);
    let echo: Rc<dyn Dispatcher> = Rc::new(Echo { block: block.freeze() });
    let accepting = shard.clone();
    shard.spawn(Group::Admin, "accept", async move {
        while let Ok((socket, _)) = listener.accept().await {
            serve(&accepting, socket, Rc::clone(&config), Rc::clone(&echo)).await;
        }
    });
}

struct Echo {
    block: Bytes,
}

impl Dispatcher for Echo {
    fn on_message(&self, conn: &Rc<Connection>, mut msg: Message) {
        drop(msg.take_permit());
        let answer = Message::new(ECHO, 1, 1, Vec::new()).with_tid(msg.header.tid);
        // A request with a front asks for the payload; a request with the payload asks for none.
        conn.send(if msg.front.is_empty() {
            answer
        } else {
            answer.with_data(Payload::from(self.block.clone()))
        });
    }

    fn on_closed(&self, _: &Rc<Connection>, _: &str) {}
}

/// Requests without an answer, by their numbers: the asking side's dispatcher.
#[derive(Default)]
struct Waiting(RefCell<HashMap<u64, oneshot::Sender<Payload>>>);

impl Dispatcher for Waiting {
    fn on_message(&self, _: &Rc<Connection>, mut msg: Message) {
        drop(msg.take_permit());
        if let Some(sender) = self.0.borrow_mut().remove(&msg.header.tid) {
            // The worker may have given up.
            let _ = sender.send(msg.data);
        }
    }

    fn on_closed(&self, _: &Rc<Connection>, _: &str) {
        self.0.borrow_mut().clear();
    }
}

/// The asking side.
struct EchoTarget {
    conn: Rc<Connection>,
    waiting: Rc<Waiting>,
    tid: Cell<u64>,
}

async fn job(shard: Shard, addr: EntityAddr, setup: JobSetup) {
    let waiting = Rc::new(Waiting::default());
    let config = ClientConfig::new(EntityType::CLIENT, "admin", std::process::id());
    config.gid.set(1);
    let answers = Rc::<Waiting>::clone(&waiting);
    let connected = connect(&shard, addr, EntityType::OSD, Rc::new(config), answers).await;
    let conn = connected.as_ref().map(Rc::clone);
    let target = conn.map(|conn| EchoTarget { conn, waiting, tid: Cell::default() });
    run_dealt_job(&shard, target, setup).await;
    if let Ok(conn) = connected {
        conn.close("measured");
    }
}

impl EchoTarget {
    async fn ask(&self, msg: Message) -> Result<Payload, TargetError> {
        self.tid.set(self.tid.get() + 1);
        let (sender, receiver) = oneshot::channel();
        self.waiting.0.borrow_mut().insert(self.tid.get(), sender);
        self.conn.send(msg.with_tid(self.tid.get()));
        receiver.await.map_err(|_| TargetError("the connection ended".into()))
    }
}

impl Target for EchoTarget {
    async fn read(&self, object: &str, _off: u64, _len: u64) -> Result<Payload, TargetError> {
        self.ask(Message::new(ECHO, 1, 1, object.as_bytes().to_vec())).await
    }

    async fn write(&self, _object: &str, _off: u64, data: Payload) -> Result<(), TargetError> {
        self.ask(Message::new(ECHO, 1, 1, Vec::new()).with_data(data)).await.map(drop)
    }

    async fn stat(&self, _object: &str) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }
}
