//! CRUSH: a rule, an input and the OSDs' weights give a list of devices.
//!
//! Two ways to choose: *firstn* (replicas: failures are skipped, the list closes up) and *indep* (erasure coding:
//! every position is chosen on its own, failures leave holes). Both walk down from a bucket until they meet an item
//! of the wanted type; "chooseleaf" then walks from that item down to one device.
//!
//! Termination: every draw counts against `WORK_MAX` by the number of items it looks at, and every step down is a
//! draw, so cycles and absurd numbers of tries end with an error.

use std::collections::BTreeMap;

use carmine_types::NO_OSD;
use carmine_types::rjenkins::hash32_2;
use carmine_wire::crushmap::{Bucket, BucketKind, ChooseArg, CrushMap, RuleStep, Tunables};

use crate::bucket::{choose, permuted};
use crate::ln::{LnTables, TABLES};

/// Most items that one placement may look at, a few tens of milliseconds. Three replicas in a flat map of 10,000
/// OSDs of which most are out stay below it.
pub const WORK_MAX: u64 = 1 << 22;

/// Most results of one rule; a pool's size is at most 255.
const RESULT_MAX: usize = 1024;

/// "Not chosen yet" in the list of an indep choice.
const UNDEFINED: i32 = NO_OSD - 1;

/// Runs rule number `rule` of `map` for the input `x`, for up to `result_max` devices.
///
/// `weights` are the OSDs' in/out weights (16.16) by id; ids beyond it are out. `args` are the replacement weights
/// of `CrushMap::choose_args` to use, if any. Holes of indep rules are [`NO_OSD`].
///
/// # Errors
/// If there is no such rule, or the map makes it look at more than [`WORK_MAX`] items.
pub fn do_rule(
    map: &CrushMap,
    rule: usize,
    x: u32,
    result_max: usize,
    weights: &[u32],
    args: Option<&BTreeMap<u32, ChooseArg>>,
) -> Result<Vec<i32>, CrushError> {
    let steps =
        map.rules.get(rule).and_then(Option::as_ref).map(|r| &r.steps).ok_or(CrushError::NoRule { rule })?;
    let mut mapper = Mapper { map, weights, args, ln: &TABLES, x, work: 0 };
    let result_max = result_max.min(RESULT_MAX);
    let mut settings = Settings::new(&map.tunables);
    let (mut working, mut result) = (Vec::new(), Vec::with_capacity(result_max.min(16)));
    for step in steps {
        match *step {
            RuleStep::Take(id) => {
                let known = (0..map.max_devices).contains(&id) || map.bucket(id).is_some();
                if known {
                    working.clear();
                    working.push(id);
                }
            }
            RuleStep::Emit => {
                let room = result_max - result.len();
                result.extend(working.drain(..).take(room));
                working.clear();
            }
            RuleStep::ChooseFirstn(n, kind) => {
                working = mapper.firstn_step(&working, &settings, n, kind, false, result_max)?
            }
            RuleStep::ChooseLeafFirstn(n, kind) => {
                working = mapper.firstn_step(&working, &settings, n, kind, true, result_max)?
            }
            RuleStep::ChooseIndep(n, kind) => {
                working = mapper.indep_step(&working, &settings, n, kind, false, result_max)?
            }
            RuleStep::ChooseLeafIndep(n, kind) => {
                working = mapper.indep_step(&working, &settings, n, kind, true, result_max)?
            }
            other => settings.set(other),
        }
    }
    Ok(result)
}

/// The tunables as the `set_*` steps of a rule leave them.
#[derive(Clone, Copy)]
struct Settings {
    tries: u32,
    /// 0: not set by the rule.
    leaf_tries: u32,
    descend_once: bool,
    local_tries: u32,
    fallback_tries: u32,
    vary_r: u32,
    stable: bool,
}

impl Settings {
    fn new(t: &Tunables) -> Self {
        Self {
            // The tunable was meant as a number of retries.
            tries: t.choose_total_tries.saturating_add(1),
            leaf_tries: 0,
            descend_once: t.chooseleaf_descend_once != 0,
            local_tries: t.choose_local_tries,
            fallback_tries: t.choose_local_fallback_tries,
            vary_r: t.chooseleaf_vary_r.into(),
            stable: t.chooseleaf_stable != 0,
        }
    }

