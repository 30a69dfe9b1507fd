//! Which objects a PG has.

use carmine_types::{ObjectId, SpgId};

/// Number of low hash bits that all objects of PG seed `ps` share while the pool has `pg_num` PGs. With it a PG is
/// the range of reversed hashes that start with the reversed `ps`, also when `pg_num` is no power of two.
#[must_use]
pub fn pg_bits(ps: u32, pg_num: u32) -> u32 {
    let bits = pg_num.max(1).next_power_of_two().trailing_zeros();
    // stable_mod: seeds whose other half (the highest bit set) does not exist yet keep that half's objects.
    let half = 1u64 << bits.saturating_sub(1);
    if bits > 0 && u64::from(ps) < half && u64::from(ps) + half >= u64::from(pg_num) {
        bits - 1
    } else {
        bits
    }
}

/// Whether an object lies in a PG whose objects share `bits` low bits of their hashes ([`pg_bits`]). With 0 bits the PG is
/// all of its pool, and its seed is 0.
#[must_use]
pub fn pg_contains(pg: SpgId, bits: u32, oid: &ObjectId) -> bool {
    oid.pool == pg.pgid.pool && oid.hash & low_bits(bits) == pg.pgid.ps && oid.shard == pg.shard
}

/// Reversed hashes of a PG: first and last, inclusive.
#[must_use]
pub fn pg_range(ps: u32, bits: u32) -> (u32, u32) {
    let first = (ps & low_bits(bits)).reverse_bits();
    (first, first | u32::MAX.checked_shr(bits).unwrap_or(0))
}

/// A mask of so many low bits.
fn low_bits(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_types::PgId;

    #[test]
    fn a_pg_is_one_range_of_reversed_hashes_for_every_pg_num() {
        for pg_num in 1..=40u32 {
            for i in 0..4000u32 {
                let hash = i.wrapping_mul(0x9e37_79b9);
                let pg = PgId::of_hash(1, hash, pg_num);
                for ps in 0..pg_num {
                    let (first, last) = pg_range(ps, pg_bits(ps, pg_num));
                    let inside = (first..=last).contains(&hash.reverse_bits());
                    assert_eq!(inside, ps == pg.ps, "hash {hash:x}, pg {ps} of {pg_num}");
                    let (id, oid) = (SpgId::from(PgId::new(1, ps)), ObjectId::cursor(1, hash));
                    assert_eq!(pg_contains(id, pg_bits(ps, pg_num), &oid), inside);
                    assert!(!pg_contains(id, pg_bits(ps, pg_num), &ObjectId { pool: 2, ..oid.clone() }));
                    assert!(!pg_contains(id, pg_bits(ps, pg_num), &ObjectId { shard: 1, ..oid }));
                }
            }
        }
    }
}
