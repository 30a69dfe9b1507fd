//! `crush_ln`: the fixed-point logarithm that straw2 draws with, bit for bit as Ceph's, historic errors included.

use std::sync::LazyLock;

/// 2^48 as a float: the scale of all tables.
const SCALE: f64 = (1u64 << 48) as f64;

/// Offset of nearly every entry of the low-order table from its formula.
const LL_OFFSET: u64 = 5_493_489_664;

/// Entries of the low-order table that have no offset.
const LL_EXACT: [u8; 21] =
    [0, 1, 203, 216, 222, 233, 237, 238, 239, 243, 244, 245, 246, 248, 249, 250, 251, 252, 253, 254, 255];

/// Entries of the low-order table with an offset of their own.
const LL_ODD: [(u8, u64); 23] = [
    (56, 5_349_423_536),
    (127, 978_272_901),
    (134, 3_588_789_669),
    (181, 4_007_963_589),
    (184, 5_423_282_367),
    (188, 2_201_924_427),
    (193, 3_829_329_171),
    (198, 2_511_158_322),
    (199, 2_670_353_280),
    (200, 3_807_665_765),
    (207, 5_045_407_031),
    (210, 4_635_559_696),
    (212, 3_670_382_108),
    (225, 3_209_098_745),
    (227, 1_514_328_394),
    (228, 2_662_093_655),
    (229, 561_838_844),
    (231, 3_537_203_772),
    (235, 4_861_921_003),
    (236, 5_281_046_906),
    (240, 2_650_193_885),
    (241, 4_203_558_265),
    (247, 362_109_528),
];

/// The tables, built on first use.
pub(crate) static TABLES: LazyLock<LnTables> = LazyLock::new(LnTables::new);

/// Reciprocals and logarithms of 1 + i/128, and logarithms of 1 + k/32768.
pub(crate) struct LnTables {
    /// `(ceil(2^48 / (1 + i/128)), floor(2^48 * log2(1 + i/128)))`.
    high: [(u64, u64); 129],
    /// `floor(2^48 * log2(1 + k/32768))` plus the historic offset.
    low: [u64; 256],
}

impl LnTables {
    fn new() -> Self {
        let mut high = [(0, 0); 129];
        for (i, entry) in high.iter_mut().enumerate() {
            let log = (SCALE * (1.0 + i as f64 / 128.0).log2()) as u64;
            *entry = ((1u64 << 55).div_ceil(128 + i as u64), log);
        }
        high[128].1 = 0xffff_0000_0000;
        let mut low = [0; 256];
        for (k, entry) in low.iter_mut().enumerate() {
            *entry = (SCALE * (1.0 + k as f64 / 32768.0).log2()) as u64 + ll_offset(k as u8);
        }
        Self { high, low }
    }

    /// About 2^44 * log2(u + 1), for a `u` of 16 bits (higher bits are ignored): 0 to just below 2^48.
    #[inline]
    pub(crate) fn ln(&self, u: u32) -> i64 {
        let x = (u & 0xffff) + 1;
        // Bring bit 15 (or, for 0x10000, bit 16) to the top.
        let shift = if x & 0x1_8000 == 0 { x.leading_zeros() - 16 } else { 0 };
        let x = u64::from(x << shift);
        let exponent = u64::from(15 - shift);
        // x is now 0x8000..=0x10000, so the index is 0..=128.
        let (reciprocal, log) = self.high[(x >> 8) as usize - 128];
        let low = self.low[(((x * reciprocal) >> 48) & 0xff) as usize];
        ((exponent << 44) + ((log + low) >> 4)) as i64
    }
}

fn ll_offset(k: u8) -> u64 {
    if LL_EXACT.contains(&k) {
        return 0;
    }
    LL_ODD.iter().find(|(odd, _)| *odd == k).map_or(LL_OFFSET, |(_, offset)| *offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_types::crc32c;

    #[test]
    fn known_values() {
        for (u, expected) in [
            (0, 0),
            (1, 0x1000_0000_0000),
            (2, 0x195c_01a3_9fbd),
            (0xff, 0x8000_0000_0000),
            (0x100, 0x8017_1e3b_6d7a),
            (0x8000, 0xf000_2e2a_60a0),
            (0xfffe, 0xffff_fd61_ad10),
            (0xffff, 0xffff_f000_0000),
        ] {
            assert_eq!(TABLES.ln(u), expected, "ln({u:#x})");
        }
    }

    /// The values were taken from tables whose mappings equal those of Ceph's own tools.
    #[test]
    fn tables_are_the_historic_ones() {
        let high: Vec<u8> =
            TABLES.high.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat()).collect();
        let low: Vec<u8> = TABLES.low.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!((crc32c::raw(0, &high), crc32c::raw(0, &low)), (0xf208_bc2d, 0xd11a_9175));
    }
}
