//! The numbers of PGs that would suit the pools' data, as the autoscaler of Ceph 16.2.15 computes them: each pool gets the share of its
//! CRUSH root's PGs that it has of the root's space, or is to have, rounded to a power of two.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::OsdId;
use carmine_wire::osdmap::{OsdMap, PgPool, PoolOpt};
use serde_json::{Value, json};

use super::osd::{below, roots};
use super::table::{Table, bytes, ratio};
use crate::change::Change;
use crate::change::pool_value::{AUTOSCALE_MODES, flag, option};
use crate::command::View;
use crate::stats::unsigned;

/// Values of `pg_autoscale_mode`, whose words are [`AUTOSCALE_MODES`].
const WARN: u8 = 1;
const ON: u8 = 2;

/// Copies of PGs that an OSD is to have (`mon_target_pg_per_osd`).
const PGS_PER_OSD: u64 = 100;
/// Least PGs of a pool that has no `pg_num_min`.
const PG_NUM_MIN: u64 = 32;
/// Numbers that differ by less than this factor stay as they are.
const THRESHOLD: f64 = 3.0;

/// What is known and advised of a pool.
pub(crate) struct Advice<'a> {
    id: i64,
    name: &'a str,
    pool: &'a PgPool,
    root: i32,
    stored: u64,
    target_bytes: u64,
    target_ratio: f64,
    effective_ratio: f64,
    /// Of the root's OSDs.
    capacity: u64,
    /// Of the capacity, with all copies: what it has, or is to have.
    share: f64,
    bias: f64,
    ideal: u64,
    pg_num: u64,
    /// It differs by more than [`THRESHOLD`] from what is wanted now.
    is_far: bool,
}

impl Advice<'_> {
    fn raw(&self) -> u64 {
        self.stored.saturating_mul(self.pool.size.into())
    }

    fn target_raw(&self) -> u64 {
        self.stored.max(self.target_bytes).saturating_mul(self.pool.size.into())
    }

    /// Whether the advice is shown: the pool has a mode in which it matters.
    fn is_shown(&self) -> bool {
        self.is_far && self.pool.pg_autoscale_mode != 0
    }
}

/// A CRUSH root and its pools.
#[derive(Default)]
struct Root {
    osds: BTreeSet<OsdId>,
    capacity: u64,
    pools: u64,
    target_ratio: f64,
    target_bytes: u64,
    /// PGs that no pool has taken yet, with all their copies.
    left: f64,
    /// Pools that have taken theirs.
    served: u64,
}

fn float(pool: &PgPool, name: &str) -> f64 {
    match option(pool, name) {
        Some(PoolOpt::Float(value)) => *value,
        Some(PoolOpt::Int(value)) => *value as f64,
        Some(PoolOpt::Text(_)) | None => 0.0,
    }
}

fn int(pool: &PgPool, name: &str) -> u64 {
    float(pool, name) as u64
}

/// A size is not heeded beside a ratio.
fn target_bytes(pool: &PgPool) -> u64 {
    if float(pool, "target_size_ratio") > 0.0 { 0 } else { int(pool, "target_size_bytes") }
}

/// The first bucket that the pool's rule takes OSDs from.
fn root_of(map: &OsdMap, pool: &PgPool) -> Option<i32> {
    roots(map, pool.crush_rule).first().copied()
}

/// The roots of all pools. A root that shares OSDs with another one is left out, so that its pools get no advice.
fn all_roots(view: &View<'_>) -> BTreeMap<i32, Root> {
    let mut all = BTreeMap::<i32, Root>::new();
    for pool in view.map.pools.values() {
        let Some(id) = root_of(view.map, pool) else { continue };
        let root = all.entry(id).or_insert_with(|| {
            let osds: BTreeSet<OsdId> = below(view.map, id).into_iter().collect();
            let capacity = osds.iter().map(|osd| view.stats.space_of(*osd).0).fold(0, u64::saturating_add);
            let left = (osds.len() as u64 * PGS_PER_OSD) as f64;
            Root { osds, capacity, left, ..Root::default() }
        });
        root.pools += 1;
        root.target_ratio += float(pool, "target_size_ratio");
        let target_bytes = target_bytes(pool).saturating_mul(pool.size.into());
        root.target_bytes = root.target_bytes.saturating_add(target_bytes);
    }
    let shares =
        |id: &i32, root: &Root| all.iter().any(|(other, is)| other != id && !is.osds.is_disjoint(&root.osds));
    let shared: Vec<i32> = all.iter().filter(|(id, root)| shares(id, root)).map(|(id, _)| *id).collect();
    all.retain(|id, _| !shared.contains(id));
    all
}

