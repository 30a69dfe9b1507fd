//! Keys in the key-value store (FORMAT.md §3). They sort by kind, then as Ceph sorts objects, so that a PG is a range.

use carmine_types::{Eversion, ObjectId, PgId, SpgId};

use crate::StoreError;

/// Omap header of an object.
pub(crate) const OMAP_HEADER: u8 = b'H';
/// Info of a PG.
pub(crate) const PG_INFO: u8 = b'I';
/// Run of entries of a PG's log. `kv-rocks` keeps these in a column family of their own.
pub const PREFIX_PG_LOG: u8 = b'L';
/// Omap key of an object.
pub(crate) const OMAP: u8 = b'M';
/// Onode.
pub(crate) const ONODE: u8 = b'O';
/// How far a PG's log is trimmed.
pub(crate) const PG_TAIL: u8 = b'T';
/// Block map of 64 blocks of an object.
pub(crate) const EXTENTS: u8 = b'X';
/// Copy of the device's label.
pub(crate) const SUPER: &[u8] = b"S/label";
/// The log's epoch: how often the store was mounted.
pub(crate) const LOG_EPOCH: &[u8] = b"S/log";
/// How far a lane of the log is contained in the key-value store; the lane's number follows.
const LANE: &[u8] = b"S/lane/";
/// Number of the newest commit in this epoch of the log.
pub(crate) const COMMITS: &[u8] = b"S/commits";

/// Says that the pieces of the bitmap are a complete checkpoint.
pub(crate) const CLEAN: &[u8] = b"S/clean";
/// Piece of the bitmap of used blocks; its number follows.
const SPACE: &[u8] = b"S/space/";

/// Marks what follows the effective key: the object's key is empty (so key order continues with the snap), …
const NO_KEY: u8 = 2;
/// … its name is smaller than its key, …
const NAME_BELOW: u8 = 1;
/// … equal, …
const NAME_EQUAL: u8 = 3;
/// … or larger.
const NAME_ABOVE: u8 = 4;

/// A negative pool sorts before a positive one.
fn pool_bits(pool: i64) -> u64 {
    (pool as u64) ^ (1 << 63)
}

/// The shard of most objects is -1, which sorts before all others.
fn shard_bits(shard: i8) -> u8 {
    (shard as u8) ^ (1 << 7)
}

/// Appends bytes escaped so that none is a prefix of another and the order is kept: 0 becomes 0 255, the end is 0 1.
fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

fn pop_escaped<'a>(rest: &mut &'a [u8]) -> Option<Box<[u8]>> {
    let mut out = Vec::new();
    loop {
        let zero = rest.iter().position(|&byte| byte == 0)?;
        let (head, tail): (&'a [u8], &'a [u8]) = rest.split_at(zero);
        out.extend_from_slice(head);
        let (mark, tail) = tail.get(1..)?.split_first()?;
        *rest = tail;
        match mark {
            1 => return Some(out.into_boxed_slice()),
            0xff => out.push(0),
            _ => return None,
        }
    }
}

fn pop<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Appends the part of a key that names an object.
pub(crate) fn push_oid(out: &mut Vec<u8>, oid: &ObjectId) {
    out.push(shard_bits(oid.shard));
    out.extend_from_slice(&pool_bits(oid.pool).to_be_bytes());
    out.extend_from_slice(&oid.reversed_hash().to_be_bytes());
    push_escaped(out, &oid.nspace);
    push_escaped(out, oid.effective_key());
    if oid.key.is_empty() {
        out.push(NO_KEY);
    } else {
        match oid.name.cmp(&oid.key) {
            std::cmp::Ordering::Equal => out.push(NAME_EQUAL),
            std::cmp::Ordering::Less => {
                out.push(NAME_BELOW);
                push_escaped(out, &oid.name);
            }
            std::cmp::Ordering::Greater => {
                out.push(NAME_ABOVE);
                push_escaped(out, &oid.name);
            }
        }
    }
    out.extend_from_slice(&oid.snap.to_be_bytes());
    out.extend_from_slice(&oid.generation.to_be_bytes());
}

/// The part of a key that names an object.
pub(crate) fn oid_bytes(oid: &ObjectId) -> Box<[u8]> {
    let mut out = Vec::with_capacity(oid.heap_bytes() + 32);
    push_oid(&mut out, oid);
    out.into_boxed_slice()
}

