//! The binary form of a CRUSH map. It has no envelope; older writers stop early (see [`Extent`]).

use super::{Bucket, BucketKind, CrushMap, Extent, Rule, RuleStep, Tunables};
use crate::osdmap::check_osds;
use crate::{DecodeError, Decoder, Encoder, Result};

const MAGIC: u32 = 0x0001_0000;
/// Rules have an 8-bit number, and Ceph stops at 256 too.
const RULES_MAX: u32 = 256;

impl CrushMap {
    /// Decodes a whole map. Bytes beyond the known end are kept in `tail`.
    ///
    /// The tree is not checked: buckets may be missing, empty or form cycles; the mapper copes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes, "crush map");
        let magic = d.u32()?;
        if magic != MAGIC {
            return Err(DecodeError::BadValue { what: "crush map magic", value: magic.into() });
        }
        let buckets = check_osds("crush max_buckets", d.i32()?.into())?;
        let rules = d.u32()?;
        if rules > RULES_MAX {
            return Err(DecodeError::BadValue { what: "crush max_rules", value: rules.into() });
        }
        // Maps without tunables were made for the values before there were any.
        let tunables = Tunables::legacy();
        let mut map = CrushMap { max_devices: d.i32()?, tunables, ..CrushMap::default() };
        map.buckets = get_slots(&mut d, buckets, get_bucket)?;
        map.rules = get_slots(&mut d, rules, |d, _, _| get_rule(d))?;
        for names in [&mut map.type_names, &mut map.item_names, &mut map.rule_names] {
            *names = d.get()?;
        }
        map.extent = map.get_optional(&mut d)?;
        map.check_choose_args()?;
        map.tail = d.rest().to_vec();
        Ok(map)
    }

    /// The binary form.
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.u32(MAGIC);
            e.count(self.buckets.len());
            e.count(self.rules.len());
            e.i32(self.max_devices);
            put_slots(e, &self.buckets, put_bucket);
            put_slots(e, &self.rules, put_rule);
            for names in [&self.type_names, &self.item_names, &self.rule_names] {
                e.put(names);
            }
            self.put_optional(e);
            e.bytes(&self.tail);
        })
    }

    fn check_choose_args(&self) -> Result<()> {
        let slots = self.buckets.len();
        match self.choose_args.values().flat_map(|args| args.keys()).find(|slot| **slot as usize >= slots) {
            None => Ok(()),
            Some(slot) => {
                Err(DecodeError::BadValue { what: "crush choose_args bucket", value: (*slot).into() })
            }
        }
    }
}

/// Says once which fields the optional groups at the end have: a map that ends early has the first of them.
macro_rules! optional {
    ($($extent:ident { $($($field:ident).+),+ })*) => {
        impl CrushMap {
            /// Reads the groups as far as they go, and says how far.
            fn get_optional(&mut self, d: &mut Decoder<'_>) -> Result<Extent> {
                let mut extent = Extent::Names;
                $(
                    if d.is_empty() {
                        return Ok(extent);
                    }
                    $(self.$($field).+ = d.get()?;)+
                    extent = Extent::$extent;
                )*
                Ok(extent)
            }

            fn put_optional(&self, e: &mut Encoder<'_>) {
                $(
                    if self.extent >= Extent::$extent {
                        $(e.put(&self.$($field).+);)+
                    }
                )*
            }
        }
    };
}

optional! {
    Tries { tunables.choose_local_tries, tunables.choose_local_fallback_tries, tunables.choose_total_tries }
    DescendOnce { tunables.chooseleaf_descend_once }
    VaryR { tunables.chooseleaf_vary_r }
    StrawCalc { tunables.straw_calc_version }
    Algs { tunables.allowed_bucket_algs }
    Stable { tunables.chooseleaf_stable }
    Classes { item_classes, class_names, class_buckets }
    ChooseArgs { choose_args }
}

/// Reads `n` slots that each start with a u32, 0 for an empty one.
fn get_slots<T>(
    d: &mut Decoder<'_>,
    n: u32,
    mut get: impl FnMut(&mut Decoder<'_>, u32, usize) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    let mut slot = 0;
    d.items(n as usize, |d| {
        let head = d.u32()?;
        slot += 1;
        if head == 0 { Ok(None) } else { get(d, head, slot - 1).map(Some) }
    })
}

fn put_slots<T>(e: &mut Encoder<'_>, slots: &[Option<T>], put: impl Fn(&mut Encoder<'_>, &T)) {
    for slot in slots {
        match slot {
            None => e.u32(0),
            Some(value) => put(e, value),
        }
    }
}

