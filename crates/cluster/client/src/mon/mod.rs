//! The session with a monitor: maps as they change, questions that have one answer, and signs of life.

mod link;
mod tickets;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::cephx::KeyHolder;
use carmine_messenger::{ClientConfig, Connection, Message, with_timeout};
use carmine_reactor::sync::Notify;
use carmine_reactor::{Group, Payload, Shard};
use carmine_types::errno::Errno;
use carmine_types::{Epoch, Uuid};
use carmine_wire::EntityAddr;
use carmine_wire::mon_msg::{
    Command, CommandAck, GetVersion, GetVersionReply, PoolOp, PoolOpReply, StatFs, StatFsReply, Subscribe,
    Subscription,
};
use carmine_wire::monmap::MonMap;
use carmine_wire::osdmap::OsdMap;

use crate::error::{ClientError, Result};
use crate::maps::Maps;
use crate::pending::{Asked, Pending};

/// Events that the owner of a session can handle. All calls come on the session's shard.
pub trait MonHandler {
    /// The newest map that was seen before this process started: it wants all from there on. Zero: only the current one.
    fn seen(&self) -> Epoch {
        Epoch(0)
    }

    /// A session stands (again): time to send what the mon has forgotten, e.g. a boot message.
    fn on_session(&self, session: &Rc<MonSession>) {
        let _ = session;
    }

    /// A newer map.
    fn on_map(&self, map: &Arc<OsdMap>) {
        let _ = map;
    }

    /// The options that the monitor stores for this daemon, all of them.
    fn on_options(&self, options: Vec<(String, String)>) {
        let _ = options;
    }

    /// There are newer tickets, or newer keys of this daemon's service.
    fn on_tickets(&self, keys: &Rc<KeyHolder>) {
        let _ = keys;
    }

    /// A message of a type that the session itself does not use.
    fn on_message(&self, session: &Rc<MonSession>, msg: Message) {
        let _ = (session, msg);
    }
}

/// A handler that wants to hear nothing.
pub struct NoHandler;

impl MonHandler for NoHandler {}

/// A session with one of the monitors. It is kept up for as long as it is not shut down: after a fault it is made again,
/// with a growing pause, and goes on with its subscriptions where it was.
pub struct MonSession {
    shard: Shard,
    config: Rc<ClientConfig>,
    handler: Rc<dyn MonHandler>,
    /// Where monitors are: what the caller gave, then what the monmap says.
    targets: RefCell<Vec<EntityAddr>>,
    /// Index of the target to try next.
    next_target: Cell<usize>,
    monmap: RefCell<Option<Rc<MonMap>>>,
    maps: Rc<Maps>,
    conn: RefCell<Option<Rc<Connection>>>,
    pending: Pending,
    /// A session came up, went down, or was shut down.
    changed: Rc<Notify>,
    /// Why there is no session, for errors.
    fault: RefCell<Option<String>>,
    /// The maps that the mon was asked for last, from this epoch on, and the reactor time before which it is not asked for them
    /// again.
    asked_maps: Cell<(Epoch, u64)>,
    closed: Cell<bool>,
    /// The key by which it gets tickets; `None`: nobody asks for any.
    keys: Option<Rc<KeyHolder>>,
    /// Renewals that the monitor has not answered.
    asked_tickets: Cell<usize>,
}

impl MonSession {
    /// Starts a session with one of `mons` and keeps it up. Returns at once; see [`MonSession::ready`].
    pub fn start(
        shard: &Shard,
        mons: Vec<EntityAddr>,
        config: Rc<ClientConfig>,
        keys: Option<Rc<KeyHolder>>,
        handler: Rc<dyn MonHandler>,
    ) -> Rc<MonSession> {
        // Not all of a cluster's clients go to the same monitor.
        let first = if mons.len() > 1 { shard.random_u64() as usize % mons.len() } else { 0 };
        let session = Rc::new(MonSession {
            shard: shard.clone(),
            config,
            handler: Rc::clone(&handler),
            targets: RefCell::new(mons),
            next_target: Cell::new(first),
            monmap: RefCell::new(None),
            maps: Rc::new(Maps::default()),
            conn: RefCell::new(None),
            pending: Pending::default(),
            changed: Rc::new(Notify::new()),
            fault: RefCell::new(None),
            asked_maps: Cell::default(),
            closed: Cell::new(false),
            keys,
            asked_tickets: Cell::default(),
        });
        session.maps.watch(move |map| handler.on_map(map));
        let weak = Rc::downgrade(&session);
        session.maps.on_unusable(move |from| {
            if let Some(session) = weak.upgrade() {
                session.ask_maps(from);
            }
        });
        shard.spawn(Group::Admin, "mon-session", link::keep(Rc::downgrade(&session)));
        session
    }

