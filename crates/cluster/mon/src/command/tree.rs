//! Commands that shape the CRUSH tree: buckets, the places and weights of OSDs in them, tunables, and the map as a whole.

use carmine_crush::edit::item_named;
use carmine_crush::tree::{Location, is_at, is_below, parents, type_named};
use carmine_types::{OsdId, errno};
use carmine_wire::crushmap::{CrushMap, Tunables};
use serde_json::{Value, json};

use super::{
    Known, Outcome, View, change, done, either, is_set, number, osd_of, present, pretty, read, required,
    said, text, texts, write,
};
use crate::change::tree::{Placing, check_fit, shown};
use crate::change::{Change, Refusal, TreeEdit, refuse};
use crate::report::crush;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write(
        "osd crush add-bucket name:CephString type:CephString args:CephString+?",
        "make a bucket, below nothing or at a location: root=NAME",
        add_bucket,
    ),
    write(
        "osd crush add id:CephOsdName weight:CephFloat args:CephString+",
        "give an OSD a place in the CRUSH map: host=NAME root=NAME",
        |c, v| place(c, v, Placing::Add),
    ),
    write(
        "osd crush set id:CephOsdName? weight:CephFloat? args:CephString+?",
        "give an OSD this place and weight in the CRUSH map, and no other place; without an OSD, take another map, given as a file by -i",
        |c, v| if c.get("id").is_some() { place(c, v, Placing::Set) } else { set_map(c, v) },
    ),
    write(
        "osd crush create-or-move id:CephOsdName weight:CephFloat args:CephString+",
        "give an OSD a place in the CRUSH map, or move it there with the weight that it has",
        |c, v| place(c, v, Placing::Move),
    ),
    write(
        "osd crush move name:CephString args:CephString+",
        "move a bucket or an OSD, with all below it",
        |c, v| relocate(c, v, true),
    ),
    write("osd crush link name:CephString args:CephString+", "put a bucket at one more location", |c, v| {
        relocate(c, v, false)
    }),
    write(
        "osd crush rm name:CephString ancestor:CephString?",
        "remove an OSD or an empty bucket from the CRUSH map, everywhere or below an ancestor",
        |c, v| remove(c, v, false),
    ),
    write(
        "osd crush remove name:CephString ancestor:CephString?",
        "remove an OSD or an empty bucket from the CRUSH map, everywhere or below an ancestor",
        |c, v| remove(c, v, false),
    ),
    write(
        "osd crush unlink name:CephString ancestor:CephString?",
        "take a bucket out of those that have it, everywhere or below an ancestor",
        |c, v| remove(c, v, true),
    ),
    write(
        "osd crush rename-bucket srcname:CephString dstname:CephString",
        "give a bucket another name",
        rename,
    ),
    write(
        "osd crush swap-bucket source:CephString dest:CephString yes_i_really_mean_it:CephBool?",
        "let two buckets change places, one of which is below nothing",
        swap,
    ),
    write(
        "osd crush reweight name:CephString weight:CephFloat",
        "change an OSD's weight in the CRUSH map",
        reweight,
    ),
    write(
        "osd crush reweight-subtree name:CephString weight:CephFloat",
        "change the weights of all OSDs below a bucket",
        reweight_subtree,
    ),
    write("osd crush reweight-all", "let each bucket weigh what its items do", |_, _| {
        change(Change::Tree(TreeEdit::ReweightAll), "reweighted crush hierarchy")
    }),
    write("osd crush set-all-straw-buckets-to-straw2", "make straw buckets straw2", |_, _| {
        change(Change::Tree(TreeEdit::Straw2), "")
    }),
    read("osd crush show-tunables", "show the CRUSH tunables", |c, v| {
        done(pretty(c, &crush::tunables(&v.map.crush)))
    }),
    write(
        "osd crush tunables profile:(legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default)",
        "set the CRUSH tunables to a profile",
        profile,
    ),
    write(
        "osd crush set-tunable tunable:(straw_calc_version) value:CephInt",
        "set a CRUSH tunable",
        set_tunable,
    ),
    read("osd crush dump", "print the CRUSH map", |c, v| done(pretty(c, &crush::dump(v.map)))),
    read("osd crush weight-set ls", "list the weight sets of the CRUSH map", |c, v| {
        let names = crush::weight_set_names(v.map);
        either(c, || json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
    }),
    read("osd crush weight-set dump", "print the weight sets of the CRUSH map", |c, v| {
        done(pretty(c, &crush::weight_sets(&v.map.crush)))
    }),
    write("osd setcrushmap prior_version:CephInt?", "take another CRUSH map, given as a file by -i", set_map),
];