    /// Applies a `set_*` step; values that mean nothing, and unknown steps, change nothing.
    fn set(&mut self, step: RuleStep) {
        let (place, value, least) = match step {
            RuleStep::SetChooseTries(n) => (&mut self.tries, n, 1),
            RuleStep::SetChooseLeafTries(n) => (&mut self.leaf_tries, n, 1),
            RuleStep::SetChooseLocalTries(n) => (&mut self.local_tries, n, 0),
            RuleStep::SetChooseLocalFallbackTries(n) => (&mut self.fallback_tries, n, 0),
            RuleStep::SetChooseLeafVaryR(n) => (&mut self.vary_r, n, 0),
            RuleStep::SetChooseLeafStable(n) => {
                if n >= 0 {
                    self.stable = n > 0;
                }
                return;
            }
            _ => return,
        };
        if value >= least {
            *place = value as u32;
        }
    }

    fn firstn_leaf_tries(&self) -> u32 {
        match self.leaf_tries {
            0 if self.descend_once => 1,
            0 => self.tries,
            tries => tries,
        }
    }
}

/// Parameters of a firstn choice.
#[derive(Clone, Copy)]
struct Firstn {
    /// Type of the items.
    kind: i32,
    tries: u32,
    local_tries: u32,
    fallback_tries: u32,
    vary_r: u32,
    stable: bool,
    /// Tries of the walk down to a device; `None` if there is none.
    leaf_tries: Option<u32>,
}

/// The outcome of one draw of a firstn choice.
enum Drawn<'a> {
    Accept(i32),
    Descend(&'a Bucket),
    Collide,
    Reject,
    GiveUp,
}

struct Mapper<'a> {
    map: &'a CrushMap,
    weights: &'a [u32],
    args: Option<&'a BTreeMap<u32, ChooseArg>>,
    ln: &'static LnTables,
    x: u32,
    /// Items looked at so far.
    work: u64,
}

/// How many items a choose step wants: `n`, or for n <= 0 that many less than the result can hold.
fn wanted(n: i32, result_max: usize) -> Option<u32> {
    let n = i64::from(n);
    let n = if n > 0 { n } else { n + result_max as i64 };
    u32::try_from(n).ok().filter(|n| *n > 0)
}

impl<'a> Mapper<'a> {
    fn firstn_step(
        &mut self,
        from: &[i32],
        s: &Settings,
        n: i32,
        kind: i32,
        to_leaf: bool,
        result_max: usize,
    ) -> Result<Vec<i32>, CrushError> {
        let want = Firstn {
            kind,
            tries: s.tries,
            local_tries: s.local_tries,
            fallback_tries: s.fallback_tries,
            vary_r: s.vary_r,
            stable: s.stable,
            leaf_tries: to_leaf.then(|| s.firstn_leaf_tries()),
        };
        let mut all = Vec::new();
        let Some(n) = wanted(n, result_max) else { return Ok(all) };
        for start in from.iter().filter_map(|id| self.map.bucket(*id)) {
            let (mut chosen, mut leaves) = (Vec::new(), Vec::new());
            for rep in 0..n {
                if all.len() + chosen.len() >= result_max {
                    break;
                }
                if let Some(item) = self.firstn(start, &want, rep, 0, &chosen, &mut leaves)? {
                    chosen.push(item);
                }
            }
            all.append(if to_leaf { &mut leaves } else { &mut chosen });
        }
        Ok(all)
    }

    /// One replica: tries until an item fits that is not in `chosen`. With a walk to a device, the device is pushed
    /// to `leaves`, which stays as long as `chosen`.
    fn firstn(
        &mut self,
        start: &'a Bucket,
        want: &Firstn,
        rep: u32,
        parent_r: u32,
        chosen: &[i32],
        leaves: &mut Vec<i32>,
    ) -> Result<Option<i32>, CrushError> {
        let mut failed = 0u32;
        loop {
            let (mut bucket, mut failed_here) = (start, 0u32);
            // Stays in one bucket until it has to start again from the top.
            loop {
                let r = rep.wrapping_add(parent_r).wrapping_add(failed);
                let collided = match self.firstn_draw(bucket, want, r, failed_here, chosen, leaves)? {
                    Drawn::Accept(item) => return Ok(Some(item)),
                    Drawn::GiveUp => return Ok(None),
                    Drawn::Descend(below) => {
                        bucket = below;
                        continue;
                    }
                    Drawn::Collide => true,
                    Drawn::Reject => false,
                };
                failed = failed.saturating_add(1);
                failed_here = failed_here.saturating_add(1);
                let local_max = (bucket.items.len() as u64).saturating_add(want.fallback_tries.into());
                if collided && failed_here <= want.local_tries
                    || want.fallback_tries > 0 && u64::from(failed_here) <= local_max
                {
                    self.count(1)?;
                    continue;
                }
                break;
            }
            if failed >= want.tries {
                return Ok(None);
            }
        }
    }

