//! What can be asked, told in the form in which Ceph's tools want to hear it.

use serde_json::{Map, Value, json};

use super::Hook;
use crate::shard::OsdShard;

/// Version of the admin socket's protocol that Ceph's daemons tell.
const PROTOCOL_VERSION: &str = "2";

/// One command: its words, its parameters (optional numbers, all of them), a line of help.
type Command = (&'static str, &'static [&'static str], &'static str);

/// The commands of every OSD.
const COMMANDS: [Command; 11] = [
    (
        "bench",
        &["count", "size", "object_size", "object_num"],
        "write `count` bytes through the store, `size` at a time; tell the rate",
    ),
    ("dump_blocked_ops", &[], "operations that are slow: not answered for 30 seconds"),
    ("dump_metrics", &[], "all metrics of all shards"),
    ("dump_ops_in_flight", &[], "operations that are not answered yet: stage, age and what each waits for"),
    ("dump_shards", &[], "what each reactor has, and how its time went"),
    ("get_command_descriptions", &[], "these commands, for tools"),
    ("help", &[], "these commands"),
    ("perf dump", &[], "counters under Ceph's names"),
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
pub(super) fn descriptions(osd: &OsdShard) -> Value {
    let described = all(osd).into_iter().enumerate().map(|(at, (words, parameters, help))| {
        let words = words.split(' ').map(|word| json!(word));
        let parameters =
            parameters.iter().map(|name| json!({ "name": name, "type": "CephInt", "req": false }));
        let sig: Vec<Value> = words.chain(parameters).collect();
        (
            format!("cmd{at:03}"),
            json!({ "sig": sig, "help": help, "module": "osd", "perm": "rw", "flags": 0 }),
        )
    });
    Value::Object(described.collect())
}

/// `{"COMMAND": HELP, …}`
pub(super) fn help(osd: &OsdShard) -> Value {
    let lines = all(osd).into_iter().map(|(command, _, help)| (command.to_owned(), help.into()));
    Value::Object(lines.collect::<Map<_, _>>())
}

pub(super) fn version() -> Value {
    json!({ "version": env!("CARGO_PKG_VERSION"), "release": "carmine", "release_type": "dev" })
}

/// The answer to the oldest command of the protocol: bare text.
pub(super) fn protocol_version() -> Value {
    Value::String(PROTOCOL_VERSION.to_owned())
}
