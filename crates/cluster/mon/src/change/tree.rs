//! Changes of the CRUSH tree: places of OSDs and buckets, weights of whole subtrees, tunables, or another map in its place.

use carmine_crush::check::check;
use carmine_crush::tree::{self, Location, TreeError};
use carmine_crush::{classes, edit};
use carmine_types::{OsdId, UTime, errno};
use carmine_wire::crushmap::{CrushMap, Tunables};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::osd::check_exist;
use super::{Refusal, refuse};

/// A wish about the CRUSH tree. Items are named by their ids.
#[derive(Clone, Debug)]
pub(crate) enum TreeEdit {
    /// A new bucket, below nothing where the location is empty.
    AddBucket {
        name: String,
        kind: u16,
        at: Location,
    },
    /// Out of all buckets and into this one, with what is below it.
    Move {
        item: i32,
        at: Location,
    },
    /// Into this bucket too.
    Link {
        item: i32,
        at: Location,
    },
    /// An OSD gets a place and a weight.
    Place {
        osd: OsdId,
        weight: u32,
        at: Location,
        how: Placing,
    },
    /// Out of all buckets, or of those below one; unless it is only unlinked, a bucket is gone then.
    Remove {
        item: i32,
        under: Option<i32>,
        is_unlink: bool,
    },
    Rename {
        bucket: i32,
        to: String,
    },
    /// Every bucket weighs what its items do.
    ReweightAll,
    /// All OSDs below a bucket weigh as much.
    ReweightBelow {
        bucket: i32,
        weight: u32,
    },
    Swap {
        one: i32,
        other: i32,
    },
    Tunables(Tunables),
    /// Buckets of the kind straw become straw2.
    Straw2,
    /// Another map.
    Whole(Box<CrushMap>),
}

/// What becomes of an OSD that has a place elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// It keeps that, too.
    Add,
    /// It leaves that.
    Set,
    /// It leaves that, and keeps its weight.
    Move,
}

pub(super) fn edit(map: &OsdMap, edit: &TreeEdit, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let mut crush = CrushMap::clone(&map.crush);
    match edit {
        TreeEdit::Whole(whole) => {
            // Before anything walks it.
            check_fit(map, whole)?;
            crush = CrushMap::clone(whole);
        }
        TreeEdit::Place { osd, weight, at, how } => {
            check_exist(map, &[*osd])?;
            place(&mut crush, *osd, *weight, at, *how).map_err(refused)?;
        }
        other => apply(&mut crush, other)?,
    }
    let is_whole = matches!(edit, TreeEdit::Whole(_));
    classes::rebuild_shadows(&mut crush);
    check_fit(map, &crush)?;
    if crush == *map.crush && !is_whole {
        return Ok(None);
    }
    Ok(Some(Incremental { crush: crush.encode(), ..Incremental::next(map, now) }))
}

/// A map that the cluster can have: whole in itself, and with the rules of all pools.
pub(crate) fn check_fit(map: &OsdMap, crush: &CrushMap) -> Result<(), Refusal> {
    check(crush).map_err(|why| refuse(errno::EINVAL, format!("this crush map cannot be used: {why}")))?;
    for (id, pool) in &map.pools {
        if crush.rules.get(usize::from(pool.crush_rule)).is_none_or(Option::is_none) {
            let name = map.pool_names.get(id).map_or("", String::as_str);
            let text =
                format!("pool '{name}' references crush_rule {} but it is not present", pool.crush_rule);
            return Err(refuse(errno::ENOENT, text));
        }
    }
    Ok(())
}

