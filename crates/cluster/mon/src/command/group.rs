//! Commands that set noup, nodown, noin and noout for single OSDs, for all below a CRUSH node, and for device classes.

use carmine_crush::classes::class_of;
use carmine_crush::edit::item_named;
use carmine_types::{OsdId, errno};
use serde_json::Value;

use super::{Known, Outcome, View, change, list, osd_of, present, required, said, write};
use crate::change::group::{BARS, Group};
use crate::change::{Change, Refusal, refuse};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write(
        "osd set-group flags:CephString who:CephString+",
        "set noup, nodown, noin or noout for OSDs, CRUSH nodes or device classes",
        |c, v| named(c, v, true),
    ),
    write(
        "osd unset-group flags:CephString who:CephString+",
        "clear noup, nodown, noin or noout for OSDs, CRUSH nodes or device classes",
        |c, v| named(c, v, false),
    ),
    write("osd add-noup ids:CephString+", "keep OSDs that boot down", |c, v| one(c, v, "noup", true)),
    write("osd add-nodown ids:CephString+", "keep OSDs up", |c, v| one(c, v, "nodown", true)),
    write("osd add-noin ids:CephString+", "keep OSDs that boot out", |c, v| one(c, v, "noin", true)),
    write("osd add-noout ids:CephString+", "keep OSDs that are down in", |c, v| one(c, v, "noout", true)),
    write("osd rm-noup ids:CephString+", "let OSDs boot again", |c, v| one(c, v, "noup", false)),
    write("osd rm-nodown ids:CephString+", "let OSDs go down again", |c, v| one(c, v, "nodown", false)),
    write("osd rm-noin ids:CephString+", "let OSDs come in again", |c, v| one(c, v, "noin", false)),
    write("osd rm-noout ids:CephString+", "let OSDs go out again", |c, v| one(c, v, "noout", false)),
];

fn named(command: &Value, view: &View<'_>, is_set: bool) -> Outcome {
    let bits = required(command, "flags")?.split(',').try_fold(0, |bits, name| Ok(bits | bit(name)?))?;
    answer(view, present(command, "who")?, bits, is_set)
}

fn one(command: &Value, view: &View<'_>, name: &str, is_set: bool) -> Outcome {
    answer(view, present(command, "ids")?, bit(name)?, is_set)
}

fn bit(name: &str) -> Result<u32, Refusal> {
    let text = || format!("unrecognized flag '{name}', must be one of {{noup,nodown,noin,noout}}");
    let found = BARS.iter().find(|bar| bar.name == name).map(|bar| bar.of_osd);
    found.ok_or_else(|| refuse(errno::EINVAL, text()))
}

fn answer(view: &View<'_>, who: &Value, bits: u32, is_set: bool) -> Outcome {
    let (group, status) = group(view, who)?;
    match group.osds.is_empty() && group.nodes.is_empty() && group.classes.is_empty() {
        true => said(status),
        false => change(Change::Group { group, bits, is_set }, status),
    }
}

/// Those that a command names; the status tells of OSDs that there are not.
fn group(view: &View<'_>, who: &Value) -> Result<(Group, String), Refusal> {
    let (mut group, mut status, crush) = (Group::default(), String::new(), &view.map.crush);
    for name in list(who) {
        let text = name.as_str().unwrap_or_default();
        if matches!(text, "any" | "all" | "*") {
            return Ok((Group { osds: view.map.osds().collect(), ..Group::default() }, status));
        }
        match osd_of(name) {
            Ok(osd) if view.map.exists(osd) => group.osds.push(osd),
            Ok(OsdId(id)) => status += &format!("osd.{id} does not exist. "),
            Err(_) => match (item_named(crush, text), class_of(crush, text)) {
                (Some(node), _) => group.nodes.push(node),
                (None, Some(class)) => group.classes.push(class),
                (None, None) => {
                    let text = format!("unable to parse osd id or crush node or device class: \"{text}\". ");
                    return Err(refuse(errno::EINVAL, text));
                }
            },
        }
    }
    Ok((group, status))
}
