//! One OSD of the fake cluster.

use super::fake::{Cluster, Key};
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::{Group, Payload};
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, PgId, SNAP_HEAD, errno};
use carmine_wire::backoff::{Backoff, BackoffOp};
use carmine_wire::osd_op::{OsdOp, OsdReply, OsdRequest, ops, payload_ranges};
use carmine_wire::pgls::{ALL_NAMESPACES, HObject, ListedObject, PgNlsArg, PgNlsReply};
use carmine_wire::private::{Admin, AdminReply, Route, RouteReply};
use carmine_wire::{Encoder, EntityAddr, EntityType, kinds};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

pub(crate) struct FakeOsd {
    pub(crate) id: OsdId,
    pub(crate) addr: EntityAddr,
    cluster: Weak<Cluster>,
    /// Port of each reactor.
    ports: Vec<u16>,
    stopped: Cell<bool>,
    pub(crate) conns: RefCell<Vec<Rc<Connection>>>,
    /// Takes operations and says nothing.
    pub(crate) mute: Cell<bool>,
    /// Answers EAGAIN to this many operations.
    pub(crate) again: Cell<u32>,
    /// Does not answer Route.
    pub(crate) no_route: Cell<bool>,
    /// Operations wait for the end of this back-off.
    pub(crate) backoff: RefCell<Option<Backoff>>,
    pub(crate) acked_backoffs: Cell<u32>,
    /// Longest time that a reply takes.
    pub(crate) delay: Cell<Duration>,
    /// Operations by local port, and those on a connection of the wrong reactor.
    pub(crate) by_port: RefCell<BTreeMap<u16, u32>>,
    pub(crate) misrouted: Cell<u32>,
    pub(crate) retries: Cell<u32>,
    pub(crate) routes: Cell<u32>,
    in_flight: Cell<u32>,
    pub(crate) in_flight_max: Cell<u32>,
}

impl FakeOsd {
    pub(crate) async fn start(cluster: &Rc<Cluster>, id: OsdId, reactors: u16) -> Rc<FakeOsd> {
        let shard = &cluster.shard;
        let mut listeners = Vec::new();
        for _ in 0..=reactors {
            listeners.push(shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap());
        }
        let addr = EntityAddr::msgr2(listeners[0].local_addr(), shard.random_u64() as u32);
        let osd = Rc::new(FakeOsd {
            id,
            addr,
            cluster: Rc::downgrade(cluster),
            ports: listeners[1..].iter().map(|listener| listener.local_addr().port()).collect(),
            stopped: Cell::new(false),
            conns: RefCell::default(),
            mute: Cell::new(false),
            again: Cell::new(0),
            no_route: Cell::new(false),
            backoff: RefCell::default(),
            acked_backoffs: Cell::new(0),
            delay: Cell::new(Duration::ZERO),
            by_port: RefCell::default(),
            misrouted: Cell::new(0),
            retries: Cell::new(0),
            routes: Cell::new(0),
            in_flight: Cell::new(0),
            in_flight_max: Cell::new(0),
        });
        let config = Rc::new(ServerConfig::new(EntityType::OSD, id.0.into(), addr.into()));
        for listener in listeners {
            let port = listener.local_addr().port();
            let side = Rc::new(Side { osd: Rc::clone(&osd), port });
            let (config, shard) = (Rc::clone(&config), shard.clone());
            shard.clone().spawn(Group::Admin, "fake-osd", async move {
                while let Ok((socket, _)) = listener.accept().await {
                    if side.osd.stopped.get() {
                        break;
                    }
                    serve(&shard, socket, Rc::clone(&config), side.clone()).await;
                }
            });
        }
        osd
    }

    pub(crate) fn stop(&self) {
        self.stopped.set(true);
        self.cut();
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        let conns = std::mem::take(&mut *self.conns.borrow_mut());
        conns.iter().for_each(|conn| conn.close("cut by the test"));
    }

    /// The reactor that owns a PG.
    pub(crate) fn owner(&self, pg: PgId) -> u16 {
        (pg.ps as usize % self.ports.len().max(1)) as u16
    }