/// The advice for all pools, by their numbers.
fn advices<'a>(view: &View<'a>) -> Vec<Advice<'a>> {
    let mut roots = all_roots(view);
    let held = view.stats.pools();
    let plain = |(id, pool): (&i64, &'a PgPool)| {
        let root_id = root_of(view.map, pool)?;
        let root = roots.get(&root_id).filter(|root| root.capacity > 0)?;
        let stored = held.get(id).map_or(0, |held| unsigned(held.num_bytes));
        let (target_ratio, target_bytes) = (float(pool, "target_size_ratio"), target_bytes(pool));
        let effective_ratio = effective(target_ratio, root);
        let raw = stored.max(target_bytes).saturating_mul(pool.size.into());
        Some(Advice {
            id: *id,
            name: view.map.pool_name(*id).unwrap_or_default(),
            pool,
            root: root_id,
            stored,
            target_bytes,
            target_ratio,
            effective_ratio,
            capacity: root.capacity,
            share: ratio(raw, root.capacity).max(effective_ratio),
            bias: if float(pool, "pg_autoscale_bias") > 0.0 { float(pool, "pg_autoscale_bias") } else { 1.0 },
            ideal: 0,
            pg_num: 0,
            is_far: false,
        })
    };
    let mut all: Vec<Advice<'a>> = view.map.pools.iter().filter_map(plain).collect();
    // Small pools first, then the bulky ones that have more than an even share, then the others share what is left.
    let is_bulky = |advice: &Advice<'_>| advice.pool.flags & flag("bulk") != 0;
    for advice in all.iter_mut().filter(|advice| !is_bulky(advice)) {
        let Some(root) = roots.get_mut(&advice.root) else { continue };
        serve(root, advice, advice.share);
    }
    let mut even = Vec::new();
    for advice in all.iter_mut().filter(|advice| is_bulky(advice)) {
        let Some(root) = roots.get_mut(&advice.root) else { continue };
        if advice.share > 1.0 / (root.pools - root.served) as f64 {
            serve(root, advice, advice.share);
        } else {
            even.push(advice);
        }
    }
    for advice in even {
        let Some(root) = roots.get(&advice.root) else { continue };
        let share = 1.0 / (root.pools - root.served) as f64;
        settle(advice, share, share * root.left);
    }
    all
}

/// What a ratio comes to beside those of the other pools, and beside their sizes.
fn effective(ratio: f64, root: &Root) -> f64 {
    let of_all = if root.target_ratio > 0.0 { ratio / root.target_ratio } else { ratio };
    of_all * (1.0 - (root.target_bytes as f64 / root.capacity as f64).min(1.0))
}

/// Gives a pool this share of the PGs that are left.
fn serve(root: &mut Root, advice: &mut Advice<'_>, share: f64) {
    let copies = share * root.left;
    root.left -= copies.trunc();
    root.served += 1;
    settle(advice, share, copies);
}

/// Turns copies of PGs into a number of PGs that a pool may have.
fn settle(advice: &mut Advice<'_>, share: f64, copies: f64) {
    let pool = advice.pool;
    let ideal = copies / f64::from(pool.size.max(1)) * advice.bias;
    let (least, most) = (int(pool, "pg_num_min"), int(pool, "pg_num_max"));
    let least = if least == 0 { PG_NUM_MIN } else { least };
    let rounded = near_power_of_two(ideal).max(least);
    let pg_num = if most == 0 { rounded } else { rounded.min(most) };
    let (now, then) = (f64::from(pool.pg_num_target), pg_num as f64);
    (advice.ideal, advice.pg_num) = (ideal as u64, pg_num);
    advice.is_far = (then > now * THRESHOLD || then < now / THRESHOLD) && (0.0..=1.0).contains(&share);
}