    /// Waits for the first map (and so for a session).
    ///
    /// # Errors
    /// After `limit`, with the reason why there is none.
    pub async fn ready(&self, limit: Duration) -> Result<Arc<OsdMap>> {
        let map = with_timeout(&self.shard, limit, self.maps.reached(Epoch(1))).await;
        map.ok_or_else(|| self.no_answer("the first map of the monitor", limit))
    }

    /// The newest map; `None` until the first one came.
    pub fn osdmap(&self) -> Option<Arc<OsdMap>> {
        self.maps.current()
    }

    /// Waits for a map of `epoch` or newer.
    ///
    /// # Errors
    /// After `limit`.
    pub async fn wait_for_map(&self, epoch: Epoch, limit: Duration) -> Result<Arc<OsdMap>> {
        let map = with_timeout(&self.shard, limit, self.maps.reached(epoch)).await;
        map.ok_or_else(|| self.no_answer(&format!("the map of epoch {epoch}"), limit))
    }

    /// The monitors; `None` before the first session.
    pub fn monmap(&self) -> Option<Rc<MonMap>> {
        self.monmap.borrow().clone()
    }

    /// The cluster's id; zero before the first session.
    pub fn fsid(&self) -> Uuid {
        self.monmap().map(|map| map.fsid).or_else(|| self.osdmap().map(|map| map.fsid)).unwrap_or_default()
    }

    /// The id that the mon gave to this process; 0 before the first session.
    pub fn global_id(&self) -> u64 {
        self.config.gid.get()
    }

    /// The key by which it gets tickets.
    pub fn keys(&self) -> Option<&Rc<KeyHolder>> {
        self.keys.as_ref()
    }

    /// The config that connections of this process use: it carries the global id.
    pub fn config(&self) -> &Rc<ClientConfig> {
        &self.config
    }

    /// The connection, if a session stands.
    pub fn connection(&self) -> Option<Rc<Connection>> {
        self.conn.borrow().as_ref().filter(|conn| !conn.is_closed()).cloned()
    }

    /// Sends a message if a session stands; false if not. See [`MonHandler::on_session`].
    pub fn send(&self, msg: Message) -> bool {
        let conn = self.connection();
        if let Some(conn) = &conn {
            conn.send(msg);
        }
        conn.is_some()
    }

    /// Subscribes to something from this version on (0: the current one) if a session stands.
    pub fn subscribe(&self, what: &str, start: u64) {
        let what = vec![Subscription::new(what, start, false)];
        self.send(Message::encode(&Subscribe { what, hostname: String::new() }));
    }

    /// Offers the session a map message that came from an OSD.
    pub fn take_map(&self, msg: &Message, sender: &str) {
        self.maps.apply(msg, sender);
    }

    /// Ends the session for good.
    pub fn shutdown(&self) {
        self.closed.set(true);
        let conn = self.conn.borrow_mut().take();
        if let Some(conn) = conn {
            conn.close("shut down");
        }
        self.pending.fail_all();
        self.changed.notify_all();
    }

    pub(crate) fn maps(&self) -> &Rc<Maps> {
        &self.maps
    }

    fn no_answer(&self, what: &str, after: Duration) -> ClientError {
        let hint = match self.fault.borrow().as_deref() {
            Some(fault) if self.connection().is_none() => format!(" ({fault})"),
            _ => String::new(),
        };
        ClientError::Timeout { what: what.to_owned(), after, hint }
    }
}

impl Drop for MonSession {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Answer to a command.
#[derive(Clone, Debug)]
pub struct CommandReply {
    /// 0 or a negative errno.
    pub result: i32,
    /// For people.
    pub status: String,
    /// The output.
    pub data: Vec<u8>,
}

impl CommandReply {
    /// An error if the command failed.
    pub(crate) fn checked(self, json: &str) -> Result<CommandReply> {
        if self.result >= 0 {
            return Ok(self);
        }
        let what = format!("command {json} ({})", self.status);
        Err(ClientError::Errno { what, errno: Errno(self.result) })
    }
}

impl MonSession {
    /// Runs a command given as JSON, e.g. `{"prefix": "osd pool ls"}`, and returns its answer, whatever its result. If the
    /// session is lost before the answer comes, the command is sent again.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub async fn command(&self, json: &str, input: Payload, limit: Duration) -> Result<CommandReply> {
        let asked = self.ask(|_| self.encode_command(json).with_data(input));
        self.command_reply(json, asked, limit).await
    }

