//! Answers tools: which reactor owns which PG, the states of the PGs, the reactors' counters. Questions arrive as messages (the
//! testbed, `carmine admin`, `ceph tell`) or over the admin socket (`ceph daemon`); [`answer`] answers all.

mod bench;
mod dumps;
mod lists;
mod options;
mod perf;
mod pg_query;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_reactor::Group;
use carmine_types::errno;
use carmine_wire::frame::SEGMENT_BYTES_MAX;
use carmine_wire::private::{Admin, AdminReply, RouteReply};
use carmine_wire::tell::{Tell, TellReply};
use serde_json::{Map, Value, json};

use crate::networks::Network;
use crate::shard::OsdShard;
use crate::{mgr, stats};

pub(crate) use lists::address;
pub(crate) use perf::counters;

/// An answer to an admin question: a JSON object, or what is wrong with the question.
pub type AdminAnswer = Pin<Box<dyn Future<Output = Result<Value, String>>>>;

/// Answers questions that the OSD itself does not know. Called on the shard that the question arrived on.
pub trait AdminHook {
    /// Answers the question with this prefix; `None` if the hook does not know it either.
    fn answer(&self, osd: &Rc<OsdShard>, prefix: &str, question: &Value) -> Option<AdminAnswer>;

    /// The metadata of the OSD and its machine, by Ceph's names, which the monitor gets at boot.
    fn metadata(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether the OSD keeps running when it cannot read its metadata, even if others can do without it.
    fn stays_damaged(&self) -> bool {
        false
    }

    /// Called when the OSD stops for good because it cannot read its metadata and others can do without it. It should not be
    /// restarted.
    fn gave_up(&self, _what: &str) {}

    /// The commands without arguments that it answers, each with a line of help.
    fn commands(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

/// The hook as a shard keeps it.
pub(crate) struct Hook(pub Box<dyn AdminHook>);

/// Tells a client or another OSD which reactor owns which PG, and the reactor's port on the asker's network. The answer names no shards:
/// of several shards of one PG it has the first, and this OSD forwards messages for the others ([`crate::dispatch`]).
pub(crate) fn route(osd: &Rc<OsdShard>, conn: &Rc<Connection>, from: Network, msg: &Message) {
    let mut pgs = BTreeMap::new();
    for (pg, owner) in osd.table.borrow().iter() {
        pgs.entry(pg.pgid).or_insert(owner.0);
    }
    let pgs = pgs.into_iter().collect();
    let reactors = osd.ports.borrow().iter().map(|ports| *ports.get(from)).collect();
    let reply = RouteReply { epoch: osd.epoch(), reactors, pgs };
    conn.send(Message::encode(&reply).with_tid(msg.header.tid));
}

/// The answer to a peer whose caps do not allow the question.
const DENIED: &str = "access denied: the caps of the key do not allow everything";

/// Answers a tool.
pub(crate) fn admin(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: &Message) {
    let tid = msg.header.tid;
    let question = match msg.decode::<Admin>().map_err(|e| e.to_string()) {
        Ok(admin) => serde_json::from_slice::<Value>(&admin.json).map_err(|e| format!("bad JSON: {e}")),
        Err(error) => Err(error),
    };
    let (osd, conn) = (Rc::clone(osd), Rc::clone(conn));
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "admin", async move {
        let answer = async { answer(&osd, &question?).await };
        let (result, json) = match osd.may_do_everything(&conn) {
            false => (errno::EACCES, json!({ "error": DENIED })),
            true => match answer.await {
                Ok(value) => (0, value),
                Err(error) => (errno::EINVAL, json!({ "error": error })),
            },
        };
        conn.send(Message::encode(&reply(result, json.to_string().into_bytes())).with_tid(tid));
    });
}

/// Longest answer: it travels in the front of its message.
const ANSWER_BYTES_MAX: usize = SEGMENT_BYTES_MAX - 64;

/// The answer, or an error if it is longer than the receiver accepts.
fn reply(result: i32, json: Vec<u8>) -> AdminReply {
    if json.len() <= ANSWER_BYTES_MAX {
        return AdminReply { result, json };
    }
    let error = format!("the answer has {} bytes, and may have {ANSWER_BYTES_MAX}", json.len());
    AdminReply { result: errno::E2BIG, json: json!({ "error": error }).to_string().into_bytes() }
}

/// Answers a question: `{"prefix": COMMAND, …}`.
pub(crate) async fn answer(osd: &Rc<OsdShard>, question: &Value) -> Result<Value, String> {
    let prefix = question["prefix"].as_str().ok_or("the question has no \"prefix\"")?;
    match prefix {
        "status" => Ok(dumps::status(osd).await),
        "dump_metrics" => Ok(dumps::dump_metrics(osd).await),
        "dump_watchers" => Ok(lists::watchers(osd).await),
        "dump_blocklist" => Ok(lists::blocklist(osd)),
        "get_mapped_pools" => Ok(lists::mapped_pools(osd).await),
        "dump_ops_in_flight" | "ops" => Ok(dumps::dump_ops_in_flight(osd).await),
        "dump_blocked_ops" => Ok(dumps::dump_blocked_ops(osd).await),
        "dump_historic_ops" | "dump_historic_ops_by_duration" => Ok(dumps::dump_historic_ops()),
        "dump_historic_slow_ops" => Ok(dumps::dump_historic_slow_ops(osd)),
        // Each line of the log is written at once.
        "log flush" => Ok(json!({})),
        "perf dump" => Ok(perf::dump(osd, question).await),
        "perf schema" => Ok(perf::schema()),
        "bench" => bench::bench(osd, question).await,
        "dump_shards" => Ok(dumps::dump_shards(osd).await),
        "pg_contents" => dumps::pg_contents(osd).await,
        _ if pg_query::is_of_pg(prefix) => pg_query::answer(osd, prefix, question).await,
        "get_command_descriptions" => Ok(descriptions(osd)),
        "config get" => options::get(osd, question),
        "config set" => options::set(osd, question).await,
        "config unset" => options::unset(osd, question).await,
        "injectargs" => options::inject(osd, question).await,
        "flush_pg_stats" => Ok(flush_pg_stats(osd).await),
        "help" => Ok(help(osd)),
        "version" => Ok(version()),
        "0" => Ok(PROTOCOL_VERSION.into()),
        _ => {
            let hook = osd.shard.local::<Hook>();
            match hook.and_then(|hook| hook.0.answer(osd, prefix, question)) {
                Some(answer) => answer.await,
                None => Err(format!(
                    "unknown command {prefix:?}: the command \"help\" lists those that there are"
                )),
            }
        }
    }
}

// `ceph tell osd.N COMMAND`: the admin commands as Ceph's MCommand. Errors are reported in the reply's status.

/// An answer with this key is one line, which the tool shows as the command's status.
const STATUS: &str = "said";

/// Longest command, bytes; real ones have a few hundred.
const COMMAND_BYTES_MAX: usize = 64 << 10;

/// Answers a tool.
pub(crate) fn answer_tell(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: &Message) {
    let tid = msg.header.tid;
    let question = question(msg);
    let (osd, conn) = (Rc::clone(osd), Rc::clone(conn));
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "tell", async move {
        let told = match osd.may_do_everything(&conn) {
            true => execute_tell(&osd, question).await,
            false => Err((errno::EACCES, DENIED.to_owned())),
        };
        let (result, (status, data)) = match told {
            Ok(told) => (0, told),
            Err((result, status)) => (result, (status, Vec::new())),
        };
        conn.send(Message::encode(&TellReply { result, status }).with_tid(tid).with_data(data));
    });
}

/// Executes a command; returns the status and the answer. Fails with a negative errno and its reason.
async fn execute_tell(
    osd: &Rc<OsdShard>,
    question: Result<Value, String>,
) -> Result<(String, Vec<u8>), (i32, String)> {
    let question = question.map_err(|status| (errno::EINVAL, status))?;
    pg_query::admit(osd, &question)?;
    let code = if question["prefix"] == "config get" { errno::ENOENT } else { errno::EINVAL };
    let value = answer(osd, &question).await.map_err(|status| (code, status))?;
    Ok(match value.get(STATUS).and_then(Value::as_str) {
        Some(status) => (status.to_owned(), Vec::new()),
        None => (String::new(), format_answer(&question, &value)),
    })
}

fn question(msg: &Message) -> Result<Value, String> {
    let tell: Tell = msg.decode().map_err(|e| e.to_string())?;
    let text = tell.cmd.first().map_or("", String::as_str);
    if text.len() > COMMAND_BYTES_MAX {
        return Err(format!("a command of {} bytes: the limit is {COMMAND_BYTES_MAX}", text.len()));
    }
    serde_json::from_str(text).map_err(|e| format!("the command is no JSON object: {e}"))
}

/// Formats an answer: pretty-printed JSON, unless compact JSON was asked for; plain text unchanged.
fn format_answer(question: &Value, value: &Value) -> Vec<u8> {
    let mut text = match value {
        Value::String(text) => text.clone(),
        _ if question["format"] == "json" => value.to_string(),
        _ => format!("{value:#}"),
    };
    text.push('\n');
    text.into_bytes()
}

// The list of commands, in the form that Ceph's tools expect.

/// Version of the admin socket's protocol that Ceph's daemons report.
const PROTOCOL_VERSION: &str = "2";

/// One command: its words, its parameters (`name` is an optional number, `name:type` a text that must be there, with `+` after it one
/// or more, with `?` one that may be left out), a line of help.
type Command = (&'static str, &'static [&'static str], &'static str);

/// The commands of every OSD.
const COMMANDS: [Command; 25] = [
    (
        "bench",
        &["count", "size", "object_size", "object_num"],
        "write `count` bytes through the store, `size` at a time; tell the rate",
    ),
    ("config get", &["var:CephString"], "the value of an option that can change while this OSD runs"),
    ("config set", &["var:CephString", "val:CephString+"], "change an option of this OSD until it stops"),
    ("config unset", &["var:CephString"], "forget the value of an option that only this OSD was told"),
    ("dump_blocklist", &[], "clients that the map keeps out"),
    ("dump_watchers", &[], "watchers of objects in the PGs that this OSD leads"),
    ("get_mapped_pools", &[], "pools of this OSD's PGs"),
    ("ops", &[], "operations that are not answered yet, as dump_ops_in_flight"),
    ("dump_blocked_ops", &[], "operations that are slow: not answered for osd_op_complaint_time"),
    ("dump_historic_ops", &[], "operations of before (none are kept: that would cost each of them)"),
    ("dump_historic_ops_by_duration", &[], "the same"),
    ("dump_historic_slow_ops", &[], "slow operations of before (none are kept; the log tells of them)"),
    ("log flush", &[], "write out the log (each line is written at once)"),
    ("dump_metrics", &[], "all metrics of all shards"),
    ("dump_ops_in_flight", &[], "operations that are not answered yet: stage, age and what each waits for"),
    ("dump_shards", &[], "what each reactor has, and how its time went"),
    ("flush_pg_stats", &[], "wait until the monitor has heard what the PGs hold"),
    ("get_command_descriptions", &[], "these commands, for tools"),
    ("help", &[], "these commands"),
    (
        "injectargs",
        &["injected_args:CephString+"],
        "change options of this OSD until it stops: --NAME VALUE …",
    ),
    ("perf dump", &["logger:CephString?", "counter:CephString?"], "counters under Ceph's names: all, or one"),
    ("perf schema", &[], "type, unit and meaning of these counters"),
    ("pg_contents", &[], "a digest of every object; reads the whole store"),
    ("status", &[], "epoch, space and the state of every PG"),
    ("version", &[], "version of this program"),
];

fn all(osd: &OsdShard) -> Vec<Command> {
    let mut all = COMMANDS.to_vec();
    let more = osd.shard.local::<Hook>().map(|hook| hook.0.commands()).unwrap_or_default();
    all.extend(more.into_iter().map(|(words, help)| (words, &[][..], help)));
    all.sort_unstable();
    all
}

/// `{"cmd000": {"sig": ["config", "show"], "help": …}, …}`: the words and parameters of each command.
fn descriptions(osd: &OsdShard) -> Value {
    let described = all(osd).into_iter().enumerate().map(|(at, (words, parameters, help))| {
        let words = words.split(' ').map(|word| json!(word));
        let parameters = parameters.iter().map(|text| parameter(text));
        let sig: Vec<Value> = words.chain(parameters).collect();
        (
            format!("cmd{at:03}"),
            json!({ "sig": sig, "help": help, "module": "osd", "perm": "rw", "flags": 0 }),
        )
    });
    let of_pgs = pg_query::signatures().enumerate().map(|(at, (help, sig))| {
        let command = json!({ "sig": sig, "help": help, "module": "osd", "perm": "r", "flags": 0 });
        (format!("cmd{:03}", 900 + at), command)
    });
    Value::Object(described.chain(of_pgs).collect())
}

fn parameter(text: &str) -> Value {
    let Some((name, kind)) = text.split_once(':') else {
        return json!({ "name": text, "type": "CephInt", "req": false });
    };
    if let Some(kind) = kind.strip_suffix('?') {
        return json!({ "name": name, "type": kind, "req": false });
    }
    match kind.strip_suffix('+') {
        Some(kind) => json!({ "name": name, "type": kind, "n": "N" }),
        None => json!({ "name": name, "type": kind }),
    }
}

/// `{"COMMAND": HELP, …}`
fn help(osd: &OsdShard) -> Value {
    let lines = all(osd).into_iter().map(|(command, _, help)| (command.to_owned(), help.into()));
    Value::Object(lines.collect::<Map<_, _>>())
}

/// Waits until a report with everything counted so far has been sent. Its number is the answer; those to the embedded monitor have
/// none, so that it is 0.
async fn flush_pg_stats(osd: &OsdShard) -> Value {
    if let Some(number) = mgr::flush(osd).await {
        return json!(number);
    }
    osd.shard.sleep(stats::PERIOD + stats::PERIOD / 4).await;
    json!(0)
}

fn version() -> Value {
    json!({ "version": env!("CARGO_PKG_VERSION"), "release": "carmine", "release_type": "dev" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        for (len, result) in [(ANSWER_BYTES_MAX, 0), (ANSWER_BYTES_MAX + 1, errno::E2BIG)] {
            let message = Message::encode(&reply(0, vec![b'1'; len]));
            assert!(message.front.len() <= SEGMENT_BYTES_MAX);
            assert_eq!(message.decode::<AdminReply>().unwrap().result, result);
        }
    }
}
