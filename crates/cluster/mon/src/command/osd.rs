//! Commands that look at OSDs and their map.

use carmine_types::{OsdId, errno};
use serde_json::{Value, json};

use super::args::{number, osd as osd_arg, required, text, texts};
use super::output::{done, either, pretty};
use super::{Answer, Known, Outcome, View, read};
use crate::change::osd::check_exist;
use crate::change::{Refusal, refuse};
use crate::report::{dump, osd_df, osd_map, osd_metadata, tree};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd dump epoch:CephInt?", "print the OSDMap", osd_dump),
    read(
        "osd tree epoch:CephInt? states:(up|down|in|out|destroyed)+?",
        "print the CRUSH tree, or what of it is in these states",
        osd_tree,
    ),
    read("osd df output_method:(plain|tree)?", "show used and free space and PGs of each OSD", osd_df),
    read("osd stat", "count the OSDs", osd_stat),
    read("osd ls", "list the OSD ids", osd_ls),
    read("osd getmaxosd", "show the end of the OSD ids", getmaxosd),
    read("osd getmap epoch:CephInt?", "get the OSDMap", osd_getmap),
    read("osd getcrushmap", "get the CRUSH map", osd_getcrushmap),
    read(
        "osd map pool:CephPoolname object:CephObjectname nspace:CephString?",
        "show the PG of an object, and its OSDs",
        osd_map,
    ),
    read(
        "osd metadata id:CephOsdName?",
        "show what an OSD, or each, said of itself when it booted",
        osd_metadata,
    ),
    read("osd find id:CephOsdName", "show where an OSD is", osd_find),
];

/// Only the newest map is kept: a command that asks for another epoch is refused as in Ceph for one that is trimmed.
fn check_epoch(command: &Value, view: &View<'_>) -> Result<(), Refusal> {
    let newest = view.map.epoch.0;
    match number::<u32>(command, "epoch")? {
        Some(epoch) if epoch != newest => {
            let text =
                format!("there is no map for epoch {epoch}: only the newest is kept, which is {newest}");
            Err(refuse(errno::ENOENT, text))
        }
        _ => Ok(()),
    }
}

fn osd_dump(command: &Value, view: &View<'_>) -> Outcome {
    check_epoch(command, view)?;
    either(command, || dump::json(view.map), || dump::text(view.map))
}

fn osd_tree(command: &Value, view: &View<'_>) -> Outcome {
    check_epoch(command, view)?;
    let states = texts(command, "states");
    either(command, || tree::json(view.map, &states), || tree::text(view.map, &states))
}

fn osd_df(command: &Value, view: &View<'_>) -> Outcome {
    let is_tree = text(command, "output_method") == Some("tree");
    either(command, || osd_df::json(view, is_tree), || osd_df::text(view, is_tree))
}

fn osd_stat(command: &Value, view: &View<'_>) -> Outcome {
    let (all, up, inside) = dump::counts(view.map);
    let epoch = view.map.epoch.0;
    let remapped = view.map.pg_temp.len();
    either(
        command,
        || {
            json!({ "epoch": epoch, "num_osds": all, "num_up_osds": up, "num_in_osds": inside,
                    "num_remapped_pgs": remapped })
        },
        || format!("{all} osds: {up} up, {inside} in; epoch: e{epoch}\n"),
    )
}

fn osd_ls(command: &Value, view: &View<'_>) -> Outcome {
    let ids: Vec<u32> = view.map.osds().map(|osd| osd.0).collect();
    either(command, || json!(ids), || ids.iter().map(|id| format!("{id}\n")).collect())
}

fn getmaxosd(command: &Value, view: &View<'_>) -> Outcome {
    let (epoch, max) = (view.map.epoch.0, view.map.max_osd);
    either(
        command,
        || json!({ "epoch": epoch, "max_osd": max }),
        || format!("max_osd = {max} in epoch {epoch}\n"),
    )
}

fn osd_getmap(command: &Value, view: &View<'_>) -> Outcome {
    check_epoch(command, view)?;
    Ok(Answer::Done { status: format!("got osdmap epoch {}", view.map.epoch), data: view.map_bytes.to_vec() })
}

fn osd_getcrushmap(_: &Value, view: &View<'_>) -> Outcome {
    Ok(Answer::Done { status: view.map.crush_version.to_string(), data: view.map.crush.encode() })
}

fn osd_map(command: &Value, view: &View<'_>) -> Outcome {
    let (pool, object) = (required(command, "pool")?, required(command, "object")?);
    let found = osd_map::find(view, pool, object, text(command, "nspace").unwrap_or_default());
    let found = found.ok_or_else(|| refuse(errno::ENOENT, format!("there is no pool '{pool}'")))?;
    either(command, || found.json(), || found.text())
}

fn osd_metadata(command: &Value, view: &View<'_>) -> Outcome {
    match command.get("id") {
        Some(id) => done(pretty(command, &osd_metadata::json(view, known(view, id)?))),
        None => done(pretty(command, &view.map.osds().map(|osd| osd_metadata::json(view, osd)).collect())),
    }
}

fn osd_find(command: &Value, view: &View<'_>) -> Outcome {
    let id = command.get("id").ok_or_else(|| refuse(errno::EINVAL, "the parameter 'id' is missing"))?;
    done(pretty(command, &osd_metadata::find_json(view, known(view, id)?)))
}

/// An OSD of the map.
pub(super) fn known(view: &View<'_>, id: &Value) -> Result<OsdId, Refusal> {
    let osd = osd_arg(id)?;
    check_exist(view.map, &[osd])?;
    Ok(osd)
}