/// The largest weight that a 16.16 number holds.
const WEIGHT_MAX: f64 = 65_535.0;

/// A weight in the tree, and the same as a 16.16 number.
fn weight(command: &Value) -> Result<(f64, u32), Refusal> {
    let value = present(command, "weight")?;
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|weight| *weight >= 0.0);
    let weight = number.ok_or_else(|| refuse(errno::EINVAL, format!("{value} not in range [0.0]")))?;
    if weight > WEIGHT_MAX {
        let text =
            format!("(75) Value too large for defined data type: {value}, and {WEIGHT_MAX} is the most");
        return Err(refuse(errno::EOVERFLOW, text));
    }
    Ok(((weight * 1e6).round() / 1e6, (weight * f64::from(0x1_0000)) as u32))
}

/// The location in `args`; words without `=` say nothing.
fn location(command: &Value) -> Location {
    let words = texts(command, "args").into_iter();
    words
        .filter_map(|word| word.split_once('='))
        .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
        .collect()
}

/// A location whose names a map can have.
fn checked_location(command: &Value) -> Result<Location, Refusal> {
    let at = location(command);
    at.values().try_for_each(|name| check_name(name))?;
    Ok(at)
}

/// The characters that Ceph takes for names of items.
fn check_name(name: &str) -> Result<(), Refusal> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.chars().all(is_good) {
        true => Ok(()),
        false => Err(refuse(errno::EINVAL, format!("'{name}': take letters, digits, - _ and . for a name"))),
    }
}

/// The item of this name.
fn item(crush: &CrushMap, name: &str, what: &str) -> Result<i32, Refusal> {
    item_named(crush, name).ok_or_else(|| refuse(errno::ENOENT, format!("{what} {name} does not exist")))
}

fn add_bucket(command: &Value, view: &View<'_>) -> Outcome {
    let (name, kind_name) = (required(command, "name")?, required(command, "type")?);
    let (crush, at) = (&view.map.crush, checked_location(command)?);
    check_name(name)?;
    if item_named(crush, name).is_some() {
        return said(format!("bucket '{name}' already exists"));
    }
    let kind = match type_named(crush, kind_name).map(u16::try_from) {
        None | Some(Err(_)) => Err(refuse(errno::EINVAL, format!("type '{kind_name}' does not exist"))),
        Some(Ok(0)) => Err(refuse(errno::EINVAL, format!("type '{kind_name}' is for devices, not buckets"))),
        Some(Ok(kind)) => Ok(kind),
    }?;
    let to = if at.is_empty() { "crush map".to_owned() } else { format!("location {}", shown(&at)) };
    let status = format!("added bucket {name} type {kind_name} to {to}");
    change(Change::Tree(TreeEdit::AddBucket { name: name.to_owned(), kind, at }), status)
}

