//! Choosing one item of a bucket, by the bucket's own algorithm.

use carmine_types::rjenkins::{hash32_3, hash32_4};
use carmine_wire::crushmap::{Bucket, BucketKind, ChooseArg};

use crate::ln::LnTables;

/// 2^48: what straw2 subtracts from the logarithm, to make it negative.
const LN_ONE: i64 = 1 << 48;

/// One item of `bucket` for the input `x` and the attempt `r`. `None` for an empty bucket, or one whose own data is
/// too short for its items. `position` selects the weight set of `arg`.
pub(crate) fn choose(
    bucket: &Bucket,
    ln: &LnTables,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
) -> Option<i32> {
    match &bucket.kind {
        BucketKind::Straw2 { weights } => straw2(bucket, weights, ln, x, r, arg, position),
        BucketKind::Uniform { .. } => permuted(bucket, x, r),
        BucketKind::List { weights, sums } => list(bucket, weights, sums, x, r),
        BucketKind::Tree { nodes } => tree(bucket, nodes, x, r),
        BucketKind::Straw { straws, .. } => straw(bucket, straws, x, r),
    }
}

/// Each item draws ln(random) / weight; the greatest (nearest to zero) wins, the first one on ties.
fn straw2(
    bucket: &Bucket,
    weights: &[u32],
    ln: &LnTables,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
) -> Option<i32> {
    let (ids, weights) = match arg {
        None => (bucket.items.as_slice(), weights),
        Some(arg) => {
            let set = arg.weight_sets.get(position).or(arg.weight_sets.last());
            let ids = if arg.ids.is_empty() { &bucket.items } else { &arg.ids };
            (ids.as_slice(), set.map_or(weights, Vec::as_slice))
        }
    };
    let mut best: Option<(i64, i32)> = None;
    for ((&item, &id), &weight) in bucket.items.iter().zip(ids).zip(weights) {
        let draw = if weight == 0 {
            i64::MIN
        } else {
            let u = hash32_3(x, id as u32, r) & 0xffff;
            (ln.ln(u) - LN_ONE) / i64::from(weight)
        };
        if best.is_none_or(|(high, _)| draw > high) {
            best = Some((draw, item));
        }
    }
    best.map(|(_, item)| item)
}

/// The item at place `r` of a permutation that depends on `x`: uniform buckets, and the last resort of old tunables.
pub(crate) fn permuted(bucket: &Bucket, x: u32, r: u32) -> Option<i32> {
    let size = u32::try_from(bucket.items.len()).ok().filter(|n| *n > 0)?;
    let place = r % size;
    let swap_at = |p: u32| p + hash32_3(x, bucket.id as u32, p) % (size - p);
    if place == 0 {
        return bucket.items.get(swap_at(0) as usize).copied();
    }
    let mut order = bucket.items.clone();
    for p in 0..=place {
        order.swap(p as usize, swap_at(p) as usize);
    }
    order.get(place as usize).copied()
}

/// From the tail, each item is taken with the probability of its share of what is left.
fn list(bucket: &Bucket, weights: &[u32], sums: &[u32], x: u32, r: u32) -> Option<i32> {
    for ((&item, &weight), &sum) in bucket.items.iter().zip(weights).zip(sums).rev() {
        let u = u64::from(hash32_4(x, item as u32, r, bucket.id as u32) & 0xffff);
        if (u * u64::from(sum)) >> 16 < u64::from(weight) {
            return Some(item);
        }
    }
    bucket.items.first().copied()
}

/// Down a binary tree of weights. Node n has height = trailing zeros; odd nodes are the items.
fn tree(bucket: &Bucket, nodes: &[u32], x: u32, r: u32) -> Option<i32> {
    let mut node = nodes.len() >> 1;
    while node & 1 == 0 {
        if node == 0 {
            return None;
        }
        let weight = u64::from(*nodes.get(node)?);
        let u = u64::from(hash32_4(x, node as u32, r, bucket.id as u32));
        let half = 1 << (node.trailing_zeros() - 1);
        let left = node - half;
        let goes_left = (u * weight) >> 32 < u64::from(*nodes.get(left)?);
        node = if goes_left { left } else { node + half };
    }
    bucket.items.get(node >> 1).copied()
}

/// Each item draws a random length times its precomputed factor; the longest wins, the first one on ties.
fn straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> Option<i32> {
    let mut best: Option<(u64, i32)> = None;
    for (&item, &straw) in bucket.items.iter().zip(straws) {
        let draw = u64::from(hash32_3(x, item as u32, r) & 0xffff) * u64::from(straw);
        if best.is_none_or(|(high, _)| draw > high) {
            best = Some((draw, item));
        }
    }
    best.map(|(_, item)| item)
}
