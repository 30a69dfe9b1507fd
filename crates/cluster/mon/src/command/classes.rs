//! Commands about device classes.

use carmine_crush::classes::{class_name, class_of, next_class};
use carmine_types::{OsdId, errno};
use serde_json::{Value, json};

use super::{
    Known, Outcome, View, change, done, either, list, osd_of, present, pretty, read, required, said, write,
};
use crate::change::classes::rules_of;
use crate::change::{Change, ClassEdit, Refusal, refuse};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd crush class ls", "list the device classes", |c, v| {
        done(pretty(c, &v.map.crush.class_names.values().map(|name| json!(name)).collect()))
    }),
    read("osd crush class ls-osd class:CephString", "list the OSDs of a device class", ls_osd),
    write("osd crush class create class:CephString", "make a device class", create),
    write("osd crush class rm class:CephString", "remove a device class that no rule needs", remove),
    write(
        "osd crush class rename srcname:CephString dstname:CephString",
        "give a device class another name",
        |c, _| {
            let (name, to) = (name(c, "srcname")?.to_owned(), name(c, "dstname")?.to_owned());
            let status = format!("rename class '{name}' to '{to}'");
            change(Change::Class(ClassEdit::Rename { name, to }), status)
        },
    ),
    write(
        "osd crush set-device-class class:CephString ids:CephString+",
        "give OSDs a device class",
        |c, v| set(c, v, Some(name(c, "class")?)),
    ),
    write("osd crush rm-device-class ids:CephString+", "take OSDs out of their device classes", |c, v| {
        set(c, v, None)
    }),
    read("osd crush get-device-class ids:CephString+", "show the device classes of OSDs", get),
    read("osd crush rule ls-by-class class:CephString", "list the rules of a device class", rules),
];

/// The characters that a name may have.
fn name<'a>(command: &'a Value, parameter: &str) -> Result<&'a str, Refusal> {
    let name = required(command, parameter)?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match name.is_empty() || !name.chars().all(is_good) {
        true => Err(refuse(
            errno::EINVAL,
            format!("'{name}': take letters, digits, - _ and . for the name of a class"),
        )),
        false => Ok(name),
    }
}

fn ls_osd(command: &Value, view: &View<'_>) -> Outcome {
    let wanted = Some(required(command, "class")?);
    let osds: Vec<u32> = view
        .map
        .osds()
        .filter(|osd| class_name(&view.map.crush, osd.0 as i32) == wanted)
        .map(|osd| osd.0)
        .collect();
    either(command, || json!(osds), || osds.iter().map(|osd| format!("{osd}\n")).collect())
}

fn create(command: &Value, view: &View<'_>) -> Outcome {
    let name = name(command, "class")?.to_owned();
    let crush = &view.map.crush;
    if class_of(crush, &name).is_some() {
        return said(format!("class '{name}' already exists"));
    }
    let id = next_class(crush);
    let status = format!("created class {name} with id {id} to crush map");
    change(Change::Class(ClassEdit::Create { name }), status)
}

fn remove(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "class")?.to_owned();
    let Some(id) = class_of(&view.map.crush, &name) else { return said("") };
    let status = format!("removed class {name} with id {id} from crush map");
    change(Change::Class(ClassEdit::Remove { name }), status)
}

/// Gives OSDs a class or takes it from them. Those that have another one are refused a new one; of those that there are not, the
/// status tells.
fn set(command: &Value, view: &View<'_>, class: Option<&str>) -> Outcome {
    let (mut osds, mut status) = (Vec::new(), String::new());
    for osd in named(command, view, &mut status)? {
        let has = class_name(&view.map.crush, osd.0 as i32);
        match (has, class) {
            _ if !view.map.exists(osd) => status += &format!("{osd} does not exist. "),
            (None, None) => status += &format!("{osd} belongs to no class, "),
            (Some(has), Some(class)) if has == class => {
                status += &format!(
                    "{osd} already set to class {class}. set-device-class item id {} name '{osd}' device_class '{class}': no change. ",
                    osd.0
                );
            }
            (Some(has), Some(class)) => {
                let text = format!(
                    "{status}{osd} has already bound to class '{has}', can not reset class to '{class}'; use 'ceph osd crush \
                     rm-device-class <id>' to remove old class first"
                );
                return Err(refuse(errno::EBUSY, text));
            }
            (Some(_), None) | (None, Some(_)) => osds.push(osd),
        }
    }
    let changed = osds.iter().map(|osd| osd.0.to_string()).collect::<Vec<_>>().join(",");
    status += &match class {
        Some(class) => format!("set osd(s) {changed} to class '{class}'"),
        None => format!("done removing class of osd(s): {changed}"),
    };
    if osds.is_empty() {
        return said(status);
    }
    change(Change::Class(ClassEdit::Set { osds, class: class.map(str::to_owned) }), status)
}

/// The OSDs of the command; the status tells of words that name none.
fn named(command: &Value, view: &View<'_>, status: &mut String) -> Result<Vec<OsdId>, Refusal> {
    let ids = list(present(command, "ids")?);
    if ids.iter().any(|id| matches!(id.as_str(), Some("any" | "all" | "*"))) {
        return Ok(view.map.osds().collect());
    }
    let mut osds = Vec::new();
    for id in ids {
        match osd_of(id) {
            Ok(osd) => osds.push(osd),
            Err(_) => *status += &format!("unable to parse osd id:{id}. "),
        }
    }
    Ok(osds)
}

fn get(command: &Value, view: &View<'_>) -> Outcome {
    let mut classes = Vec::new();
    for id in list(present(command, "ids")?) {
        let osd = osd_of(id).map_err(|_| {
            refuse(errno::EINVAL, format!("unable to parse osd id:'{}'", id.as_str().unwrap_or_default()))
        })?;
        classes.push((osd, class_name(&view.map.crush, osd.0 as i32).unwrap_or_default()));
    }
    let is_one = classes.len() == 1;
    let line = |(osd, class): &(OsdId, &str)| match is_one {
        true if class.is_empty() => String::new(),
        true => format!("{class}\n"),
        false => format!("{osd} {class}\n"),
    };
    let value = |(osd, class): &(OsdId, &str)| json!({ "osd": osd.0, "device_class": class });
    either(command, || classes.iter().map(value).collect(), || classes.iter().map(line).collect())
}

fn rules(command: &Value, view: &View<'_>) -> Outcome {
    let (name, crush) = (required(command, "class")?, &view.map.crush);
    let class = class_of(crush, name);
    let class =
        class.ok_or_else(|| refuse(errno::ENOENT, format!("failed to get rules by class '{name}'")))?;
    let rules = rules_of(crush, class);
    either(command, || json!(rules), || rules.iter().map(|rule| format!("{rule}\n")).collect())
}
