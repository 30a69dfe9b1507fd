//! Dispatchers that record, and both ends of a connection.

use carmine_messenger::{ClientConfig, Connection, Dispatcher, Message, ServerConfig, connect, serve};
use carmine_reactor::{Group, Shard};
pub(crate) use carmine_testkit::{both, until};
use carmine_wire::private::VERSION;
use carmine_wire::{EntityAddr, EntityType};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A dispatcher's action on a message, beyond counting it.
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
    Message::new(0x8fff, VERSION, VERSION, front).with_tid(tid).with_data(data)
}