    /// The same for several commands, all sent at once, since a real monitor makes one map a second. The answers are in their order.
    pub async fn commands(&self, commands: &[String], limit: Duration) -> Vec<Result<CommandReply>> {
        let begin_ns = self.shard.now_ns();
        let asked: Vec<_> = commands.iter().map(|json| self.ask(|_| self.encode_command(json))).collect();
        let mut replies = Vec::with_capacity(commands.len());
        for (json, asked) in commands.iter().zip(asked) {
            let passed = Duration::from_nanos(self.shard.now_ns() - begin_ns);
            replies.push(self.command_reply(json, asked, limit.saturating_sub(passed)).await);
        }
        replies
    }

    fn encode_command(&self, json: &str) -> Message {
        Message::encode(&Command { version: 0, fsid: self.fsid(), cmd: vec![json.to_owned()] })
    }

    async fn command_reply(&self, json: &str, asked: Asked, limit: Duration) -> Result<CommandReply> {
        let what = format!("command {json}");
        let reply = self.reply(&what, asked, limit).await?;
        let ack: CommandAck = decode(&what, &reply)?;
        Ok(CommandReply { result: ack.result, status: ack.status, data: reply.data.to_vec() })
    }

    /// Number of the newest OSDMap that the mon has.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub async fn newest_osdmap(&self, limit: Duration) -> Result<Epoch> {
        let what = "question for the newest map";
        let ask = |handle| Message::encode(&GetVersion { handle, what: "osdmap".to_owned() });
        let reply: GetVersionReply = decode(what, &self.request(what, limit, ask).await?)?;
        Ok(Epoch(u32::try_from(reply.newest).unwrap_or(u32::MAX)))
    }

    /// Space in the cluster, or in one pool.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub async fn statfs(&self, pool: Option<i64>, limit: Duration) -> Result<StatFsReply> {
        let what = "question for the space used";
        let ask = StatFs { version: 0, fsid: self.fsid(), pool };
        decode(what, &self.request(what, limit, |_| Message::encode(&ask)).await?)
    }

    /// Creates or deletes a pool or a snapshot; returns when this process has the map in which it is done.
    ///
    /// # Errors
    /// The mon's errno, or no answer within `limit`.
    pub async fn pool_op(&self, op: PoolOp, limit: Duration) -> Result<PoolOpReply> {
        let what = format!("pool operation {:#x} on {:?}", op.op, op.name);
        let op = PoolOp { fsid: self.fsid(), ..op };
        let reply: PoolOpReply = decode(&what, &self.request(&what, limit, |_| Message::encode(&op)).await?)?;
        if reply.result < 0 {
            return Err(ClientError::Errno { what, errno: carmine_types::errno::Errno(reply.result) });
        }
        self.wait_for_map(reply.epoch, limit).await?;
        Ok(reply)
    }

    /// Sends what `make` makes (given the request's number) and waits for the reply of that number.
    async fn request(
        &self,
        what: &str,
        limit: Duration,
        make: impl FnOnce(u64) -> Message,
    ) -> Result<Message> {
        self.reply(what, self.ask(make), limit).await
    }

    /// Sends what `make` makes, given the request's number, now or when there is a session.
    fn ask(&self, make: impl FnOnce(u64) -> Message) -> Asked {
        let (id, asked) = self.pending.register(make);
        if let Some(conn) = self.connection() {
            self.pending.send(id, &conn);
        }
        asked
    }

    async fn reply(&self, what: &str, asked: Asked, limit: Duration) -> Result<Message> {
        match with_timeout(&self.shard, limit, asked).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(_)) => Err(ClientError::Closed),
            None => Err(self.no_answer(what, limit)),
        }
    }

    /// Sends all requests without an answer on a new connection.
    fn resend(&self, conn: &Connection) {
        self.pending.send_all(conn);
    }
}

fn decode<T: carmine_wire::Front>(what: &str, reply: &Message) -> Result<T> {
    reply.decode().map_err(|error| ClientError::BadReply { what: what.to_owned(), reason: error.to_string() })
}
