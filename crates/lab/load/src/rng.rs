//! A small seeded generator: the same seed gives the same load, on every machine and under `sim`.

/// xoshiro256++ (Blackman and Vigna), seeded through SplitMix64. Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

impl Rng {
    /// A generator of its own for each (seed, stream) pair.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        let mut state = mix(seed ^ mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        let mut word = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        };
        Rng([word(), word(), word(), word()])
    }

    #[inline]
    pub(crate) fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`; 0 when `bound` is 0. The bias is below bound / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Fills `out` with bytes that do not compress.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        let mut chunks = out.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        let rest = chunks.into_remainder();
        let last = self.next_u64().to_le_bytes();
        rest.iter_mut().zip(last).for_each(|(to, from)| *to = from);
    }
}

/// SplitMix64's finaliser.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn below_is_even() {
        let mut rng = Rng::new(7, 0);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[rng.below(10) as usize] += 1);
        assert!(counts.iter().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn bytes_have_all_values() {
        let mut bytes = vec![0u8; 65_539];
        Rng::new(1, 1).fill(&mut bytes);
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|b| counts[usize::from(*b)] += 1);
        assert!(counts.iter().all(|n| (150..400).contains(n)), "{counts:?}");
    }
}