    fn firstn_draw(
        &mut self,
        bucket: &'a Bucket,
        want: &Firstn,
        r: u32,
        failed_here: u32,
        chosen: &[i32],
        leaves: &mut Vec<i32>,
    ) -> Result<Drawn<'a>, CrushError> {
        let size = bucket.items.len();
        if size == 0 {
            self.count(1)?;
            return Ok(Drawn::Reject);
        }
        let by_permutation =
            want.fallback_tries > 0 && failed_here as usize >= size >> 1 && failed_here > want.fallback_tries;
        let drawn = if by_permutation {
            self.count(size)?;
            permuted(bucket, self.x, r)
        } else {
            self.draw(bucket, r, chosen.len())?
        };
        let Some(item) = drawn.filter(|item| *item < self.map.max_devices) else {
            return Ok(Drawn::GiveUp);
        };
        let below = if item < 0 { self.map.bucket(item) } else { None };
        let kind = match below {
            Some(bucket) => i32::from(bucket.kind_id),
            None if item < 0 => return Ok(Drawn::GiveUp),
            None => 0,
        };
        if kind != want.kind {
            return Ok(below.map_or(Drawn::GiveUp, Drawn::Descend));
        }
        if chosen.contains(&item) {
            return Ok(Drawn::Collide);
        }
        if let Some(tries) = want.leaf_tries {
            let leaf = match below {
                Some(bucket) => self.firstn_leaf(bucket, want, tries, r, leaves)?,
                None => Some(item),
            };
            let Some(leaf) = leaf else { return Ok(Drawn::Reject) };
            if kind == 0 && self.is_out(item) {
                return Ok(Drawn::Reject);
            }
            leaves.push(leaf);
        } else if kind == 0 && self.is_out(item) {
            return Ok(Drawn::Reject);
        }
        Ok(Drawn::Accept(item))
    }

    /// One device below `bucket` that is not in `leaves`.
    fn firstn_leaf(
        &mut self,
        bucket: &'a Bucket,
        want: &Firstn,
        tries: u32,
        r: u32,
        leaves: &[i32],
    ) -> Result<Option<i32>, CrushError> {
        let leaf = Firstn { kind: 0, tries, leaf_tries: None, ..*want };
        let parent_r = match want.vary_r {
            0 => 0,
            vary => r.checked_shr(vary - 1).unwrap_or(0),
        };
        let rep = if want.stable { 0 } else { leaves.len() as u32 };
        self.firstn(bucket, &leaf, rep, parent_r, leaves, &mut Vec::new())
    }

    fn indep_step(
        &mut self,
        from: &[i32],
        s: &Settings,
        n: i32,
        kind: i32,
        to_leaf: bool,
        result_max: usize,
    ) -> Result<Vec<i32>, CrushError> {
        let mut all = Vec::new();
        let Some(n) = wanted(n, result_max) else { return Ok(all) };
        let leaf_tries = to_leaf.then_some(s.leaf_tries.max(1));
        for start in from.iter().filter_map(|id| self.map.bucket(*id)) {
            let positions = (n as usize).min(result_max - all.len());
            all.extend(self.indep(start, n, positions, kind, s.tries, leaf_tries)?);
        }
        Ok(all)
    }

    /// Fills `positions` places; those that stay empty are `NO_OSD`.
    fn indep(
        &mut self,
        start: &'a Bucket,
        n: u32,
        positions: usize,
        kind: i32,
        tries: u32,
        leaf_tries: Option<u32>,
    ) -> Result<Vec<i32>, CrushError> {
        let mut chosen = vec![UNDEFINED; positions];
        let mut leaves = vec![UNDEFINED; positions];
        let mut left = positions;
        let mut round = 0;
        while left > 0 && round < tries {
            self.count(positions)?;
            for position in 0..positions {
                if chosen.get(position) != Some(&UNDEFINED) {
                    continue;
                }
                let step = Indep { n, rep: position as u32, parent_r: 0, round, kind, place: 0 };
                let Some((item, leaf)) = self.indep_one(start, &step, leaf_tries, &chosen)? else { continue };
                for (list, value) in [(&mut chosen, item), (&mut leaves, leaf)] {
                    if let Some(entry) = list.get_mut(position) {
                        *entry = value;
                    }
                }
                left -= 1;
            }
            round += 1;
        }
        let mut result = if leaf_tries.is_some() { leaves } else { chosen };
        result.iter_mut().filter(|item| **item == UNDEFINED).for_each(|item| *item = NO_OSD);
        Ok(result)
    }

    /// One attempt at one position: the item and the device below it. `None`: try again in the next round;
    /// `NO_OSD`: the map is broken there, the position stays empty.
    fn indep_one(
        &mut self,
        start: &'a Bucket,
        step: &Indep,
        leaf_tries: Option<u32>,
        chosen: &[i32],
    ) -> Result<Option<(i32, i32)>, CrushError> {
        const BROKEN: Option<(i32, i32)> = Some((NO_OSD, NO_OSD));
        let mut bucket = start;
        loop {
            let size = bucket.items.len();
            if size == 0 {
                return Ok(None);
            }
            let r = step.r(bucket);
            let Some(item) = self.draw(bucket, r, step.place)?.filter(|item| *item < self.map.max_devices)
            else {
                return Ok(BROKEN);
            };
            let below = if item < 0 { self.map.bucket(item) } else { None };
            let kind = match below {
                Some(bucket) => i32::from(bucket.kind_id),
                None if item < 0 => return Ok(BROKEN),
                None => 0,
            };
            if kind != step.kind {
                let Some(next) = below else { return Ok(BROKEN) };
                bucket = next;
                continue;
            }
            if chosen.contains(&item) {
                return Ok(None);
            }
            let leaf = match (leaf_tries, below) {
                (Some(tries), Some(bucket)) => match self.indep_leaf(bucket, step, r, tries)? {
                    Some(leaf) => leaf,
                    None => return Ok(None),
                },
                _ => item,
            };
            if kind == 0 && self.is_out(item) {
                return Ok(None);
            }
            return Ok(Some((item, leaf)));
        }
    }

    /// A device below `bucket` for the position of `step`. Devices of other positions are not compared: they are
    /// below other items.
    fn indep_leaf(
        &mut self,
        bucket: &'a Bucket,
        step: &Indep,
        parent_r: u32,
        tries: u32,
    ) -> Result<Option<i32>, CrushError> {
        for round in 0..tries {
            self.count(1)?;
            let leaf = Indep { parent_r, round, kind: 0, place: step.rep as usize, ..*step };
            if let Some((item, _)) = self.indep_one(bucket, &leaf, None, &[])? {
                return Ok(Some(item).filter(|item| *item != NO_OSD));
            }
        }
        Ok(None)
    }

    /// Draws an item of a bucket, with the replacement weights if there are any.
    fn draw(&mut self, bucket: &Bucket, r: u32, position: usize) -> Result<Option<i32>, CrushError> {
        self.count(bucket.items.len())?;
        let arg = self.args.and_then(|args| args.get(&((-1 - i64::from(bucket.id)) as u32)));
        Ok(choose(bucket, self.ln, self.x, r, arg, position))
    }

    fn count(&mut self, items: usize) -> Result<(), CrushError> {
        self.work = self.work.saturating_add(items.max(1) as u64);
        if self.work > WORK_MAX { Err(CrushError::Overworked { limit: WORK_MAX }) } else { Ok(()) }
    }

    /// Whether a device is (for this input) out: weights between 0 and 1 keep that share of the inputs.
    fn is_out(&self, item: i32) -> bool {
        let weight = usize::try_from(item).ok().and_then(|i| self.weights.get(i)).copied().unwrap_or(0);
        weight < 0x1_0000 && (weight == 0 || hash32_2(self.x, item as u32) & 0xffff >= weight)
    }
}

