//! The OSDs that serve a PG while its data moves: entries of `pg_temp`, as [`Pin`]s.
//!
//! An OSD has a PG's data if it was a member when the PG was last active: it is an owner. When weights or a pool's size
//! change, CRUSH may name OSDs that are no owners. The pin then keeps all owners as members, first of all to lead, and the
//! newcomers join them. The PG serves clients while all owners and at least `min_size` members are up, so the owners stay
//! equal. No owner leaves before the PG's primary has said, of this very map, either that all members are complete, which
//! ends the pin, or that its own copy is complete though others are down. Then those that are down will miss writes: they
//! own the data no longer, and join again when they come back. Nothing else tells the monitor that a copy may be given up.

use std::collections::BTreeMap;

use carmine_crush::pg_mapping;
use carmine_types::{Epoch, OsdId, PgId, UTime};
use carmine_wire::osdmap::{Incremental, OsdMap, Pin};
use carmine_wire::private::PgStuck;

/// Entries of `pg_temp` to change; an empty list removes one.
pub(super) type Changes = BTreeMap<PgId, Vec<i32>>;

/// The pins that `next` needs where CRUSH wants other members than in `map`, for the PGs of this pool or of all.
pub(super) fn follow(map: &OsdMap, next: &OsdMap, pool: Option<i64>) -> Changes {
    let pools = map.pools.iter().filter(|(id, _)| pool.is_none_or(|pool| pool == **id));
    let pgs = pools.flat_map(|(id, pool)| (0..pool.pg_num).map(|ps| PgId::new(*id, ps)));
    let changes = pgs.filter_map(|pg| {
        let (wanted, size) = wanted(next, pg);
        let pin = Pin::of(map, pg, &pg_mapping(map, pg).wanted);
        let is_pinned = map.pg_temp.contains_key(&pg);
        if !is_pinned && (pin.owners.is_empty() || pin.owners == wanted) {
            return None;
        }
        // With too few OSDs in, the members go on, and who has begun to join them does, too.
        let kept = if wanted.len() < size { pin.joiners.as_slice() } else { &[] };
        let mut joiners = Vec::new();
        for osd in wanted.iter().chain(kept) {
            if !pin.owners.contains(osd) && !joiners.contains(osd) {
                joiners.push(*osd);
            }
        }
        let entry = Pin { joiners, ..pin }.entry();
        (map.pg_temp.get(&pg) != Some(&entry)).then_some((pg, entry))
    });
    changes.collect()
}

/// Members that the map wants, up or down, and how many there should be.
fn wanted(map: &OsdMap, pg: PgId) -> (Vec<i32>, usize) {
    (pg_mapping(map, pg).wanted.to_vec(), wanted_size(map, pg))
}

/// Changes the pins of the PGs that a primary leads by its report. A report is used only if it speaks of this very map: a
/// pin may be younger than the report.
pub(super) fn heed(
    map: &OsdMap,
    (leader, epoch): (OsdId, Epoch),
    stuck: &[PgStuck],
    now: UTime,
) -> Option<Incremental> {
    if epoch != map.epoch {
        return None;
    }
    let reports: BTreeMap<PgId, &PgStuck> = stuck.iter().map(|report| (report.pg, report)).collect();
    let leads = |pg: PgId| pg_mapping(map, pg).acting_primary == Some(leader);
    let inside = map.osds().filter(|osd| map.is_in(*osd)).count();
    let pinned = map.pg_temp.iter().filter_map(|(&pg, entry)| {
        let pin = Pin::parse(entry);
        let is_settled = pin.joiners.is_empty() && inside < wanted_size(map, pg);
        // With too few OSDs in, no PG is where CRUSH wants it: that spares looking each of them up.
        if (is_settled && !reports.contains_key(&pg)) || !leads(pg) {
            return None;
        }
        let after = match reports.get(&pg) {
            None => active(map, pg, pin),
            Some(report) => waiting(map, pin, leader, report),
        };
        (after != *entry).then_some((pg, after))
    });
    let unpinned = stuck.iter().filter(|report| !map.pg_temp.contains_key(&report.pg) && leads(report.pg));
    let unpinned = unpinned.filter_map(|report| {
        let pin = Pin::of(map, report.pg, &pg_mapping(map, report.pg).wanted);
        let before = pin.entry();
        let after = waiting(map, pin, leader, report);
        (after != before).then_some((report.pg, after))
    });
    let changes: Changes = pinned.chain(unpinned).collect();
    (!changes.is_empty()).then(|| Incremental { new_pg_temp: changes, ..Incremental::next(map, now) })
}

fn wanted_size(map: &OsdMap, pg: PgId) -> usize {
    map.pool(pg.pool).map_or(0, |pool| usize::from(pool.size))
}

/// The entry of a pinned PG that is active: all of its members that are up are complete.
fn active(map: &OsdMap, pg: PgId, pin: Pin) -> Vec<i32> {
    let (wanted, size) = wanted(map, pg);
    if !pin.owners.iter().all(|osd| is_up(map, *osd)) {
        return pin.entry(); // it cannot be active
    }
    let (joined, joiners): (Vec<i32>, Vec<i32>) = pin.joiners.iter().partition(|osd| is_up(map, **osd));
    let mut owners = [pin.owners, joined].concat();
    if !joiners.is_empty() {
        return Pin { owners, joiners }.entry();
    }
    if wanted.len() >= size && wanted.iter().all(|osd| owners.contains(osd)) {
        return Vec::new();
    }
    // Those that CRUSH wants stay for sure.
    owners.sort_by_key(|osd| !wanted.contains(osd));
    owners.truncate(size.max(1));
    owners
}

/// The entry of a PG that does not serve clients.
fn waiting(map: &OsdMap, pin: Pin, leader: OsdId, report: &PgStuck) -> Vec<i32> {
    let before = pin.entry();
    if let Some(successor) = report.successor {
        return led_by(map, pin, successor).map_or(before, |pin| pin.entry());
    }
    let min_size = map.pool(report.pg.pool).map_or(1, |pool| usize::from(pool.min_size));
    let found = pin.members().filter(|osd| map.is_up(*osd)).count();
    if !report.is_complete || !pin.is_owner(leader) || found < min_size {
        return before;
    }
    let (wanted, size) = wanted(map, report.pg);
    let Pin { owners, mut joiners } = pin;
    let (owners, gone): (Vec<i32>, Vec<i32>) = owners.into_iter().partition(|osd| is_up(map, *osd));
    // With too few OSDs in, each that comes back is needed.
    joiners.extend(gone.iter().filter(|osd| wanted.contains(osd) || wanted.len() < size));
    Pin { owners, joiners }.entry()
}

fn is_up(map: &OsdMap, osd: i32) -> bool {
    OsdId::from_item(osd).is_some_and(|osd| map.is_up(osd))
}

/// The pin with this owner first; `None` if it is none, or down.
fn led_by(map: &OsdMap, mut pin: Pin, successor: OsdId) -> Option<Pin> {
    let place = pin.owners.iter().position(|osd| OsdId::from_item(*osd) == Some(successor))?;
    pin.owners.get_mut(..=place)?.rotate_right(1);
    map.is_up(successor).then_some(pin)
}
