//! Sessions of the monitor: one for each connection, which handles its messages. Commands arrive in two kinds of message: to the
//! monitors at large (MON_COMMAND), and to this one (`ceph tell mon.a`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use carmine_messenger::{Connection, Dispatcher, Message, Parts, Peer, Permit};
use carmine_types::{Epoch, OsdId, errno};
use carmine_wire::header::Front;
use carmine_wire::mgr_msg::MgrOpen;
use carmine_wire::mon_msg::{
    Auth, Command, CommandAck, FsMapMsg, GetPoolStats, GetPoolStatsReply, GetVersion, GetVersionReply,
    MonMapMsg, ONETIME, PoolOp, PoolOpReply, StatFs, StatFsReply, Subscribe, Subscription, log_level,
};
use carmine_wire::tell::{Ping, Tell, TellReply};
use carmine_wire::{EntityAddrVec, kinds};
use serde_json::json;
use tracing::debug;

use crate::change::{Change, Refusal, SnapWish, refuse, shown};
use crate::command::{self, Answer, COMMAND_BYTES_MAX, View};
use crate::creating::CreateWish;
use crate::log::LogWish;
use crate::mon::{Done, Mon};
use crate::osds::osd_of;
use crate::push::PUSH_BYTES;
use crate::report::cluster;
use crate::report::health;
use crate::report::service::Daemon;
use crate::stats::{pool_stat, unsigned};

/// One connection.
pub(crate) struct Session {
    pub(crate) conn: Rc<Connection>,
    /// Wants maps from this epoch on.
    pub(crate) osdmap: Option<MapWish>,
    /// Wants each change of its options.
    pub(crate) wants_options: bool,
    /// Has not got its options as they are now.
    pub(crate) lacks_options: bool,
    /// Wants to be told which PGs to create.
    pub(crate) pg_creates: Option<CreateWish>,
    /// Wants lines of the cluster log.
    pub(crate) log: Option<LogWish>,
    /// A task sends it what it lacks, as there is room.
    pub(crate) is_fed: bool,
    /// It offers a service.
    service: Option<Rc<Daemon>>,
    /// The OSD at the other end, and its public addresses.
    pub(crate) osd: Option<(OsdId, EntityAddrVec)>,
}

impl Session {
    fn new(conn: &Rc<Connection>) -> Session {
        Session {
            conn: Rc::clone(conn),
            osdmap: None,
            wants_options: false,
            lacks_options: false,
            pg_creates: None,
            log: None,
            is_fed: false,
            service: None,
            osd: osd_of(conn),
        }
    }

    /// True if it is that of the OSD with these addresses.
    pub(crate) fn is_of(&self, osd: OsdId, addrs: &EntityAddrVec) -> bool {
        self.osd.as_ref().is_some_and(|(id, own)| *id == osd && own == addrs)
    }
}

/// A subscription to maps.
#[derive(Clone, Copy)]
pub(crate) struct MapWish {
    /// The first one that it has not got.
    pub(crate) from: Epoch,
    /// Only until it has the current one.
    pub(crate) once: bool,
}

/// Answers to a command or a subscription have about so many bytes, …
const ANSWER_BYTES: usize = PUSH_BYTES;
/// … and an answer to a command at most so many.
pub(crate) const ANSWER_BYTES_MAX: usize = 40 << 20;

/// The dispatcher of all connections.
pub(crate) struct Sessions(pub(crate) Rc<Mon>);

impl Dispatcher for Sessions {
    fn on_accepted(&self, conn: &Rc<Connection>) {
        self.0.sessions.borrow_mut().insert(conn.id(), Session::new(conn));
    }

    fn output_bytes(&self, _: &Connection, parts: &Parts) -> usize {
        match parts.header.kind {
            kinds::MON_COMMAND | kinds::COMMAND | kinds::MON_SUBSCRIBE => ANSWER_BYTES,
            _ => 0,
        }
    }

    fn on_message(&self, conn: &Rc<Connection>, mut msg: Message) {
        let permit = msg.take_permit();
        if let Err(e) = self.0.handle(conn, &msg, permit) {
            conn.close(format!("{}: {e}", kinds::name(msg.header.kind)));
        }
    }

    fn on_closed(&self, conn: &Rc<Connection>, reason: &str) {
        let session = self.0.sessions.borrow_mut().remove(&conn.id());
        if let Some((osd, addrs)) = session.and_then(|s| s.osd) {
            self.0.session_ended(osd, addrs, format!("its session ended ({reason})"));
        }
    }
}

/// Header of a reply: same transaction id.
fn answer<T: Front>(request: &Message, value: &T) -> Message {
    Message::encode(value).with_tid(request.header.tid)
}

