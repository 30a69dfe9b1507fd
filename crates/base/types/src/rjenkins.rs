//! Bob Jenkins' hashes as Ceph uses them: strings to placement seeds, integers inside CRUSH.

const GOLDEN_RATIO: u32 = 0x9e37_79b9;
const CRUSH_SEED: u32 = 1_315_423_911;
const CRUSH_X: u32 = 231_232;
const CRUSH_Y: u32 = 1_232;

#[inline]
fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 13);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 8);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 13);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 12);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 16);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 5);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 3);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 10);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 15);
    (a, b, c)
}

/// Little-endian u32 of up to four bytes, zero padded.
#[inline]
fn load(bytes: &[u8]) -> u32 {
    match bytes.first_chunk() {
        Some(word) => u32::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u32::from(byte)),
    }
}

/// Hash of a byte string (object_hash 2, "rjenkins"), the one that places objects in PGs.
pub fn str_hash(bytes: &[u8]) -> u32 {
    let (mut a, mut b, mut c) = (GOLDEN_RATIO, GOLDEN_RATIO, 0u32);
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        let (x, rest) = block.split_at(4);
        let (y, z) = rest.split_at(4);
        (a, b, c) = mix(a.wrapping_add(load(x)), b.wrapping_add(load(y)), c.wrapping_add(load(z)));
    }
    let tail = blocks.remainder();
    c = c.wrapping_add(bytes.len() as u32);
    a = a.wrapping_add(load(&tail[..tail.len().min(4)]));
    if tail.len() > 4 {
        b = b.wrapping_add(load(&tail[4..tail.len().min(8)]));
    }
    if tail.len() > 8 {
        // The lowest byte of c is the length's, so the last bytes are shifted past it.
        c = c.wrapping_add(load(&tail[8..]) << 8);
    }
    mix(a, b, c).2
}

/// Hash of an object: its locator key, or else its name, behind its namespace if it has one.
pub fn object_hash(nspace: &[u8], key: &[u8], name: &[u8]) -> u32 {
    let hashed = if key.is_empty() { name } else { key };
    if nspace.is_empty() {
        return str_hash(hashed);
    }
    let mut joined = Vec::with_capacity(nspace.len() + 1 + hashed.len());
    joined.extend_from_slice(nspace);
    joined.push(0x1f);
    joined.extend_from_slice(hashed);
    str_hash(&joined)
}

/// CRUSH's hash of two integers (rjenkins1).
#[inline]
pub fn hash32_2(a: u32, b: u32) -> u32 {
    let hash = CRUSH_SEED ^ a ^ b;
    let (a, b, hash) = mix(a, b, hash);
    let (_, _, hash) = mix(CRUSH_X, a, hash);
    mix(b, CRUSH_Y, hash).2
}

/// CRUSH's hash of three integers (rjenkins1).
#[inline]
pub fn hash32_3(a: u32, b: u32, c: u32) -> u32 {
    let hash = CRUSH_SEED ^ a ^ b ^ c;
    let (a, b, hash) = mix(a, b, hash);
    let (c, x, hash) = mix(c, CRUSH_X, hash);
    let (y, _, hash) = mix(CRUSH_Y, a, hash);
    let (_, _, hash) = mix(b, x, hash);
    mix(y, c, hash).2
}

/// CRUSH's hash of four integers (rjenkins1): list and tree buckets.
#[inline]
pub fn hash32_4(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let hash = CRUSH_SEED ^ a ^ b ^ c ^ d;
    let (a, b, hash) = mix(a, b, hash);
    let (c, d, hash) = mix(c, d, hash);
    let (_, x, hash) = mix(a, CRUSH_X, hash);
    let (y, _, hash) = mix(CRUSH_Y, b, hash);
    let (_, _, hash) = mix(c, x, hash);
    mix(y, d, hash).2
}

/// Folds `x` to less than `n` so that growing `n` moves few values: Ceph's stable_mod with
/// mask = next power of two of `n`, minus 1. `n` = 0 gives 0.
#[inline]
pub fn stable_mod(x: u32, n: u32) -> u32 {
    if n == 0 {
        return 0;
    }
    let mask = u32::MAX.checked_shr((n - 1).leading_zeros()).unwrap_or(0);
    if x & mask < n { x & mask } else { x & (mask >> 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors seen with Ceph's own tools.
    #[test]
    fn string_hash_vectors() {
        let vectors: [(&[u8], u32); 6] = [
            (b"", 0xbd49_d10d),
            (b"a", 0x29ee_c818),
            (b"foo", 0x7fc1_f406),
            (b"obj1", 0x6cf8_deff),
            (b"rbd_directory", 0x30a9_8c1c),
            (b"ns1\x1fo9", 0xb419_ced8),
        ];
        for (text, hash) in vectors {
            assert_eq!(str_hash(text), hash, "{text:?}");
        }
    }

    #[test]
    fn object_hash_prefers_the_key_and_prefixes_the_namespace() {
        assert_eq!(object_hash(b"", b"", b"obj1"), 0x6cf8_deff);
        assert_eq!(object_hash(b"", b"obj1", b"other"), 0x6cf8_deff);
        assert_eq!(object_hash(b"ns1", b"", b"o9"), 0xb419_ced8);
    }

    #[test]
    fn integer_hash_vectors() {
        assert_eq!(hash32_2(1, 2), 0xb78d_ee9c);
        assert_eq!(hash32_2(0x1234_5678, 7), 0x5513_7f0c);
        assert_eq!(hash32_3(1, 2, 3), 0x735a_d42b);
        assert_eq!(hash32_3(0x1234, -2i32 as u32, 5), 0x768a_07bd);
    }

    #[test]
    fn stable_mod_vectors() {
        let folded = [11, 12, 13, 15].map(|x| stable_mod(x, 12));
        assert_eq!(folded, [11, 4, 5, 7]);
        assert_eq!(stable_mod(0xffff_ffff, 1), 0);
        assert_eq!(stable_mod(0xffff_ffff, 0), 0);
        assert_eq!(stable_mod(0x8000_0007, 8), 7);
        assert_eq!(stable_mod(0xffff_fff0, u32::MAX), 0xffff_fff0);
    }
}
