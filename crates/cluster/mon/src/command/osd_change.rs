//! Commands that change the state of OSDs, and the flags of the map.

use carmine_types::{OsdId, errno};
use carmine_wire::osdmap::consts::{FLAG_NAMES, WEIGHT_IN, WEIGHT_OUT};
use serde_json::Value;

use super::args::{osds, required};
use super::output::change;
use super::{Known, Outcome, View, write};
use crate::change::{Change, Refusal, refuse};

/// Flags that change nothing here, or only what this monitor does: it marks nobody out, and there is neither scrub nor backfill.
const SET: &str = "osd set key:(noout|noscrub|nodeep-scrub|nobackfill|norebalance|norecover)";
const UNSET: &str = "osd unset key:(noout|noscrub|nodeep-scrub|nobackfill|norebalance|norecover)";

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write("osd out ids:CephString+", "take OSDs out of the placement", osd_out),
    write("osd in ids:CephString+", "put OSDs back", osd_in),
    write("osd down ids:CephString+", "call OSDs down; those that run boot again", osd_down),
    write(SET, "set a flag of the map", osd_set),
    write(UNSET, "clear a flag of the map", osd_unset),
];

/// A sentence for each OSD, as scripts that do things twice expect it.
fn sentences(osds: &[OsdId], word: &str, is_so: impl Fn(OsdId) -> bool) -> String {
    let one = |osd: &OsdId| {
        if is_so(*osd) { format!("{osd} is already {word}.") } else { format!("marked {word} {osd}.") }
    };
    osds.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn osd_out(command: &Value, view: &View<'_>) -> Outcome {
    let osds = osds(command, view.map)?;
    let status = sentences(&osds, "out", |osd| !view.map.is_in(osd));
    change(Change::Weight { osds, weight: WEIGHT_OUT }, status)
}

fn osd_in(command: &Value, view: &View<'_>) -> Outcome {
    let osds = osds(command, view.map)?;
    let status = sentences(&osds, "in", |osd| view.map.is_in(osd));
    change(Change::Weight { osds, weight: WEIGHT_IN }, status)
}

fn osd_down(command: &Value, view: &View<'_>) -> Outcome {
    let osds = osds(command, view.map)?;
    let status = sentences(&osds, "down", |osd| !view.map.is_up(osd));
    change(Change::MarkDown { osds }, status)
}

/// Name and bit of the flag that a command names.
fn flag(command: &Value) -> Result<(&str, u32), Refusal> {
    let key = required(command, "key")?;
    let is_offered = SET.split(['(', '|', ')']).any(|name| name == key);
    match FLAG_NAMES.iter().find(|(_, name)| is_offered && *name == key) {
        Some((bit, _)) => Ok((key, *bit)),
        None => Err(refuse(errno::EOPNOTSUPP, format!("the flag '{key}' is not supported"))),
    }
}

fn osd_set(command: &Value, _: &View<'_>) -> Outcome {
    let (name, set) = flag(command)?;
    change(Change::Flags { set, clear: 0 }, format!("{name} is set"))
}

fn osd_unset(command: &Value, _: &View<'_>) -> Outcome {
    let (name, clear) = flag(command)?;
    change(Change::Flags { set: 0, clear }, format!("{name} is unset"))
}