/// The edits that need nothing but the tree.
fn apply(crush: &mut CrushMap, edit: &TreeEdit) -> Result<(), Refusal> {
    match edit {
        TreeEdit::AddBucket { name, kind, at } => add_bucket(crush, name, *kind, at),
        TreeEdit::Move { item, at } => tree::move_to(crush, *item, at).map_err(refused),
        TreeEdit::Link { item, at } => {
            let weight = tree::weight_of(crush, *item);
            tree::insert(crush, *item, weight, at).map_err(refused)
        }
        TreeEdit::Remove { item, under, is_unlink } => {
            remove(crush, *item, *under, *is_unlink).map_err(refused)
        }
        TreeEdit::Rename { bucket, to } => {
            crush.item_names.insert(*bucket, to.clone());
            Ok(())
        }
        TreeEdit::ReweightAll => tree::reweight_all(crush).map_err(refused),
        TreeEdit::ReweightBelow { bucket, weight } => {
            tree::reweight_below(crush, *bucket, *weight).map_err(refused)
        }
        TreeEdit::Swap { one, other } => match tree::swap(crush, *one, *other).map_err(refused)? {
            true => Ok(()),
            false => Err(refuse(errno::EINVAL, "failed to swap bucket contents: (22) Invalid argument")),
        },
        TreeEdit::Tunables(tunables) => {
            crush.tunables = *tunables;
            Ok(())
        }
        TreeEdit::Straw2 => {
            tree::straw_to_straw2(crush);
            Ok(())
        }
        // They need more than the tree.
        TreeEdit::Place { .. } | TreeEdit::Whole(_) => Ok(()),
    }
}

fn add_bucket(crush: &mut CrushMap, name: &str, kind: u16, at: &Location) -> Result<(), Refusal> {
    let bucket = tree::add_bucket(crush, name, kind).map_err(refused)?;
    if at.is_empty() {
        return Ok(());
    }
    let failed = |error| Refusal {
        text: format!("error moving bucket '{name}' to location {}", shown(at)),
        ..refused(error)
    };
    tree::move_to(crush, bucket, at).map_err(failed)
}

fn place(
    crush: &mut CrushMap,
    osd: OsdId,
    weight: u32,
    at: &Location,
    how: Placing,
) -> Result<(), TreeError> {
    let item = osd.0 as i32;
    let is_here = tree::is_at(crush, item, at);
    let has_place = !tree::parents(crush, item).is_empty();
    crush.item_names.insert(item, osd.to_string());
    crush.max_devices = crush.max_devices.max(item + 1);
    match how {
        Placing::Move if is_here => Ok(()),
        Placing::Move if has_place => tree::move_to(crush, item, at),
        _ if is_here => {
            edit::reweight(crush, item, weight);
            Ok(())
        }
        Placing::Set => {
            tree::detach(crush, item, None)?;
            tree::insert(crush, item, weight, at)
        }
        Placing::Add | Placing::Move => {
            tree::insert(crush, item, weight, at)?;
            // One weight, wherever it is.
            edit::reweight(crush, item, weight);
            Ok(())
        }
    }
}

fn remove(crush: &mut CrushMap, item: i32, under: Option<i32>, is_unlink: bool) -> Result<(), TreeError> {
    if item < 0 && under.is_none() {
        tree::check_unused(crush, item)?;
    }
    tree::detach(crush, item, under)?;
    if !tree::parents(crush, item).is_empty() {
        return Ok(());
    }
    if item < 0 {
        return if is_unlink { Ok(()) } else { tree::remove_bucket(crush, item) };
    }
    edit::remove_device(crush, item);
    Ok(())
}

/// `{host=a,root=default}`.
pub(crate) fn shown(at: &Location) -> String {
    let parts: Vec<String> = at.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    format!("{{{}}}", parts.join(","))
}

fn refused(error: TreeError) -> Refusal {
    match error {
        TreeError::NoPlace => refuse(
            errno::EINVAL,
            "(22) Invalid argument: no bucket of the location is of the type that it names",
        ),
        TreeError::Loop => {
            refuse(errno::ELOOP, "(40) Too many levels of symbolic links: the bucket would be below itself")
        }
        TreeError::NotEmpty => {
            refuse(errno::ENOTEMPTY, "(39) Directory not empty: move or remove first what is in the bucket")
        }
        TreeError::InUse => {
            refuse(errno::EBUSY, "(16) Device or resource busy: a crush rule takes the bucket")
        }
        TreeError::NotStraw2 => refuse(
            errno::EOPNOTSUPP,
            "only buckets of the kind straw2 can be changed: take setcrushmap for others",
        ),
        TreeError::TooMany => refuse(errno::ENOSPC, format!("there are {} buckets", tree::BUCKETS_MAX)),
    }
}