impl Mon {
    /// What is not answered at once keeps the permit: a connection cannot have more changes queued than it may have messages held.
    fn handle(
        &self,
        conn: &Rc<Connection>,
        msg: &Message,
        permit: Option<Permit>,
    ) -> carmine_wire::Result<()> {
        match msg.header.kind {
            _ if !self.may_send(conn.peer(), msg) => {
                // As in Ceph, nobody answers.
                debug!(peer = %conn.peer(), "its caps do not allow {}", kinds::name(msg.header.kind));
            }
            kinds::AUTH => self.on_auth(conn, &msg.decode::<Auth>()?),
            kinds::MON_GET_MAP => self.send_monmap(conn),
            kinds::MON_SUBSCRIBE => self.subscribe(conn, &msg.decode::<Subscribe>()?),
            kinds::MON_GET_VERSION => self.get_version(conn, msg, &msg.decode::<GetVersion>()?),
            kinds::MON_COMMAND => self.command(conn, msg, msg.decode::<Command>()?, permit),
            kinds::COMMAND => self.tell_command(conn, msg, &msg.decode::<Tell>()?, permit),
            kinds::PING => self.ping(conn),
            kinds::MGR_OPEN => self.register(conn, msg.decode()?),
            kinds::POOL_OP => self.pool_op(conn, msg, msg.decode::<PoolOp>()?, permit),
            kinds::STATFS => {
                msg.decode::<StatFs>()?;
                self.statfs(conn, msg);
            }
            kinds::GET_POOL_STATS => self.pool_stats(conn, msg, &msg.decode::<GetPoolStats>()?),
            _ => self.hear_osd(conn, msg)?,
        }
        Ok(())
    }

    fn send_monmap(&self, conn: &Rc<Connection>) {
        Mon::reply(conn, Message::encode(&MonMapMsg { monmap: self.monmap.encode() }));
    }

    fn subscribe(&self, conn: &Rc<Connection>, wish: &Subscribe) {
        // On the wire they are a map by name: of two wishes with one name the last one counts.
        let wishes: BTreeMap<&str, &Subscription> =
            wish.what.iter().map(|sub| (sub.what.as_str(), sub)).collect();
        let mut sessions = self.sessions.borrow_mut();
        let Some(session) = sessions.get_mut(&conn.id()) else { return };
        for (what, sub) in wishes {
            match what {
                "monmap" if sub.start <= u64::from(self.monmap.epoch.0) => self.send_monmap(conn),
                // Pacific's clients wait for this before they do anything else.
                "config" => {
                    session.wants_options = sub.flags & ONETIME == 0;
                    session.lacks_options = true;
                }
                "osdmap" => {
                    let from = Epoch(u32::try_from(sub.start).unwrap_or(u32::MAX));
                    session.osdmap = Some(MapWish { from, once: sub.flags & ONETIME != 0 });
                }
                "osd_pg_creates" => {
                    let from = Epoch(u32::try_from(sub.start).unwrap_or(u32::MAX));
                    session.pg_creates = Some(CreateWish::since(from));
                }
                "mgrmap" if sub.start <= u64::from(self.mgrmap.epoch.0) => {
                    Mon::reply(conn, Message::encode(&self.mgrmap));
                }
                "fsmap" => Mon::reply(conn, Message::encode(&FsMapMsg { epoch: Epoch(1) })),
                what => session.log = self.log.borrow().wish(what, sub.start).or(session.log),
            }
        }
        self.push_to(session);
    }

    fn get_version(&self, conn: &Rc<Connection>, msg: &Message, wish: &GetVersion) {
        let newest = match wish.what.as_str() {
            "osdmap" => self.current().map.epoch,
            "monmap" => self.monmap.epoch,
            _ => Epoch(0),
        };
        let oldest = self.history.borrow().oldest().filter(|_| wish.what == "osdmap").unwrap_or(newest);
        let (newest, oldest) = (newest.0.into(), oldest.0.into());
        Mon::reply(conn, answer(msg, &GetVersionReply { handle: wish.handle, newest, oldest }));
    }

    fn statfs(&self, conn: &Rc<Connection>, msg: &Message) {
        let current = self.current();
        let stats = self.stats.borrow();
        let (total_bytes, used_bytes) = stats.space();
        let total_kib = total_bytes / 1024;
        let used_kib = used_bytes.div_ceil(1024).min(total_kib);
        let reply = StatFsReply {
            fsid: current.map.fsid,
            version: u64::from(current.map.epoch.0),
            total_kib,
            used_kib,
            available_kib: total_kib - used_kib,
            objects: unsigned(stats.held().num_objects),
        };
        Mon::reply(conn, answer(msg, &reply));
    }

