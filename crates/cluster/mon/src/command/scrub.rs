//! Commands that make OSDs scrub. Ceph's manager tells the primaries of the PGs, and so does this monitor.

use std::collections::BTreeMap;

use carmine_types::{OsdId, PgId, errno};
use carmine_wire::scrub::OsdScrub;
use serde_json::Value;

use super::osd::known;
use super::{Answer, Known, Outcome, View, present, required, text, texts, write};
use crate::change::pool::pool_of;
use crate::change::{Refusal, refuse};
use crate::report::pg;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write("pg scrub pgid:CephPgid", "compare the copies of a PG", of_pg),
    write("pg deep-scrub pgid:CephPgid", "compare the copies of a PG and their data", of_pg),
    write("pg repair pgid:CephPgid", "compare the copies of a PG, and repair what differs", of_pg),
    write("osd scrub who:CephString", "scrub the PGs that an OSD, or 'all', leads", of_osd),
    write(
        "osd deep-scrub who:CephString",
        "scrub the PGs that an OSD, or 'all', leads, with their data",
        of_osd,
    ),
    write("osd repair who:CephString", "repair the PGs that an OSD, or 'all', leads", of_osd),
    write("osd pool scrub who:CephPoolname+", "scrub the PGs of pools", of_pools),
    write("osd pool deep-scrub who:CephPoolname+", "scrub the PGs of pools, with their data", of_pools),
    write("osd pool repair who:CephPoolname+", "repair the PGs of pools", of_pools),
];

/// The last word of the command.
fn verb(command: &Value) -> &str {
    let prefix = text(command, "prefix").unwrap_or_default();
    prefix.rsplit(' ').next().unwrap_or_default()
}

fn order(command: &Value, view: &View<'_>, pgs: &[PgId]) -> OsdScrub {
    let (deep, repair) = (verb(command) != "scrub", verb(command) == "repair");
    let pgs = pgs.iter().map(|pg| (*pg).into()).collect();
    OsdScrub { fsid: view.map.fsid, epoch: view.map.epoch, pgs, repair, deep }
}

fn of_pg(command: &Value, view: &View<'_>) -> Outcome {
    let id = required(command, "pgid")?;
    let found = pg::parse(view, id).ok_or_else(|| refuse(errno::ENOENT, format!("there is no pg '{id}'")))?;
    let primary = view.placement.mapping(found).acting_primary.filter(|osd| view.map.is_up(*osd));
    let primary =
        primary.ok_or_else(|| refuse(errno::EAGAIN, format!("pg {found} has no primary that is up")))?;
    let status = format!("instructing pg {found} on {primary} to {}", verb(command));
    Ok(Answer::Scrub { orders: vec![(primary, order(command, view, &[found]))], status })
}

fn of_osd(command: &Value, view: &View<'_>) -> Outcome {
    let asked = asked(command, view)?;
    let (up, down): (Vec<OsdId>, Vec<OsdId>) = asked.into_iter().partition(|osd| view.map.is_up(*osd));
    let list = |osds: &[OsdId]| osds.iter().map(|osd| osd.0.to_string()).collect::<Vec<_>>().join(",");
    if up.is_empty() {
        return Err(refuse(errno::EAGAIN, format!("osd(s) {} are not up", list(&down))));
    }
    let mut status = format!("instructed osd(s) {} to {}", list(&up), verb(command));
    if !down.is_empty() {
        status.push_str(&format!("; osd(s) {} are not up", list(&down)));
    }
    let orders = orders(command, view, |_, primary| up.contains(&primary));
    Ok(Answer::Scrub { orders, status })
}

/// Orders for the primaries that are up, of the PGs that are meant.
fn orders(
    command: &Value,
    view: &View<'_>,
    is_meant: impl Fn(PgId, OsdId) -> bool,
) -> Vec<(OsdId, OsdScrub)> {
    let mut led: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    for (pg, mapping) in view.placement.pgs() {
        let primary = mapping.acting_primary.filter(|osd| view.map.is_up(*osd) && is_meant(pg, *osd));
        if let Some(primary) = primary {
            led.entry(primary).or_default().push(pg);
        }
    }
    led.into_iter().map(|(osd, pgs)| (osd, order(command, view, &pgs))).collect()
}

fn of_pools(command: &Value, view: &View<'_>) -> Outcome {
    let names = texts(command, "who");
    let pools =
        names.iter().map(|name| Ok(pool_of(view.map, name)?.0)).collect::<Result<Vec<i64>, Refusal>>()?;
    let orders = orders(command, view, |pg, _| pools.contains(&pg.pool));
    Ok(Answer::Scrub { orders, status: String::new() })
}

fn asked(command: &Value, view: &View<'_>) -> Result<Vec<OsdId>, Refusal> {
    match text(command, "who") {
        Some("all" | "any" | "*") => Ok(view.map.osds().collect()),
        _ => Ok(vec![known(view, present(command, "who")?)?]),
    }
}
