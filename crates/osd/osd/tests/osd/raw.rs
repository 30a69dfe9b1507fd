//! A client that sends what the test says: resends, lies, old and new epochs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::{ClientConfig, Connection, Dispatcher, Message, connect};
use carmine_osd::messages::{
    Head, PgAck, PgData, PgNotify, PgObject, PgQuery, PgScrubMap, PushObject, RepAck, RepOp,
};
use carmine_pgtypes::{LogEntry, ObjectChange, Sealed, Step, Transaction};
use carmine_reactor::Group;
use carmine_reactor::sim::NodeId;
use carmine_types::{Eversion, ObjectId, OsdId, PgId};
use carmine_wire::header::Front;
use carmine_wire::osd_msg::PgNotify2;
use carmine_wire::osd_op::{OpList, OsdOp, OsdReply, OsdRequest, WatchNotify, flags};
use carmine_wire::private::AdminReply;
use carmine_wire::{EntityType, kinds};

use super::cluster::Cluster;
use super::mon::POOL_ID;

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) result: i32,
    pub(crate) retry_attempt: i32,
    pub(crate) version: Eversion,
    /// Result of each operation.
    pub(crate) rvals: Vec<i32>,
    pub(crate) data: Vec<u8>,
}

/// One connection to one OSD's public port.
pub(crate) struct Raw(Rc<State>, NodeId);

#[derive(Default)]
struct State {
    outgoing: RefCell<Vec<Message>>,
    answers: RefCell<BTreeMap<u64, Vec<Answer>>>,
    notifies: RefCell<Vec<PgNotify>>,
    acks: RefCell<Vec<i32>>,
    events: RefCell<Vec<(WatchNotify, Vec<u8>)>>,
    notices: RefCell<Vec<PgNotify2>>,
    maps: Cell<u32>,
    connected: Cell<bool>,
    /// Messages that are kept, if this client reads no more while it has one.
    kept: Option<RefCell<Vec<Message>>>,
}

/// The global id of all raw clients: they are one client that connects again and again.
const GID: u64 = 777;

impl Raw {
    pub(crate) fn new(cluster: &Cluster, osd: u32) -> Raw {
        Raw::connect(cluster, osd, EntityType::CLIENT, GID)
    }

    /// Another client.
    pub(crate) fn of_client(cluster: &Cluster, osd: u32, gid: u64) -> Raw {
        Raw::connect(cluster, osd, EntityType::CLIENT, gid)
    }

    /// A client that reads one message and no more.
    pub(crate) fn silent(cluster: &Cluster, osd: u32, gid: u64) -> Raw {
        let state = State { kept: Some(RefCell::default()), ..State::default() };
        Raw::connect_with(cluster, osd, EntityType::CLIENT, gid, Rc::new(state))
    }

    /// A connection that an OSD made to another one.
    pub(crate) fn of_osd(cluster: &Cluster, from: u32, to: u32) -> Raw {
        Raw::connect(cluster, to, EntityType::OSD, from.into())
    }

    fn connect(cluster: &Cluster, osd: u32, entity: EntityType, gid: u64) -> Raw {
        Raw::connect_with(cluster, osd, entity, gid, Rc::default())
    }

    fn connect_with(cluster: &Cluster, osd: u32, entity: EntityType, gid: u64, state: Rc<State>) -> Raw {
        let addr = cluster.mon.map().client_addr(OsdId(osd)).unwrap().msgr2().unwrap();
        let place = Rc::clone(&state);
        let node = cluster.sim.node("raw", 1, move |shard| {
            let state = Rc::clone(&place);
            async move {
                let mut config = ClientConfig::new(entity, "raw", gid as u32);
                if state.kept.is_some() {
                    config.limits.held_messages = 1;
                }
                config.gid.set(gid);
                let dispatcher = Rc::new(Answers(Rc::clone(&state)));
                let task_shard = shard.clone();
                let conn =
                    connect(&task_shard, addr, EntityType::OSD, Rc::new(config), dispatcher).await.unwrap();
                state.connected.set(true);
                shard.spawn(Group::Client, "send", async move {
                    loop {
                        let messages = std::mem::take(&mut *state.outgoing.borrow_mut());
                        messages.into_iter().for_each(|message| conn.send(message));
                        task_shard.sleep(Duration::from_micros(10)).await;
                    }
                });
            }
        });
        cluster.wait("a raw connection", || state.connected.get());
        Raw(state, node)
    }

    /// The client dies.
    pub(crate) fn kill(self, cluster: &Cluster) {
        cluster.sim.kill(self.1);
    }

    /// A request for an object, as a client with the newest map would send it first.
    pub(crate) fn request(&self, cluster: &Cluster, name: &str, op: OsdOp) -> OsdRequest {
        self.request_in(cluster, POOL_ID, name, op)
    }

    pub(crate) fn request_in(&self, cluster: &Cluster, pool: i64, name: &str, op: OsdOp) -> OsdRequest {
        let map = cluster.mon.map();
        let oid = ObjectId::head(pool, b"", b"", name.as_bytes());
        let pg = PgId::of_hash(pool, oid.hash, map.pool(pool).unwrap().pg_num);
        let mode = if op.is_write() { flags::CLIENT_WRITE } else { flags::CLIENT_READ };
        OsdRequest::new(pg, map.epoch, mode, &oid, OpList::from_slice(&[op]))
    }

