//! Questions of tools: how PGs are dealt, in what state they are, what the reactors counted. They come as messages (the
//! testbed, `carmine admin`, `ceph tell`) or over the admin socket (`ceph daemon`); all are answered by [`answer`].

mod bench;
mod commands;
mod in_flight;
mod metrics;
mod perf;
mod shards;
mod status;
mod tell;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_reactor::{Group, ShardId};
use carmine_types::errno;
use carmine_wire::private::{Admin, AdminReply, RouteReply};
use serde_json::{Value, json};

use crate::shard::OsdShard;

pub(crate) use tell::tell;

/// An answer to an admin question: a JSON object, or what is wrong with the question.
pub type AdminAnswer = Pin<Box<dyn Future<Output = Result<Value, String>>>>;

/// Questions that the OSD itself does not know; `None` if this hook does not know them either. Called on the shard that
/// the question arrived on.
pub trait AdminHook {
    /// Answers the question with this prefix.
    fn answer(&self, osd: &Rc<OsdShard>, prefix: &str, question: &Value) -> Option<AdminAnswer>;

    /// What the OSD tells the monitor of itself and its machine when it boots, by Ceph's names.
    fn metadata(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The commands without arguments that it answers, each with a line of help.
    fn commands(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

/// The hook as a shard keeps it.
pub(crate) struct Hook(pub Box<dyn AdminHook>);

/// Tells a client which reactor owns which PG.
pub(crate) fn route(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: &Message) {
    let reply = RouteReply {
        epoch: osd.epoch(),
        reactors: osd.ports.borrow().clone(),
        pgs: osd.table.borrow().iter().map(|(pg, shard)| (pg, shard.0)).collect(),
    };
    conn.send(Message::of(&reply).with_tid(msg.header.tid));
}

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
        let answer = match question {
            Ok(question) => answer(&osd, &question).await,
            Err(error) => Err(error),
        };
        let (result, json) = match answer {
            Ok(value) => (0, value),
            Err(error) => (errno::EINVAL, json!({ "error": error })),
        };
        conn.send(Message::of(&AdminReply { result, json: json.to_string().into_bytes() }).with_tid(tid));
    });
}

/// Answers a question: `{"prefix": COMMAND, …}`.
pub(crate) async fn answer(osd: &Rc<OsdShard>, question: &Value) -> Result<Value, String> {
    let prefix = question["prefix"].as_str().ok_or("the question has no \"prefix\"")?;
    match prefix {
        "status" => Ok(status::status(osd).await),
        "dump_metrics" => Ok(metrics::dump(osd).await),
        "dump_ops_in_flight" => Ok(in_flight::dump(osd).await),
        "dump_blocked_ops" => Ok(in_flight::dump_blocked(osd).await),
        "perf dump" => Ok(perf::dump(osd).await),
        "bench" => bench::bench(osd, question).await,
        "dump_shards" => Ok(shards::dump(osd).await),
        "pg_contents" => crate::scrub::contents(osd).await,
        "get_command_descriptions" => Ok(commands::descriptions(osd)),
        "help" => Ok(commands::help(osd)),
        "version" => Ok(commands::version()),
        "0" => Ok(commands::protocol_version()),
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

/// One value from every shard, in order.
async fn on_all(osd: &Rc<OsdShard>, read: fn(&OsdShard) -> Value) -> Vec<Value> {
    let mut values = Vec::new();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let value =
            osd.shard.call(to, move |shard| async move { OsdShard::of(&shard).map(|osd| read(&osd)) });
        values.extend(value.await);
    }
    values
}
