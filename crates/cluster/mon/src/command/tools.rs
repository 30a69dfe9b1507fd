//! Commands that tools send by themselves, and those about options. The options are those of Ceph whose value here is
//! Ceph's own, and fixed.

use carmine_types::errno;
use carmine_wire::FEATURES;
use carmine_wire::osdmap::consts::release_name;
use serde_json::{Value, json};

use super::osd::known;
use super::{Known, Outcome, View, done, either, present, pretty, read, required, said, text, write};
use crate::change::refuse;
use crate::report::{cluster, crush, dump, health, osd, pg, service};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("features", "show the features of daemons and clients", features),
    read("report", "show everything", report),
    read("mgr stat", "show the manager (the monitor itself)", |c, _| {
        let itself = json!({ "epoch": 1, "available": true, "active_name": "a", "num_standby": 0 });
        done(pretty(c, &itself))
    }),
    read("service dump", "show the services that have registered", |c, v| done(pretty(c, &service::json(v)))),
    read("osd get-require-min-compat-client", "show the oldest client that can read the map", |_, v| {
        done(format!("{}\n", release_name(v.map.require_min_compat_client)))
    }),
    read(
        "osd last-stat-seq id:CephOsdName",
        "show the number of an OSD's last report (they have none)",
        |c, v| {
            known(v, present(c, "id")?)?;
            done("0\n")
        },
    ),
    read("config get who:CephString key:CephString?", "show the value of an option", config_get),
    write(
        "config set who:CephString name:CephString value:CephString force:CephBool?",
        "set an option",
        config_set,
    ),
    read("config dump", "show the options that were set (none: they are fixed)", |c, _| {
        either(c, || json!([]), || "WHO  MASK  LEVEL  OPTION  VALUE  RO\n".to_owned())
    }),
    read("config show who:CephString key:CephString?", "show the options of a daemon", config_show),
    read("config ls", "list the options", |c, _| {
        let names = || OPTIONS.iter().map(|(name, _)| *name);
        either(c, || names().collect(), || names().map(|name| format!("{name}\n")).collect())
    }),
];

/// Options of Ceph, and their values here.
const OPTIONS: [(&str, &str); 9] = [
    ("mon_allow_pool_delete", "true"),
    ("mon_allow_pool_size_one", "true"),
    ("osd_max_attr_name_len", "100"),
    ("osd_max_object_name_len", "2048"),
    ("osd_max_object_namespace_len", "256"),
    ("osd_max_object_size", "137438953472"),
    ("osd_max_write_op_reply_len", "64"),
    ("osd_max_write_size", "90"),
    ("osd_min_pg_log_entries", "3000"),
];

fn option(name: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn config_get(command: &Value, _: &View<'_>) -> Outcome {
    required(command, "who")?;
    match text(command, "key") {
        None => either(command, || json!({}), || "WHO  MASK  LEVEL  OPTION  VALUE  RO\n".to_owned()),
        Some(key) => match option(key) {
            Some(value) => done(format!("{value}\n")),
            None => Err(refuse(errno::ENOENT, format!("unrecognized key '{key}'"))),
        },
    }
}

fn config_set(command: &Value, _: &View<'_>) -> Outcome {
    let (name, value) = (required(command, "name")?, required(command, "value")?);
    match option(name) {
        None => Err(refuse(errno::EINVAL, format!("unrecognized config option '{name}'"))),
        Some(fixed) if fixed == value => said(""),
        Some(fixed) => Err(refuse(errno::EOPNOTSUPP, format!("the option '{name}' is {fixed} and stays so"))),
    }
}

fn config_show(command: &Value, _: &View<'_>) -> Outcome {
    required(command, "who")?;
    if let Some(key) = text(command, "key") {
        return match option(key) {
            Some(value) => done(format!("{value}\n")),
            None => Err(refuse(errno::ENOENT, format!("unrecognized key '{key}'"))),
        };
    }
    let one = |(name, value): &(&str, &str)| json!({ "name": name, "value": value, "source": "default" });
    either(
        command,
        || OPTIONS.iter().map(one).collect(),
        || OPTIONS.iter().map(|(name, value)| format!("{name}  {value}  default\n")).collect(),
    )
}

/// All speak as Pacific does, whose features have the name of an older release.
fn features(command: &Value, view: &View<'_>) -> Outcome {
    let up = view.map.osds().filter(|osd| view.map.is_up(*osd)).count();
    let of =
        |num: usize| json!([{ "features": format!("{FEATURES:#x}"), "release": "luminous", "num": num }]);
    done(pretty(command, &json!({ "mon": of(1), "osd": of(up), "client": of(view.clients) })))
}

fn report(command: &Value, view: &View<'_>) -> Outcome {
    let map = view.map;
    let osds: Vec<Value> = map.osds().map(|id| osd::metadata_json(view, id)).collect();
    let whole = json!({
        "cluster_fingerprint": map.fsid.to_string(), "version": env!("CARGO_PKG_VERSION"), "commit": "", "tag": "",
        "timestamp": dump::time(view.now), "health": health::json(view, true),
        "monmap_first_committed": 1, "monmap_last_committed": 1, "monmap": cluster::mon_dump_json(view),
        "quorum": [0], "osdmap_first_committed": map.epoch.0, "osdmap_last_committed": map.epoch.0,
        "osdmap": dump::json(map), "osd_metadata": osds, "crushmap": crush::dump(map), "num_pg": pg::total(map),
    });
    done(pretty(command, &whole))
}
