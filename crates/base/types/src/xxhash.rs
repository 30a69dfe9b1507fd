//! xxHash of 32 and 64 bits (the algorithm's public description), which a client may ask an OSD for: CHECKSUM.

/// A stripe is four lanes; bytes that fill none wait until more come.
fn feed<const N: usize>(rest: &mut Vec<u8>, mut data: &[u8], mut stripe: impl FnMut(&[u8; N])) {
    if !rest.is_empty() {
        let (head, behind) = data.split_at(data.len().min(N - rest.len()));
        rest.extend_from_slice(head);
        data = behind;
        if let Ok(whole) = rest.as_slice().try_into() {
            stripe(whole);
            rest.clear();
        }
    }
    let (whole, tail) = data.as_chunks();
    whole.iter().for_each(stripe);
    rest.extend_from_slice(tail);
}

macro_rules! xxhash {
    ($(#[$doc:meta])* $name:ident, $word:ident, $stripe:literal, $rotation:literal, [$($prime:literal),*]) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            seed: $word,
            lanes: [$word; 4],
            rest: Vec<u8>,
            len: u64,
        }

        impl $name {
            const PRIMES: [$word; 5] = [$($prime),*];

            pub fn new(seed: $word) -> $name {
                let [p1, p2, ..] = $name::PRIMES;
                let second = seed.wrapping_add(p2);
                let lanes = [second.wrapping_add(p1), second, seed, seed.wrapping_sub(p1)];
                $name { seed, lanes, rest: Vec::new(), len: 0 }
            }

            /// More bytes.
            pub fn add(&mut self, data: &[u8]) {
                self.len += data.len() as u64;
                let lanes = &mut self.lanes;
                feed(&mut self.rest, data, |stripe: &[u8; $stripe]| {
                    let (words, _) = stripe.as_chunks();
                    for (lane, word) in lanes.iter_mut().zip(words) {
                        *lane = $name::round(*lane, $word::from_le_bytes(*word));
                    }
                });
            }

            fn round(lane: $word, word: $word) -> $word {
                let [p1, p2, ..] = $name::PRIMES;
                lane.wrapping_add(word.wrapping_mul(p2)).rotate_left($rotation).wrapping_mul(p1)
            }

            /// The lanes in one, if there was a whole stripe.
            fn merged(&self) -> $word {
                if self.len < $stripe {
                    return self.seed.wrapping_add($name::PRIMES[4]);
                }
                let turned = self.lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
                turned.fold(0, $word::wrapping_add)
            }
        }
    };
}

xxhash! {
    /// XXH32.
    Xxh32, u32, 16, 13, [2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393]
}

xxhash! {
    /// XXH64.
    Xxh64, u64, 32, 31, [
        11_400_714_785_074_694_791, 14_029_467_366_897_019_727, 1_609_587_929_392_839_161,
        9_650_029_242_287_828_579, 2_870_177_450_012_600_261
    ]
}

impl Xxh32 {
    /// The hash of all bytes so far.
    pub fn finish(&self) -> u32 {
        let [p1, p2, p3, p4, p5] = Xxh32::PRIMES;
        let mut hash = self.merged().wrapping_add(self.len as u32);
        let (words, tail) = self.rest.as_chunks();
        for word in words {
            let word = u32::from_le_bytes(*word).wrapping_mul(p3);
            hash = hash.wrapping_add(word).rotate_left(17).wrapping_mul(p4);
        }
        for byte in tail {
            hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
        }
        hash = (hash ^ (hash >> 15)).wrapping_mul(p2);
        hash = (hash ^ (hash >> 13)).wrapping_mul(p3);
        hash ^ (hash >> 16)
    }
}

impl Xxh64 {
    /// The hash of all bytes so far.
    pub fn finish(&self) -> u64 {
        let [p1, p2, p3, p4, p5] = Xxh64::PRIMES;
        let mut hash = self.merged();
        if self.len >= 32 {
            for lane in self.lanes {
                hash = (hash ^ Xxh64::round(0, lane)).wrapping_mul(p1).wrapping_add(p4);
            }
        }
        hash = hash.wrapping_add(self.len);
        let (words, tail) = self.rest.as_chunks();
        for word in words {
            hash ^= Xxh64::round(0, u64::from_le_bytes(*word));
            hash = hash.rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
        }
        let (halves, tail) = tail.as_chunks();
        for half in halves {
            hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(p1);
            hash = hash.rotate_left(23).wrapping_mul(p2).wrapping_add(p3);
        }
        for byte in tail {
            hash = (hash ^ u64::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(p2);
        hash = (hash ^ (hash >> 29)).wrapping_mul(p3);
        hash ^ (hash >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| at as u8).collect()
    }

    /// A Ceph 16.2.15 OSD gave these hashes of the bytes 0 to 255, repeated.
    #[test]
    fn hashes_are_those_of_ceph() {
        let all = bytes(1024);
        let of_32 = |seed, part: &[u8]| {
            let mut hash = Xxh32::new(seed);
            hash.add(part);
            hash.finish().to_be()
        };
        let of_64 = |seed, part: &[u8]| {
            let mut hash = Xxh64::new(seed);
            hash.add(part);
            hash.finish().to_be()
        };
        assert_eq!(of_32(u32::MAX, &all), 0xc063_721d);
        assert_eq!(of_32(0, &all), 0x5a4d_6558);
        assert_eq!(of_32(0, &all[..8]), 0xb990_ada3);
        assert_eq!(of_32(u32::MAX, &all[4..12]), 0xc3db_ce76);
        assert_eq!(of_32(u32::MAX, &all[1000..]), 0xf938_96f8);
        assert_eq!(of_64(u64::MAX, &all), 0xe328_ee21_ce4d_0c61);
        assert_eq!(of_64(0, &all), 0x57df_e48f_f114_396f);
        assert_eq!(of_64(0, &all[..8]), 0x8d1b_b814_3617_4a88);
        assert_eq!(of_64(u64::MAX, &all[..512]), 0x1e05_5300_04ab_320b);
        assert_eq!(of_64(0, &all[1000..]), 0xb499_581a_2ec8_00b9);
    }

    #[test]
    fn pieces_make_no_difference() {
        for len in [0, 1, 15, 16, 17, 33, 100, 257] {
            let all = bytes(len);
            let (mut whole_32, mut whole_64) = (Xxh32::new(7), Xxh64::new(7));
            whole_32.add(&all);
            whole_64.add(&all);
            for piece in [1, 3, 16, 31, 40] {
                let (mut hash_32, mut hash_64) = (Xxh32::new(7), Xxh64::new(7));
                all.chunks(piece).for_each(|part| {
                    hash_32.add(part);
                    hash_64.add(part);
                });
                assert_eq!(
                    (hash_32.finish(), hash_64.finish()),
                    (whole_32.finish(), whole_64.finish()),
                    "{len} in {piece}"
                );
            }
        }
    }
}