fn place(command: &Value, view: &View<'_>, how: Placing) -> Outcome {
    let osd = osd_of(present(command, "id")?)?;
    let ((shown_weight, weight), at) = (weight(command)?, checked_location(command)?);
    let (crush, item) = (&view.map.crush, osd.0 as i32);
    let words = format!("weight {shown_weight} at location {}", shown(&at));
    let long = format!("item id {item} name '{osd}' {words}");
    let is_here = is_at(crush, item, &at);
    let same = crush.buckets.iter().flatten().any(|b| {
        b.items.iter().position(|own| *own == item).is_some_and(|slot| b.item_weight(slot) == weight)
    });
    let status = match how {
        _ if !view.map.exists(osd) => {
            let gap = if how == Placing::Move { "  create" } else { " Create" };
            let text = format!("{osd} does not exist.{gap} it before updating the crush map");
            return Err(refuse(errno::ENOENT, text));
        }
        Placing::Move if is_here => {
            return said(format!("create-or-move updated item name '{osd}' {words} to crush map"));
        }
        Placing::Move => format!("create-or-move updating item name '{osd}' {words} to crush map"),
        _ if is_here && same => return said(format!("set {long}: no change")),
        Placing::Add if !is_here => format!("add {long} to crush map"),
        Placing::Add | Placing::Set => format!("set {long} to crush map"),
    };
    change(Change::Tree(TreeEdit::Place { osd, weight, at, how }), status)
}

fn relocate(command: &Value, view: &View<'_>, is_move: bool) -> Outcome {
    let (name, at) = (required(command, "name")?, checked_location(command)?);
    let item = item(&view.map.crush, name, "item")?;
    let what = format!("item id {item} name '{name}' to location {}", shown(&at));
    if is_at(&view.map.crush, item, &at) {
        return said(format!("no need to move {what} in crush map"));
    }
    let (word, edit) = match is_move {
        true => ("moved", TreeEdit::Move { item, at }),
        false => ("linked", TreeEdit::Link { item, at }),
    };
    change(Change::Tree(edit), format!("{word} {what} in crush map"))
}

fn remove(command: &Value, view: &View<'_>, is_unlink: bool) -> Outcome {
    let (name, crush) = (required(command, "name")?, &view.map.crush);
    let Some(item) = item_named(crush, name) else {
        return said(format!("device '{name}' does not appear in the crush map"));
    };
    let ancestor = text(command, "ancestor").filter(|name| !name.is_empty());
    let known = |name: &str| {
        item_named(crush, name).ok_or_else(|| {
            refuse(errno::ENOENT, format!("ancestor item '{name}' does not appear in the crush map"))
        })
    };
    let under = ancestor.map(known).transpose()?;
    let is_there = |under| parents(crush, item).iter().any(|parent| is_below(crush, *parent, under));
    if under.is_some_and(|under| !is_there(under)) {
        return said(format!("item {item} does not appear in that position"));
    }
    let status = format!("removed item id {item} name '{name}' from crush map");
    change(Change::Tree(TreeEdit::Remove { item, under, is_unlink }), status)
}

fn rename(command: &Value, view: &View<'_>) -> Outcome {
    let (from, to) = (required(command, "srcname")?, required(command, "dstname")?);
    check_name(to)?;
    let crush = &view.map.crush;
    let status = format!("renamed bucket {from} into {to}");
    match (item_named(crush, from), item_named(crush, to)) {
        (None, Some(_)) => {
            said(format!("srcname = '{from}' does not exist and dstname = '{to}' already exists"))
        }
        (None, None) => Err(refuse(errno::ENOENT, format!("srcname = '{from}' does not exist"))),
        (Some(id @ 0..), _) => Err(refuse(
            errno::ENOTDIR,
            format!("srcname = '{from}' is not a bucket because its id = {id} is >= 0"),
        )),
        (Some(_), Some(_)) => Err(refuse(errno::EEXIST, format!("dstname = '{to}' already exists"))),
        (Some(bucket), None) => change(Change::Tree(TreeEdit::Rename { bucket, to: to.to_owned() }), status),
    }
}