fn pop_oid(rest: &mut &[u8]) -> Option<ObjectId> {
    let [shard] = pop(rest)?;
    let shard = (shard ^ (1 << 7)) as i8;
    let pool = (u64::from_be_bytes(pop(rest)?) ^ (1 << 63)) as i64;
    let hash = u32::from_be_bytes(pop(rest)?).reverse_bits();
    let nspace = pop_escaped(rest)?;
    let effective = pop_escaped(rest)?;
    let (key, name): (Box<[u8]>, Box<[u8]>) = match pop::<1>(rest)? {
        [NO_KEY] => (Box::default(), effective),
        [NAME_EQUAL] => (effective.clone(), effective),
        [NAME_BELOW | NAME_ABOVE] => (effective, pop_escaped(rest)?),
        _ => return None,
    };
    let (snap, generation) = (u64::from_be_bytes(pop(rest)?), u64::from_be_bytes(pop(rest)?));
    Some(ObjectId { pool, hash, nspace, key, name, snap, generation, shard })
}

/// The object of an onode key.
pub(crate) fn decode_onode(key: &[u8]) -> Result<ObjectId, StoreError> {
    let mut rest = key.get(1..).unwrap_or_default();
    match pop_oid(&mut rest) {
        Some(oid) if rest.is_empty() => Ok(oid),
        _ => Err(StoreError::damaged(printable(key), "it is no onode key")),
    }
}

/// The object and the index of an extent key.
pub(crate) fn decode_extents(key: &[u8]) -> Result<(ObjectId, u32), StoreError> {
    let mut rest = key.get(1..).unwrap_or_default();
    match pop_oid(&mut rest).zip(pop(&mut rest)) {
        Some((oid, index)) if rest.is_empty() => Ok((oid, u32::from_be_bytes(index))),
        _ => Err(StoreError::damaged(printable(key), "it is no extent key")),
    }
}

/// Appends the key of an onode; `oid` is [`oid_bytes`].
pub(crate) fn push_onode(out: &mut Vec<u8>, oid: &[u8]) {
    out.push(ONODE);
    out.extend_from_slice(oid);
}

/// Appends the key of the `index`th piece of a block map; `oid` is [`oid_bytes`].
pub(crate) fn push_extents(out: &mut Vec<u8>, oid: &[u8], index: u32) {
    out.push(EXTENTS);
    out.extend_from_slice(oid);
    out.extend_from_slice(&index.to_be_bytes());
}

/// Key of an onode.
pub(crate) fn onode(oid: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(oid.len() + 1);
    push_onode(&mut out, oid);
    out
}

/// Key of a piece of a block map.
pub(crate) fn extents(oid: &[u8], index: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(oid.len() + 5);
    push_extents(&mut out, oid, index);
    out
}

/// First key and end of the onodes of a PG's pool with reversed hashes `first..=last`.
pub(crate) fn hash_range(pg: SpgId, first: u32, last: u32) -> (Vec<u8>, Vec<u8>) {
    let key = |hash: u32| {
        let mut out = vec![ONODE, shard_bits(pg.shard)];
        out.extend_from_slice(&pool_bits(pg.pgid.pool).to_be_bytes());
        out.extend_from_slice(&hash.to_be_bytes());
        out
    };
    (key(first), prefix_end(&key(last)))
}

/// The first key after all that begin with `prefix`, which begins with a kind.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Appends the key of an omap key; `oid` is [`oid_bytes`], of which none is a prefix of another.
pub(crate) fn push_omap(out: &mut Vec<u8>, oid: &[u8], key: &[u8]) {
    out.push(OMAP);
    out.extend_from_slice(oid);
    out.extend_from_slice(key);
}

/// Key of an omap key.
pub(crate) fn omap(oid: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + oid.len() + key.len());
    push_omap(&mut out, oid, key);
    out
}

/// First key and end of an object's omap keys that begin with `prefix`.
pub(crate) fn omap_range(oid: &[u8], prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let start = omap(oid, prefix);
    let end = prefix_end(&start);
    (start, end)
}

/// The object that an omap key or header is of, and the omap key.
pub(crate) fn decode_omap(key: &[u8]) -> Result<(ObjectId, &[u8]), StoreError> {
    let mut rest = key.get(1..).unwrap_or_default();
    let oid = pop_oid(&mut rest).ok_or_else(|| StoreError::damaged(printable(key), "it names no object"))?;
    Ok((oid, rest))
}

/// Key of an object's omap header.
pub(crate) fn omap_header(oid: &[u8]) -> Vec<u8> {
    [&[OMAP_HEADER], oid].concat()
}

/// First key and end of everything of one kind.
pub(crate) fn kind_range(kind: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![kind], vec![kind + 1])
}

/// Bytes of a key that names a PG: kind, shard, pool, seed.
const PG_BYTES: usize = 1 + 1 + 8 + 4;

