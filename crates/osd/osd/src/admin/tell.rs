//! `ceph tell osd.N COMMAND`: the admin commands as Ceph's MCommand. What is wrong with a command is its status.

use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_reactor::Group;
use carmine_types::errno;
use carmine_wire::tell::{Tell, TellReply};
use serde_json::Value;

use super::answer;
use crate::shard::OsdShard;

/// Longest command that is looked at, bytes; real ones have some hundred.
const COMMAND_BYTES_MAX: usize = 64 << 10;

/// Answers a tool.
pub(crate) fn tell(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: &Message) {
    let tid = msg.header.tid;
    let question = question(msg);
    let (osd, conn) = (Rc::clone(osd), Rc::clone(conn));
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "tell", async move {
        let (reply, data) = match question {
            Err(status) => (TellReply { result: errno::EINVAL, status }, Vec::new()),
            Ok(question) => match answer(&osd, &question).await {
                Err(status) => (TellReply { result: errno::EINVAL, status }, Vec::new()),
                Ok(value) => (TellReply { result: 0, status: String::new() }, shown(&question, &value)),
            },
        };
        conn.send(Message::of(&reply).with_tid(tid).with_data(data));
    });
}

fn question(msg: &Message) -> Result<Value, String> {
    let tell: Tell = msg.decode().map_err(|e| e.to_string())?;
    let text = tell.cmd.first().map_or("", String::as_str);
    if text.len() > COMMAND_BYTES_MAX {
        return Err(format!("a command of {} bytes: the limit is {COMMAND_BYTES_MAX}", text.len()));
    }
    serde_json::from_str(text).map_err(|e| format!("the command is no JSON object: {e}"))
}

/// JSON in lines unless compact JSON was asked for; bare text as it is.
fn shown(question: &Value, value: &Value) -> Vec<u8> {
    let mut text = match value {
        Value::String(text) => text.clone(),
        _ if question["format"] == "json" => value.to_string(),
        _ => format!("{value:#}"),
    };
    text.push('\n');
    text.into_bytes()
}
