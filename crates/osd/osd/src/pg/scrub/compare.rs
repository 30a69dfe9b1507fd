//! Compares the copies of objects, as scanned by each member, and finds the bad ones: pure functions.
//!
//! The authoritative copy is one that can be read, because the store checks everything that it reads; if several differ, it is
//! one of the majority, else the primary's. An object that only some members have is missing on the others, however many they
//! are: a scrub never removes an object.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::{Eversion, ObjectId, OsdId, UTime, is_mutated};
use carmine_wire::scrub::{InconsistentCopy, InconsistentObject, copy_errors, object_errors};

use crate::messages::Scanned;

/// Errors of copies that only a deep scrub detects.
const DEEP: u64 = copy_errors::READ_ERROR | copy_errors::DATA_DIGEST;

/// A range of objects, as scanned by one member.
pub(super) type Map = BTreeMap<ObjectId, Scanned>;

/// An object whose copies differ, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inconsistent {
    /// The object in the format for tools.
    pub object: InconsistentObject,
    /// Members whose copies differ from the authoritative one, cannot be read, or are missing.
    pub wrong: Vec<OsdId>,
    /// The authoritative copy and its member; `None`: no copy can be read.
    pub authority: Option<(OsdId, Scanned)>,
}

impl Inconsistent {
    /// Number of copies with errors.
    pub(super) fn bad_copies(&self) -> u64 {
        self.wrong.len() as u64
    }

    /// Whether attributes differ.
    pub(super) fn is_of_attrs(&self) -> bool {
        self.object.errors & (object_errors::ATTR_NAME_MISMATCH | object_errors::ATTR_VALUE_MISMATCH) != 0
    }

    /// Whether the only errors are copies with unreadable data, whose metadata is right.
    pub(super) fn only_unreadable(&self) -> bool {
        let is_readable = |copy: &InconsistentCopy| copy.errors & !copy_errors::READ_ERROR == 0;
        self.object.errors == 0 && self.object.copies.iter().all(|(_, copy)| is_readable(copy))
    }

    /// Whether only a deep scrub can detect it, or a part of it.
    pub(super) fn is_deep(&self) -> bool {
        self.object.copies.iter().any(|(_, copy)| copy.errors & DEEP != 0)
    }

    /// Whether only a deep scrub can detect any of it.
    pub(super) fn is_only_deep(&self) -> bool {
        let other = |(_, copy): &(OsdId, InconsistentCopy)| copy.errors & !DEEP != 0;
        let is_of_data = self.object.errors & !object_errors::DATA_DIGEST_MISMATCH == 0;
        self.is_deep() && is_of_data && !self.object.copies.iter().any(other)
    }
}

/// Finds the objects that are not equal on all members, in order. `deep`: the data was read.
pub(super) fn compare(primary: OsdId, deep: bool, maps: &BTreeMap<OsdId, Map>) -> Vec<Inconsistent> {
    let all: BTreeSet<&ObjectId> = maps.values().flat_map(Map::keys).collect();
    let judged = all.into_iter().map(|oid| {
        let copies: Vec<Copy<'_>> = maps.iter().map(|(osd, map)| (*osd, map.get(oid))).collect();
        judge(primary, deep, oid, &copies)
    });
    judged.filter(|object| object.bad_copies() > 0).collect()
}

type Copy<'a> = (OsdId, Option<&'a Scanned>);

fn judge(primary: OsdId, deep: bool, oid: &ObjectId, copies: &[Copy<'_>]) -> Inconsistent {
    let authority = authority(primary, copies);
    let mut object = InconsistentObject {
        oid: oid.clone(),
        version: authority.map_or(0, |(_, found)| found.user_version),
        errors: 0,
        copies: Vec::new(),
    };
    let mut wrong = Vec::new();
    for (osd, found) in copies {
        let mut copy = InconsistentCopy { primary: *osd == primary, ..InconsistentCopy::default() };
        let mut differs = false;
        match found {
            None => copy.errors = copy_errors::MISSING,
            Some(found) => {
                describe(found, deep, &mut copy);
                if let Some((_, right)) = authority {
                    differs = differ(found, right, deep, &mut copy.errors, &mut object.errors);
                }
            }
        }
        wrong.extend((differs || copy.errors != 0).then_some(*osd));
        object.copies.push((*osd, copy));
    }
    Inconsistent { object, wrong, authority: authority.map(|(osd, found)| (osd, found.clone())) }
}

/// The copy that the others should equal.
fn authority<'a>(primary: OsdId, copies: &[Copy<'a>]) -> Option<(OsdId, &'a Scanned)> {
    let readable: Vec<(OsdId, &Scanned)> = copies
        .iter()
        .filter_map(|(osd, found)| found.filter(|f| is_readable(f)).map(|f| (*osd, f)))
        .collect();
    let equals = |found: &Scanned| readable.iter().filter(|(_, other)| *other == found).count();
    let has_primary =
        |found: &Scanned| readable.iter().any(|(osd, other)| *osd == primary && *other == found);
    // Of members that agree, prefer the primary, then the first in order.
    let rank = |(osd, found): &(OsdId, &Scanned)| {
        (equals(found), has_primary(found), *osd == primary, std::cmp::Reverse(*osd))
    };
    readable.iter().copied().max_by_key(rank)
}

fn is_readable(found: &Scanned) -> bool {
    !found.stat_error && !found.read_error
}

fn describe(found: &Scanned, deep: bool, copy: &mut InconsistentCopy) {
    copy.size = found.size;
    if found.stat_error {
        copy.errors |= copy_errors::STAT_ERROR;
    } else if found.read_error {
        copy.errors |= copy_errors::READ_ERROR;
    } else {
        copy.omap_digest = Some(found.omap);
        copy.data_digest = deep.then_some(found.data);
    }
}

/// Notes how the readable parts of a copy differ from the authoritative one; false: not at all.
fn differ(found: &Scanned, right: &Scanned, deep: bool, copy: &mut u64, object: &mut u64) -> bool {
    if found.stat_error {
        return true;
    }
    let info = |f: &Scanned| -> (Eversion, u64, UTime) { (f.version, f.user_version, f.mtime) };
    let readable = is_readable(found);
    let is_size = found.size != right.size && !is_mutated("ignore_sizes");
    let is_data = deep && readable && found.data != right.data && !is_mutated("ignore_data");
    let is_omap = readable && found.omap != right.omap;
    let is_name = found.attr_names != right.attr_names;
    let is_value = !is_name && found.attrs != right.attrs;
    let differences = [
        (info(found) != info(right), copy_errors::STAT_ERROR, 0),
        (is_size, copy_errors::SIZE, object_errors::SIZE_MISMATCH),
        (is_data, copy_errors::DATA_DIGEST, object_errors::DATA_DIGEST_MISMATCH),
        (is_omap, copy_errors::OMAP_DIGEST, object_errors::OMAP_DIGEST_MISMATCH),
        // Ceph has no errors of a copy for these: the attributes that it shows tell which copy it is.
        (is_name, 0, object_errors::ATTR_NAME_MISMATCH),
        (is_value, 0, object_errors::ATTR_VALUE_MISMATCH),
    ];
    for (_, copy_bit, object_bit) in differences.iter().filter(|(is_so, ..)| *is_so) {
        *copy |= copy_bit;
        *object |= object_bit;
    }
    differences.iter().any(|(is_so, ..)| *is_so)
}

#[cfg(test)]
mod tests;
