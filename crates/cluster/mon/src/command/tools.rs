//! Commands that tools send by themselves.

use carmine_types::errno;
use carmine_wire::osdmap::consts::release_name;
use serde_json::{Value, json};

use super::osd::known;
use super::{
    Answer, Known, Outcome, View, change, done, either, number, present, pretty, read, required, text, write,
};
use crate::change::{Change, refuse};
use crate::report::{cluster, crush, dump, health, osd, pg, service};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("features", "show the features of daemons and clients", |c, v| {
        done(pretty(c, &cluster::feature_map(v)))
    }),
    read("report", "show everything", report),
    read("mgr stat", "show the manager (the monitor itself)", |c, _| {
        let itself = json!({ "epoch": 1, "available": true, "active_name": "a", "num_standby": 0 });
        done(pretty(c, &itself))
    }),
    read("mon metadata id:CephString?", "show what is known of the monitor", |c, v| {
        done(pretty(c, &cluster::mon_metadata_json(v, text(c, "id").is_some())))
    }),
    read("mon_status", "show the state of the monitor", |c, v| done(pretty(c, &cluster::mon_status_json(v)))),
    read("mds stat", "show the metadata servers (there are none)", |c, _| {
        either(
            c,
            || json!({ "fsmap": { "epoch": 1, "filesystems": [], "standbys": [] } }),
            || "\n".to_owned(),
        )
    }),
    read("fs ls", "list the file systems (there are none)", |c, _| {
        either(c, || json!([]), || "No filesystems enabled\n".to_owned())
    }),
    read("fs dump epoch:CephInt?", "print the FSMap (there are no file systems)", fs_dump),
    read("service dump", "show the services that have registered", |c, v| done(pretty(c, &service::json(v)))),
    read("service status", "show what the services that have registered say of themselves", |c, v| {
        done(pretty(c, &service::status_json(v)))
    }),
    write(
        "osd set-require-min-compat-client version:CephString yes_i_really_mean_it:CephBool?",
        "say which clients are to be able to read the map at least",
        |c, _| {
            let release = required(c, "version")?.to_owned();
            let status = format!("set require_min_compat_client to {release}");
            change(Change::MinCompatClient { release }, status)
        },
    ),
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
];

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

/// One map for ever: there is nothing in it.
fn fs_dump(command: &Value, _: &View<'_>) -> Outcome {
    if let Some(epoch) = number::<u32>(command, "epoch")?.filter(|epoch| *epoch != 1) {
        return Err(refuse(errno::ENOENT, format!("there is no map for epoch {epoch}: the only one is 1")));
    }
    let json = || json!({ "epoch": 1, "default_fscid": -1, "standbys": [], "filesystems": [] });
    let plain = || "e1\nlegacy client fscid: -1\n \nNo filesystems configured\n".to_owned();
    let Answer::Done { data, .. } = either(command, json, plain)? else { return done("") };
    Ok(Answer::Done { status: "dumped fsmap epoch 1".to_owned(), data })
}