fn get_bucket(d: &mut Decoder<'_>, head: u32, slot: usize) -> Result<Bucket> {
    let id = d.i32()?;
    if i64::from(id) != -1 - slot as i64 {
        return Err(DecodeError::BadValue { what: "crush bucket id (must be -1 - slot)", value: id as u64 });
    }
    let kind_id = d.u16()?;
    let alg = d.u8()?;
    if head != u32::from(alg) {
        return Err(DecodeError::BadValue { what: "crush bucket algorithm", value: head.into() });
    }
    let hash = d.u8()?;
    let weight = d.u32()?;
    let size = d.count(4)?;
    let items = d.items(size, |d| d.i32())?;
    let kind = match alg {
        1 => BucketKind::Uniform { item_weight: d.u32()? },
        2 => {
            let (weights, sums) = get_pairs(d, size)?;
            BucketKind::List { weights, sums }
        }
        3 => {
            let nodes = usize::from(d.u8()?);
            BucketKind::Tree { nodes: d.items(nodes, |d| d.u32())? }
        }
        4 => {
            let (weights, straws) = get_pairs(d, size)?;
            BucketKind::Straw { weights, straws }
        }
        5 => BucketKind::Straw2 { weights: d.items(size, |d| d.u32())? },
        other => return Err(DecodeError::BadValue { what: "crush bucket algorithm", value: other.into() }),
    };
    Ok(Bucket { id, kind_id, hash, weight, items, kind })
}

/// Reads `n` pairs into two vectors.
fn get_pairs(d: &mut Decoder<'_>, n: usize) -> Result<(Vec<u32>, Vec<u32>)> {
    let pairs = d.items(n, |d| Ok((d.u32()?, d.u32()?)))?;
    Ok(pairs.into_iter().unzip())
}

fn put_bucket(e: &mut Encoder<'_>, bucket: &Bucket) {
    let alg = bucket.kind.alg();
    e.u32(alg.into());
    e.i32(bucket.id);
    e.u16(bucket.kind_id);
    e.u8(alg);
    e.u8(bucket.hash);
    e.u32(bucket.weight);
    e.vec(&bucket.items, |e, item| e.i32(*item));
    match &bucket.kind {
        BucketKind::Uniform { item_weight } => e.u32(*item_weight),
        BucketKind::List { weights: a, sums: b } | BucketKind::Straw { weights: a, straws: b } => {
            for (a, b) in a.iter().zip(b) {
                e.u32(*a);
                e.u32(*b);
            }
        }
        BucketKind::Tree { nodes } => {
            e.u8(nodes.len() as u8);
            nodes.iter().for_each(|node| e.u32(*node));
        }
        BucketKind::Straw2 { weights } => weights.iter().for_each(|weight| e.u32(*weight)),
    }
}

fn get_rule(d: &mut Decoder<'_>) -> Result<Rule> {
    let len = d.u32()?;
    let (ruleset, kind, min_size, max_size) = (d.u8()?, d.u8()?, d.u8()?, d.u8()?);
    // A length that the rest cannot hold ends at the first missing step: nothing is reserved for it.
    let steps = d.items(len as usize, |d| Ok(RuleStep::from_wire(d.u32()?, d.i32()?, d.i32()?)))?;
    Ok(Rule { ruleset, kind, min_size, max_size, steps })
}

fn put_rule(e: &mut Encoder<'_>, rule: &Rule) {
    e.u32(1);
    e.count(rule.steps.len());
    e.bytes(&[rule.ruleset, rule.kind, rule.min_size, rule.max_size]);
    for step in &rule.steps {
        let (op, arg1, arg2) = step.to_wire();
        e.u32(op);
        e.i32(arg1);
        e.i32(arg2);
    }
}

/// Says once which operation number and arguments of the binary form each step has.
macro_rules! steps {
    ($($wire:tt = $step:ident $(($($arg:ident),+))?;)*) => {
        impl RuleStep {
            fn from_wire(op: u32, arg1: i32, arg2: i32) -> Self {
                match (op, arg1, arg2) {
                    $($wire => Self::$step $(($($arg),+))?,)*
                    _ => Self::Other { op, arg1, arg2 },
                }
            }

            fn to_wire(self) -> (u32, i32, i32) {
                match self {
                    $(Self::$step $(($($arg),+))? => $wire,)*
                    Self::Other { op, arg1, arg2 } => (op, arg1, arg2),
                }
            }
        }
    };
}

steps! {
    (0, 0, 0) = Noop;
    (1, id, 0) = Take(id);
    (2, n, kind) = ChooseFirstn(n, kind);
    (3, n, kind) = ChooseIndep(n, kind);
    (4, 0, 0) = Emit;
    (6, n, kind) = ChooseLeafFirstn(n, kind);
    (7, n, kind) = ChooseLeafIndep(n, kind);
    (8, n, 0) = SetChooseTries(n);
    (9, n, 0) = SetChooseLeafTries(n);
    (10, n, 0) = SetChooseLocalTries(n);
    (11, n, 0) = SetChooseLocalFallbackTries(n);
    (12, n, 0) = SetChooseLeafVaryR(n);
    (13, n, 0) = SetChooseLeafStable(n);
}
