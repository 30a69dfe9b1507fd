//! `osdmaptool --test-map-pgs-dump` and `--test-map-pgs-dump-all`: where each PG is, and how even that is.

use std::collections::BTreeMap;
use std::fmt::Write;

use carmine_types::{OsdId, PgId};
use carmine_wire::osdmap::OsdMap;

use super::number::{General, weight};
use super::osds::list;
use crate::placement::{Mapping, pg_mapping};

/// The columns to print for each PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgColumns {
    /// PG, acting set, primary: `--test-map-pgs-dump`.
    Acting,
    /// Raw, up and acting with their primaries: `--test-map-pgs-dump-all`.
    All,
    /// Only the summary: `--test-map-pgs`.
    None,
}

/// The placement of all PGs of one pool or of all, and a summary by OSD.
pub fn pgs_dump(map: &OsdMap, pool: Option<i64>, columns: PgColumns) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_dump(&mut out, map, pool, columns);
    out
}

/// How often an OSD occurs.
#[derive(Clone, Copy, Default)]
struct Counts {
    any: u64,
    first: u64,
    primary: u64,
}

fn write_dump(out: &mut String, map: &OsdMap, only: Option<i64>, columns: PgColumns) -> std::fmt::Result {
    let mut counts = vec![Counts::default(); map.osd_state.len()];
    let mut sizes: BTreeMap<usize, u64> = BTreeMap::new();
    for (&id, pool) in map.pools.iter().filter(|(id, _)| only.is_none_or(|only| only == **id)) {
        writeln!(out, "pool {id} pg_num {}", pool.pg_num)?;
        for ps in 0..pool.pg_num {
            let pg = PgId::new(id, ps);
            let mapping = pg_mapping(map, pg);
            write_pg(out, pg, &mapping, columns)?;
            *sizes.entry(mapping.acting.len()).or_default() += 1;
            count(&mut counts, &mapping);
        }
    }
    write_summary(out, map, &counts)?;
    sizes.iter().try_for_each(|(size, pgs)| writeln!(out, "size {size}\t{pgs}"))
}

fn write_pg(out: &mut String, pg: PgId, mapping: &Mapping, columns: PgColumns) -> std::fmt::Result {
    let number = |osd: Option<OsdId>| osd.map_or(-1, |osd| i64::from(osd.0));
    match columns {
        PgColumns::None => Ok(()),
        PgColumns::Acting => {
            writeln!(out, "{pg}\t{}\t{}", list(&mapping.acting), number(mapping.acting_primary))
        }
        PgColumns::All => {
            let raw_primary = mapping.raw.iter().find_map(|osd| OsdId::from_item(*osd));
            writeln!(
                out,
                "{pg} raw ({}, p{}) up ({}, p{}) acting ({}, p{})",
                list(&mapping.raw),
                number(raw_primary),
                list(&mapping.up),
                number(mapping.up_primary),
                list(&mapping.acting),
                number(mapping.acting_primary)
            )
        }
    }
}

fn count(counts: &mut [Counts], mapping: &Mapping) {
    let mut add = |osd: Option<OsdId>, to: fn(&mut Counts) -> &mut u64| {
        if let Some(entry) = osd.and_then(|osd| counts.get_mut(osd.0 as usize)) {
            *to(entry) += 1;
        }
    };
    mapping.acting_osds().for_each(|osd| add(Some(osd), |c| &mut c.any));
    add(mapping.acting.first().and_then(|osd| OsdId::from_item(*osd)), |c| &mut c.first);
    add(mapping.acting_primary, |c| &mut c.primary);
}

fn write_summary(out: &mut String, map: &OsdMap, counts: &[Counts]) -> std::fmt::Result {
    let crush_weights = crush_weights(map);
    let crush_weight = |osd: &OsdId| crush_weights.get(&(osd.0 as i32)).copied().unwrap_or(0);
    let osds: Vec<(OsdId, Counts)> = map
        .osds()
        .filter(|osd| map.is_in(*osd) && crush_weight(osd) > 0)
        .map(|osd| (osd, counts.get(osd.0 as usize).copied().unwrap_or_default()))
        .collect();
    writeln!(out, "#osd\tcount\tfirst\tprimary\tc wt\twt")?;
    for (osd, c) in &osds {
        let weights = (weight(crush_weight(osd)), weight(map.weight(*osd)));
        writeln!(out, "{osd}\t{}\t{}\t{}\t{}\t{}", c.any, c.first, c.primary, weights.0, weights.1)?;
    }
    let total: u64 = osds.iter().map(|(_, c)| c.any).sum();
    let n = osds.len() as f64;
    let average = total.checked_div(osds.len() as u64).unwrap_or(0);
    let square = |c: &Counts| (average as f64 - c.any as f64).powi(2);
    let deviation = (osds.iter().map(|(_, c)| square(c)).sum::<f64>() / n).sqrt();
    // The deviation of a binomial distribution with the same total.
    let expected = (total as f64 / n * (1.0 - 1.0 / n)).sqrt();
    let share = |v: f64| General(v / average as f64);
    writeln!(out, " in {}", osds.len())?;
    writeln!(
        out,
        " avg {average} stddev {} ({}x) (expected {} {}x))",
        General(deviation),
        share(deviation),
        General(expected),
        share(expected)
    )?;
    // The first of equals, for both.
    let used = || osds.iter().filter(|(_, c)| c.any > 0);
    if let Some((osd, c)) = used().min_by_key(|(_, c)| c.any) {
        writeln!(out, " min {osd} {}", c.any)?;
    }
    if let Some((osd, c)) = used().rev().max_by_key(|(_, c)| c.any) {
        writeln!(out, " max {osd} {}", c.any)?;
    }
    Ok(())
}

/// Weight of each item in the first bucket that holds it, in the order of the slots.
fn crush_weights(map: &OsdMap) -> BTreeMap<i32, u32> {
    let mut weights = BTreeMap::new();
    for bucket in map.crush.buckets.iter().flatten() {
        for (position, item) in bucket.items.iter().enumerate() {
            weights.entry(*item).or_insert_with(|| bucket.item_weight(position));
        }
    }
    weights
}