    fn on_message(self: &Rc<Self>, conn: &Rc<Connection>, port: u16, msg: Message) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        match msg.header.kind {
            kinds::OSD_OP => self.on_op(&cluster, conn, port, msg),
            kinds::ROUTE => {
                self.routes.set(self.routes.get() + 1);
                let epoch = msg.decode::<Route>().unwrap().epoch.max(cluster.epoch());
                let pgs = cluster.view.borrow().pgs_of(self.id).map(|(pg, _)| (pg, self.owner(pg))).collect();
                let reply = RouteReply { epoch, reactors: self.ports.clone(), pgs };
                if !self.no_route.get() {
                    conn.send(Message::encode(&reply).with_tid(msg.header.tid));
                }
            }
            kinds::ADMIN => {
                let json = msg.decode::<Admin>().unwrap().json;
                let result = if json.starts_with(b"bad") { -22 } else { 0 };
                if !self.mute.get() {
                    conn.send(Message::encode(&AdminReply { result, json }).with_tid(msg.header.tid));
                }
            }
            kinds::OSD_BACKOFF => {
                assert_eq!(msg.decode::<Backoff>().unwrap().op, BackoffOp::AckBlock);
                self.acked_backoffs.set(self.acked_backoffs.get() + 1);
            }
            other => panic!("the client sent message {other} to an OSD"),
        }
    }

    fn on_op(self: &Rc<Self>, cluster: &Rc<Cluster>, conn: &Rc<Connection>, port: u16, msg: Message) {
        let request = OsdRequest::decode(&msg.header, &msg.front).unwrap();
        *self.by_port.borrow_mut().entry(port).or_default() += 1;
        if self.ports.iter().position(|own| *own == port).is_none_or(|at| at as u16 != self.owner(request.pg))
        {
            self.misrouted.set(self.misrouted.get() + 1);
        }
        if request.retry_attempt > 0 {
            self.retries.set(self.retries.get() + 1);
            assert!(request.flags & 8 != 0, "a retry without its flag");
        }
        if request.epoch < cluster.epoch() {
            conn.send(Message::encode(&cluster.mon.full_map()));
        }
        let primary = cluster.view.borrow().acting_primary(request.pg);
        if self.mute.get() || primary != Some(self.id) {
            return;
        }
        if let Some(backoff) = self.backoff.borrow().clone() {
            return conn.send(Message::encode(&Backoff { pg: request.pg, ..backoff }));
        }
        let mut reply = OsdReply::to(&request, b"", cluster.epoch(), 0);
        let mut data = Payload::new();
        if self.again.get() > 0 {
            self.again.set(self.again.get() - 1);
            reply.result = errno::EAGAIN;
        } else {
            (reply, data) = execute(cluster, conn.peer().gid, &msg, &request);
        }
        self.in_flight.set(self.in_flight.get() + 1);
        self.in_flight_max.set(self.in_flight_max.get().max(self.in_flight.get()));
        let mut front = Vec::new();
        reply.encode_into(&mut front);
        let answer = Message::from_header(OsdReply::header(msg.header.tid), front).with_data(data);
        let (osd, conn, shard) = (Rc::clone(self), Rc::clone(conn), cluster.shard.clone());
        let delay = self.delay.get().as_nanos() as u64;
        shard.clone().spawn(Group::Client, "fake-reply", async move {
            if delay > 0 {
                shard.sleep(Duration::from_nanos(shard.random_u64() % delay)).await;
            }
            osd.in_flight.set(osd.in_flight.get() - 1);
            conn.send(answer);
        });
    }

    /// Ends the back-off.
    pub(crate) fn unblock(&self, pgs: impl IntoIterator<Item = PgId>) {
        let Some(backoff) = self.backoff.borrow_mut().take() else { return };
        for pg in pgs {
            let unblock = Backoff { pg, op: BackoffOp::Unblock, ..backoff.clone() };
            self.conns.borrow().iter().for_each(|conn| conn.send(Message::encode(&unblock)));
        }
    }
}

/// A back-off of a whole PG.
pub(crate) fn whole_pg(pg: PgId) -> Backoff {
    let begin = HObject::from(ObjectId::cursor(pg.pool, 0));
    Backoff { pg, shard: -1, epoch: Epoch(1), op: BackoffOp::Block, id: 17, begin, end: HObject::max() }
}

struct Side {
    osd: Rc<FakeOsd>,
    port: u16,
}

impl Dispatcher for Side {
    fn on_accepted(&self, conn: &Rc<Connection>) {
        self.osd.conns.borrow_mut().push(Rc::clone(conn));
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        self.osd.on_message(conn, self.port, msg);
    }

    fn on_closed(&self, conn: &Rc<Connection>, _: &str) {
        self.osd.conns.borrow_mut().retain(|other| !Rc::ptr_eq(other, conn));
    }
}

