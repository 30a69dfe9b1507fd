//! The OSDs that serve a PG while its data moves: entries of `pg_temp`, as [`Pin`]s.
//!
//! An OSD has a PG's data if it was a member when the PG was last active: it is an owner. When weights or a pool's size
//! change, CRUSH may name OSDs that are no owners. The pin then keeps all owners as members, first of all to lead, and the
//! newcomers join them. The PG serves clients while all owners and at least `min_size` members are up, so the owners stay
//! equal. No owner leaves before the PG's primary has asked for it by MOSDPGTemp, of this very map: an end of the pin when all
//! members are complete, or an entry without those that are down, which will miss writes: they own the data no longer, and join
//! again when they come back ([`carmine_crush::wanted_temp`]). Nothing else tells the monitor that a copy may be given up.
//!
//! Where CRUSH's wishes change, entries are made here as Ceph's monitor primes `pg_temp`; here PGs rely on it.

use std::collections::BTreeMap;

use carmine_crush::{is_possible, pg_mapping};
use carmine_types::{Epoch, OsdId, PgId, UTime};
use carmine_wire::osdmap::{Incremental, OsdMap, Pin};

/// Entries of `pg_temp` to change; an empty list removes one.
pub(super) type Changes = BTreeMap<PgId, Vec<i32>>;

/// The pins that `next` needs where CRUSH wants other members than in `map`, for the PGs of this pool or of all.
pub(super) fn follow(map: &OsdMap, next: &OsdMap, pool: Option<i64>) -> Changes {
    let pools = map.pools.iter().filter(|(id, _)| pool.is_none_or(|pool| pool == **id));
    let pgs = pools.flat_map(|(id, pool)| (0..pool.pg_num).map(|ps| PgId::new(*id, ps)));
    let changes = pgs.filter_map(|pg| {
        let wanted = pg_mapping(next, pg).wanted.to_vec();
        let size = next.pool(pg.pool).map_or(0, |pool| usize::from(pool.size));
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

/// Notes the acting sets that a primary asks for (MOSDPGTemp); an empty one ends an entry. They are taken only if it speaks of this very
/// map, as a pin may be younger than what it knew, and only for PGs that it leads.
pub(super) fn obey(
    map: &OsdMap,
    (leader, epoch): (OsdId, Epoch),
    asked: &Changes,
    now: UTime,
) -> Option<Incremental> {
    if epoch != map.epoch || !map.is_up(leader) {
        return None;
    }
    let leads = |pg: PgId| pg_mapping(map, pg).acting_primary == Some(leader);
    let is_news = |pg: &PgId, entry: &[i32]| map.pg_temp.get(pg).map_or(&[][..], Vec::as_slice) != entry;
    let taken =
        asked.iter().filter(|(pg, entry)| is_news(pg, entry) && leads(**pg) && is_possible(map, entry));
    let changes: Changes = taken.map(|(pg, entry)| (*pg, entry.clone())).collect();
    (!changes.is_empty()).then(|| Incremental { new_pg_temp: changes, ..Incremental::next(map, now) })
}