fn push_pg(out: &mut Vec<u8>, kind: u8, pg: SpgId) {
    out.push(kind);
    out.push(shard_bits(pg.shard));
    out.extend_from_slice(&pool_bits(pg.pgid.pool).to_be_bytes());
    out.extend_from_slice(&pg.pgid.ps.to_be_bytes());
}

/// Key of a PG's info ([`PG_INFO`]) or log tail ([`PG_TAIL`]).
pub(crate) fn pg(kind: u8, pg: SpgId) -> Vec<u8> {
    let mut out = Vec::with_capacity(PG_BYTES);
    push_pg(&mut out, kind, pg);
    out
}

/// The PG of a key of [`PG_INFO`], [`PG_TAIL`] or [`PREFIX_PG_LOG`].
pub(crate) fn decode_pg(key: &[u8]) -> Result<SpgId, StoreError> {
    let mut rest = key.get(1..).unwrap_or_default();
    let mut fields = || -> Option<SpgId> {
        let [shard] = pop(&mut rest)?;
        let pool = (u64::from_be_bytes(pop(&mut rest)?) ^ (1 << 63)) as i64;
        let ps = u32::from_be_bytes(pop(&mut rest)?);
        Some(SpgId { pgid: PgId { pool, ps }, shard: (shard ^ (1 << 7)) as i8 })
    };
    fields().ok_or_else(|| StoreError::damaged(printable(key), "it names no PG"))
}

/// Appends the key of a run of a PG's log whose last entry has this version.
pub(crate) fn push_log(out: &mut Vec<u8>, pg: SpgId, version: Eversion) {
    push_pg(out, PREFIX_PG_LOG, pg);
    out.extend_from_slice(&version.epoch.to_be_bytes());
    out.extend_from_slice(&version.version.to_be_bytes());
}

/// Key of a run of a PG's log whose last entry has this version.
pub(crate) fn log(pg: SpgId, version: Eversion) -> Vec<u8> {
    let mut out = Vec::with_capacity(PG_BYTES + 12);
    push_log(&mut out, pg, version);
    out
}

/// The version of the last entry of a run, by its key.
pub(crate) fn decode_log(key: &[u8]) -> Result<Eversion, StoreError> {
    let mut rest = key.get(PG_BYTES..).unwrap_or_default();
    match pop(&mut rest).zip(pop(&mut rest)) {
        Some((epoch, version)) if rest.is_empty() => {
            Ok(Eversion { epoch: u32::from_be_bytes(epoch), version: u64::from_be_bytes(version) })
        }
        _ => Err(StoreError::damaged(printable(key), "it is no key of a PG log")),
    }
}

/// Whether it is the key of a run of a PG's log.
pub(crate) fn is_log(key: &[u8]) -> bool {
    key.first() == Some(&PREFIX_PG_LOG)
}

/// Whether two keys of one kind name the same PG.
pub(crate) fn are_of_one_pg(a: &[u8], b: &[u8]) -> bool {
    a.get(..PG_BYTES).is_some_and(|pg| b.starts_with(pg))
}

/// First key and end of the log of a PG.
pub(crate) fn log_range(pg: SpgId) -> (Vec<u8>, Vec<u8>) {
    let mut end = log(pg, Eversion { epoch: u32::MAX, version: u64::MAX });
    end.push(0);
    (log(pg, Eversion::ZERO), end)
}

/// Key of a piece of the bitmap.
pub(crate) fn space(piece: u32) -> Vec<u8> {
    [SPACE, &piece.to_be_bytes()].concat()
}

/// The number of a piece of the bitmap.
pub(crate) fn decode_space(key: &[u8]) -> Result<u32, StoreError> {
    let number = key.strip_prefix(SPACE).and_then(|number| number.try_into().ok());
    number
        .map(u32::from_be_bytes)
        .ok_or_else(|| StoreError::damaged(printable(key), "it is of no known kind"))
}

/// First key and end of the pieces of the bitmap.
pub(crate) fn space_range() -> (Vec<u8>, Vec<u8>) {
    let end = [SPACE, &[0xff; 5]].concat();
    (SPACE.to_vec(), end)
}

/// Key of a lane's position.
pub(crate) fn lane(lane: u16) -> Vec<u8> {
    let mut out = LANE.to_vec();
    out.extend_from_slice(&lane.to_be_bytes());
    out
}

/// The lane of a position's key.
pub(crate) fn decode_lane(key: &[u8]) -> Option<u16> {
    key.strip_prefix(LANE)?.try_into().ok().map(u16::from_be_bytes)
}