/// Runs the operations. A write that was applied before is not applied again.
fn execute(cluster: &Cluster, gid: u64, msg: &Message, request: &OsdRequest) -> (OsdReply<'static>, Payload) {
    let mut reply = OsdReply::to(request, b"", cluster.epoch(), 0);
    let reqid = (gid, msg.header.tid);
    let done = cluster.applied.borrow().get(&reqid).copied();
    if let Some(version) = done {
        reply.replay_version = Eversion { epoch: 1, version };
        reply.user_version = version;
        return (reply, Payload::new());
    }
    let mut out = Payload::new();
    let ranges = payload_ranges(&request.ops, msg.data.len()).unwrap();
    for (at, (op, range)) in request.ops.iter().zip(ranges).enumerate() {
        let input = msg.data.slice(range.start, range.len()).to_vec();
        match one(cluster, msg.header.tid, request, op, &input) {
            Ok(output) => {
                reply.ops[at].payload_len = output.len() as u32;
                if op.code == ops::PGNLS {
                    reply.result = 1;
                }
                out.append(&Payload::from(output));
            }
            Err(error) => {
                reply.rvals[at] = error;
                reply.result = error;
                return (reply, Payload::new());
            }
        }
    }
    if request.ops.iter().any(OsdOp::is_write) {
        cluster.version.set(cluster.version.get() + 1);
        cluster.applied.borrow_mut().insert(reqid, cluster.version.get());
        reply.replay_version = Eversion { epoch: 1, version: cluster.version.get() };
        reply.user_version = cluster.version.get();
    }
    (reply, out)
}

fn one(cluster: &Cluster, tid: u64, request: &OsdRequest, op: &OsdOp, input: &[u8]) -> Result<Vec<u8>, i32> {
    if op.code == ops::PGNLS {
        return Ok(list(cluster, request, op, input));
    }
    let key: Key = (request.pg.pool, request.locator.nspace.to_vec(), request.name.to_vec());
    let mut objects = cluster.objects.borrow_mut();
    if op.code == ops::DELETE {
        return objects.remove(&key).map(|_| Vec::new()).ok_or(errno::ENOENT);
    }
    if !op.is_write() && !objects.contains_key(&key) {
        return Err(errno::ENOENT);
    }
    let object = objects.entry(key).or_default();
    let extent = op.extent();
    let (from, len) = (extent.offset as usize, extent.length as usize);
    match op.code {
        ops::READ => {
            let end = if len == 0 { object.data.len() } else { (from + len).min(object.data.len()) };
            return Ok(object.data.get(from..end).unwrap_or(&[]).to_vec());
        }
        ops::STAT => {
            return Ok(Encoder::collect(|e| {
                e.u64(object.data.len() as u64);
                e.utime(object.mtime);
            }));
        }
        ops::WRITE => {
            let size = object.data.len().max(from + input.len());
            object.data.resize(size, 0);
            object.data[from..from + input.len()].copy_from_slice(input);
        }
        ops::WRITE_FULL => object.data = input.to_vec(),
        ops::CREATE if op.flags & 1 != 0 && !object.writers.is_empty() => return Err(errno::EEXIST),
        ops::CREATE => {}
        ops::TRUNCATE => object.data.resize(from, 0),
        ops::ZERO if from < object.data.len() && from + len >= object.data.len() => {
            object.data.truncate(from)
        }
        ops::ZERO => {
            let end = (from + len).min(object.data.len());
            object.data[from.min(end)..end].fill(0);
        }
        _ => return Err(errno::EOPNOTSUPP),
    }
    object.writers.push(tid);
    object.mtime = request.mtime;
    Ok(Vec::new())
}

fn list(cluster: &Cluster, request: &OsdRequest, op: &OsdOp, input: &[u8]) -> Vec<u8> {
    let cursor = PgNlsArg::decode(input).unwrap().cursor;
    assert_eq!(request.locator.hash, i64::from(request.pg.ps));
    let pool = request.pg.pool;
    let pg_num = cluster.map().pool(pool).unwrap().pg_num;
    let nspace = &request.locator.nspace[..];
    let mut all: Vec<ObjectId> = cluster
        .objects
        .borrow()
        .keys()
        .filter(|key| key.0 == pool && (nspace == ALL_NAMESPACES || key.1 == nspace))
        .map(|key| ObjectId::head(pool, &key.1, b"", &key.2))
        .filter(|object| PgId::of_hash(pool, object.hash, pg_num) == request.pg)
        .filter(|object| HObject::from(object.clone()) >= cursor)
        .collect();
    all.sort();
    let max = op.pgls().max_entries as usize;
    let next = match all.get(max) {
        Some(object) => HObject::from(object.clone()),
        None => match request.pg.ps.reverse_bits().checked_add(1 << (32 - pg_num.trailing_zeros())) {
            Some(reversed) => {
                HObject::from(ObjectId { snap: SNAP_HEAD, ..ObjectId::cursor(pool, reversed.reverse_bits()) })
            }
            None => HObject::max(),
        },
    };
    let entries = all.iter().take(max).map(ListedObject::from).collect();
    PgNlsReply { next, entries }.encode()
}