    pub(crate) fn send(&self, request: &OsdRequest, data: &[u8], tid: u64) {
        let mut front = Vec::new();
        request.encode_into(&mut front);
        self.send_message(Message::from_header(OsdRequest::header(tid), front).with_data(data.to_vec()));
    }

    pub(crate) fn send_message(&self, message: Message) {
        self.0.outgoing.borrow_mut().push(message);
    }

    /// As a primary: asks what the OSD has.
    pub(crate) fn query(&self, cluster: &Cluster, query: &PgQuery) -> PgNotify {
        self.send_message(Message::encode(query));
        cluster.wait("an answer", || !self.0.notifies.borrow().is_empty());
        self.0.notifies.borrow_mut().remove(0)
    }

    /// As a primary: gives an order, or a write; the result.
    pub(crate) fn order(&self, cluster: &Cluster, order: Message) -> i32 {
        self.send_message(order);
        cluster.wait("an answer", || !self.0.acks.borrow().is_empty());
        self.0.acks.borrow_mut().remove(0)
    }

    /// Results of orders and questions so far.
    pub(crate) fn results(&self) -> Vec<i32> {
        self.0.acks.borrow().clone()
    }

    /// Answers to a transaction so far.
    pub(crate) fn answers(&self, tid: u64) -> Vec<Answer> {
        self.0.answers.borrow().get(&tid).cloned().unwrap_or_default()
    }

    /// Transactions that have an answer.
    pub(crate) fn answered(&self) -> usize {
        self.0.answers.borrow().len()
    }

    /// The watch events since the last call, with their data.
    pub(crate) fn take_events(&self) -> Vec<(WatchNotify, Vec<u8>)> {
        self.0.events.take()
    }

    /// There are watch events.
    pub(crate) fn has_events(&self) -> bool {
        !self.0.events.borrow().is_empty()
    }

    /// What the OSD said to a classic one since the last call.
    pub(crate) fn take_notices(&self) -> Vec<PgNotify2> {
        self.0.notices.take()
    }

    /// Maps that the OSD sent.
    pub(crate) fn maps(&self) -> u32 {
        self.0.maps.get()
    }

    /// Sends and waits; `None` if there is no answer within a second.
    pub(crate) fn ask(
        &self,
        cluster: &Cluster,
        request: OsdRequest,
        data: &[u8],
        tid: u64,
    ) -> Option<Answer> {
        let before = self.answers(tid).len();
        self.send(&request, data, tid);
        let end = cluster.sim.now_ns() + 1_000_000_000;
        cluster.wait("an answer", || self.answers(tid).len() > before || cluster.sim.now_ns() > end);
        self.answers(tid).get(before).cloned()
    }
}

struct Answers(Rc<State>);

impl Dispatcher for Answers {
    fn on_message(&self, _: &Rc<Connection>, msg: Message) {
        if let Some(kept) = &self.0.kept {
            return kept.borrow_mut().push(msg);
        }
        match msg.header.kind {
            kinds::OSD_PG_NOTIFY2 => self.0.notices.borrow_mut().push(msg.decode().unwrap()),
            kinds::OSD_OP_REPLY => {
                let reply = OsdReply::decode(&msg.header, &msg.front).unwrap();
                let answer = Answer {
                    result: reply.result,
                    retry_attempt: reply.retry_attempt,
                    version: reply.replay_version,
                    rvals: reply.rvals.to_vec(),
                    data: msg.data.to_vec(),
                };
                self.0.answers.borrow_mut().entry(msg.header.tid).or_default().push(answer);
            }
            PgNotify::KIND => self.0.notifies.borrow_mut().push(msg.decode().unwrap()),
            PgAck::KIND => self.0.acks.borrow_mut().push(msg.decode::<PgAck>().unwrap().result),
            PgData::KIND => self.0.acks.borrow_mut().push(msg.decode::<PgData>().unwrap().result),
            PgScrubMap::KIND => self.0.acks.borrow_mut().push(msg.decode::<PgScrubMap>().unwrap().result),
            PgObject::KIND => self.0.acks.borrow_mut().push(msg.decode::<PgObject>().unwrap().result),
            AdminReply::KIND => self.0.acks.borrow_mut().push(msg.decode::<AdminReply>().unwrap().result),
            RepAck::KIND => self.0.acks.borrow_mut().push(msg.decode::<RepAck>().unwrap().result),
            kinds::WATCH_NOTIFY => {
                let event = (msg.decode::<WatchNotify>().unwrap(), msg.data.to_vec());
                self.0.events.borrow_mut().push(event);
            }
            kinds::OSD_MAP => self.0.maps.set(self.0.maps.get() + 1),
            _ => {}
        }
    }

    fn on_closed(&self, _: &Rc<Connection>, _: &str) {}
}

/// A push of these steps.
pub(crate) fn push_of(head: Head, oid: ObjectId, steps: impl IntoIterator<Item = Step>) -> Message {
    let mut txn = Transaction::new(head.pg, 0);
    txn.changes.push(ObjectChange::new(oid, steps));
    let txn = Sealed::from(txn);
    PushObject::pack(&head, &txn, txn.data()).message()
}

/// A write of one step.
pub(crate) fn write_of(head: Head, entry: LogEntry, step: Step) -> Message {
    let mut txn = Transaction::new(head.pg, 0);
    txn.changes.push(ObjectChange::new(Arc::clone(&entry.oid), [step]));
    txn.log.push(entry);
    let txn = Sealed::from(txn);
    RepOp::pack(&head, &txn, txn.data()).message()
}
