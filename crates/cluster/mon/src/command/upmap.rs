//! Commands that place a PG otherwise than CRUSH does.

use carmine_types::{OsdId, PgId, errno};
use serde_json::Value;

use super::osd::known;
use super::{Known, Outcome, View, change, list, present, text, write};
use crate::change::{Change, Refusal, Upmap, refuse};
use crate::report::pg;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write("osd pg-upmap pgid:CephPgid id:CephOsdName+", "give a PG these OSDs, whatever CRUSH says", osds),
    write("osd rm-pg-upmap pgid:CephPgid", "leave the OSDs of a PG to CRUSH", no_osds),
    write(
        "osd pg-upmap-items pgid:CephPgid id:CephOsdName+",
        "replace OSDs of a PG that CRUSH says: pairs of an OSD and the one in its place",
        items,
    ),
    write("osd rm-pg-upmap-items pgid:CephPgid", "replace no OSDs of a PG", no_items),
];

fn osds(command: &Value, view: &View<'_>) -> Outcome {
    let (pg, given) = (pg_of(command, view)?, given(command, view)?);
    let size = view.map.pool(pg.pool).map_or(0, |pool| usize::from(pool.size));
    if given.len() > size {
        let text = format!("num of osds ({}) > pool size ({size})", given.len());
        return Err(refuse(errno::EINVAL, text));
    }
    let mut osds = Vec::with_capacity(given.len());
    for osd in given {
        if !osds.contains(&osd) {
            osds.push(osd);
        }
    }
    let listed: Vec<String> = osds.iter().map(|osd| osd.0.to_string()).collect();
    let status = format!("set {pg} pg_upmap mapping to [{}]", listed.join(","));
    change(Change::Upmap { pg, upmap: Upmap::Osds(osds) }, status)
}

fn items(command: &Value, view: &View<'_>) -> Outcome {
    let (pg, given) = (pg_of(command, view)?, given(command, view)?);
    if given.len() % 2 > 0 {
        return Err(refuse(errno::EINVAL, "you must specify pairs of osd ids to be remapped"));
    }
    let pairs: Vec<(OsdId, OsdId)> = given
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[from, to]| (*from, *to))
        .filter(|(from, to)| from != to)
        .collect();
    if pairs.is_empty() {
        return Err(refuse(errno::EINVAL, "no valid pairs: an OSD stands for another one"));
    }
    let listed: Vec<String> = pairs.iter().map(|(from, to)| format!("{}->{}", from.0, to.0)).collect();
    let status = format!("set {pg} pg_upmap_items mapping to [{}]", listed.join(","));
    change(Change::Upmap { pg, upmap: Upmap::Items(pairs) }, status)
}

fn no_osds(command: &Value, view: &View<'_>) -> Outcome {
    let pg = pg_of(command, view)?;
    change(Change::Upmap { pg, upmap: Upmap::Osds(Vec::new()) }, format!("clear {pg} pg_upmap mapping"))
}

fn no_items(command: &Value, view: &View<'_>) -> Outcome {
    let pg = pg_of(command, view)?;
    let upmap = Upmap::Items(Vec::new());
    change(Change::Upmap { pg, upmap }, format!("clear {pg} pg_upmap_items mapping"))
}

fn pg_of(command: &Value, view: &View<'_>) -> Result<PgId, Refusal> {
    let id = text(command, "pgid").unwrap_or_default();
    pg::parse(view, id).ok_or_else(|| refuse(errno::ENOENT, format!("pg {id} does not exist")))
}

/// The OSDs in the list `id`, all of which exist.
fn given(command: &Value, view: &View<'_>) -> Result<Vec<OsdId>, Refusal> {
    list(present(command, "id")?).iter().map(|id| known(view, id)).collect()
}