    fn pool_stats(&self, conn: &Rc<Connection>, msg: &Message, wish: &GetPoolStats) {
        let current = self.current();
        let pools = self.stats.borrow().pools();
        let one = |name: &String| {
            let id = current.map.pool_id(name)?;
            let size = current.map.pool(id)?.size;
            Some((name.clone(), pool_stat(&pools.get(&id).copied().unwrap_or_default(), size)))
        };
        // By name on the wire as well.
        let stats = wish.pools.iter().collect::<BTreeSet<_>>().into_iter().filter_map(one).collect();
        let version = u64::from(current.map.epoch.0);
        let reply = GetPoolStatsReply { version, fsid: current.map.fsid, stats, per_pool: true };
        Mon::reply(conn, answer(msg, &reply));
    }

    fn pool_op(&self, conn: &Rc<Connection>, msg: &Message, request: PoolOp, permit: Option<Permit>) {
        let (conn, tid, pool) = (Rc::clone(conn), msg.header.tid, i64::from(request.pool));
        let takes_id = request.op == PoolOp::CREATE_UNMANAGED_SNAP;
        let done = move |mon: &Mon, result: Result<(), Refusal>| {
            drop(permit);
            // No other change comes between the one that took it and this answer.
            let id = mon.current().map.pool(pool).map(|pool| pool.snap_seq.to_le_bytes().to_vec());
            let id = id.filter(|_| takes_id && result.is_ok());
            mon.pool_op_done(&conn, tid, result.err().map_or(0, |refusal| refusal.code.0), id);
        };
        let snap = |wish| Change::Snap { pool, wish };
        let change = match request.op {
            PoolOp::CREATE => {
                // Below zero: the cluster's own.
                let rule = u8::try_from(request.crush_rule.max(0)).unwrap_or(u8::MAX);
                Change::CreatePool { name: request.name, pg_num: None, size: None, rule, values: Vec::new() }
            }
            PoolOp::DELETE => Change::DeletePool { pool },
            PoolOp::CREATE_SNAP => snap(SnapWish::Make(request.name)),
            PoolOp::DELETE_SNAP => snap(SnapWish::Remove(request.name)),
            PoolOp::CREATE_UNMANAGED_SNAP => snap(SnapWish::TakeId),
            PoolOp::DELETE_UNMANAGED_SNAP => snap(SnapWish::GiveBack(request.snapid)),
            other => {
                let text = format!("pool operation {other:#x} is not supported");
                return done(self, Err(crate::change::refuse(errno::EOPNOTSUPP, text)));
            }
        };
        self.change(change, Box::new(done));
    }

    fn pool_op_done(&self, conn: &Rc<Connection>, tid: u64, result: i32, data: Option<Vec<u8>>) {
        let map = &self.current().map;
        let version = u64::from(map.epoch.0);
        let reply = PoolOpReply { version, fsid: map.fsid, result, epoch: map.epoch, data };
        Mon::reply(conn, Message::encode(&reply).with_tid(tid));
    }
}

/// Sends a command's result, status and output.
type Ack = Box<dyn FnOnce(i32, String, Vec<u8>)>;

/// Answers a command when its change is done, or refused.
fn ending(ack: Ack, status: String, data: Vec<u8>) -> Done {
    Box::new(move |_: &Mon, result: Result<(), Refusal>| match result {
        Ok(()) => ack(0, status, data),
        Err(Refusal { code, text }) => ack(code.0, text, Vec::new()),
    })
}

impl Mon {
    fn command(&self, conn: &Rc<Connection>, msg: &Message, request: Command, permit: Option<Permit>) {
        // One that is too long is refused, and not repeated.
        let is_short = request.cmd.iter().map(String::len).sum::<usize>() <= COMMAND_BYTES_MAX;
        let cmd = if is_short { request.cmd.clone() } else { Vec::new() };
        let (conn, peer, tid) = (Rc::clone(conn), conn.peer(), msg.header.tid);
        let ack = move |result, status, data: Vec<u8>| {
            drop(permit);
            let front = CommandAck { version: 0, result, status, cmd };
            Mon::reply(&conn, Message::encode(&front).with_tid(tid).with_data(data));
        };
        self.run_command(peer, (&request.cmd, command::run), &msg.data.to_vec(), Box::new(ack));
    }

    fn tell_command(&self, conn: &Rc<Connection>, msg: &Message, request: &Tell, permit: Option<Permit>) {
        let (conn, peer, tid) = (Rc::clone(conn), conn.peer(), msg.header.tid);
        let ack = move |result, status, data: Vec<u8>| {
            drop(permit);
            let front = TellReply { result, status };
            Mon::reply(&conn, Message::encode(&front).with_tid(tid).with_data(data));
        };
        self.run_command(peer, (&request.cmd, command::run_told), &msg.data.to_vec(), Box::new(ack));
    }

