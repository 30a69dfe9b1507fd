//! Commands that change the place of OSDs: weights, in the map and in the CRUSH tree, and OSDs that are gone for good.

use carmine_crush::edit::item_named;
use carmine_types::{OsdId, errno};
use carmine_wire::osdmap::consts::WEIGHT_IN;
use serde_json::Value;

use super::{Known, Outcome, View, change, is_set, osd_of, present, required, said, texts, write};
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
    write(
        "osd crush reweight name:CephString weight:CephFloat",
        "change an OSD's weight in the CRUSH map",
        crush_reweight,
    ),
    write("osd new uuid:CephUUID id:CephOsdName?", "make the number of a new OSD known", new_osd),
    write(
        "osd crush add id:CephOsdName weight:CephFloat args:CephString+",
        "give an OSD a place in the CRUSH map: host=NAME root=NAME",
        crush_add,
    ),
    write(
        "osd purge id:CephOsdName force:CephBool? yes_i_really_mean_it:CephBool?",
        "remove an OSD that is down for good",
        purge,
    ),
    write(
        "osd lost id:CephOsdName yes_i_really_mean_it:CephBool?",
        "give up what only this OSD has, which is down",
        lost,
    ),
];

/// A weight, and the same as a 16.16 number.
fn weight(command: &Value, most: f64) -> Result<(f64, u32), Refusal> {
    let value = present(command, "weight")?;
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let weight = number.filter(|weight| (0.0..=most).contains(weight));
    let weight =
        weight.ok_or_else(|| refuse(errno::EINVAL, format!("{value} not in range [0.0, {most:.1}]")))?;
    Ok((weight, (weight * f64::from(WEIGHT_IN)) as u32))
}

fn reweight(command: &Value, view: &View<'_>) -> Outcome {
    let (osd, (weight, fixed)) = (osd_of(present(command, "id")?)?, weight(command, 1.0)?);
    exists(view, osd)?;
    let status = format!("reweighted {osd} to {} ({fixed:x})", shown(weight));
    change(Change::Weight { osds: vec![osd], weight: fixed }, status)
}

fn primary_affinity(command: &Value, view: &View<'_>) -> Outcome {
    let (osd, (weight, affinity)) = (osd_of(present(command, "id")?)?, weight(command, 1.0)?);
    exists(view, osd)?;
    let status = format!("set {osd} primary-affinity to {} ({affinity:x})", shown(weight));
    change(Change::PrimaryAffinity { osd, affinity }, status)
}

/// Up to the largest weight that a 16.16 number holds.
fn crush_reweight(command: &Value, view: &View<'_>) -> Outcome {
    let (name, (weight, fixed)) = (required(command, "name")?, weight(command, 65_535.0)?);
    let item = item_named(&view.map.crush, name)
        .ok_or_else(|| refuse(errno::ENOENT, format!("device '{name}' does not appear in the crush map")))?;
    let osd = OsdId::from_item(item)
        .ok_or_else(|| refuse(errno::EINVAL, format!("device '{name}' is not a leaf in the crush map")))?;
    let status = format!("reweighted item id {item} name '{name}' to {} in crush map", shown(weight));
    change(Change::CrushReweight { osd, weight: fixed }, status)
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

fn crush_add(command: &Value, _: &View<'_>) -> Outcome {
    let osd = osd_of(present(command, "id")?)?;
    let (shown_weight, weight) = weight(command, 65_535.0)?;
    let place = |name: &str| {
        let words = texts(command, "args").into_iter();
        words.filter_map(|word| word.split_once('=')).find(|(own, _)| *own == name).map(|(_, value)| value)
    };
    let host = place("host").ok_or_else(|| refuse(errno::EINVAL, "name a place: host=NAME"))?.to_owned();
    let root = place("root").unwrap_or("default").to_owned();
    let status = format!(
        "add item id {} name '{osd}' weight {} at location {{host={host},root={root}}} to crush map",
        osd.0,
        shown(shown_weight)
    );
    change(Change::CrushAdd { osd, weight, host, root }, status)
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
