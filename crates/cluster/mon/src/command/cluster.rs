//! Commands about the cluster as a whole, and about placement rules and tunables.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, done, either, number, pretty, read, said, text, write};
use crate::change::refuse;
use crate::report::{cluster, health};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("status", "show the cluster's state", |c, v| {
        either(c, || cluster::status_json(v), || cluster::status_text(v))
    }),
    read("health detail:(detail)?", "show the cluster's health", |c, v| {
        let detail = text(c, "detail").is_some();
        either(c, || health::json(v, detail), || health::text(v, detail))
    }),
    read("df detail:(detail)?", "show used and free space", |c, v| {
        let is_detailed = text(c, "detail").is_some();
        either(c, || cluster::df_json(v, is_detailed), || cluster::df_text(v, is_detailed))
    }),
    read("fsid", "show the cluster's id", |c, v| {
        let fsid = v.map.fsid.to_string();
        either(c, || json!({ "fsid": fsid }), || format!("{fsid}\n"))
    }),
    read("version", "show the monitor's version", |c, _| either(c, version, || format!("{VERSION}\n"))),
    read("versions", "count daemons by version", versions),
    read("mon dump epoch:CephInt?", "print the MonMap", |c, v| {
        if let Some(epoch) = number::<u32>(c, "epoch")?.filter(|epoch| *epoch > cluster::MONMAP_EPOCH) {
            return Err(refuse(errno::ENOENT, format!("there is no map for epoch {epoch}")));
        }
        let answer = either(c, || cluster::mon_dump_json(v), || cluster::mon_dump_text(v))?;
        let Answer::Done { data, .. } = answer else { return Ok(answer) };
        let status = format!("dumped monmap epoch {}", cluster::MONMAP_EPOCH);
        Ok(Answer::Done { status, data })
    }),
    read("mon stat", "show the monitors", |c, v| {
        either(c, cluster::mon_stat_json, || cluster::mon_stat_text(v))
    }),
    read("quorum_status", "show the quorum", |c, v| done(pretty(c, &cluster::quorum_json(v)))),
    read("mgr dump", "print the MgrMap (the monitor is the manager)", mgr_dump),
    read("mgr module ls", "list the manager's modules (there are none)", mgr_module_ls),
    read("balancer status", "show that nothing moves PGs by itself", balancer_status),
    write("balancer off", "switch the balancer off (it always is)", |_, _| said("")),
];

/// The version of this program, where Ceph's daemons give theirs.
const VERSION: &str = concat!("carmine ", env!("CARGO_PKG_VERSION"));

pub(super) fn version() -> Value {
    json!({ "version": VERSION, "release": "carmine", "release_type": "dev" })
}

fn versions(command: &Value, view: &View<'_>) -> Outcome {
    let up = view.map.osds().filter(|osd| view.map.is_up(*osd)).count();
    let value = json!({
        "mon": { VERSION: 1 }, "mgr": {}, "osd": { VERSION: up }, "mds": {}, "overall": { VERSION: up + 1 },
    });
    done(pretty(command, &value))
}

fn mgr_dump(command: &Value, _: &View<'_>) -> Outcome {
    let itself = json!({ "epoch": 1, "available": true, "active_name": "a", "standbys": [], "modules": [], "services": {} });
    done(pretty(command, &itself))
}

fn mgr_module_ls(command: &Value, _: &View<'_>) -> Outcome {
    let none = json!({ "always_on_modules": [], "enabled_modules": [], "disabled_modules": [] });
    done(pretty(command, &none))
}

fn balancer_status(command: &Value, _: &View<'_>) -> Outcome {
    let value = json!({
        "active": false, "last_optimize_duration": "", "last_optimize_started": "", "mode": "none",
        "optimize_result": "", "plans": [],
    });
    done(pretty(command, &value))
}
