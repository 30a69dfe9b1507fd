//! Commands that look at OSDs and their map, and those that change their state and the flags of the map.

use std::borrow::Cow;

use carmine_crush::edit::item_named;
use carmine_types::{Epoch, OsdId, errno};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::osdmap::consts::{FLAG_NAMES, FLAG_PAUSERD, FLAG_PAUSEWR, WEIGHT_IN, WEIGHT_OUT};
use serde_json::{Value, json};

use super::{
    Answer, Known, Outcome, View, change, done, either, number, osd_of, osds_of, present, pretty, read,
    required, text, texts, write,
};
use crate::change::osd::check_exist;
use crate::change::{Change, Refusal, refuse};
use crate::report::{dump, osd, pg};

/// Nothing moves data or trims snapshots unasked, and there are no tiers: some of these change nothing.
const SET: &str = "osd set key:(full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit) yes_i_really_mean_it:CephBool?";
const UNSET: &str = "osd unset key:(full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim)";

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd dump epoch:CephInt?", "print the OSDMap", |c, v| {
        let map = map_of(c, v)?;
        either(c, || dump::json(&map), || dump::text(&map))
    }),
    read(
        "osd tree epoch:CephInt? states:(up|down|in|out|destroyed)+?",
        "print the CRUSH tree, or what of it is in these states",
        |c, v| {
            let (map, states) = (map_of(c, v)?, texts(c, "states"));
            either(c, || osd::tree_json(&map, None, &states), || osd::tree_text(&map, None, &states))
        },
    ),
    read(
        "osd df output_method:(plain|tree)? filter_by:(class|name)? filter:CephString?",
        "show used and free space and PGs of each OSD: of all, or of a device class, a pool or a part of the CRUSH tree",
        df,
    ),
    read("osd blocked-by", "show the OSDs that others wait for", |c, v| {
        either(c, || osd::blocked_by_json(v), || osd::blocked_by_text(v))
    }),
    read("osd perf", "show how long the commits of each OSD took", |c, v| {
        either(c, || osd::perf_json(v), || osd::perf_text(v))
    }),
    read("osd stat", "count the OSDs", osd_stat),
    read("osd ls epoch:CephInt?", "list the OSD ids", |c, v| ids(c, map_of(c, v)?.osds())),
    read("osd ls-tree name:CephString", "list the OSD ids below a node of the CRUSH tree", |c, v| {
        let name = required(c, "name")?;
        let part = osd::Part::below_node(v.map, name);
        let part = part.ok_or_else(|| refuse(errno::ENOENT, format!("\"{name}\" does not exist")))?;
        ids(c, part.osds())
    }),
    read(
        "osd tree-from bucket:CephString states:(up|down|in|out|destroyed)+?",
        "print the CRUSH tree below a bucket",
        |c, v| {
            let (bucket, states) = (required(c, "bucket")?, texts(c, "states"));
            let from = match item_named(&v.map.crush, bucket) {
                None => Err(refuse(errno::ENOENT, format!("bucket '{bucket}' does not exist"))),
                Some(0..) => Err(refuse(errno::EINVAL, format!("\"{bucket}\" is not a bucket"))),
                below => Ok(below),
            }?;
            either(c, || osd::tree_json(v.map, from, &states), || osd::tree_text(v.map, from, &states))
        },
    ),
    read("osd getmaxosd", "show the end of the OSD ids", |c, v| {
        let (epoch, max) = (v.map.epoch.0, v.map.max_osd);
        let text = || format!("max_osd = {max} in epoch {epoch}\n");
        either(c, || json!({ "epoch": epoch, "max_osd": max }), text)
    }),
    read("osd getmap epoch:CephInt?", "get the OSDMap", |c, v| {
        let (epoch, data) = bytes_of(c, v)?;
        Ok(Answer::Done { status: format!("got osdmap epoch {epoch}"), data })
    }),
    read("osd getcrushmap epoch:CephInt?", "get the CRUSH map", |c, v| {
        let map = map_of(c, v)?;
        Ok(Answer::Done { status: map.crush_version.to_string(), data: map.crush.encode() })
    }),
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
    read("osd find id:CephOsdName", "show where an OSD is", |c, v| {
        done(pretty(c, &osd::find_json(v, known(v, present(c, "id")?)?)))
    }),
    write("osd out ids:CephString+", "take OSDs out of the placement", |c, v| {
        mark(c, v, "out", |osd| !v.map.is_in(osd), |osds| Change::Weight { osds, weight: WEIGHT_OUT })
    }),
    write("osd in ids:CephString+", "put OSDs back", |c, v| {
        mark(c, v, "in", |osd| v.map.is_in(osd), |osds| Change::Weight { osds, weight: WEIGHT_IN })
    }),
    write(
        "osd down ids:CephString+ definitely_dead:CephBool?",
        "call OSDs down; those that run boot again",
        |c, v| mark(c, v, "down", |osd| !v.map.is_up(osd), |osds| Change::MarkDown { osds }),
    ),
    write(SET, "set a flag of the map", |c, _| {
        let (name, set) = flag(c)?;
        change(Change::Flags { set, clear: 0 }, format!("{name} is set"))
    }),
    write(UNSET, "clear a flag of the map", |c, _| {
        let (name, clear) = flag(c)?;
        change(Change::Flags { set: 0, clear }, format!("{name} is unset"))
    }),
    write("osd pause", "let clients wait", |_, _| {
        change(Change::Flags { set: PAUSE.0, clear: 0 }, format!("{} is set", PAUSE.1))
    }),
    write("osd unpause", "let clients go on", |_, _| {
        change(Change::Flags { set: 0, clear: PAUSE.0 }, format!("{} is unset", PAUSE.1))
    }),
];

