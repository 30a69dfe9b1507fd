//! Shares of objects that are degraded, misplaced or unfound, in words and by name.

use carmine_wire::pg_stat::ObjectStatSum;
use serde_json::{Map, Value};

use super::table::ratio;
use crate::stats::unsigned;

/// One of them.
struct Share {
    name: &'static str,
    part: u64,
    whole: u64,
}

impl Share {
    /// `30/90 objects degraded (33.333%)`
    fn text(&self) -> String {
        let Share { name, part, whole } = self;
        format!("{part}/{whole} objects {name} ({:.3}%)", 100.0 * ratio(*part, *whole))
    }
}

/// Those that are not nothing.
fn shares(sum: &ObjectStatSum) -> impl Iterator<Item = Share> {
    let copies = sum.num_object_copies;
    let all = [
        ("degraded", sum.num_objects_degraded, copies),
        ("misplaced", sum.num_objects_misplaced, copies),
        ("unfound", sum.num_objects_unfound, sum.num_objects),
    ];
    let share = |(name, part, whole)| Share { name, part: unsigned(part), whole: unsigned(whole) };
    all.into_iter().map(share).filter(|share| share.part > 0)
}

/// A line for each.
pub(super) fn lines(sum: &ObjectStatSum) -> Vec<String> {
    shares(sum).map(|share| share.text()).collect()
}

/// The line of this one, if there is any.
pub(super) fn line(sum: &ObjectStatSum, name: &str) -> Option<String> {
    shares(sum).find(|share| share.name == name).map(|share| share.text())
}

/// `degraded_objects`, `degraded_total`, `degraded_ratio`, and so on.
pub(super) fn json(sum: &ObjectStatSum) -> Value {
    let mut out = Map::new();
    for Share { name, part, whole } in shares(sum) {
        out.insert(format!("{name}_objects"), part.into());
        out.insert(format!("{name}_total"), whole.into());
        out.insert(format!("{name}_ratio"), ratio(part, whole).into());
    }
    out.into()
}