/// The power of two that is nearest; of two that are equally near the larger one.
fn near_power_of_two(value: f64) -> u64 {
    let whole = value as u64;
    if whole == 0 {
        return 0;
    }
    let above = whole.checked_next_power_of_two().unwrap_or(1 << 63);
    let below = above >> 1;
    if above as f64 - value > value - below as f64 { below } else { above }
}

/// Whether the autoscaler may change this pool.
pub(crate) fn acts(pool: &PgPool) -> bool {
    pool.pg_autoscale_mode == ON
}

/// The numbers of PGs that pools are to get.
pub(crate) fn wishes(view: &View<'_>) -> Vec<Change> {
    let wish = |advice: Advice<'_>| Change::PgNum {
        pool: advice.name.to_owned(),
        wanted: i64::try_from(advice.pg_num).unwrap_or(i64::MAX),
    };
    advices(view).into_iter().filter(|advice| acts(advice.pool) && advice.is_far).map(wish).collect()
}

/// Lines of complaint about pools that are only watched: those with too few PGs, and those with too many.
///
/// The manager of Ceph 16.2.15 complains about each pool that is watched, even if it has the number that it should.
pub(crate) fn complaints(view: &View<'_>) -> [Vec<String>; 2] {
    let mut lines = [Vec::new(), Vec::new()];
    for advice in advices(view).iter().filter(|advice| advice.pool.pg_autoscale_mode == WARN && advice.is_far)
    {
        let (now, then) = (advice.pool.pg_num_target, advice.pg_num);
        let line = format!("Pool {} has {now} placement groups, should have {then}", advice.name);
        lines[usize::from(then <= u64::from(now))].push(line);
    }
    lines
}

/// `osd pool autoscale-status`.
pub(crate) fn text(view: &View<'_>) -> String {
    let mut table = Table::new(
        "<POOL|SIZE|TARGET SIZE|RATE|RAW CAPACITY|RATIO|TARGET RATIO|EFFECTIVE RATIO|BIAS|PG_NUM|NEW PG_NUM|\
         <AUTOSCALE|<BULK",
    );
    let some = |ratio: f64| if ratio > 0.0 { format!("{ratio:.4}") } else { String::new() };
    for advice in advices(view) {
        let Advice { name, pool, share, capacity, .. } = &advice;
        let target = if advice.target_bytes > 0 { bytes(advice.target_bytes) } else { String::new() };
        let then = if advice.is_shown() { advice.pg_num.to_string() } else { String::new() };
        let is_bulky = if pool.flags & flag("bulk") != 0 { "True" } else { "False" };
        table.row(&format!(
            "{name}|{}|{target}|{:.1}|{}|{share:.4}|{}|{}|{:.1}|{}|{then}|{}|{is_bulky}",
            bytes(advice.stored),
            f64::from(pool.size),
            bytes(*capacity),
            some(advice.target_ratio),
            some(advice.effective_ratio),
            advice.bias,
            pool.pg_num_target,
            mode(pool),
        ));
    }
    table.render()
}

/// The same by name.
pub(crate) fn json(view: &View<'_>) -> Value {
    let one = |advice: &Advice<'_>| {
        json!({
            "pool_id": advice.id, "pool_name": advice.name, "crush_root_id": advice.root,
            "pg_autoscale_mode": mode(advice.pool), "pg_num_target": advice.pool.pg_num_target,
            "pg_num_ideal": advice.ideal, "pg_num_final": advice.pg_num,
            "would_adjust": advice.is_far && acts(advice.pool), "logical_used": advice.stored,
            "raw_used": advice.target_raw(), "actual_raw_used": advice.raw(),
            "raw_used_rate": f64::from(advice.pool.size), "subtree_capacity": advice.capacity,
            "actual_capacity_ratio": ratio(advice.raw(), advice.capacity), "capacity_ratio": advice.share,
            "target_bytes": advice.target_bytes, "target_ratio": advice.target_ratio,
            "effective_target_ratio": advice.effective_ratio, "bias": advice.bias,
            "bulk": advice.pool.flags & flag("bulk") != 0,
        })
    };
    advices(view).iter().map(one).collect()
}

/// The word of a pool's mode.
pub(crate) fn mode(pool: &PgPool) -> &'static str {
    AUTOSCALE_MODES.get(usize::from(pool.pg_autoscale_mode)).copied().unwrap_or("unknown")
}