/// The map of the epoch that a command names, or the newest, as it is sent.
fn bytes_of(command: &Value, view: &View<'_>) -> Result<(Epoch, Vec<u8>), Refusal> {
    let newest = view.map.epoch;
    match number::<u32>(command, "epoch")?.map(Epoch) {
        // As in Ceph 0 is the newest, too.
        None | Some(Epoch(0)) => Ok((newest, view.map_bytes.to_vec())),
        Some(epoch) if epoch == newest => Ok((newest, view.map_bytes.to_vec())),
        Some(epoch) => {
            let found = view.history.since(epoch).next().filter(|(found, _)| *found == epoch);
            let none = || refuse(errno::ENOENT, format!("there is no map for epoch {epoch}"));
            found.map(|(epoch, bytes)| (epoch, bytes.to_vec())).ok_or_else(none)
        }
    }
}

/// The same map itself.
fn map_of<'a>(command: &Value, view: &View<'a>) -> Result<Cow<'a, OsdMap>, Refusal> {
    let (epoch, bytes) = bytes_of(command, view)?;
    if epoch == view.map.epoch {
        return Ok(Cow::Borrowed(view.map));
    }
    let map =
        OsdMap::decode(&bytes).map_err(|e| refuse(errno::EIO, format!("the map of epoch {epoch}: {e}")))?;
    Ok(Cow::Owned(map))
}

fn osd_stat(command: &Value, view: &View<'_>) -> Outcome {
    let (all, up, inside) = dump::counts(view.map);
    let epoch = view.map.epoch.0;
    let remapped = view.map.pg_temp.len();
    either(
        command,
        || {
            json!({ "epoch": epoch, "num_osds": all, "num_up_osds": up, "num_in_osds": inside,
                    "osd_up_since": view.map.last_up_change.sec, "osd_in_since": view.map.last_in_change.sec,
                    "num_remapped_pgs": remapped })
        },
        || format!("{all} osds: {up} up, {inside} in; epoch: e{epoch}\n"),
    )
}

fn osd_map(command: &Value, view: &View<'_>) -> Outcome {
    let (pool, object) = (required(command, "pool")?, required(command, "object")?);
    let found = pg::find(view, pool, object, text(command, "nspace").unwrap_or_default());
    let found = found.ok_or_else(|| refuse(errno::ENOENT, format!("there is no pool '{pool}'")))?;
    either(command, || found.json(), || found.text())
}

fn osd_metadata(command: &Value, view: &View<'_>) -> Outcome {
    match command.get("id") {
        Some(id) => done(pretty(command, &osd::metadata_json(view, known(view, id)?))),
        None => done(pretty(command, &view.map.osds().map(|osd| osd::metadata_json(view, osd)).collect())),
    }
}

/// An OSD of the map.
pub(super) fn known(view: &View<'_>, id: &Value) -> Result<OsdId, Refusal> {
    let osd = osd_of(id)?;
    check_exist(view.map, &[osd])?;
    Ok(osd)
}

fn ids(command: &Value, osds: impl Iterator<Item = OsdId>) -> Outcome {
    let ids: Vec<u32> = osds.map(|osd| osd.0).collect();
    either(command, || json!(ids), || ids.iter().map(|id| format!("{id}\n")).collect())
}

/// Ceph takes `class` and `name` for the same: what is filtered by is told by what the name is of.
fn df(command: &Value, view: &View<'_>) -> Outcome {
    let is_tree = text(command, "output_method") == Some("tree");
    let of = match text(command, "filter").filter(|name| !name.is_empty()) {
        None => osd::Part::whole(view.map),
        Some(name) => osd::Part::named(view.map, name).ok_or_else(|| {
            refuse(errno::EINVAL, format!("'{name}' not a pool, crush node or device class name"))
        })?,
    };
    either(command, || osd::df_json(view, is_tree, &of), || osd::df_text(view, is_tree, &of))
}

/// Changes OSDs, with a sentence for each as scripts that do things twice expect it.
fn mark(
    command: &Value,
    view: &View<'_>,
    word: &str,
    is_so: impl Fn(OsdId) -> bool,
    wish: impl FnOnce(Vec<OsdId>) -> Change,
) -> Outcome {
    let osds = osds_of(command, view.map)?;
    let one = |osd: &OsdId| match is_so(*osd) {
        true => format!("{osd} is already {word}."),
        false => format!("marked {word} {osd}."),
    };
    let status = osds.iter().map(one).collect::<Vec<_>>().join(" ");
    change(wish(osds), status)
}

/// Bits and names of the flags that are one for tools.
const PAUSE: (u32, &str) = (FLAG_PAUSERD | FLAG_PAUSEWR, "pauserd,pausewr");

/// Name and bit of the flag that a command names.
fn flag(command: &Value) -> Result<(&str, u32), Refusal> {
    let key = required(command, "key")?;
    if key == "pause" {
        return Ok((PAUSE.1, PAUSE.0));
    }
    let is_offered = SET.split(['(', '|', ')']).any(|name| name == key);
    match FLAG_NAMES.iter().find(|(_, name)| is_offered && *name == key) {
        Some((bit, _)) => Ok((key, *bit)),
        None => Err(refuse(errno::EINVAL, format!("unrecognized flag '{key}'"))),
    }
}
