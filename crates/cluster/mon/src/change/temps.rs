//! Acting sets other than those that CRUSH names: the entries of `pg_temp` and `primary_temp`, as a monitor of Ceph 16.2.15 treats them.
//! An entry says who serves a PG, and nothing of who has its data.
//!
//! Primaries ask for them and end them (MOSDPGTemp). The monitor by itself only drops those that say nothing any more
//! ([`clean`]), and "primes" them ([`prime`]). By its name and documentation priming lets the acting set go on where a new map gives a PG
//! to other OSDs. In 16.2.15 it does not, as its maps show (`../shared/oracle`, 4osd-failure, epochs 24 to 39): of a PG without an entry
//! it writes an empty one. What is left of it concerns PGs that have an entry.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use carmine_crush::{Mapping, pg_mapping};
use carmine_types::{Epoch, NO_OSD, OsdId, PgId, UTime};
use carmine_wire::osdmap::consts::STATE_UP;
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};

/// No OSD, as an entry of `primary_temp`.
const NO_PRIMARY: i32 = -1;

/// What an OSD asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// It is the primary of these PGs.
    pub(crate) leader: OsdId,
    /// Its map.
    pub(crate) epoch: Epoch,
    /// By PG the acting set; an empty one ends an entry.
    pub(crate) temps: BTreeMap<PgId, Vec<i32>>,
    /// Whatever the monitor knows of the primary, and though nothing is to be changed.
    pub(crate) forced: bool,
}

/// Notes the acting sets that a primary asks for. They count as a sign of life, too, so that it need not send another one (MOSDAlive).
pub(super) fn ask(map: &OsdMap, asked: &Asked, now: UTime) -> Option<Incremental> {
    let Asked { leader, epoch, temps, forced } = asked;
    if !map.is_up(*leader) {
        return None;
    }
    let is_news = |pg: &PgId, entry: &[i32]| {
        map.pg_temp.get(pg).map_or(&[][..], Vec::as_slice) != entry || map.primary_temp.contains_key(pg)
    };
    let leads = |pg: PgId| pg_mapping(map, pg).acting_primary == Some(*leader);
    let is_taken = |pg: &PgId, entry: &[i32]| {
        is_possible(map, *pg, entry) && (*forced || is_news(pg, entry) && leads(*pg))
    };
    let taken = temps.iter().filter(|(pg, entry)| is_taken(pg, entry));
    let taken: BTreeMap<PgId, Vec<i32>> = taken.map(|(pg, entry)| (*pg, entry.clone())).collect();
    if taken.is_empty() {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    let led = taken.keys().filter(|pg| map.primary_temp.contains_key(pg));
    inc.new_primary_temp = led.map(|pg| (*pg, NO_PRIMARY)).collect();
    inc.new_pg_temp = taken;
    let up_thru = (*epoch).min(map.epoch);
    if map.up_thru(*leader) < up_thru {
        inc.new_up_thru.insert(*leader, up_thru);
    }
    Some(inc)
}

/// A PG that there is, with OSDs that exist, each once; a hole only where positions count.
fn is_possible(map: &OsdMap, pg: PgId, entry: &[i32]) -> bool {
    let Some(pool) = pool_of(map, pg) else { return false };
    let mut seen = BTreeSet::new();
    entry.iter().all(|osd| match OsdId::from_item(*osd) {
        None => *osd == NO_OSD && pool.is_erasure(),
        Some(id) => map.exists(id) && seen.insert(id),
    })
}

fn pool_of(map: &OsdMap, pg: PgId) -> Option<&PgPool> {
    map.pool(pg.pool).filter(|pool| pg.ps < pool.pg_num)
}

/// Adds to `inc`, which leads from `map` to `next`, what priming makes of the entries, where it changes who is up or what CRUSH
/// says; those of PGs that were never active, and those that `inc` changes anyway, stay as they are.
pub(super) fn prime(map: &OsdMap, next: &OsdMap, inc: &mut Incremental, is_new: impl Fn(PgId) -> bool) {
    let becomes_lighter = |osd: OsdId, weight: u32| weight < map.weight(osd);
    let is_for_all = !inc.crush.is_empty()
        || !inc.new_up_client.is_empty()
        || inc.new_weight.iter().any(|(osd, weight)| !becomes_lighter(*osd, *weight));
    let goes_down = |osd: OsdId| {
        map.is_up(osd) && inc.new_state.get(&osd).is_some_and(|bits| *bits == 0 || bits & STATE_UP != 0)
    };
    let is_hit = |at: &Mapping| {
        is_for_all || at.acting_osds().any(|osd| goes_down(osd) || inc.new_weight.contains_key(&osd))
    };
    let entries = next.pg_temp.keys().filter(|pg| !inc.new_pg_temp.contains_key(pg) && !is_new(**pg));
    let primed = entries.filter_map(|pg| {
        let (before, after) = (pg_mapping(map, *pg), pg_mapping(next, *pg));
        let ends = after.up == after.acting;
        let is_same = before.acting == after.acting && (before.up == before.acting || !ends);
        let min_size = next.pool(pg.pool).map_or(0, |pool| usize::from(pool.min_size));
        let serves = !before.acting.is_empty() && before.acting.len() >= min_size;
        let entry = if ends { Vec::new() } else { before.acting.to_vec() };
        (serves && !is_same && is_hit(&before)).then_some((*pg, entry))
    });
    let primed: Vec<_> = primed.collect();
    inc.new_pg_temp.extend(primed);
}

/// Adds to `inc`, which leads from `map` to `next`, the end of each entry that says nothing: its PG or all of its OSDs are gone, it is
/// what CRUSH says, or it has more OSDs than the pool has replicas. An entry of which only some OSDs are down stays.
pub(super) fn clean(map: &OsdMap, next: &OsdMap, inc: &mut Incremental) {
    for (pg, entry) in &next.pg_temp {
        let is_up = |osd: &i32| OsdId::from_item(*osd).is_some_and(|osd| next.is_up(osd));
        let is_needed = pool_of(next, *pg).is_some_and(|pool| entry.len() <= usize::from(pool.size))
            && entry.iter().any(is_up)
            && pg_mapping(next, *pg).up[..] != entry[..];
        if !is_needed {
            end(map.pg_temp.contains_key(pg), &mut inc.new_pg_temp, *pg, Vec::new());
        }
    }
    for (pg, primary) in &next.primary_temp {
        let at = pg_mapping(next, *pg);
        let is_up = OsdId::from_item(*primary).is_some_and(|osd| next.is_up(osd));
        if !is_up || at.acting_primary == at.up_primary {
            end(map.primary_temp.contains_key(pg), &mut inc.new_primary_temp, *pg, NO_PRIMARY);
        }
    }
}

/// Ends an entry that was there before, or does not make it.
fn end<T>(was_there: bool, changes: &mut BTreeMap<PgId, T>, pg: PgId, none: T) {
    if was_there {
        changes.insert(pg, none);
    } else {
        changes.remove(&pg);
    }
}
