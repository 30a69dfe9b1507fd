//! CRC32C by the CPU's own instruction, in the convention of [`carmine_types::crc32c`].

use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
    _mm_cvtsi128_si64, _mm_xor_si128,
};

use carmine_types::crc32c;

/// Words of a lane that are taken without a loop between them.
const LANE_STEP: usize = 40;
/// Bytes of each of the three parts that are checked side by side: of 4 KiB, and of what is left of longer data.
const LONG_LANE: usize = 34 * LANE_STEP;
const SHORT_LANE: usize = 4 * LANE_STEP;

/// Lets checksums use the CPU's instructions, if it has them.
pub(crate) fn use_instructions() {
    let has_multiply = std::arch::is_x86_feature_detected!("pclmulqdq");
    // With AVX-512 the library takes less time: it folds 64 bytes at once.
    let has_wide = std::arch::is_x86_feature_detected!("avx512vl");
    if std::arch::is_x86_feature_detected!("sse4.2") {
        crc32c::use_for_short(in_a_row);
        if has_multiply && !has_wide {
            crc32c::use_for_long(side_by_side);
        }
    }
}

/// Only for CPUs with SSE 4.2.
fn in_a_row(seed: u32, data: &[u8]) -> u32 {
    // SAFETY: this function is private to `use_instructions`, which has looked whether the CPU has SSE 4.2.
    unsafe { words(seed, data) }
}

/// Only for CPUs with SSE 4.2 and a carry-less multiplication.
fn side_by_side(seed: u32, data: &[u8]) -> u32 {
    // SAFETY: as above, for both.
    unsafe { lanes(seed, data) }
}

#[target_feature(enable = "sse4.2")]
fn words(seed: u32, data: &[u8]) -> u32 {
    let (mut register, mut rest) = (u64::from(seed), data);
    while let Some((block, left)) = rest.split_first_chunk::<32>() {
        (register, rest) = (unrolled(register, block), left);
    }
    // Of what is left each bit of its length, without loops: LLVM would unroll them for lengths that never come.
    if let Some((words, left)) = rest.split_first_chunk::<16>() {
        (register, rest) = (unrolled(register, words), left);
    }
    if let Some((word, left)) = rest.split_first_chunk::<8>() {
        (register, rest) = (unrolled(register, word), left);
    }
    let mut register = register as u32;
    if let Some((part, left)) = rest.split_first_chunk() {
        (register, rest) = (_mm_crc32_u32(register, u32::from_le_bytes(*part)), left);
    }
    if let Some((part, left)) = rest.split_first_chunk() {
        (register, rest) = (_mm_crc32_u16(register, u16::from_le_bytes(*part)), left);
    }
    rest.first().map_or(register, |byte| _mm_crc32_u8(register, *byte))
}

/// The instruction takes three cycles, and the CPU begins one in each: three parts of the data take as long as one.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn lanes(seed: u32, data: &[u8]) -> u32 {
    let (register, rest) = in_lanes::<LONG_LANE>(seed, data);
    let (register, rest) = in_lanes::<SHORT_LANE>(register, rest);
    words(register, rest)
}

/// The checksum of as many times three lanes as `data` has, and the rest of it.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn in_lanes<const LANE: usize>(seed: u32, data: &[u8]) -> (u32, &[u8]) {
    let (mut register, mut rest) = (seed, data);
    while let Some((block, behind)) = rest.split_at_checked(3 * LANE) {
        let (first, others) = block.split_at(LANE);
        let (second, third) = others.split_at(LANE);
        let (mut a, mut b, mut c) = (u64::from(register), 0, 0);
        let (first, second) = (first.as_chunks::<LANE_STEP>().0, second.as_chunks().0);
        let parts = first.iter().zip(second).zip(third.as_chunks().0);
        for ((first, second), third) in parts {
            (a, b, c) =
                (unrolled(a, first), unrolled::<LANE_STEP>(b, second), unrolled::<LANE_STEP>(c, third));
        }
        register = joined::<LANE>(a, b, c);
        rest = behind;
    }
    (register, rest)
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn unrolled<const BYTES: usize>(mut register: u64, bytes: &[u8; BYTES]) -> u64 {
    for word in bytes.as_chunks::<8>().0 {
        register = _mm_crc32_u64(register, u64::from_le_bytes(*word));
    }
    register
}

/// The checksum of three lanes from those of each: the first two are carried over the bytes behind them. A product of two
/// registers has 63 bits, and the instruction takes it as if it had 64 and 32 zeros behind them: hence the 33.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn joined<const LANE: usize>(a: u64, b: u64, c: u64) -> u32 {
    let over_one = const { crc32c::power(8 * LANE as u64 - 33) as i64 };
    let over_two = const { crc32c::power(16 * LANE as u64 - 33) as i64 };
    let times = |register: u64, factor: i64| {
        _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(register as i64), _mm_cvtsi64_si128(factor))
    };
    let product = _mm_cvtsi128_si64(_mm_xor_si128(times(a, over_two), times(b, over_one)));
    (_mm_crc32_u64(0, product as u64) ^ c) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The checksum bit by bit, as Ceph defines it.
    fn slow(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |register, byte| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| {
                (register >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(register & 1))
            })
        })
    }

    #[test]
    fn a_known_checksum() {
        if std::arch::is_x86_feature_detected!("sse4.2") {
            assert_eq!(in_a_row(0, b"123456789"), 0x58e3_fa20);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_the_same_checksum_in_lanes(
            seed: u32, len in prop_oneof![0..600usize, Just(4096), 4000..9000usize], step: u8, from in 0..9usize,
        ) {
            let has_multiply = std::arch::is_x86_feature_detected!("pclmulqdq");
            prop_assume!(has_multiply && std::arch::is_x86_feature_detected!("sse4.2"));
            let data: Vec<u8> = (0..len + from).map(|n| (n.wrapping_mul(usize::from(step) + 1) >> 2) as u8).collect();
            let data = &data[from..];
            let expected = slow(seed, data);
            prop_assert_eq!(in_a_row(seed, data), expected);
            prop_assert_eq!(side_by_side(seed, data), expected);
            prop_assert_eq!(crc32c::raw(seed, data), expected);
        }
    }
}
