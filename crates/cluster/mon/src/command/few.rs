//! Commands about the one monitor, and those that list what a cluster of Carmine never has: crashes that somebody collects, plans of
//! a balancer, users.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{Known, Outcome, View, done, either, pretty, read, required, said, texts, write};
use crate::change::refuse;

/// The name of the monitor.
const NAME: &str = "a";
/// The features of monitors that this one stands for.
const FEATURES: &str = "kraken,luminous,mimic,osdmap-prune,nautilus,octopus,pacific,elector-pinging";

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read(
        "config generate-minimal-conf",
        "print a ceph.conf with which clients find the cluster",
        minimal_conf,
    ),
    read(
        "mon ok-to-stop ids:CephString+",
        "say whether the others are enough without these monitors",
        ok_to_stop,
    ),
    read("mon ok-to-rm id:CephString", "say whether the others are enough without this monitor", |c, _| {
        match required(c, "id")? {
            NAME => Err(refuse(errno::EBUSY, format!("removing mon.{NAME} would break quorum"))),
            other => said(format!("mon.{other} does not exist")),
        }
    }),
    read("mon ok-to-add-offline", "say whether a monitor that is down may be added", |_, _| {
        Err(refuse(errno::EBUSY, "adding a monitor may break quorum (until that monitor starts)"))
    }),
    read("mon feature ls", "list the features of monitors", features),
    read("mon getmap epoch:CephInt?", "print the MonMap, in bytes", |_, v| done((v.monmap)())),
    read("crash ls", "list the crashes that were collected (none are)", none),
    read("crash ls-new", "list the crashes that nobody has seen (none are collected)", none),
    read("crash stat", "count the crashes that were collected (none are)", |_, _| {
        done("0 crashes recorded\n")
    }),
    read("progress", "show what takes long (`ceph -s` shows recoveries)", |_, _| {
        done("Nothing in progress\n")
    }),
    read("progress json", "the same as JSON", |c, _| {
        done(pretty(c, &json!({ "completed": [], "events": [] })))
    }),
    read("balancer ls", "list the balancer's plans (there are none)", |c, _| done(pretty(c, &json!([])))),
    read("mgr count-metadata property:CephString", "count managers by a value of their metadata", nobody),
    read(
        "mds count-metadata property:CephString",
        "count metadata servers by a value of their metadata",
        nobody,
    ),
    write("mon scrub", "compare the copies of the monitors' store (there is one)", |_, _| done("")),
];

fn minimal_conf(_: &Value, view: &View<'_>) -> Outcome {
    let (fsid, addr) = (view.map.fsid, &view.addr);
    done(format!("# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = v2:{addr}/0\n"))
}

fn ok_to_stop(command: &Value, _: &View<'_>) -> Outcome {
    let ids = texts(command, "ids");
    let list = ids.join(",");
    match ids.contains(&NAME) {
        true => Err(refuse(
            errno::EBUSY,
            format!("not enough monitors would be available () after stopping mons [{list}]"),
        )),
        false => said(format!("quorum should be preserved ({NAME}) after stopping [{list}]")),
    }
}

fn features(command: &Value, _: &View<'_>) -> Outcome {
    let all: Vec<&str> = FEATURES.split(',').collect();
    let json = || {
        json!({
            "all": { "supported": all, "persistent": all },
            "monmap": { "epoch": 1, "persistent": all, "required": all },
        })
    };
    let plain = || {
        format!(
            "all features\n\tsupported: [{FEATURES}]\n\tpersistent: [{FEATURES}]\n\
             on current monmap (epoch 1)\n\tpersistent: [{FEATURES}]\n\trequired: [{FEATURES}]\n"
        )
    };
    either(command, json, plain)
}

fn none(command: &Value, _: &View<'_>) -> Outcome {
    either(command, || json!([]), String::new)
}

fn nobody(command: &Value, _: &View<'_>) -> Outcome {
    required(command, "property")?;
    done(pretty(command, &json!({})))
}