/// Parameters of one attempt of an indep choice.
#[derive(Clone, Copy)]
struct Indep {
    /// Number of items the step asked for.
    n: u32,
    /// The position.
    rep: u32,
    parent_r: u32,
    /// Attempts before this one.
    round: u32,
    /// Type of the item.
    kind: i32,
    /// Which weight set to use.
    place: usize,
}

impl Indep {
    /// The attempt number to hash. A uniform bucket of a size divisible by `n` would repeat itself.
    fn r(&self, bucket: &Bucket) -> u32 {
        let uniform = matches!(bucket.kind, BucketKind::Uniform { .. });
        let stride = if uniform && (bucket.items.len() as u64).is_multiple_of(self.n.into()) {
            self.n.wrapping_add(1)
        } else {
            self.n
        };
        self.rep.wrapping_add(self.parent_r).wrapping_add(stride.wrapping_mul(self.round))
    }
}

// Reasons why a placement cannot be computed.

/// Why a rule gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrushError {
    /// The map has no such rule.
    #[error("crush map has no rule {rule}")]
    NoRule { rule: usize },
    /// The rule looked at too many items: the tree has a cycle, or a `tries` value is absurd.
    #[error(
        "crush rule looked at more than {limit} items for one placement: check the map for cycles and its tries"
    )]
    Overworked { limit: u64 },
}
