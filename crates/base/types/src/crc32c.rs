//! CRC32C in Ceph's convention: the bare register update. The register starts at `seed`, the polynomial is
//! Castagnoli's (reflected), and nothing is inverted at the end.
//!
//! Preambles use seed 0; segments, maps and stored blocks use seed 0xffffffff ([`SEED`]).

use std::sync::OnceLock;

use crc_fast::{CrcAlgorithm, Digest};

/// Seed of all checksums except the preamble's.
pub const SEED: u32 = 0xffff_ffff;

/// From this length on the wide folding implementation is faster than the CPU's crc32 instruction
/// (shared/crates.md §3).
const WIDE_BYTES_MIN: usize = 512;

/// Reflected Castagnoli polynomial.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// A function that gives the checksum of `data`, continuing from the register value `seed`.
pub type Checksum = fn(seed: u32, data: &[u8]) -> u32;

/// For short data. The libraries take some 150 instructions a call to find out what the CPU can do and to cut the data into
/// parts; each frame has half a dozen headers of 28 to 200 bytes.
static SHORT: OnceLock<Checksum> = OnceLock::new();

/// For data from [`WIDE_BYTES_MIN`] on.
static LONG: OnceLock<Checksum> = OnceLock::new();

/// Uses this function for short data from now on: the CPU's own instruction, where the reactor has found that it is there.
pub fn use_for_short(short: Checksum) {
    let _ = SHORT.set(short); // whoever comes first: all give the same
}

/// Uses this function for long data from now on, where the reactor has found that the CPU takes less time for it than for folding.
pub fn use_for_long(long: Checksum) {
    let _ = LONG.set(long); // as above
}

/// Checksum of `data`, continuing from the register value `seed`.
#[inline]
pub fn raw(seed: u32, data: &[u8]) -> u32 {
    if data.len() >= WIDE_BYTES_MIN {
        return LONG.get().map_or_else(|| wide(seed, data), |long| long(seed, data));
    }
    match SHORT.get() {
        Some(short) => short(seed, data),
        None => !::crc32c::crc32c_append(!seed, data),
    }
}

fn wide(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed.into());
    digest.update(data);
    !(digest.finalize() as u32)
}

/// `raw(seed, <len zero bytes>)` in O(log len), without touching memory.
pub fn zeros(seed: u32, len: u64) -> u32 {
    let mut register = seed;
    let mut left = len;
    for power in &POWERS {
        if left == 0 {
            break;
        }
        if left & 1 == 1 {
            register = multiply(register, *power);
        }
        left >>= 1;
    }
    register
}

/// The checksum of A followed by B, given `crc_a = raw(s, A)` for any seed s, and `crc_b = raw(SEED, B)`.
pub fn combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    zeros(crc_a ^ SEED, len_b) ^ crc_b
}

/// Bytes of a block that has a checksum of its own where data is stored; that of several follows from theirs ([`combine_block`]).
pub const BLOCK_BYTES: usize = 4096;

/// [`combine`] for B of one block, in a dozen instructions.
#[inline]
pub fn combine_block(crc_a: u32, crc_block: u32) -> u32 {
    let bytes = (crc_a ^ SEED).to_le_bytes();
    let shifted = OVER_A_BLOCK.iter().zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)]);
    shifted ^ crc_block
}

/// `OVER_A_BLOCK[k][b]`: a register whose byte k is b, and the others zero, advanced over the zero bytes of a block.
static OVER_A_BLOCK: [[u32; 256]; 4] = {
    let (mut tables, power) = ([[0; 256]; 4], power(8 * BLOCK_BYTES as u64));
    let mut at = 0;
    while at < 4 * 256 {
        tables[at / 256][at % 256] = multiply(((at % 256) as u32) << (at / 256 * 8), power);
        at += 1;
    }
    tables
};

/// `POWERS[k]` = x^(8·2^k) modulo the polynomial, reflected: advances the register over 2^k zero bytes.
const POWERS: [u32; 64] = {
    let mut powers = [0; 64];
    let mut power = 0x0080_0000; // x^8
    let mut k = 0;
    while k < 64 {
        powers[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    powers
};

/// x^`exponent` modulo the polynomial, reflected: bit 31 is x^0. `power(8 * n)` advances the register over n zero bytes.
pub const fn power(exponent: u64) -> u32 {
    let (mut product, mut square, mut left) = (1 << 31, 1 << 30, exponent);
    while left > 0 {
        if left & 1 == 1 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    product
}

/// Product of two reflected polynomials modulo the Castagnoli polynomial. Bit 31 is x^0.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        // Branch-free: all ones if the coefficient of x^bit in `a` is set.
        product ^= b & 0u32.wrapping_sub((a >> (31 - bit)) & 1);
        b = (b >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(b & 1));
        bit += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors that Ceph's own implementation gives (PROTOCOL.md of the wire crate, §1).
    #[test]
    fn vectors() {
        assert_eq!(raw(0, b"123456789"), 0x58e3_fa20);
        assert_eq!(raw(SEED, b"123456789"), 0x1cf9_6d7c);
        assert_eq!(raw(SEED, b""), 0xffff_ffff);
        assert_eq!(raw(SEED, &[0; 4096]), 0x6706_be76);
        assert_eq!(raw(SEED, &[0; 32]), 0x756e_c955);
    }

    /// Different bytes at every place, so that order and alignment matter.
    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn both_implementations_agree_at_every_length_and_seed() {
        let data = noise(9000);
        for len in (0..600).chain([1023, 4095, 4096, 4097, 8999]) {
            for seed in [0, SEED, 0x1234_5678] {
                let short = !::crc32c::crc32c_append(!seed, &data[..len]);
                assert_eq!(wide(seed, &data[..len]), short, "length {len}");
                assert_eq!(raw(seed, &data[..len]), short, "length {len}");
            }
        }
    }

    #[test]
    fn zeros_equals_zero_bytes() {
        for len in [0usize, 1, 2, 3, 13, 4095, 4096, 70_000] {
            for seed in [0, SEED, 0xdead_beef] {
                assert_eq!(zeros(seed, len as u64), raw(seed, &vec![0; len]), "length {len}");
            }
        }
    }

    #[test]
    fn a_power_advances_over_zero_bytes() {
        for len in [0u64, 1, 160, 4096] {
            assert_eq!(multiply(0xdead_beef, power(8 * len)), zeros(0xdead_beef, len), "length {len}");
        }
    }

    #[test]
    fn combine_equals_one_pass() {
        let data = noise(12_288);
        for cut in [0, 1, 100, 4096, 12_287, 12_288] {
            let (a, b) = data.split_at(cut);
            let joined = combine(raw(SEED, a), raw(SEED, b), b.len() as u64);
            assert_eq!(joined, raw(SEED, &data), "cut at {cut}");
            assert_eq!(combine(raw(7, a), raw(SEED, b), b.len() as u64), raw(7, &data));
        }
        let (a, block) = data.split_at(8192);
        assert_eq!(combine_block(raw(7, a), raw(SEED, block)), raw(7, &data));
        let blocks = data.chunks(4096).map(|block| raw(SEED, block));
        assert_eq!(blocks.fold(SEED, combine_block), raw(SEED, &data));
    }
}
