//! Scrub: the primary compares the members' copies of each object, and repairs the bad ones.
//!
//! - `schedule`: when PGs are scrubbed, one after the other on each reactor.
//! - `run`: a scrub scans the PG a few objects at a time. Meanwhile writes to these objects wait; all others are served. A new
//!   interval ends it.
//! - `scan`: scans a copy, for the primary or at its request; `pace` limits the rate.
//! - `compare`: finds the bad copies.
//! - `omaps`: sizes of omaps, and those that are too large.
//! - `sets`: whether the clones that a head lists exist.
//! - `repair`: writes the authoritative content over all copies, as an entry of the log.
//! - `record`: all members store when the last scrubs were and how many errors they left.
//! - `report`: the report for tools.
//!
//! The primary keeps the list of damaged objects in memory: a new primary, or one that starts again, knows only how many
//! errors there are until it has scrubbed the PG itself.

mod compare;
mod omaps;
mod pace;
mod record;
mod repair;
mod report;
mod run;
mod scan;
mod schedule;
mod sets;

use std::cell::{Cell, RefCell};

use carmine_types::Epoch;
use carmine_wire::scrub::InconsistentSnapset;

use compare::Inconsistent;
use schedule::Due;

pub(crate) use pace::Pace;
pub(super) use run::repair_object;
pub(crate) use schedule::{Scrubber, order, start};

/// Bytes of omap read, and sent, at once.
const OMAP_PAGE_BYTES: usize = 512 << 10;
/// Most inconsistent objects listed for a PG; more are only counted.
const LISTED_MAX: usize = 1024;

/// A scrub to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// Read the data, too.
    pub(super) deep: bool,
    /// Repair what is found.
    pub(super) repair: bool,
    /// Requested by an operator, so that flags and load do not matter.
    is_commanded: bool,
}

/// The scrubs of a PG (primary).
#[derive(Default)]
pub(crate) struct Scrubs {
    /// Requested, and not begun.
    wanted: Cell<Option<Order>>,
    running: Cell<Option<Order>>,
    /// When the next ones are due; `None`: not known yet.
    due: Cell<Option<Due>>,
    found: RefCell<Found>,
}

/// The errors that the last scrubs found and did not repair.
#[derive(Default)]
struct Found {
    /// The interval in which they were found. Zero: this primary has not scrubbed the PG yet.
    interval: Epoch,
    objects: Vec<Inconsistent>,
    /// Heads and clones that contradict each other.
    sets: Vec<InconsistentSnapset>,
    /// Number of bad copies and contradictions, including objects that are not listed.
    errors: u64,
}

impl Found {
    fn add(&mut self, object: Inconsistent) {
        self.errors += object.bad_copies();
        if self.objects.len() < LISTED_MAX {
            self.objects.push(object);
        }
    }

    /// Adds an entry; each object is listed once, in order.
    fn add_set(&mut self, new: InconsistentSnapset) {
        self.errors += sets::errors_of(&new);
        match self.sets.binary_search_by(|known| known.oid.cmp(&new.oid)) {
            Ok(at) => self.sets.get_mut(at).into_iter().for_each(|known| sets::merge(known, &new)),
            Err(at) if self.sets.len() < LISTED_MAX => self.sets.insert(at, new),
            Err(_) => {}
        }
    }

    /// Number of errors that only a deep scrub detects.
    fn deep_errors(&self) -> u64 {
        self.objects.iter().filter(|object| object.is_only_deep()).map(Inconsistent::bad_copies).sum()
    }

    /// Keeps what a deep scrub found before: only another deep scrub can say that it is gone.
    fn keep_deep_of(&mut self, before: &Found) {
        let known = |found: &Found, object: &Inconsistent| {
            found.objects.iter().any(|o| o.object.oid == object.object.oid)
        };
        for object in before.objects.iter().filter(|object| object.is_deep()) {
            if !known(self, object) {
                self.add(object.clone());
            }
        }
        self.objects.sort_by(|a, b| a.object.oid.cmp(&b.object.oid));
    }
}

impl Scrubs {
    /// The scrub under way.
    pub(super) fn running(&self) -> Option<Order> {
        self.running.get()
    }

    /// Resets the state: another OSD leads.
    pub(super) fn forget(&self) {
        self.wanted.take();
        self.due.take();
        self.found.take();
    }
}
