//! Commands about single OSDs of the map: their weights, new ones, and those that are gone for good.

use carmine_types::{OsdId, errno};
use carmine_wire::osdmap::consts::WEIGHT_IN;
use serde_json::Value;

use super::{
    Known, Outcome, View, change, is_set, missing, number, osd_of, osds_of, present, required, said, write,
};
use crate::change::osd::check_exist;
use crate::change::{Change, Refusal, refuse};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write("osd reweight id:CephOsdName weight:CephFloat", "let an OSD have less data than others", reweight),
    write(
        "osd primary-affinity id:CephOsdName weight:CephFloat",
        "let an OSD lead fewer PGs than others: from 0 (none, if others can) to 1",
        primary_affinity,
    ),
    write("osd new uuid:CephUUID id:CephOsdName?", "make the number of a new OSD known", new_osd),
    write(
        "osd purge id:CephOsdName force:CephBool? yes_i_really_mean_it:CephBool?",
        "remove an OSD that is down for good",
        purge,
    ),
    write("osd rm ids:CephString+", "remove OSDs that are down from the list of OSDs", rm),
    write("osd setmaxosd newmax:CephInt", "set the end of the OSD ids", |c, _| {
        let max = number::<u32>(c, "newmax")?.ok_or_else(|| missing("newmax"))?;
        change(Change::MaxOsd { max }, format!("set new max_osd = {max}"))
    }),
    write(
        "osd lost id:CephOsdName yes_i_really_mean_it:CephBool?",
        "give up what only this OSD has, which is down",
        lost,
    ),
];

/// A weight from 0 to 1, and the same as a 16.16 number.
fn weight(command: &Value) -> Result<(f64, u32), Refusal> {
    let value = present(command, "weight")?;
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let weight = number.filter(|weight| (0.0..=1.0).contains(weight));
    let weight = weight.ok_or_else(|| refuse(errno::EINVAL, format!("{value} not in range [0.0, 1.0]")))?;
    Ok((weight, (weight * f64::from(WEIGHT_IN)) as u32))
}

fn reweight(command: &Value, view: &View<'_>) -> Outcome {
    let (osd, (weight, fixed)) = (osd_of(present(command, "id")?)?, weight(command)?);
    exists(view, osd)?;
    let status = format!("reweighted {osd} to {} ({fixed:x})", shown(weight));
    change(Change::Weight { osds: vec![osd], weight: fixed }, status)
}

fn primary_affinity(command: &Value, view: &View<'_>) -> Outcome {
    let (osd, (weight, affinity)) = (osd_of(present(command, "id")?)?, weight(command)?);
    exists(view, osd)?;
    let status = format!("set {osd} primary-affinity to {} ({affinity:x})", shown(weight));
    change(Change::PrimaryAffinity { osd, affinity }, status)
}

/// Without a number the first that is free is taken; the output is the number.
fn new_osd(command: &Value, view: &View<'_>) -> Outcome {
    let text = required(command, "uuid")?;
    let uuid = text.parse().map_err(|_| refuse(errno::EINVAL, format!("'{text}' is no uuid")))?;
    let osd = match command.get("id") {
        Some(id) => osd_of(id)?,
        None => OsdId((0..).find(|osd| !view.map.exists(OsdId(*osd))).unwrap_or(view.map.max_osd)),
    };
    change(Change::NewOsd { osd, uuid }, format!("{}", osd.0))
}

fn purge(command: &Value, view: &View<'_>) -> Outcome {
    let osd = osd_of(present(command, "id")?)?;
    if !view.map.exists(osd) {
        return said(format!("{osd} does not exist"));
    }
    sure(
        command,
        "Are you SURE?  All that only this OSD has will be lost. Pass --yes-i-really-mean-it if you really do.",
    )?;
    change(Change::Purge { osd }, format!("purged {osd}"))
}

/// OSDs that there are not are gone already.
fn rm(command: &Value, view: &View<'_>) -> Outcome {
    let (osds, gone): (Vec<OsdId>, Vec<OsdId>) =
        osds_of(command, view.map)?.into_iter().partition(|osd| view.map.exists(*osd));
    let absent: String = gone.iter().map(|osd| format!("{osd} does not exist. ")).collect();
    if osds.is_empty() {
        return said(absent);
    }
    let names: Vec<String> = osds.iter().map(OsdId::to_string).collect();
    change(Change::RemoveOsds { osds }, format!("{absent}removed {}", names.join(", ")))
}

fn lost(command: &Value, view: &View<'_>) -> Outcome {
    let osd = osd_of(present(command, "id")?)?;
    sure(
        command,
        "are you SURE?  All that only this OSD has is given up. Pass --yes-i-really-mean-it if you really do.",
    )?;
    exists(view, osd)?;
    let down_at = view.map.osd_info.get(osd.0 as usize).map(|info| info.down_at).unwrap_or_default();
    change(Change::Lost { osd }, format!("marked osd lost in epoch {down_at}"))
}

fn exists(view: &View<'_>, osd: OsdId) -> Result<(), Refusal> {
    check_exist(view.map, &[osd]).map_err(|_| refuse(errno::ENOENT, format!("{osd} does not exist")))
}

fn sure(command: &Value, text: &str) -> Result<(), Refusal> {
    if is_set(command, "yes_i_really_mean_it") { Ok(()) } else { Err(refuse(errno::EPERM, text)) }
}

/// With six digits at most behind the point.
fn shown(weight: f64) -> f64 {
    (weight * 1e6).round() / 1e6
}
