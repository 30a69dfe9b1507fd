//! Running a scenario in both worlds, and dispatchers that record.

use carmine_messenger::{
    ClientConfig, Connection, Dispatcher, Message, ServerConfig, connect, serve, with_timeout,
};
use carmine_reactor::sim::Sim;
use carmine_reactor::{Config, Group, PollPolicy, Shard, block_on};
use carmine_wire::{EntityAddr, EntityType};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Longest a scenario may take, real or virtual.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs a scenario over real sockets.
pub(crate) fn uring<F: Future<Output = ()> + 'static>(scenario: impl FnOnce(Shard) -> F) {
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("msgr-test", 1) };
    let done = block_on(config, async |shard: Shard| {
        let run = scenario(shard.clone());
        with_timeout(&shard, LIMIT, run).await.is_some()
    });
    assert!(done.expect("io_uring is needed for this test"), "the scenario took more than {LIMIT:?}");
}

/// Runs a scenario in the simulator.
pub(crate) fn sim<F: Future<Output = ()> + 'static>(seed: u64, scenario: impl Fn(Shard) -> F + 'static) {
    let sim = Sim::new(seed);
    let done = Rc::new(Cell::new(false));
    let (scenario, set) = (Rc::new(scenario), Rc::clone(&done));
    sim.node("test", 1, move |shard| {
        let (scenario, set) = (Rc::clone(&scenario), Rc::clone(&set));
        async move {
            scenario(shard).await;
            set.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// Defines a test that runs a scenario in both worlds.
macro_rules! both {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                $crate::common::uring(super::$name);
            }

            #[test]
            fn sim() {
                for seed in 0..3 {
                    $crate::common::sim(seed, super::$name);
                }
            }
        }
    )*};
}
pub(crate) use both;

/// What a dispatcher does with messages beyond counting.
type Act = Box<dyn Fn(&Rc<Connection>, Message)>;

/// A dispatcher that records.
pub(crate) struct Recorder {
    pub(crate) act: Act,
    pub(crate) accepted: RefCell<Vec<Rc<Connection>>>,
    pub(crate) closed: RefCell<Vec<String>>,
    pub(crate) messages: Cell<u64>,
}

impl Recorder {
    pub(crate) fn new(act: impl Fn(&Rc<Connection>, Message) + 'static) -> Rc<Recorder> {
        Rc::new(Recorder {
            act: Box::new(act),
            accepted: RefCell::default(),
            closed: RefCell::default(),
            messages: Cell::new(0),
        })
    }

    /// Sends every message back.
    pub(crate) fn echo() -> Rc<Recorder> {
        Recorder::new(|conn, mut msg| {
            drop(msg.take_permit());
            conn.send(msg);
        })
    }

    /// Drops every message.
    pub(crate) fn sink() -> Rc<Recorder> {
        Recorder::new(|_, _| {})
    }
}

impl Dispatcher for Recorder {
    fn on_accepted(&self, conn: &Rc<Connection>) {
        self.accepted.borrow_mut().push(Rc::clone(conn));
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        self.messages.set(self.messages.get() + 1);
        (self.act)(conn, msg);
    }

    fn on_closed(&self, _: &Rc<Connection>, reason: &str) {
        self.closed.borrow_mut().push(reason.to_owned());
    }
}

/// A server that listens on a free port of loopback.
pub(crate) struct Server {
    pub(crate) addr: EntityAddr,
    pub(crate) recorder: Rc<Recorder>,
}

pub(crate) const NONCE: u32 = 0x29dd;

/// Starts an OSD-like server; `change` adapts its config.
pub(crate) async fn server(
    shard: &Shard,
    recorder: Rc<Recorder>,
    change: impl FnOnce(&mut ServerConfig),
) -> Server {
    let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr(), NONCE);
    let mut config = ServerConfig::new(EntityType::OSD, 3, addr.into());
    change(&mut config);
    let config = Rc::new(config);
    let (task_shard, dispatcher) = (shard.clone(), Rc::clone(&recorder));
    shard.spawn(Group::Admin, "accept", async move {
        while let Ok((socket, _)) = listener.accept().await {
            serve(&task_shard, socket, Rc::clone(&config), dispatcher.clone()).await;
        }
    });
    Server { addr, recorder }
}

pub(crate) fn client_config() -> Rc<ClientConfig> {
    let config = ClientConfig::new(EntityType::CLIENT, "admin", 77);
    config.gid.set(4711);
    Rc::new(config)
}

/// A client connection to `server`.
pub(crate) async fn client(shard: &Shard, server: &Server, recorder: &Rc<Recorder>) -> Rc<Connection> {
    connect(shard, server.addr, EntityType::OSD, client_config(), Rc::clone(recorder) as Rc<dyn Dispatcher>)
        .await
        .unwrap()
}

/// Waits until `what` is true; the scenario's limit bounds it.
pub(crate) async fn until(shard: &Shard, mut what: impl FnMut() -> bool) {
    while !what() {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// `len` bytes that depend on `seed`.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A message of a made-up private type.
pub(crate) fn message(tid: u64, front: Vec<u8>, data: Vec<u8>) -> Message {
    Message::new(0x8fff, 1, 1, front).with_tid(tid).with_data(data)
}
