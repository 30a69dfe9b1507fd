//! Commands about the cluster as a whole.

use serde_json::{Value, json};

use super::args::text;
use super::output::{done, either, pretty, said};
use super::{Known, Outcome, View, read, write};
use crate::report::{df, health, mon, status};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("status", "show the cluster's state", status),
    read("health detail:(detail)?", "show the cluster's health", health),
    read("df detail:(detail)?", "show used and free space", df),
    read("fsid", "show the cluster's id", fsid),
    read("version", "show the monitor's version", version),
    read("versions", "count daemons by version", versions),
    read("mon dump", "print the MonMap", mon_dump),
    read("mon stat", "show the monitors", mon_stat),
    read("quorum_status", "show the quorum", quorum_status),
    read("mgr dump", "print the MgrMap (the monitor is the manager)", mgr_dump),
    read("mgr module ls", "list the manager's modules (there are none)", mgr_module_ls),
    read("balancer status", "show that nothing moves PGs by itself", balancer_status),
    write("balancer off", "switch the balancer off (it always is)", balancer_off),
];

/// What this program calls itself where Ceph's daemons tell their version.
pub(super) const VERSION: &str = concat!("carmine ", env!("CARGO_PKG_VERSION"));

fn status(command: &Value, view: &View<'_>) -> Outcome {
    either(command, || status::json(view), || status::text(view))
}

fn health(command: &Value, view: &View<'_>) -> Outcome {
    let detail = text(command, "detail").is_some();
    either(command, || health::json(view, detail), || health::text(view, detail))
}

fn df(command: &Value, view: &View<'_>) -> Outcome {
    either(command, || df::json(view), || df::text(view))
}

fn fsid(command: &Value, view: &View<'_>) -> Outcome {
    let fsid = view.map.fsid.to_string();
    either(command, || json!({ "fsid": fsid }), || format!("{fsid}\n"))
}

fn version(command: &Value, _: &View<'_>) -> Outcome {
    either(command, || json!({ "version": VERSION }), || format!("{VERSION}\n"))
}

fn versions(command: &Value, view: &View<'_>) -> Outcome {
    let up = view.map.osds().filter(|osd| view.map.is_up(*osd)).count();
    let value = json!({
        "mon": { VERSION: 1 }, "mgr": {}, "osd": { VERSION: up }, "mds": {}, "overall": { VERSION: up + 1 },
    });
    done(pretty(command, &value))
}

fn mon_dump(command: &Value, view: &View<'_>) -> Outcome {
    either(command, || mon::dump_json(view), || mon::dump_text(view))
}

fn mon_stat(command: &Value, view: &View<'_>) -> Outcome {
    either(command, || mon::stat_json(view), || mon::stat_text(view))
}

fn quorum_status(command: &Value, view: &View<'_>) -> Outcome {
    done(pretty(command, &mon::quorum_json(view)))
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

fn balancer_off(_: &Value, _: &View<'_>) -> Outcome {
    said("")
}