/// First key and end of the lanes' positions.
pub(crate) fn lane_range() -> (Vec<u8>, Vec<u8>) {
    (lane(0), [LANE, &[0xff; 3]].concat())
}

/// A key in readable form.
pub(crate) fn printable(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Box<[u8]>> {
        // A few awkward bytes, so that prefixes, escapes and equal parts are common.
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, b'a', 0xfe, 0xff]), 0..5)
            .prop_map(Vec::into_boxed_slice)
    }

    prop_compose! {
        fn oid()(pool in -2i64..3, hash in prop::sample::select(vec![0u32, 1, 2, 3, u32::MAX, 1 << 31]),
                 nspace in name(), key in name(), name in name(), snap in prop::sample::select(vec![0u64, 1, u64::MAX - 1, u64::MAX]),
                 generation in prop::sample::select(vec![0, 1, u64::MAX]), shard in -1i8..2)
                -> ObjectId {
            ObjectId { pool, hash, nspace, key, name, snap, generation, shard }
        }
    }

    prop_compose! {
        /// A PG, often another shard of one.
        fn pg_id()(pool in 0i64..2, ps in 0u32..2, shard in -1i8..2) -> SpgId {
            SpgId { pgid: PgId::new(pool, ps), shard }
        }
    }

    /// The order of PGs' keys.
    fn pg_order(pg: SpgId) -> (i8, PgId) {
        (pg.shard, pg.pgid)
    }

    proptest! {
        #[test]
        fn object_keys_round_trip_and_sort_as_objects_do(a in oid(), b in oid()) {
            let (key_a, key_b) = (onode(&oid_bytes(&a)), onode(&oid_bytes(&b)));
            prop_assert_eq!(decode_onode(&key_a).unwrap(), a.clone());
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
            prop_assert_eq!(decode_extents(&extents(&oid_bytes(&a), 7)).unwrap(), (a.clone(), 7));
            let (start, end) = omap_range(&oid_bytes(&a), &a.name);
            let of_b = omap(&oid_bytes(&b), &b.key);
            prop_assert_eq!(decode_omap(&of_b).unwrap(), (b.clone(), &*b.key));
            prop_assert_eq!(start <= of_b && of_b < end, a == b && b.key.starts_with(&a.name));
        }

        #[test]
        fn an_object_is_inside_the_hash_ranges_of_its_shard_and_pool_only(
            a in oid(), pool in -2i64..3, shard in -1i8..2, first in any::<u32>(), last in any::<u32>(),
        ) {
            let (start, end) = hash_range(SpgId { pgid: PgId::new(pool, 0), shard }, first, last);
            let key = onode(&oid_bytes(&a));
            let is_here = (a.shard, a.pool) == (shard, pool) && (first..=last).contains(&a.reversed_hash());
            prop_assert_eq!(start <= key && key < end, is_here);
        }

        #[test]
        fn random_bytes_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_onode(&bytes);
            let _ = decode_extents(&bytes);
            let _ = decode_log(&bytes);
            let _ = decode_pg(&bytes);
            let _ = decode_omap(&bytes);
        }

        #[test]
        fn log_keys_sort_by_version_and_lie_in_the_range_of_their_pg_only(
            pg_a in pg_id(), pg_b in pg_id(), a in any::<(u32, u64)>(), b in any::<(u32, u64)>(),
        ) {
            let (a, b) = (Eversion::new(a.0, a.1), Eversion::new(b.0, b.1));
            prop_assert_eq!(log(pg_a, a).cmp(&log(pg_b, b)), (pg_order(pg_a), a).cmp(&(pg_order(pg_b), b)));
            prop_assert_eq!(decode_log(&log(pg_a, a)).unwrap(), a);
            prop_assert_eq!(decode_pg(&log(pg_a, a)).unwrap(), pg_a);
            let (start, end) = log_range(pg_a);
            let key = log(pg_b, b);
            prop_assert_eq!(start <= key && key < end, pg_a == pg_b);
            prop_assert_eq!(are_of_one_pg(&log(pg_a, a), &key), pg_a == pg_b);
            for kind in [PG_INFO, PG_TAIL] {
                prop_assert_eq!(pg(kind, pg_a) == pg(kind, pg_b), pg_a == pg_b);
                prop_assert_eq!(decode_pg(&pg(kind, pg_a)).unwrap(), pg_a);
            }
        }
    }

    #[test]
    fn the_last_pool_has_a_range_too() {
        let oid = ObjectId::cursor(i64::MAX, u32::MAX);
        let (start, end) = hash_range(PgId::new(i64::MAX, 0).into(), 0, u32::MAX);
        let key = onode(&oid_bytes(&oid));
        assert!(start <= key && key < end);
    }
}