fn swap(command: &Value, view: &View<'_>) -> Outcome {
    let (source, dest) = (required(command, "source")?, required(command, "dest")?);
    let crush = &view.map.crush;
    let bucket = |name: &str, what: &str| match item(crush, name, what)? {
        0.. => Err(refuse(errno::EINVAL, format!("{what} {name} is not a bucket"))),
        bucket => Ok(bucket),
    };
    let (one, other) = (bucket(source, "source item")?, bucket(dest, "dest item")?);
    if !parents(crush, one).is_empty() && !is_set(command, "yes_i_really_mean_it") {
        let text = format!(
            "source item {source} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
        );
        return Err(refuse(errno::EPERM, text));
    }
    change(Change::Tree(TreeEdit::Swap { one, other }), format!("swapped bucket of {source} to {dest}"))
}

/// The item of this name, whose weight is to change.
fn weighed(command: &Value, view: &View<'_>) -> Result<i32, Refusal> {
    let name = required(command, "name")?;
    item_named(&view.map.crush, name)
        .ok_or_else(|| refuse(errno::ENOENT, format!("device '{name}' does not appear in the crush map")))
}

fn reweight(command: &Value, view: &View<'_>) -> Outcome {
    let (name, item, (shown, weight)) =
        (required(command, "name")?, weighed(command, view)?, weight(command)?);
    let osd = OsdId::from_item(item)
        .ok_or_else(|| refuse(errno::EINVAL, format!("device '{name}' is not a leaf in the crush map")))?;
    let status = format!("reweighted item id {item} name '{name}' to {shown} in crush map");
    change(Change::CrushReweight { osd, weight }, status)
}

fn reweight_subtree(command: &Value, view: &View<'_>) -> Outcome {
    let (name, bucket) = (required(command, "name")?, weighed(command, view)?);
    if bucket >= 0 {
        return Err(refuse(errno::EINVAL, format!("device '{name}' is not a subtree in the crush map")));
    }
    let (shown, weight) = weight(command)?;
    let status = format!("reweighted subtree id {bucket} name '{name}' to {shown} in crush map");
    change(Change::Tree(TreeEdit::ReweightBelow { bucket, weight }), status)
}

fn profile(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "profile")?;
    let tunables = crush::profile(name, &view.map.crush.tunables)
        .ok_or_else(|| refuse(errno::EINVAL, format!("unknown tunables profile '{name}'")))?;
    change(Change::Tree(TreeEdit::Tunables(tunables)), format!("adjusted tunables profile to {name}"))
}

fn set_tunable(command: &Value, view: &View<'_>) -> Outcome {
    let tunable = required(command, "tunable")?;
    if tunable != "straw_calc_version" {
        return Err(refuse(errno::EINVAL, format!("unrecognized tunable '{tunable}'")));
    }
    let straw_calc_version = match number::<u8>(command, "value") {
        Ok(Some(value @ 0..2)) => value,
        _ => {
            let value = present(command, "value")?;
            return Err(refuse(errno::EINVAL, format!("value must be 0 or 1; got {value}")));
        }
    };
    let tunables = Tunables { straw_calc_version, ..view.map.crush.tunables };
    change(
        Change::Tree(TreeEdit::Tunables(tunables)),
        format!("adjusted tunable {tunable} to {straw_calc_version}"),
    )
}

/// The status is the version of the new map, as scripts expect it.
fn set_map(command: &Value, view: &View<'_>) -> Outcome {
    let crush = CrushMap::decode(view.input)
        .map_err(|error| refuse(errno::EINVAL, format!("Failed to parse crushmap: {error}")))?;
    let version = view.map.crush_version;
    if let Some(prior) =
        command.get("prior_version").and_then(Value::as_i64).filter(|prior| *prior != i64::from(version))
    {
        return Err(refuse(errno::EPERM, format!("prior_version {prior} != crush version {version}")));
    }
    check_fit(view.map, &crush)?;
    change(Change::Tree(TreeEdit::Whole(Box::new(crush))), version.wrapping_add(1).to_string())
}
