//! Names of objects, in the order in which Ceph lists them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::ids::NO_SHARD;
use crate::rjenkins::object_hash;

/// Snap id of an object's head, the live object (NOSNAP).
pub const SNAP_HEAD: u64 = u64::MAX - 1;
/// Snap id that addresses all clones of an object (SNAPDIR).
pub const SNAP_DIR: u64 = u64::MAX;

/// Generation of an object that is the only one of its name (NO_GEN). Erasure coding keeps older generations until all
/// shards have the newer one.
pub const NO_GENERATION: u64 = u64::MAX;

/// An object (ghobject_t without its "max" flag).
///
/// Ordered as Ceph's "bitwise" order: shard, pool, bit-reversed hash, namespace, key (or the name, if there is no
/// key), name, snap, generation. In this order every PG is one contiguous range, and so are its halves after a split.
#[derive(Clone)]
pub struct ObjectId {
    pub pool: i64,
    /// Placement hash, see [`object_hash`].
    pub hash: u32,
    pub nspace: Box<[u8]>,
    /// Locator key; empty for nearly every object.
    pub key: Box<[u8]>,
    pub name: Box<[u8]>,
    pub snap: u64,
    /// [`NO_GENERATION`] in replicated pools.
    pub generation: u64,
    /// The PG's shard; [`NO_SHARD`] in replicated pools.
    pub shard: i8,
}

impl ObjectId {
    /// The head object of this name, with its hash computed.
    pub fn head(pool: i64, nspace: &[u8], key: &[u8], name: &[u8]) -> ObjectId {
        let hash = object_hash(nspace, key, name);
        ObjectId {
            hash,
            nspace: nspace.into(),
            key: key.into(),
            name: name.into(),
            snap: SNAP_HEAD,
            ..ObjectId::cursor(pool, hash)
        }
    }

    /// The smallest possible id with this pool and hash, of those without a shard and without a generation: a cursor, not an object.
    pub fn cursor(pool: i64, hash: u32) -> ObjectId {
        ObjectId {
            pool,
            hash,
            nspace: [].into(),
            key: [].into(),
            name: [].into(),
            snap: 0,
            generation: NO_GENERATION,
            shard: NO_SHARD,
        }
    }

    /// The hash in sorting order.
    #[inline]
    pub fn reversed_hash(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// The key by which the object sorts: the locator key, or the name if it has none.
    #[inline]
    pub fn effective_key(&self) -> &[u8] {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// Bytes this id holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.nspace.len() + self.key.len() + self.name.len()
    }
}

impl PartialEq for ObjectId {
    #[inline]
    fn eq(&self, other: &ObjectId) -> bool {
        (self.hash, self.pool, self.snap, self.generation, self.shard)
            == (other.hash, other.pool, other.snap, other.generation, other.shard)
            && same(&self.name, &other.name)
            && same(&self.nspace, &other.nspace)
            && same(&self.key, &other.key)
    }
}

impl Eq for ObjectId {}

/// Equality of byte strings that are often empty, without a call of memcmp for empty ones. In a profile of an OSD (`cyan`,
/// 4 KiB, in the simulator) memcmp had 43 % of the samples before this and 4 % after; probably because an empty box points
/// nowhere and glibc's AVX-512 memcmp reads there under a mask, which is slow.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a.is_empty() || a == b)
}

/// The order of byte strings that are often empty; see [`same`].
#[inline]
fn order(a: &[u8], b: &[u8]) -> Ordering {
    if a.is_empty() || b.is_empty() { a.len().cmp(&b.len()) } else { a.cmp(b) }
}

impl Ord for ObjectId {
    fn cmp(&self, other: &ObjectId) -> Ordering {
        self.shard
            .cmp(&other.shard)
            .then_with(|| self.pool.cmp(&other.pool))
            .then_with(|| self.reversed_hash().cmp(&other.reversed_hash()))
            .then_with(|| order(&self.nspace, &other.nspace))
            .then_with(|| order(self.effective_key(), other.effective_key()))
            .then_with(|| order(&self.name, &other.name))
            .then_with(|| self.snap.cmp(&other.snap))
            .then_with(|| self.generation.cmp(&other.generation))
            // Ceph calls an explicit key that equals the name equal to no key; Eq here does not.
            .then_with(|| self.key.len().cmp(&other.key.len()))
    }
}

impl PartialOrd for ObjectId {
    fn partial_cmp(&self, other: &ObjectId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for ObjectId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The placement hash already covers key (or name) and namespace; the name separates what collides.
        state.write_u64(u64::from(self.hash) << 32 ^ self.pool as u64 ^ self.snap);
        state.write(&self.name);
    }
}

impl fmt::Display for ObjectId {
    /// `pool:REVERSEDHASH:nspace:key:name:snap`, Ceph's debug form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:08x}:", self.pool, self.reversed_hash())?;
        write!(f, "{}:{}:", self.nspace.escape_ascii(), self.key.escape_ascii())?;
        write!(f, "{}:", self.name.escape_ascii())?;
        match self.snap {
            SNAP_HEAD => f.write_str("head"),
            SNAP_DIR => f.write_str("snapdir"),
            snap => write!(f, "{snap:x}"),
        }?;
        match (self.shard, self.generation) {
            (NO_SHARD, NO_GENERATION) => Ok(()),
            (shard, generation) => write!(f, "#{shard}#{generation:x}"),
        }
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(nspace: &str, key: &str, name: &str) -> ObjectId {
        ObjectId::head(1, nspace.as_bytes(), key.as_bytes(), name.as_bytes())
    }

    #[test]
    fn head_hashes_the_name() {
        let o = object("", "", "obj1");
        assert_eq!(o.hash, 0x6cf8_deff);
        assert_eq!(o.to_string(), "1:ff7b1f36:::obj1:head");
    }

    #[test]
    fn sorts_by_reversed_hash_so_that_a_pg_is_a_range() {
        let mut hashes: Vec<ObjectId> = (0..8).map(|hash| ObjectId::cursor(1, hash)).collect();
        hashes.sort();
        let order: Vec<u32> = hashes.iter().map(|o| o.hash).collect();
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    #[test]
    fn sorts_by_pool_namespace_key_name_and_snap_in_turn() {
        let base = ObjectId { hash: 5, ..object("b", "k", "n") };
        let larger = [
            ObjectId { pool: 2, hash: 0, ..base.clone() },
            ObjectId { nspace: (*b"c").into(), key: [].into(), name: [].into(), ..base.clone() },
            ObjectId { key: (*b"l").into(), name: [].into(), ..base.clone() },
            ObjectId { key: [].into(), name: (*b"l").into(), ..base.clone() },
            ObjectId { name: (*b"o").into(), snap: 0, ..base.clone() },
            ObjectId { snap: SNAP_DIR, ..base.clone() },
            ObjectId { shard: 0, pool: 0, ..base.clone() },
        ];
        let older = ObjectId { generation: 7, ..base.clone() };
        assert!(older < base && older.to_string().ends_with("head#-1#7"), "{older}");
        for other in larger {
            assert!(base < other, "{base} < {other}");
            assert!(other > base, "{other} > {base}");
        }
    }

    #[test]
    fn order_agrees_with_equality() {
        let with_key = ObjectId { hash: 1, ..object("", "n", "n") };
        let without = ObjectId { hash: 1, ..object("", "", "n") };
        assert_ne!(with_key, without);
        assert_ne!(with_key.cmp(&without), Ordering::Equal);
        assert_eq!(with_key.cmp(&without), without.cmp(&with_key).reverse());
    }
}