    /// Writes a command into the audit log, as Ceph does.
    fn audit(&self, peer: &Peer, cmd: &[String]) {
        let Some((level, cmd)) = command::audited(cmd) else { return };
        let (kind, gid, addr) = (peer.entity, peer.gid, shown(&peer.addr));
        let name = &peer.name;
        let text = format!("from='{kind}.{gid} {addr}' entity='{kind}.{name}' cmd=[{cmd}]: dispatch");
        self.log.borrow_mut().audit(level, &text, self.now());
        self.push_news();
    }

    pub(crate) fn ping(&self, conn: &Rc<Connection>) {
        let text = self.with_view(
            &[],
            |view| json!({ "health": health::json(view, false), "mon_status": cluster::mon_status_json(view) }),
        );
        Mon::reply(conn, Message::encode(&Ping { text: Some(text.to_string()) }));
    }

    /// Sends a message to an OSD, if it has a session.
    fn send_to_osd(&self, osd: OsdId, message: Message) {
        let sessions = self.sessions.borrow();
        let is_its = |session: &&Session| session.osd.as_ref().is_some_and(|(id, _)| *id == osd);
        if let Some(session) = sessions.values().find(is_its) {
            Mon::reply(&session.conn, message);
        }
    }

    /// Notes a service for as long as this session lasts.
    fn register(&self, conn: &Rc<Connection>, told: MgrOpen) {
        let peer = conn.peer();
        let daemon = Daemon { told, gid: peer.gid, addr: shown(&peer.addr), since: self.now() };
        if let Some(session) = self.sessions.borrow_mut().get_mut(&conn.id()) {
            session.service = Some(Rc::new(daemon)).filter(|daemon| daemon.is_service());
        }
    }

    /// Calls `look` with the state that commands can see, and a command's input.
    pub(crate) fn with_view<T>(&self, input: &[u8], look: impl FnOnce(&View<'_>) -> T) -> T {
        let current = self.current();
        let services: Vec<Rc<Daemon>> =
            self.sessions.borrow().values().filter_map(|session| session.service.clone()).collect();
        let peers = || {
            self.sessions.borrow().values().map(|session| session.conn.peer().clone()).collect::<Vec<Peer>>()
        };
        look(&View {
            map: &current.map,
            placement: current.placement(),
            map_bytes: &current.bytes,
            history: &self.history.borrow(),
            stats: &self.stats.borrow(),
            log: &self.log.borrow(),
            options: &self.options.borrow(),
            services: &services,
            facts: &self.facts,
            sessions: &peers,
            monmap: &|| self.monmap.encode(),
            addr: self.local_addr().to_string(),
            uptime_s: self.uptime_s(),
            now: self.now(),
            input,
        })
    }

    fn run_command(&self, peer: &Peer, (cmd, run): (&[String], command::Runner), input: &[u8], ack: Ack) {
        self.audit(peer, cmd);
        let ack: Ack = Box::new(move |result, status, data| match data.len() {
            0..=ANSWER_BYTES_MAX => ack(result, status, data),
            bytes => {
                let text =
                    format!("the answer has {bytes} bytes, and may have {ANSWER_BYTES_MAX}: ask for less");
                ack(errno::EFBIG, text, Vec::new());
            }
        });
        let outcome = match command::is_allowed(peer, cmd) {
            true => self.with_view(input, |view| run(cmd, view)),
            false => Err(refuse(errno::EACCES, "access denied")),
        };
        match outcome {
            Err(Refusal { code, text }) => ack(code.0, text, Vec::new()),
            Ok(Answer::Done { status, data }) => ack(0, status, data),
            Ok(Answer::Not { code, status, data }) => ack(code.0, status, data),
            Ok(Answer::Scrub { orders, status }) => {
                orders.iter().for_each(|(osd, order)| self.send_to_osd(*osd, Message::encode(order)));
                ack(0, status, Vec::new());
            }
            Ok(Answer::Log { text }) => {
                self.log.borrow_mut().add(log_level::INFO, "client.admin", &text, self.now());
                ack(0, String::new(), Vec::new());
                self.push_news();
            }
            Ok(Answer::Options { edit, status }) => {
                self.change_options(edit, ending(ack, status, Vec::new()))
            }
            Ok(Answer::OptionsAndTell { edit, data }) => {
                self.change_options(edit, ending(ack, String::new(), data))
            }
            Ok(Answer::Change { change, status }) => self.change(change, ending(ack, status, Vec::new())),
            Ok(Answer::ChangeAndTell { change, data }) => {
                self.change(change, ending(ack, String::new(), data))
            }
        }
    }
}
