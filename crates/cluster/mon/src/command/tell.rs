//! `ceph tell mon.a …`: commands to this monitor, beside those that it answers for the whole cluster. Where both have the same words
//! (`config get`), these count.

use carmine_types::errno;
use serde_json::{Map, Value, json};

use super::cluster::version;
use super::options::{MON, OPTIONS};
use super::{Known, View, done, pretty, read, required, write};
use crate::change::{Refusal, refuse};
use crate::report::dump;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("compact", "bring the state file into its shortest form (it always is)", |_, _| {
        done("compacted in 0 seconds\n")
    }),
    read("config diff", "show the options that differ from their defaults (none do)", |c, _| {
        done(pretty(c, &json!({ "diff": {} })))
    }),
    read("config get var:CephString", "show the value of an option of this monitor", |c, v| {
        let name = required(c, "var")?;
        done(pretty(c, &json!({ name: value(v, name)? })))
    }),
    read("config show", "show the options of this monitor", |c, v| {
        let named = [("name", MON), ("cluster", "ceph")].into_iter();
        let options = OPTIONS.iter().filter_map(|(name, _)| Some((*name, value(v, name).ok()?)));
        let all: Map<String, Value> =
            named.chain(options).map(|(name, value)| (name.to_owned(), json!(value))).collect();
        done(pretty(c, &Value::Object(all)))
    }),
    write(
        "config set var:CephString val:CephString+",
        "set an option of this monitor: they keep their values",
        |c, v| {
            let name = required(c, "var")?;
            let value = value(v, name)?;
            let asked = super::texts(c, "val").join(" ");
            match asked == value {
                true => done(pretty(c, &json!({ "success": format!("{name} = '{value}' ") }))),
                false => {
                    Err(refuse(errno::EOPNOTSUPP, format!("the option '{name}' is {value} and stays so")))
                }
            }
        },
    ),
    write(
        "config unset var:CephString",
        "forget the value of an option that only this monitor was told",
        |c, v| {
            value(v, required(c, "var")?)?;
            done(pretty(c, &json!({})))
        },
    ),
    read("dump_historic_ops", "show commands of before (none are kept)", |c, _| {
        done(pretty(c, &no_ops(true)))
    }),
    read("dump_historic_slow_ops", "show slow commands of before (none are kept)", |c, _| {
        done(pretty(c, &json!({ "num to keep": 0, "threshold to keep": 0, "Ops": [] })))
    }),
    read("git_version", "show the version of this program", |c, _| {
        done(pretty(c, &json!({ "git_version": env!("CARGO_PKG_VERSION") })))
    }),
    read("log flush", "write out the log of this process (it always is)", |c, _| done(pretty(c, &json!({})))),
    read("ops", "show the commands under way (each is answered at once)", |c, _| {
        done(pretty(c, &no_ops(false)))
    }),
    read("perf dump", "show counters of this monitor", |c, v| {
        done(pretty(c, &json!({ "mon": { "num_sessions": (v.sessions)().len() } })))
    }),
    read("version", "show the version of this monitor", |c, _| done(pretty(c, &version()))),
    read("sessions", "list the connections of this monitor", |c, v| done(pretty(c, &sessions(v)))),
];

/// # Errors
/// ENOENT: there is no such option.
fn value<'a>(view: &'a View<'_>, name: &str) -> Result<&'a str, Refusal> {
    let default = OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let found =
        default.map(|default| view.options.effective(MON).get(name).map_or(default, |(value, _)| *value));
    let unknown = || refuse(errno::ENOENT, format!("error getting '{name}': (2) No such file or directory"));
    found.ok_or_else(unknown)
}

fn no_ops(is_history: bool) -> Value {
    match is_history {
        true => json!({ "size": 0, "duration": 0, "ops": [] }),
        false => json!({ "ops": [], "num_ops": 0 }),
    }
}

fn sessions(view: &View<'_>) -> Value {
    let one = |peer: &carmine_messenger::Peer| {
        let addr = dump::addr(&peer.addr);
        json!({
            "name": format!("{}.{}", peer.entity, peer.gid), "entity_name": format!("{}.{}", peer.entity, peer.name),
            "addrs": { "addrvec": [addr] }, "socket_addr": addr, "con_type": peer.entity.to_string(),
            "con_features": peer.features, "con_features_hex": format!("{:016x}", peer.features),
            "con_features_release": "luminous", "open": true, "caps": { "text": "allow *" }, "authenticated": true,
            "global_id": peer.gid, "global_id_status": "none", "osd_epoch": view.map.epoch.0, "remote_host": "",
        })
    };
    (view.sessions)().iter().map(one).collect()
}
